"""The edges between the objects of one cluster, indexed once for a ranking: who runs as whom, who reads what.

What is not known has no edges. indexing.py makes them of objects' states.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from app.core.edges.references import Reading, Reference, Watched
from app.core.entities import Entity
from app.core.model import Change, Resource
from app.core.objects.revisions import Revisions
from app.core.objects.selectors import plainly, selects
from app.core.objects.untyped import fields, objects, part

_CHOOSES = re.compile(r"inject|^pod-security\.kubernetes\.io/enforce|^istio\.io/rev$")
"""Label keys of a Namespace that are known to decide how its pods are made, whoever reads them; what pod security only
warns of or writes down it lets in (https://kubernetes.io/docs/concepts/security/pod-security-admission/)."""
_WELL_KNOWN = re.compile(
    r"(?:topology|node|failure-domain\.beta)\.kubernetes\.io/|kubernetes\.io/(?:hostname|os|arch)$"
)
"""Label keys of a Node by which schedulers, volumes and balancers go, whoever names them
(https://kubernetes.io/docs/reference/labels-annotations-taints/)."""
Named = tuple[str, str]  # (namespace, name)
State = dict[str, Any]
"""A normalised object: read by path, so its values stay untyped here."""


@dataclass(slots=True)
class Topology:
    """The edges between the objects of one cluster, indexed once for a ranking."""

    states: dict[Resource, State] = field(default_factory=dict)
    of_kind: dict[tuple[str, str], list[State]] = field(default_factory=lambda: defaultdict(list))
    """By API group and kind: the states of its objects."""
    by_account: dict[Named, set[Named]] = field(default_factory=lambda: defaultdict(set))
    pulls_as: dict[Named, set[Named]] = field(default_factory=lambda: defaultdict(set))
    """By ServiceAccount: the workloads that name no pull secret themselves, and so have those of it."""
    by_config: dict[tuple[str, str, str], set[Named]] = field(default_factory=lambda: defaultdict(set))
    reads: dict[Named, list[tuple[str, str, str]]] = field(default_factory=lambda: defaultdict(list))
    """By workload: the ConfigMaps, then the Secrets, that are read by it."""
    live: dict[tuple[str, str, str], set[Named]] = field(default_factory=lambda: defaultdict(set))
    """Those of them whose running pods get what is new (read_by.py)."""
    pods: dict[Named, list[tuple[Named, datetime]]] = field(default_factory=lambda: defaultdict(list))
    """By workload: its pods, and when each was last told anew, mostly as it was given its node, or read anew."""
    unlisted: dict[str, set[tuple[str, Entity]]] = field(default_factory=lambda: defaultdict(set))
    """By namespace: what pods that complain are of, where that is no workload that is known: its name and what it is.
    An operator may run pods by an object of its own."""
    labels: dict[Named, dict[str, str]] = field(default_factory=dict)
    in_namespace: dict[str, list[Named]] = field(default_factory=lambda: defaultdict(list))
    """The workloads of each namespace."""
    with_label: dict[tuple[str, str, str], list[Named]] = field(default_factory=lambda: defaultdict(list))
    """The workloads of a namespace whose pods have a label of this key and value."""
    revisions: Revisions = field(default_factory=dict)
    by_node: dict[str, set[Named]] = field(default_factory=lambda: defaultdict(set))
    left: dict[str, list[tuple[Named, datetime]]] = field(default_factory=lambda: defaultdict(list))
    """By node: the workloads whose pods went from there lately, and when."""
    accounts: dict[Named, str] = field(default_factory=dict)
    by_word: dict[str, set[Named]] = field(default_factory=lambda: defaultdict(set))
    """By a workload's name, and by each word of it."""
    called: dict[str, set[Named]] = field(default_factory=lambda: defaultdict(set))
    """By a workload's name, and by its first word."""
    namespace_labels: dict[str, dict[str, str]] = field(default_factory=dict)
    subjects: dict[tuple[str, str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    daemon_sets: set[Named] = field(default_factory=set)
    node_parts: set[Named] = field(default_factory=set)
    """Those of them that are a part of each node, as its network is."""
    runtimes: set[Named] = field(default_factory=set)
    """Those that write into what the kubelet or the container runtime of a node goes by."""
    unlimited: set[Named] = field(default_factory=set)
    """The workloads with a container that sets no limit itself: what a LimitRange says is theirs."""
    wanted: dict[Named, int] = field(default_factory=dict)
    """By workload: how many pods it wants at once."""
    told: dict[str, set[Named]] = field(default_factory=lambda: defaultdict(set))
    """By a whole value of a variable or a key: the workloads that are told it, as a topic or a queue."""
    outside: dict[Named, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By workload: the addresses of servers outside of the cluster that it is told."""
    clients: dict[Named, set[Named]] = field(default_factory=lambda: defaultdict(set))
    """By Service: the workloads whose configuration names it (dependencies.py), or that a mesh saw call it."""
    doors: dict[str, set[Named]] = field(default_factory=lambda: defaultdict(set))
    """By host that an Ingress or a route serves: the Services to which it leads."""
    callers: dict[str, set[Named]] = field(default_factory=lambda: defaultdict(set))
    """By host that an Ingress or a route serves: the workloads whose configuration names it (front_doors.py)."""
    fronts: dict[Named, set[Named]] = field(default_factory=lambda: defaultdict(set))
    """By workload: the Services that select its pods."""
    upstream: dict[Named, set[Named]] = field(default_factory=lambda: defaultdict(set))
    """By workload: the workloads behind the Services that it calls."""
    keeps_up: dict[Named, set[Named]] = field(default_factory=lambda: defaultdict(set))
    """By workload: the workloads that read what it writes again and again (renewals.py)."""
    rests_on: dict[Named, set[Named]] = field(default_factory=lambda: defaultdict(set))
    """By workload: whom it calls, and who keeps up what it reads."""
    answers: dict[Named, list[tuple[str, State]]] = field(default_factory=lambda: defaultdict(list))
    """By workload: the webhooks that it answers, each with the kind of its configuration."""
    has_default_priority: bool = False
    """Whether pods that name no PriorityClass have one: those made before it have none."""
    groups: dict[Named, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By Service: the API groups for which the API server asks it (APIService)."""
    fills_secret: dict[Named, set[Named]] = field(default_factory=lambda: defaultdict(set))
    """By Secret: the (kind, name) of the custom resources that say to fill it, as a Certificate does."""
    selecting: set[str] = field(default_factory=set)
    """The label keys by which webhooks and policies choose namespaces."""
    by_port: dict[int, set[Named]] = field(default_factory=lambda: defaultdict(set))
    """By port of a node: the workloads whose pods take it (hostPort)."""
    placing: dict[str, set[Named]] = field(default_factory=lambda: defaultdict(set))
    """By label key: the workloads that choose nodes by it."""
    choosing: dict[str, set[Resource]] = field(default_factory=lambda: defaultdict(set))
    """By label key: the custom resources that do."""
    referers: dict[Reference, set[Resource]] = field(default_factory=lambda: defaultdict(set))
    """By what is referred to: the custom resources and autoscalers whose spec does."""
    watched: Watched = field(default_factory=dict)
    reading: Reading = field(default_factory=dict)
    services: frozenset[Named] = frozenset()
    labelled: dict[tuple[str, str], list[tuple[str, Resource]]] = field(default_factory=lambda: defaultdict(list))
    """By (what a label's key says behind its domain, value): the domain, and which Node or custom resource has it."""
    customs_named: dict[Named, list[Resource]] = field(default_factory=lambda: defaultdict(list))
    customs: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By (api group, kind): how many of those there are."""
    beside: dict[tuple[str, str], list[Resource]] = field(default_factory=lambda: defaultdict(list))
    """By (namespace, kind): the Services, Ingresses and routes there, and the custom resources."""
    parameters: set[tuple[str, str, str]] = field(default_factory=set)
    """The (kind, namespace, name) of what admission policies go by."""
    aggregated: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By label key: the ClusterRoles that are made of those that have it."""
    _bound: set[str] = field(default_factory=set)
    """The users in ``subjects``."""

    def ignores(self, change: Change) -> bool:
        """Whether only labels of a Namespace or a Node changed that nothing chooses it by."""
        if change.resource.kind not in ("Namespace", "Node"):
            return False
        keys = _labels(change)
        if not keys or len(keys) < len(change.diffs):
            return False
        if change.resource.kind == "Node":
            return not (keys & (self.placing.keys() | self.choosing.keys()) or any(map(_WELL_KNOWN.match, keys)))
        return not any(key in self.selecting or _CHOOSES.search(key) for key in keys)

    def heeds(self, change: Change) -> bool:
        """Whether a label of a ClusterRole changed by which others are made of it."""
        return change.resource.kind == "ClusterRole" and not _labels(change).isdisjoint(self.aggregated)

    def is_bound(self, account: Named) -> bool:
        """Whether a ServiceAccount is a subject of any role."""
        if not self._bound:
            self._bound.update(*self.subjects.values())
        return f"system:serviceaccount:{account[0]}:{account[1]}" in self._bound

    def users_of(self, found: Named) -> Iterator[Entity]:
        account = self.accounts.get(found)
        if account:
            yield ("user", f"system:serviceaccount:{found[0]}:{account}")


def _labels(change: Change) -> set[str]:
    """The keys of its own labels that a change wrote."""
    return {str(diff.path[2]) for diff in change.diffs if diff.path[:2] == ("metadata", "labels") and diff.path[2:]}


def readers(resource: Resource, top: Topology, *, told: bool = False) -> set[Named]:
    """The workloads that read a ConfigMap, a Secret or the like: those that say so; else, as it may be read over the
    API, by convention the one in its namespace that it is named after: NAME-config, NAME-rules and NAME are NAME's.

    ``told``: only those that say so.
    """
    here = resource.namespace or ""
    found = set(top.by_config.get((resource.kind, here, resource.name), ()))
    name = resource.name
    while name and not found and not told:
        if (here, name) in top.accounts:
            found.add((here, name))
        name = name.rpartition("-")[0]
    return found


def read_at_start(resource: Resource, top: Topology) -> set[Named]:
    """The workloads whose pods read a ConfigMap or a Secret as they start, and not again."""
    key = (resource.kind, resource.namespace or "", resource.name)
    return (
        top.by_config.get(key, set()) - top.live.get(key, set()) if resource.kind in ("ConfigMap", "Secret") else set()
    )


def behind(service: State, namespace: str, top: Topology) -> list[Named]:
    """The workloads whose pods a Service selects."""
    if not (selector := fields(part(service, "spec", "selector"))):
        return []
    asked = next(((key, value) for key, value in fields(plainly(selector)).items() if isinstance(value, str)), None)
    there = top.with_label.get((namespace, *asked), ()) if asked else top.in_namespace.get(namespace, ())
    return [key for key in there if selects(selector, top.labels[key])]


def servers_of(service: State, namespace: str, top: Topology) -> list[Named]:
    """The workloads whose pods a Service selects; where none is, the one that it would select but for labels that no
    template has: an operator labels the primary of its database, as Patroni does
    (https://patroni.readthedocs.io/en/latest/kubernetes.html)."""
    if found := behind(service, namespace, top):
        return found
    there = [(key, top.labels[key]) for key in top.in_namespace.get(namespace, ())]
    known = {label for _, labels in there for label in labels}
    selector = {k: v for k, v in fields(part(service, "spec", "selector")).items() if k in known}
    fits = [key for key, labels in there if selector and selects(selector, labels)]
    return fits if len(fits) == 1 else []


def pod_template(state: State) -> dict[str, Any] | None:
    """The pod template of a workload, wherever its kind keeps it."""
    spec = fields(state.get("spec"))
    if "jobTemplate" in spec:
        spec = fields(part(spec, "jobTemplate", "spec"))
    template = spec.get("template")
    return template if isinstance(template, dict) else None


def pod_spec(state: State) -> dict[str, Any]:
    """What the pod template of a workload says of its pods."""
    return fields((pod_template(state) or {}).get("spec"))


def pods_at_once(spec: dict[str, Any]) -> int:
    """Replicas; the parallel pods of a Job or of one run of a CronJob."""
    job = part(spec, "jobTemplate", "spec") if "jobTemplate" in spec else spec
    count = spec.get("replicas", fields(job).get("parallelism", 1))
    return count if isinstance(count, int) else 1


def subject_users(state: State, namespace: str | None) -> set[str]:
    """The user names (groups as "group:NAME") that a binding names."""
    users = set()
    for subject in objects(state.get("subjects")):
        name = str(subject.get("name", ""))
        if subject.get("kind") == "ServiceAccount":
            users.add(f"system:serviceaccount:{subject.get('namespace') or namespace or ''}:{name}")
        elif subject.get("kind") == "Group":
            users.add(f"group:{name}")
        else:
            users.add(name)
    return users


def before_and_after(change: Change, top: Topology) -> list[State]:
    """The states of the object that matter: what it is now, and what the change took away or brought."""
    states = [top.states[change.resource]] if change.resource in top.states else []
    states += [s for d in change.diffs if not d.path for s in (d.old, d.new) if isinstance(s, dict)]
    return states
