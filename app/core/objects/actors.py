"""Who wrote: audit users, pod identities, field managers; and what to call them in front of people.

User names, groups and extra keys are those of https://kubernetes.io/docs/reference/access-authn-authz/authentication/
(bound tokens carry their pod since Kubernetes 1.22).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from app.core.model import NOBODY, Actor, ActorSource, FieldDiff, Json, Path

POD_NAME = "authentication.kubernetes.io/pod-name"
ANONYMOUS = "system:anonymous"
_SERVICE_ACCOUNT = "system:serviceaccount:"
_DEPLOYERS = re.compile(
    r"argo-?cd|flux|kustomize|helm|gitops|fleet|tekton|jenkins|gitlab|github|runner|deploy(?!ment-controller)|\bci\b|pipeline"
    r"|terraform|pulumi|tiller|rancher"
)
"""GitOps controllers and what runs pipelines, by their names."""
_NOBODIES = frozenset({"", "before-first-apply", "ancient-changes"})
"""Managers under which the API server itself keeps what others wrote: before the first apply, or too many of them."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CONTROL_PLANE_USERS = frozenset(
    {
        "system:kube-controller-manager",
        "system:kube-scheduler",
        "system:apiserver",
        "system:cloud-controller-manager",
        "system:addon-manager",
    }
)
_CONTROL_PLANE_MANAGERS = frozenset(
    {
        "kube-controller-manager",
        "kube-scheduler",
        "kubelet",
        "kube-apiserver",
        "cloud-controller-manager",
        "clusterrole-aggregation-controller",
    }
)
AUTOSCALER = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
"""Kubernetes' own, as the audit log names it."""
# What kube-controller-manager's accounts may be called: a service account of an add-on also ends in "-controller".
_CONTROLLER_NAMES = _words("""attachdetach-controller certificate-controller clusterrole-aggregation-controller
    cronjob-controller daemon-set-controller deployment-controller
    device-taint-eviction-controller disruption-controller
    endpoint-controller endpointslice-controller endpointslicemirroring-controller ephemeral-volume-controller
    expand-controller generic-garbage-collector horizontal-pod-autoscaler job-controller
    legacy-service-account-token-cleaner namespace-controller node-controller persistent-volume-binder
    pod-garbage-collector pv-protection-controller pvc-protection-controller replicaset-controller
    replication-controller resource-claim-controller resourcequota-controller root-ca-cert-publisher route-controller
    selinux-warning-controller service-account-controller service-cidrs-controller service-controller
    statefulset-controller storage-version-garbage-collector storage-version-migrator-controller
    taint-eviction-controller ttl-after-finished-controller ttl-controller
    validatingadmissionpolicy-status-controller volumeattributesclass-protection-controller bootstrap-signer
    token-cleaner""")

_FAMILY = re.compile(r"^[^/\s(]+")
_SHORT_SUFFIX = re.compile(r"-(?:application-controller|controller-manager|controller|operator|manager)$")
_USER_AGENT_BROWSER = re.compile(r"^Mozilla/")


@lru_cache(maxsize=8192)
def user_agent_family(user_agent: str) -> str:
    """A client's name without versions, platform or commit: "kubectl", "archetype-controller".

    kube-controller-manager names the controller after the last slash ("…/system:serviceaccount:kube-system:x"):
    the family is still the program's.
    """
    text = user_agent.strip()
    if _USER_AGENT_BROWSER.match(text):
        return "browser"
    match = _FAMILY.match(text)
    return match.group(0)[:80] if match else ""


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def actor_from_audit(
    user: Mapping[str, Any], *, user_agent: str = "", impersonated: Mapping[str, Any] | None = None
) -> Actor:
    """The actor of an audit event's ``user`` (and ``impersonatedUser``): an empty user is system:anonymous."""
    real = _text(user.get("username")) or ANONYMOUS
    acting = _text(impersonated.get("username")) if impersonated else ""
    extra = (impersonated if acting and impersonated else user).get("extra")
    pods = extra.get(POD_NAME) if isinstance(extra, Mapping) else None
    pod = pods[0] if isinstance(pods, list) and pods and isinstance(pods[0], str) else None
    return Actor(
        name=acting or real,
        source=ActorSource.AUDIT,
        user_agent=user_agent_family(user_agent),
        pod=pod,
        impersonator=real if acting and acting != real else None,
    )


def _owns(fields: object, path: Path) -> bool:
    """Whether a fieldsV1 tree names this path, a part of it, or a list that holds it.

    Keys are "f:name" for fields, 'k:{"name":"app"}' for list items, "v:…" for set members
    (sigs.k8s.io/structured-merge-diff, fieldpath/serialize).
    """
    for step in path:
        if not isinstance(fields, dict) or not fields:
            return True  # the manager owns the whole of what stands here
        if isinstance(step, str):
            name = f"f:{step}"
        elif isinstance(step, tuple):
            name = next((key for key in fields if key.startswith("k:") and all(f'"{v}"' in key for _, v in step)), "")
        else:
            return True  # an atomic list
        if name not in fields:
            return False
        fields = fields[name]
    return True


def actor_from_managed_fields(managed: Sequence[Json], diffs: Sequence[FieldDiff], *, before: str) -> Actor:
    """The field manager that made a write, from managedFields after it; NOBODY where they do not say.

    ``before`` is the latest time in the managedFields of the version before ("": not known). The API server gives a
    manager a new time when it takes a field, or applies something new. A removal by anything but an apply leaves no
    trace: owners lose the field and keep their time (k8s.io/apimachinery, managedfields/internal/managedfieldsupdater).
    So whoever set a field owns it now, and is not older than ``before``; whoever only removed some is an entry that is
    newer, or not known. Entries of scaling have no time at all. A creation is by the oldest entry.
    """
    entries = [entry for entry in managed if isinstance(entry, dict) and _is_writer(entry)]
    if any(not diff.path and diff.op == "add" for diff in diffs):
        return _manager(min(filter(_time, entries), key=_time, default=None))
    paths = [diff.path for diff in diffs if diff.op != "remove"]
    current = [entry for entry in entries if not _time(entry) or _time(entry) >= before]
    owners = [entry for entry in current if any(_owns(entry.get("fieldsV1"), path) for path in paths)]
    newer = [entry for entry in entries if before and _time(entry) > before]
    return _manager(max(owners or newer, key=_time, default=None))


def _is_writer(entry: Mapping[str, Json]) -> bool:
    """Whether somebody writes desired state under this entry's manager."""
    return entry.get("subresource") != "status" and _text(entry.get("manager")) not in _NOBODIES


def _time(entry: Mapping[str, Json]) -> str:
    return _text(entry.get("time"))


def _manager(entry: Mapping[str, Json] | None) -> Actor:
    if entry is None:
        return NOBODY
    return Actor(_text(entry.get("manager")), ActorSource.MANAGED_FIELDS, _text(entry.get("manager")))


@lru_cache(maxsize=8192)
def deploys(user: str) -> bool:
    """Whether a user is a program with an account that applies what people wrote: a GitOps controller, or what runs
    pipelines, by its name."""
    account = service_account(user)
    return account is not None and _DEPLOYERS.search("/".join(account)) is not None


def acts_by_itself(user: str) -> bool:
    """Whether a user is a program with an account that acts on what it sees, and does not apply what people wrote."""
    return service_account(user) is not None and not deploys(user)


@lru_cache(maxsize=8192)
def service_account(name: str) -> tuple[str, str] | None:
    """(namespace, name) of a service account's user name, else None."""
    if not name.startswith(_SERVICE_ACCOUNT):
        return None
    namespace, _, account = name[len(_SERVICE_ACCOUNT) :].partition(":")
    return (namespace, account) if namespace and account else None


def is_controller(actor: Actor) -> bool:
    """Whether this is one of Kubernetes' own controllers: what they write follows from what others wrote."""
    if actor.source is ActorSource.MANAGED_FIELDS:
        return actor.name in _CONTROL_PLANE_MANAGERS
    if actor.name in _CONTROL_PLANE_USERS or actor.name.startswith("system:node:"):
        return True
    account = service_account(actor.name)
    return account is not None and account[0] == "kube-system" and account[1] in _CONTROLLER_NAMES


@lru_cache(maxsize=8192)
def _short(name: str) -> str:
    account = service_account(name)
    if account:
        namespace, base = account[0], _SHORT_SUFFIX.sub("", account[1])
        if base == namespace:
            return base
        return f"{namespace}/default" if account[1] == "default" else account[1]
    if name.startswith("system:node:"):
        return f"kubelet {name[len('system:node:') :]}"
    if name.startswith("system:"):
        return name[len("system:") :]
    local, at, _ = name.partition("@")
    return local if at and local else name


def short(actor: Actor) -> str:
    """What people call this actor: "argocd", "alice", "kubelet node-7"; "someone unknown" for nobody.

    Who impersonates somebody did it: "root-admin as bob".
    """
    name = _short(actor.name) if actor.name else "someone unknown"
    return f"{_short(actor.impersonator)} as {name}" if actor.impersonator else name
