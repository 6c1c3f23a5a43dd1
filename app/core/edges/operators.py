"""Custom resources as causes: what they refer to, what refers to them, and the programs that act on them.

Kubernetes knows no edge from a custom resource to its operator. Two things tell it: who lists and watches its kind,
and, by convention, the name: kyverno.io is the domain of what runs in namespace kyverno or is called kyverno-reports.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Any

from app.core.edges.asking import answered
from app.core.edges.belonging import members, owners
from app.core.edges.leads import MESHES, NETWORKS, NODE_KINDS
from app.core.edges.mechanism import is_cosmetic
from app.core.edges.meshes import is_policy, policy
from app.core.edges.references import makes_secrets, references, secret_made
from app.core.edges.stores import volumes_of
from app.core.edges.topology import Named, State, Topology, pod_spec, pod_template, readers, servers_of
from app.core.edges.touching import touched_clients, touched_workloads
from app.core.entities import CLUSTER, READ, Add, of_resource
from app.core.model import Change, Resource
from app.core.objects.actors import service_account
from app.core.objects.dependencies import hosts
from app.core.objects.grants import CONSTRAINTS
from app.core.objects.kinds import plural_of
from app.core.objects.selectors import selects

_SELECTORS = frozenset({"labelSelector", "podSelector", "selector"})
_NAMESPACES = frozenset({"includedNamespaces", "namespaces", "matchNames"})
"""Where custom resources say which pods they are for, and in which namespaces:
https://velero.io/docs/main/api-types/schedule/ , https://prometheus-operator.dev/docs/api-reference/api/ ."""
MOST_TEXTS = 500
"""So many texts of a custom resource are read for hosts: some hold whole programs."""
_FIRST_WORD = re.compile(r"[A-Z][a-z]+")
SEVERAL = 5
"""Of more objects of a kind than this, one is a small part of what keeps their program busy."""


KUBEWARDEN = "policies.kubewarden.dev"
"""Its refusals name no policy but by the webhook that it makes for each; other engines' messages name their policies:
https://docs.kubewarden.io/quick-start , and GetUniqueName in https://github.com/kubewarden/kubewarden-controller ,
whose later versions may call it otherwise."""


def custom(change: Change, states: list[State], top: Topology, add: Add) -> None:
    """A custom resource reaches what it refers to, what refers to it, and the programs that act on it."""
    resource = change.resource
    add(("ns", resource.namespace) if resource.namespace else CLUSTER, 2)
    for state in states:
        _referred(state, resource, top, add)
        touched_workloads(top, _chosen(state, resource, top), add, 1)
        for owner in owners(resource, state, top):
            operands(owner, top, add, hops=2)
    operands(resource, top, add)
    referring(resource, top, add, READ)
    _filled(resource, top, add)
    _members(resource, top, add)
    _refusing(resource, top, add)
    if NODE_KINDS.match(resource.kind):
        add(("agent", "nodes"), 0)
        for sort in ("runtime", "cni"):  # which a machine brings, or what these need
            add(("agent", sort), 1)
    if is_policy(resource):
        policy(change, states, top, add)
    else:
        for state in states:
            _called(state, resource, top, add)
        for key in _told(resource, top):
            add(("calls", *key), READ)
        if NETWORKS.search(resource.api_group):
            add(("agent", "cni"), 0)
    if MESHES.search(resource.api_group):
        add(("agent", "mesh"), 0)
    _kept_by(resource, top, add)
    touched_workloads(top, volumes_of(resource, top), add, 1)
    _acted_on(change, top, add)


def _kept_by(resource: Resource, top: Topology, add: Add) -> None:
    """Who calls the server in which a custom resource lies, by convention called by a word of its API group, beside it:
    a Stream of jetstream.nats.io in that which is called nats."""
    for word in resource.api_group.split(".")[:-1]:
        for service in top.fronts.get((resource.namespace or "", word), ()):
            touched_clients(top, service, add, 1)


def _refusing(policy: Resource, top: Topology, add: Add) -> None:
    """What refusals name it by: Kubewarden's its webhook; of a template of Gatekeeper's the constraints that are made
    of it, of the kind that it is called like, in small letters
    (https://open-policy-agent.github.io/gatekeeper/website/docs/constrainttemplates)."""
    if policy.api_group == KUBEWARDEN:
        add(("named", _webhook(policy)), 0)
    for one in top.states if policy.kind == "ConstraintTemplate" else ():
        if one.api_group == CONSTRAINTS and one.kind.lower() == policy.name:
            add(("named", one.name), READ)


def _webhook(policy: Resource) -> str:
    """The name of the webhook of a policy of Kubewarden's."""
    group = "group" if policy.kind.endswith("PolicyGroup") else ""
    steps = ("namespaced" if policy.namespace else "clusterwide", group, policy.namespace, policy.name)
    return f"{'-'.join(filter(None, steps))}.kubewarden.admission"


def _filled(resource: Resource, top: Topology, add: Add) -> None:
    """Who reads the Secrets that are fetched by a custom resource, or by those that refer to it as to their store."""
    for hops, one in ((READ, resource), *((1 + READ, other) for other in referers(resource, top))):
        if makes_secrets(one) and (secret := secret_made(one, top.states.get(one, {}))):
            read = readers(Resource(one.cluster, "", "Secret", one.namespace, secret), top)
            touched_workloads(top, read, add, hops)


def _members(resource: Resource, top: Topology, add: Add) -> None:
    for member in members(resource, top):
        add(of_resource(member)[0], 1)
        touched_workloads(top, top.by_node.get(member.name, ()) if member.kind == "Node" else (), add, 1)


def _acted_on(change: Change, top: Topology, add: Add) -> None:
    """The programs that act on a custom resource, and what is asked of them as webhooks."""
    resource = change.resource
    is_one_of_few = top.customs[resource.api_group, resource.kind] <= SEVERAL
    if is_one_of_few and not is_cosmetic(change):  # messages say "must be covered by a ReferenceGrant"
        add(("named", resource.kind), READ)
    hops = 1 if is_one_of_few else 2
    for user in _near(resource, top) - {change.actor.name}:
        add(("user", user), hops)
    for user in acting(resource, top) - {change.actor.name}:  # a program may end on what it reads
        touched_workloads(top, _running_as(user, top), add, hops)
        for key in _running_as(user, top):
            answered(key, top, add, READ)


def _told(resource: Resource, top: Topology) -> Collection[Named]:
    """Who is told the name of a custom resource, as a client is its topic's; a name that many are told is a word."""
    found = top.told.get(resource.name, ())
    return found if len(found) <= SEVERAL else ()


def _referred(state: State, resource: Resource, top: Topology, add: Add) -> None:
    """What a custom resource refers to: workloads, and other custom resources with the pods that these choose."""
    for kind, namespace, name in references(state, resource.namespace or ""):
        if (namespace, name) in top.labels:
            touched_workloads(top, [(namespace, name)], add, 1)
        add(("written", kind or "Deployment", namespace, name), READ)
        for other in top.customs_named.get((namespace, name), ()):
            if kind in ("", other.kind) and other != resource:
                touched_workloads(top, _chosen(top.states[other], other, top), add, 1)
                operands(other, top, add, hops=2)


def _called(state: State, resource: Resource, top: Topology, add: Add) -> None:
    """What a custom resource names by its host, as a connector does its database: what uses it may burden that."""
    for name, text in islice(_texts(state.get("spec")), MOST_TEXTS):
        for service in hosts(name, text, resource.namespace or "", known=top.services):
            known = Resource(resource.cluster, "", "Service", *service)
            for called in (service[1], *starts(service[1])):  # what an operator makes is called like its object
                for owner in top.customs_named.get((service[0], called), ()):
                    add(("object", owner.kind, service[0], owner.name), 1)
            for server in servers_of(top.states.get(known, {}), service[0], top):
                touched_workloads(top, [server], add, 1)
                add(("burdens", *server), 1)


def starts(name: str) -> Iterator[str]:
    """What a name begins with, up to a hyphen, the longest first: "nightly-db-2" → "nightly-db", "nightly"."""
    while "-" in name:
        name = name.rpartition("-")[0]
        yield name


def _texts(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Every text of a value, at any depth, with the name under which it stands."""
    if isinstance(value, str):
        yield name, value
    for key, inner in value.items() if isinstance(value, dict) else ():
        yield from _texts(inner, str(key))
    for inner in value if isinstance(value, list) else ():
        yield from _texts(inner, name)


def operands(resource: Resource, top: Topology, add: Add, *, hops: float = 1) -> None:
    """What an operator makes of a custom resource, by convention called like it: NAME or NAME-..., beside it; and who
    calls that. Not of one by which a mesh or a network plugin goes, which is called like whom it is for."""
    if is_policy(resource) or resource.namespace is None:
        return
    begins = f"{resource.name}-"
    for service in top.beside.get((resource.namespace, "Service"), ()):
        if f"{service.name}-".startswith(begins):
            touched_clients(top, (resource.namespace, service.name), add, hops)
            add(("named", service.name), hops - 1 + READ)
    made = [key for key in top.in_namespace.get(resource.namespace, ()) if f"{key[1]}-".startswith(begins)]
    touched_workloads(top, made, add, hops)
    for name, entity in top.unlisted.get(resource.namespace, ()):
        if f"{name}-".startswith(begins):
            add(entity, hops)


def users_of(kind: str, namespace: str, name: str, top: Topology) -> Iterator[Named]:
    """Who calls what an operator makes of a custom resource; of other objects, nobody."""
    if all(one.kind != kind for one in top.customs_named.get((namespace, name), ())):
        return
    for service in top.beside.get((namespace, "Service"), ()):
        if f"{service.name}-".startswith(f"{name}-"):
            yield from top.clients.get((namespace, service.name), ())


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
    if found:
        return found
    called = {
        key
        for word in (resource.api_group.partition(".")[0], resource.kind.lower())
        for key in top.called.get(word, ())
    }
    first = _FIRST_WORD.match(resource.kind)
    if not called and first:  # workflow-controller on WorkflowTemplates
        word = first[0].lower()
        called = {key for key in top.called.get(word, ()) if key[1] in _does(word)}
    return {user for key in called for _, user in top.users_of(key)}


def _does(word: str) -> tuple[str, ...]:
    """How what acts on a kind is called by its first word, and nothing else."""
    return f"{word}-controller", f"{word}-operator", f"{word}-controller-manager"


def addressed(change: Change, top: Topology) -> set[str]:
    """Who reads an annotation: by convention its key begins with the domain of the program that does, or its name."""
    keys = [str(d.path[2]) for d in change.diffs if d.path[:2] == ("metadata", "annotations") and d.path[2:]]
    called = {key.partition("/")[0].partition(".")[0] for key in keys if "/" in key}
    if not called:
        return set()
    named = {key for word in called for key in top.by_word.get(word, ())}
    return {user for key in named for _, user in top.users_of(key)} - {change.actor.name}


def programs(users: Iterable[str], top: Topology, add: Add) -> None:
    """The programs that act on objects of a kind: what defines it, or is asked about it, reaches them."""
    for user in users:
        add(("user", user), 1)
        touched_workloads(top, _running_as(user, top), add, 1)


def run_by(resource: Resource, top: Topology) -> set[Named]:
    """The workloads that act on a custom resource, whichever of its kind."""
    return {key for user in acting(resource, top) for key in _running_as(user, top)}


def _running_as(user: str, top: Topology) -> Collection[Named]:
    return top.by_account.get(service_account(user) or ("", ""), ())


def served(namespace: str, states: list[State], top: Topology) -> set[str]:
    """The API groups whose custom resources a workload lists or watches: where it is gone, nobody tends them."""
    accounts = {str(pod_spec(state).get("serviceAccountName") or "default") for state in states if pod_template(state)}
    users = {f"system:serviceaccount:{namespace}:{account}" for account in accounts}
    return {group for (group, _), by in top.watched.items() if by & users and not group.endswith(".k8s.io")}


def _near(resource: Resource, top: Topology) -> set[str]:
    """The users that may act on it: those, and who runs in a namespace of the API group's name."""
    domain = resource.api_group.partition(".")[0]
    here = (*top.in_namespace.get(domain, ()), *top.called.get(domain, ()))
    return acting(resource, top) | {user for key in here for _, user in top.users_of(key)}
