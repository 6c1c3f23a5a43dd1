"""Custom resources as causes: what they refer to, what refers to them, and the programs that act on them.

Kubernetes knows no edge from a custom resource to its operator. Two things tell it: who lists and watches its kind,
and, by convention, the name: kyverno.io is the domain of what runs in namespace kyverno or is called kyverno-reports.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from app.core.actors import service_account
from app.core.causes import NODE_KINDS
from app.core.entities import CLUSTER, READ, Add
from app.core.kinds import plural_of
from app.core.mechanism import is_cosmetic
from app.core.meshes import is_policy, policy
from app.core.model import Change, Resource
from app.core.references import references
from app.core.selectors import selects
from app.core.topology import Named, State, Topology, pod_template, touched_clients, touched_workloads

_SELECTORS = frozenset({"labelSelector", "podSelector", "selector"})
_NAMESPACES = frozenset({"includedNamespaces", "namespaces", "matchNames"})
"""Where custom resources say which pods they are for, and in which namespaces:
https://velero.io/docs/main/api-types/schedule/ , https://prometheus-operator.dev/docs/api-reference/api/ ."""
SEVERAL = 5
"""Of more objects of a kind than this, one is a small part of what keeps their program busy."""


def custom(change: Change, states: list[State], top: Topology, add: Add) -> None:
    """A custom resource reaches what it refers to, what refers to it, and the programs that act on it."""
    resource = change.resource
    add(("ns", resource.namespace) if resource.namespace else CLUSTER, 2)
    for state in states:
        _referred(state, resource, top, add)
        touched_workloads(top, _chosen(state, resource, top), add, 1)
    if NODE_KINDS.match(resource.kind):
        add(("agent", "nodes"), 0)
    operands(resource, top, add)
    referring(resource, top, add, READ)
    if is_policy(resource):
        policy(change, states, top, add)
    is_one_of_few = top.customs[resource.api_group, resource.kind] <= SEVERAL
    if is_one_of_few and not is_cosmetic(change):  # messages say "must be covered by a ReferenceGrant"
        add(("named", resource.kind), READ)
    hops = 1 if is_one_of_few else 2
    for user in _near(resource, top) - {change.actor.name}:
        add(("user", user), hops)
    for user in acting(resource, top) - {change.actor.name}:  # a program may end on what it reads
        touched_workloads(top, _running_as(user, top), add, hops)


def _referred(state: State, resource: Resource, top: Topology, add: Add) -> None:
    """What a custom resource refers to: workloads, and other custom resources with the pods that these choose."""
    for kind, namespace, name in references(state, resource.namespace or ""):
        if (namespace, name) in top.labels:
            touched_workloads(top, [(namespace, name)], add, 1)
        add(("written", kind or "Deployment", namespace, name), READ)
        for other in top.beside.get((namespace, kind), ()):
            if other.name == name and other != resource:
                touched_workloads(top, _chosen(top.states[other], other, top), add, 1)


def operands(resource: Resource, top: Topology, add: Add) -> None:
    """What an operator makes of a custom resource, by convention called like it: NAME or NAME-..., beside it; and who
    calls that. Not of one by which a mesh or a network plugin goes, which is called like whom it is for."""
    if is_policy(resource) or resource.namespace is None:
        return
    begins = f"{resource.name}-"
    for service in top.beside.get((resource.namespace, "Service"), ()):
        if f"{service.name}-".startswith(begins):
            touched_clients(top, (resource.namespace, service.name), add, 1)
            add(("named", service.name), READ)
    made = [key for key in top.in_namespace.get(resource.namespace, ()) if f"{key[1]}-".startswith(begins)]
    touched_workloads(top, made, add, 1)


def _chosen(state: State, resource: Resource, top: Topology) -> Iterator[Named]:
    """The workloads whose pods a custom resource chooses, as a backup does: in the namespaces that it names, else in
    its own."""
    spec = state.get("spec")
    named = list(_strings(spec, _NAMESPACES)) or [resource.namespace or ""]
    for selector in _under(spec, _SELECTORS) if not is_policy(resource) else ():
        if isinstance(selector, dict) and (selector.get("matchLabels") or selector.get("matchExpressions")):
            for namespace in top.in_namespace if "*" in named else named:
                yield from (key for key in top.in_namespace.get(namespace, ()) if selects(selector, top.labels[key]))


def _strings(value: Any, names: frozenset[str]) -> Iterator[str]:
    for found in _under(value, names):
        yield from (one for one in (found if isinstance(found, list) else ()) if isinstance(one, str))


def _under(value: Any, names: frozenset[str]) -> Iterator[Any]:
    """What stands under one of these names, at any depth."""
    for inner in value if isinstance(value, list) else value.values() if isinstance(value, dict) else ():
        yield from _under(inner, names)
    if isinstance(value, dict):
        yield from (value[name] for name in names & value.keys())


def referring(resource: Resource, top: Topology, add: Add, hops: float) -> None:
    """Add the objects that refer to this one: they complain for it, as a Canary of what it rolls out."""
    for other in referers(resource, top):
        add(("object", other.kind, other.namespace or "", other.name), hops)


def referers(resource: Resource, top: Topology) -> set[Resource]:
    """The custom resources and autoscalers that refer to an object."""
    named = ((kind, resource.namespace or "", resource.name) for kind in ("", resource.kind))
    return {other for name in named for other in top.referers.get(name, ())}


def acting(resource: Resource, top: Topology) -> set[str]:
    """The users that act on a custom resource: who list or watch its kind; where none is known to, who is called like
    its API group or its kind: backup-operator acts on Backups."""
    found = top.watched.get((resource.api_group, plural_of(resource.api_group, resource.kind)))
    called = {resource.api_group.partition(".")[0], resource.kind.lower()}
    named = (key for key in top.accounts if called & {key[1], key[1].partition("-")[0]})
    return found or {user for key in named for _, user in top.users_of(key)}


def run_by(resource: Resource, top: Topology) -> set[Named]:
    """The workloads that act on a custom resource."""
    return {key for user in acting(resource, top) for key in _running_as(user, top)}


def _running_as(user: str, top: Topology) -> Collection[Named]:
    return top.by_account.get(service_account(user) or ("", ""), ())


def served(namespace: str, states: list[State], top: Topology) -> set[str]:
    """The API groups whose custom resources a workload lists or watches: where it is gone, nobody tends them."""
    accounts = {str(_account(template)) for state in states if (template := pod_template(state))}
    users = {f"system:serviceaccount:{namespace}:{account}" for account in accounts}
    return {group for (group, _), by in top.watched.items() if by & users and not group.endswith(".k8s.io")}


def _account(template: State) -> str:
    return (template.get("spec") or {}).get("serviceAccountName") or "default"


def _near(resource: Resource, top: Topology) -> set[str]:
    """The users that may act on it: those, and who runs in a namespace of the API group's name."""
    domain = resource.api_group.partition(".")[0]
    here = (key for key in top.accounts if domain in (key[0], key[1], key[1].partition("-")[0]))
    return acting(resource, top) | {user for key in here for _, user in top.users_of(key)}
