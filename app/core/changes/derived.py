"""Which change began another: a controller's edit follows from what was done to the object's owner."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

from app.core.changes.recent import Recent
from app.core.edges.mechanism import only_labels
from app.core.model import NOBODY, ActorSource, Change, DiffSource, Json, Object, Resource, Verb
from app.core.objects import kinds
from app.core.objects.actors import AUTOSCALER, is_controller, service_account
from app.core.objects.created import helm_words
from app.core.objects.gitops import tenders
from app.core.objects.memory import Memory
from app.core.objects.owners import is_synced

FOLLOWS = timedelta(seconds=120)
"""How long after a change on an owner a controller's edit still counts as its consequence."""

_POD_TEMPLATE_HASH = re.compile(r"[bcdfghjklmnpqrstvwxz2456789]{5,10}\Z")
"""The alphabet of generated suffixes (k8s.io/apimachinery util/rand): an unseen ReplicaSet's Deployment by its name, or
the Argo Rollout that is known to be called so."""

_SCALE = ("spec", "replicas")
_GARBAGE_COLLECTOR = "system:serviceaccount:kube-system:generic-garbage-collector"
_DEFINITIONS = "apiextensions.k8s.io"
_OWNERS = ("metadata", "ownerReferences")
_API_SERVER = "system:apiserver"
_AGGREGATION = "clusterrole-aggregation-controller"


class Derivation:
    """Knows owners, autoscalers' targets and aggregating roles from the states that pass by."""

    def __init__(self, memory: Memory, recent: Recent) -> None:
        self._memory = memory
        self._recent = recent
        self._scalers: dict[Resource, Resource] = {}

    def learn(self, resource: Resource, state: Object) -> None:
        """Remember what an autoscaler scales: a HorizontalPodAutoscaler, or a custom one that says it alike."""
        spec = state.get("spec")
        target = spec.get("scaleTargetRef") if isinstance(spec, dict) else None
        if isinstance(target, dict):
            group = str(target.get("apiVersion", "apps/v1")).rpartition("/")[0]
            name, kind = str(target.get("name")), str(target.get("kind", "Deployment"))
            self._scalers[Resource(resource.cluster, group, kind, resource.namespace, name)] = resource

    def is_state(self, change: Change, state: Object | None) -> bool:
        """Whether a write is an object's life rather than somebody's decision: scaling by an HPA, a CronJob's Jobs,
        what a Node tells of itself for the first time, how a revision of a Helm release went: Helm writes that to the
        object that it made for the revision. So is the end of a sync of Argo CD's."""
        if change.verb is Verb.UPDATE and helm_words(change.resource):
            return True
        if is_synced(change):
            return True
        if change.resource.kind == "Node" and change.verb is Verb.UPDATE and _is_first_status(change):
            return True
        scaler = self._scalers.get(change.resource)
        if _scales_alone(change) and self._scales(change, scaler) and self._root(scaler, change) is None:
            return True
        if change.resource.kind == "Job" and state is not None:
            entry = self._memory.peek(change.resource)
            return bool(entry and entry.owner and entry.owner.kind == "CronJob")
        return False

    def begun_by(self, change: Change) -> str | None:
        """The id of the change that this one follows from, None for a decision or where it is not known."""
        if change.resource.kind == "ClusterRole" and _AGGREGATION in change.actor.name:
            return self._aggregation(change)
        if change.resource.kind == "APIService" and change.actor.name == _API_SERVER:
            return self._registration(change)
        if change.verb is Verb.DELETE and (undone := self._definition(change.resource, change, _deletes)):
            return undone
        scaler = self._scalers.get(change.resource)
        if _scales_alone(change) and self._scales(change, scaler):
            return self._root(scaler, change)
        if change.verb is Verb.DELETE and change.actor == NOBODY:
            return self._deleted_with(change)
        if not _is_program(change):
            return None
        if change.verb is Verb.DELETE and change.actor.name == _GARBAGE_COLLECTOR:
            return self._disowned(change)
        found = self._owner_chain(change)
        if found is not None:
            return found
        if is_controller(change.actor) and change.resource.namespace:
            return self._root(
                Resource(change.resource.cluster, "", "Namespace", None, change.resource.namespace), change
            )
        return None

    def _deleted_with(self, change: Change) -> str | None:
        """What an object goes with that nobody is known to have deleted: its owner or its namespace, which was deleted,
        or what the custom resource that owns it, or its GitOps controller, was told."""
        resource = change.resource
        entry = self._memory.peek(resource)
        above = [entry.owner] if entry and entry.owner else []
        if resource.namespace:
            above.append(Resource(resource.cluster, "", "Namespace", None, resource.namespace))
        labels, annotations = (_said(change, part) for part in ("labels", "annotations"))
        told = tenders(resource, labels, annotations, known=self._recent.objects("Application"))
        found = [self._latest(one, change, _deletes) for one in above]
        customs = [one for one in above if "." in one.api_group]
        found += [self._latest(one, change, _orders) for one in (*told, *customs)]
        return next(filter(None, found), None)

    def _owner_chain(self, change: Change) -> str | None:
        """The root of the latest change on the nearest owner that was changed."""
        entry = self._memory.peek(change.resource)
        owner = entry.owner if entry else None
        for _ in range(4):
            if owner is None:
                break
            found = self._told(owner, change) or self._redefined(owner, change)
            if found is not None:
                return found
            above = self._memory.peek(owner)
            owner = above.owner if above else None
        return None

    def _told(self, owner: Resource, change: Change) -> str | None:
        """The root of the latest change on an owner. What an operator makes does not go by labels of a custom resource
        as a rule; what Kubernetes' own controllers make takes them over."""
        if "." not in owner.api_group or owner.api_group.endswith(".k8s.io"):
            return self._root(owner, change)
        return self._latest(owner, change, lambda before: not only_labels(before)) if owner != change.resource else None

    def _redefined(self, owner: Resource, change: Change) -> str | None:
        """The latest change to what a custom owner's kind is: to its schema, its defaults, its versions."""
        return self._definition(owner, change, lambda before: any(diff.path[:1] == ("spec",) for diff in before.diffs))

    def _definition(self, custom: Resource, change: Change, fits: Callable[[Change], bool]) -> str | None:
        """The latest change that fits to the definition of a custom resource's kind. Deleted, it takes all of them."""
        if "." not in custom.api_group:
            return None
        name = f"{kinds.plural_of(custom.api_group, custom.kind)}.{custom.api_group}"
        return self._latest(
            Resource(custom.cluster, _DEFINITIONS, "CustomResourceDefinition", None, name), change, fits
        )

    def workload_of(self, resource: Resource) -> Resource | None:
        """The top of an object's owner chain (Pod → ReplicaSet → Deployment), None where no owner is known."""
        top: Resource | None = None
        here = resource
        for _ in range(5):
            entry = self._memory.peek(here)
            owner = entry.owner if entry else None
            if owner is None:
                break
            top = here = owner
        if top is not None and top.kind == "ReplicaSet" and self._memory.peek(top) is None:
            base, dash, suffix = top.name.rpartition("-")
            if dash and _POD_TEMPLATE_HASH.match(suffix):
                rollout = Resource(top.cluster, "argoproj.io", "Rollout", top.namespace, base)
                is_argo = self._memory.peek(rollout) is not None
                return rollout if is_argo else Resource(top.cluster, "apps", "Deployment", top.namespace, base)
        return top

    def _root(self, resource: Resource | None, change: Change) -> str | None:
        """The root of the latest change on a resource shortly before this one."""
        if resource is None or resource == change.resource:
            return None
        return self._latest(resource, change, lambda _before: True)

    def _latest(self, resource: Resource, change: Change, fits: Callable[[Change], bool]) -> str | None:
        """The root of the latest change on a resource, shortly before this one, that fits."""
        for before in self._recent.of(resource):
            if timedelta(0) <= change.at - before.at <= FOLLOWS and before.key != change.key and fits(before):
                return before.begun_by or before.id
        return None

    def _disowned(self, change: Change) -> str | None:
        """The garbage collector deletes what has lost its owners, or was given owners that are not there."""
        return self._owner_chain(change) or self._latest(change.resource, change, _gives_owners)

    def _registration(self, change: Change) -> str | None:
        """The API server itself registers the groups of custom resources, and takes them back."""
        group = change.resource.name.partition(".")[2]
        found = [
            before
            for resource in self._recent.objects("CustomResourceDefinition")
            if resource.name.partition(".")[2] == group
            for before in self._recent.of(resource)
            if timedelta(0) <= change.at - before.at <= FOLLOWS
        ]
        return max(found, key=lambda before: before.at).id if found else None

    def _scales(self, change: Change, scaler: Resource | None) -> bool:
        """Whether an autoscaler wrote, or the program that a custom one is served by: named like its API group."""
        if scaler is None or scaler.kind == "HorizontalPodAutoscaler":
            return self._by_autoscaler(change)
        account = service_account(change.actor.name)
        manager = change.actor.name if change.actor.source is ActorSource.MANAGED_FIELDS else ""
        return scaler.api_group.partition(".")[0] in ("/".join(account) if account else manager)

    def _by_autoscaler(self, change: Change) -> bool:
        if change.actor.source is ActorSource.AUDIT:
            return change.actor.name == AUTOSCALER
        return change.actor.name == "kube-controller-manager"

    def _aggregation(self, change: Change) -> str | None:
        found = [
            before
            for resource in self._recent.objects("ClusterRole")
            if resource != change.resource
            for before in self._recent.of(resource)
            if timedelta(0) <= change.at - before.at <= timedelta(seconds=10) and _AGGREGATION not in before.actor.name
        ]
        return max(found, key=lambda before: before.at).id if found else None


def _gives_owners(change: Change) -> bool:
    return change.verb is Verb.CREATE or any(diff.path[:2] == _OWNERS for diff in change.diffs)


def _said(change: Change, part: str) -> dict[str, Json]:
    """The labels or annotations of an object that was deleted; none where its last state is not known, or odd."""
    found: Json = change.diffs[0].old if change.diffs and not change.diffs[0].path else None
    for step in ("metadata", part):
        found = found.get(step) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _orders(change: Change) -> bool:
    """Whether an edit says what is to be there, or the object that said so is gone."""
    return _deletes(change) or any(diff.path[:1] == ("spec",) for diff in change.diffs)


def _deletes(change: Change) -> bool:
    return change.verb is Verb.DELETE


def _is_first_status(change: Change) -> bool:
    return bool(change.diffs) and all(diff.path[:1] == ("status",) and diff.old is None for diff in change.diffs)


def _scales_alone(change: Change) -> bool:
    """Kubernetes' own autoscaler writes nothing else of what it scales, so that its log need not say what it wrote:
    https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/ ."""
    is_untold = change.diff_source is DiffSource.NONE and change.verb is Verb.UPDATE
    return _only_replicas(change) or (is_untold and change.actor.name == AUTOSCALER)


def _only_replicas(change: Change) -> bool:
    return change.verb is Verb.UPDATE and len(change.diffs) == 1 and change.diffs[0].path == _SCALE


def _is_program(change: Change) -> bool:
    """Whether a program in the cluster wrote: people and CI decide, they do not follow."""
    actor = change.actor
    if is_controller(actor):
        return True
    if actor.source is ActorSource.AUDIT:
        return service_account(actor.name) is not None
    return actor.source is ActorSource.MANAGED_FIELDS and "controller" in actor.name
