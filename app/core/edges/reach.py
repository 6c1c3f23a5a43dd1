"""What a change can touch: entities with the number of hops to each.

Hops follow typed edges of Kubernetes: a workload runs as a ServiceAccount; a ConfigMap is read by the workloads
that mount it; a role says what its subjects may do; a webhook sees the calls that its rules match. One small
function a kind: (change, states, topology, add) -> None.

``states`` are the object's states that matter, newest first (topology.before_and_after). Distances: 0 the thing
itself, READ what reads it as its own configuration, 1 what it directly drives, 2 what shares its room.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

from app.core.edges import access, operators
from app.core.edges.asking import answered, asked_about
from app.core.edges.burdens import burdened, sent_more
from app.core.edges.disruption import lets_some_go
from app.core.edges.flags import goes_by
from app.core.edges.front_doors import DOORS, PROXIES, backends
from app.core.edges.leads import MAKES_NODES, MESHES, NAME_SERVERS, NETWORKS, PROVIDERS, RECORDS, REGISTRIES
from app.core.edges.mechanism import cordons, halts, is_cosmetic, is_default, is_default_class, refuser, takes_ports
from app.core.edges.meshes import is_policy
from app.core.edges.references import is_custom
from app.core.edges.shown import touched_certified, touched_doors, touched_routes, touched_showing
from app.core.edges.topology import Named, State, Topology, before_and_after, pod_spec, readers, servers_of
from app.core.edges.touching import touched_clients, touched_nodes, touched_workloads
from app.core.edges.zones import told_of_zones
from app.core.entities import (
    CLUSTER,
    IMMUTABLE,
    NODE_PORTS,
    NODES,
    POD_MAKING,
    PREEMPTS,
    READ,
    Add,
    Entity,
    altered,
    of_resource,
    pods_in,
    workload,
    workload_of_replica_set,
)
from app.core.model import Change, Resource, Verb
from app.core.objects.actors import service_account
from app.core.objects.brought import quoted
from app.core.objects.dependencies import variables
from app.core.objects.grants import loosens
from app.core.objects.kinds import told_by
from app.core.objects.selectors import selects
from app.core.objects.taints import refusing
from app.core.objects.untyped import fields, objects, part, texts

Reach = dict[Entity, float]
Rule = Callable[[Change, list[State], Topology, Add], None]

_NAME = re.compile(r"[a-z][a-z0-9]*(?:[-.][a-z0-9]+)+")
"""A name of Kubernetes' of several words: no mode, no number, nothing that messages say by accident."""
_AGENTS = {
    "csi": PROVIDERS,
    "cni": NETWORKS,
    "dns": NAME_SERVERS,
    "nodes": MAKES_NODES,
    "registry": REGISTRIES,
    "doors": PROXIES,
    "mesh": MESHES,
    "records": RECORDS,
}
"""What programs do for all pods, by what they are called: volumes (CSI), network (CNI), names (DNS), more nodes,
images, what comes from outside, what they call, and the records of public names."""
_KUBELETS = "kind: KubeletConfiguration"
"""https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/ ."""
NODE_AGENTS = re.compile("|".join(("kube-proxy", *(_AGENTS[sort].pattern for sort in ("csi", "cni", "dns")))))
"""What every pod needs: a rollout or a new configuration of one of these reaches the pods, not only itself."""


def _workload(change: Change, states: list[State], top: Topology, add: Add) -> None:
    key = (change.resource.namespace or "", change.resource.name)
    touched_workloads(top, [key], add, 0)
    burdened(change, {key}, top, add, 0)
    operators.referring(change.resource, top, add, 1)
    _taken_room(change, states, top, add)
    add(("manager", change.resource.name), 1)
    add(("prefix", change.resource.name.split("-")[0]), 1)
    _agents(f"{change.resource.name} {_images(states)}", add, 0)
    answered(key, top, add, 0)
    if change.verb is Verb.CREATE and _joins(key, top):
        add(("joins",), 0)
    if key in top.runtimes:
        add(("agent", "runtime"), 0)
    if change.resource.kind in ("DaemonSet", "Deployment") and _serves_pods(key, top):
        _every_pod(add, 1)
    for named in top.reads.get(key, ()):
        add(("object", *named), 1)
    _on_nodes(change, top, add)
    if change.verb is Verb.DELETE or halts(change):
        for group in operators.served(key[0], states, top):
            add(("named", group), 0)


def _taken_room(change: Change, states: list[State], top: Topology, add: Add) -> None:
    """Whom its pods keep from a node, or may take it from."""
    pods = _pods(states)
    apart = any(part(pod, "affinity", "podAntiAffinity") for pod in pods)  # that holds both ways
    if apart or any(diff.path[-1:] == ("priorityClassName",) for diff in change.diffs):
        add(("scheduling",), 0)
    if top.has_default_priority or any("priorityClassName" in pod for pod in pods):
        add(PREEMPTS, 0)


def _joins(key: Named, top: Topology) -> bool:
    """Whether a workload stands behind a Service beside another one."""
    own = top.fronts.get(key, set())
    return any(not own.isdisjoint(fronts) for other, fronts in top.fronts.items() if other != key)


def _replica_set(change: Change, _states: list[State], top: Topology, add: Add) -> None:
    """Its Deployment's pods are its own."""
    key = (change.resource.namespace or "", workload_of_replica_set(change.resource.name))
    touched_workloads(top, [key], add, 0)
    answered(key, top, add, 0)


def _on_nodes(change: Change, top: Topology, add: Add) -> None:
    """What its pods are to the nodes on which they run."""
    if change.resource.kind == "DaemonSet":
        add(NODES, 1)
        add(CLUSTER, 1)  # what one pod asks of the API, every node asks
        add(("device", change.resource.name.split("-")[0]), 0)
    key = (change.resource.namespace or "", change.resource.name)
    for takers in top.by_port.values():
        for other in takers - {key} if key in takers else ():
            add(("takes", *other), 0)


def _pods(states: list[State]) -> list[dict[str, Any]]:
    """What a workload's templates say of its pods."""
    return [pod for state in states if (pod := pod_spec(state))]


def _images(states: list[State]) -> str:
    """What the images of a workload are called, without their registry, project and tag: names of programs."""
    images = [str(one.get("image")) for pod in _pods(states) for one in objects(pod.get("containers"))]
    return " ".join(image.rpartition("/")[2].partition(":")[0] for image in images)


def _agents(name: str, add: Add, hops: float) -> None:
    for sort, called in _AGENTS.items():
        if called.search(name):
            add(("agent", sort), hops)


def _serves_pods(key: Named, top: Topology) -> bool:
    """Whether a workload is a part of its nodes, which every pod there rests on: by what it is called, or by how it
    runs."""
    return key in top.node_parts or NODE_AGENTS.search(key[1]) is not None


def _every_pod(add: Add, hops: float) -> None:
    for entity in (NODES, CLUSTER, POD_MAKING):
        add(entity, hops)


def _config(change: Change, states: list[State], top: Topology, add: Add) -> None:
    found = readers(change.resource, top, told=change.verb is Verb.CREATE)
    account = service_account(change.actor.name)
    own = top.by_account.get(account, set()) if account else set()
    found = found - own  # what a program writes down for itself tells it nothing
    if any(diff.path == ("immutable",) and diff.new is True for diff in change.diffs):
        add(refuser(IMMUTABLE, change.resource.namespace or ""), 0)
    touched_workloads(top, found, add, READ)
    burdened(change, found, top, add, READ)
    asking = goes_by(found, top)
    touched_workloads(top, asking, add, 1 + READ)
    burdened(change, asking, top, add, 1 + READ)
    if not any(change.resource.name.startswith(name) for _, name in own):
        _agents(change.resource.name, add, READ)
    operators.referring(change.resource, top, add, READ)
    touched_workloads(top, told_of_zones(change, top), add, 1)
    if any(_KUBELETS in text for state in states for text in map(str, fields(state.get("data")).values())):
        _every_pod(add, READ)  # by whatever brings it to the nodes
        add(("agent", "runtime"), READ)
    if MESHES.search(change.resource.namespace or "") and not own:
        _every_pod(add, 1)  # by what is put into them
    if change.resource.kind == "Secret":
        touched_showing(top, [change.resource], add, READ)
        for other in operators.referers(change.resource, top):
            operators.operands(other, top, add)
    for key in found:
        name = key[1]
        answered(key, top, add, READ)
        add(("manager", name), 2)
        _agents(name, add, READ)
        if key in top.runtimes:
            add(("agent", "runtime"), READ)
        if _serves_pods(key, top):
            _every_pod(add, 1 + READ)


def _webhook(change: Change, states: list[State], top: Topology, add: Add) -> None:
    add(CLUSTER, 2)
    for hook in (one for state in states for one in objects(state.get("webhooks"))):
        asked_about(change.resource.kind, hook, top, add, 0)
        for rule in objects(hook.get("rules")):
            for group, plural in product(texts(rule.get("apiGroups")), texts(rule.get("resources"))):
                operators.programs(top.watched.get((group, plural), ()), top, add)


def _policy(change: Change, states: list[State], top: Topology, add: Add) -> None:
    add(CLUSTER, 2)
    for state in states:
        spec = fields(state.get("spec"))
        add(("named", str(spec.get("policyName", change.resource.name))), 0)
        asked = fields(spec.get("matchConstraints") or spec.get("matchResources"))
        for rule in objects(asked.get("resourceRules")):
            for group in texts(rule.get("apiGroups")) or ["*"]:
                for plural in texts(rule.get("resources")) or ["*"]:
                    add(("api", group, plural, "*"), 1)
                    if change.resource.kind.startswith("Mutating"):
                        add(altered(group, plural, "*"), 0)


def _selector(*path: str) -> Rule:
    def rule(change: Change, states: list[State], top: Topology, add: Add) -> None:
        for state in states:
            selector = part(state, *path)
            if selector is None:
                continue
            keys = [k for k, v in top.labels.items() if k[0] == change.resource.namespace and selects(selector, v)]
            touched_workloads(top, keys, add, 1)

    return rule


def _service(change: Change, states: list[State], top: Topology, add: Add) -> None:
    """A Service: the pods behind it, which do not call the API for it, and everybody who calls it."""
    for state in states:
        for key in servers_of(state, change.resource.namespace or "", top):
            add(workload(*key), 1)
            _agents(key[1], add, 1)
    touched_clients(top, (change.resource.namespace or "", change.resource.name), add, READ)
    if takes_ports(change):
        add(NODE_PORTS, 0)
    started_with = top.by_config.get(("Service", change.resource.namespace or "", change.resource.name), set())
    touched_workloads(top, started_with, add, READ)
    if started_with:
        for variable in variables(change.resource.name):
            add(("named", variable), 0)


def _endpoints(change: Change, states: list[State], top: Topology, add: Add) -> None:
    """Addresses written by hand, or not: of the Service that they are for
    (https://kubernetes.io/docs/concepts/services-networking/service/#services-without-selectors)."""
    labels = next(filter(None, (fields(part(state, "metadata", "labels")) for state in states)), {})
    told = labels.get("kubernetes.io/service-name")
    service = change.resource.name if change.resource.kind == "Endpoints" else str(told or "")
    if service:
        touched_clients(top, (change.resource.namespace or "", service), add, READ)
        add(("named", service), READ)


def _network_policy(change: Change, states: list[State], top: Topology, add: Add) -> None:
    """The pods that it chooses, what these do for all others, and, where it limits who calls them, everybody who
    does."""
    _selector("spec", "podSelector")(change, states, top, add)
    namespace = change.resource.namespace or ""
    for spec in (fields(state.get("spec")) for state in states):
        limits_calls = "Ingress" in (texts(spec.get("policyTypes")) or ["Ingress"])
        for key in top.in_namespace.get(namespace, ()):
            if not selects(spec.get("podSelector") or {}, top.labels[key]):
                continue
            _agents(key[1], add, READ)
            if limits_calls:
                answered(key, top, add, READ)
                for service in top.fronts.get(key, ()):
                    touched_clients(top, service, add, READ)


def _budget(change: Change, states: list[State], top: Topology, add: Add) -> None:
    """The pods that it chooses and who evicts them, less where some may go; where more of them may go at once, those
    that then did."""
    namespace = change.resource.namespace or ""
    add(("evictions", namespace), 1 if lets_some_go(states, namespace, top) else 0)
    _selector("spec", "selector")(change, states, top, add)
    gone = {home for left in top.left.values() for home, at in left if at >= change.at}
    for key in gone if loosens(change) else ():
        if key[0] == namespace and any(
            selects(part(s, "spec", "selector") or {}, top.labels.get(key, {})) for s in states
        ):
            add(("unguarded", *key), 0)


def _target(*path: str) -> Rule:
    def rule(change: Change, states: list[State], top: Topology, add: Add) -> None:
        for state in states:
            ref = fields(part(state, *path))
            if ref.get("name"):
                key = (change.resource.namespace or "", str(ref["name"]))
                touched_workloads(top, [key], add, 1)
                add(("written", str(ref.get("kind")), *key), 0)  # its controller writes just there

    return rule


def _backends(change: Change, states: list[State], top: Topology, add: Add) -> None:
    """Ingress and HTTPRoute: the workloads whose labels say the backend Service's name (its selector is one hop on)."""
    names = {str(n) for s in states for n in backends(s)}
    for name in names if not is_cosmetic(change) else ():
        add(("named", name), 0)
    for service in top.beside.get((change.resource.namespace or "", "Service"), ()):
        if service.name in names:
            servers = servers_of(top.states[service], service.namespace or "", top)
            touched_workloads(top, servers, add, 1)
            sent_more(change, service.name, servers, add)
    touched_doors(top, change.resource.namespace or "", states, add, READ if not is_cosmetic(change) else 1)
    for state in states:
        for tls in objects(part(state, "spec", "tls")):
            secret = (change.resource.namespace or "", str(tls.get("secretName", "")))
            for kind, name in top.fills_secret.get(secret, ()):
                add(("written", kind, secret[0], name), READ)


def _custom(change: Change, states: list[State], top: Topology, add: Add) -> None:
    """A custom resource, and who is shown the certificates that come of it."""
    operators.custom(change, states, top, add)
    touched_certified(top, change.resource, states, add)


def _gateway(change: Change, states: list[State], top: Topology, add: Add) -> None:
    """A Gateway: as any custom resource, and who comes to the hosts of its routes."""
    operators.custom(change, states, top, add)
    touched_routes(top, [change.resource], add, READ)


def _namespace_wide(change: Change, _states: list[State], top: Topology, add: Add) -> None:
    """Quotas, limits and the namespace itself: whatever is created there, the pods first."""
    kind, namespace = change.resource.kind, change.resource.namespace or change.resource.name
    add(("ns", namespace), 1)
    add(("admission", namespace), 0)
    add(refuser(kind, namespace), 0)
    near = 2.0 if kind == "ResourceQuota" else READ if kind == "Namespace" and not top.ignores(change) else 1.0
    unlimited = top.unlimited if kind == "LimitRange" else set()
    if kind != "ResourceQuota":
        add(pods_in(namespace), near)
    for key in top.labels:
        if key[0] == namespace:  # a quota refuses new pods and leaves those that run alone
            add(workload(*key), READ if key in unlimited else near)
            for service in top.fronts.get(key, ()):
                touched_clients(top, service, add, near + 1)


def _crd(change: Change, states: list[State], top: Topology, add: Add) -> None:
    plural, _, group = change.resource.name.partition(".")
    add(("api", group, plural, "*"), 0)
    add(altered(group, plural, "*"), 0)  # it sets defaults, and prunes what its schema does not know
    add(CLUSTER, 3)
    for state in states:
        if kind := part(state, "spec", "names", "kind"):
            add(("named", str(kind)), 0)
            made = Resource(change.resource.cluster, group, str(kind), None, "")
            operators.programs(operators.acting(made, top), top, add)


def _api_service(change: Change, _states: list[State], _top: Topology, add: Add) -> None:
    group = change.resource.name.partition(".")[2]
    add(("api", group, "*", "*"), 0)
    add(("named", group), 0)
    add(CLUSTER, 2)


def _node(change: Change, _states: list[State], top: Topology, add: Add) -> None:
    name = change.resource.name
    if refusing(change) != set():  # a taint that is taken away, or only advises against the node, refuses nobody
        add(("scheduling",), 0)
    if cordons(change):  # who empties a node cordons it first
        add(("user", change.actor.name), READ)
    gone = {home for home, at in top.left.get(name, ()) if at >= change.at}
    there = top.by_node.get(name, set()) | gone
    touched_workloads(top, there, add, 1)
    for home in there:
        answered(home, top, add, 1)
    for key in _labels_written(change):  # whoever asks for that label may come or has to go
        touched_workloads(top, top.placing.get(key, set()), add, READ)
        for other in top.choosing.get(key, ()):
            add(("object", other.kind, other.namespace or "", other.name), READ)
            for actor in operators.run_by(other, top):
                touched_workloads(top, [actor], add, 1)
                if _serves_pods(actor, top):
                    _every_pod(add, 1)


def _labels_written(change: Change) -> set[str]:
    return {str(diff.path[2]) for diff in change.diffs if diff.path[:2] == ("metadata", "labels") and diff.path[2:]}


def _classes(change: Change, states: list[State], top: Topology, add: Add) -> None:
    kind = change.resource.kind
    found = set(top.by_config.get((kind, "", change.resource.name), ()))
    by_default = is_default(change) or any(map(is_default_class, states))
    if by_default:
        found |= top.by_config.get((kind, "", ""), set())
    touched_workloads(top, found, add, 1)
    add(("scheduling",), 0 if by_default else 1)
    add(CLUSTER, 3)


RULES: dict[str, Rule] = {
    **dict.fromkeys(("Deployment", "StatefulSet", "DaemonSet", "CronJob", "Job", "Rollout"), _workload),
    **dict.fromkeys(("ConfigMap", "Secret", "PersistentVolumeClaim"), _config),
    "ReplicaSet": _replica_set,
    "ServiceAccount": access.account,
    **dict.fromkeys(("Role", "ClusterRole"), access.role),
    **dict.fromkeys(("RoleBinding", "ClusterRoleBinding"), access.binding),
    **dict.fromkeys(("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"), _webhook),
    **dict.fromkeys(
        (f"{does}AdmissionPolicy{of}" for does in ("Validating", "Mutating") for of in ("", "Binding")), _policy
    ),
    "NetworkPolicy": _network_policy,
    "Service": _service,
    **dict.fromkeys(("Endpoints", "EndpointSlice"), _endpoints),
    "PodDisruptionBudget": _budget,
    "HorizontalPodAutoscaler": _target("spec", "scaleTargetRef"),
    **dict.fromkeys(DOORS, _backends),
    "Gateway": _gateway,
    **dict.fromkeys(("ResourceQuota", "LimitRange", "Namespace"), _namespace_wide),
    "CustomResourceDefinition": _crd,
    "APIService": _api_service,
    **dict.fromkeys(("FlowSchema", "PriorityLevelConfiguration"), access.flow),
    "Node": _node,
    **dict.fromkeys(("PriorityClass", "RuntimeClass", "StorageClass"), _classes),
}


_CUSTOM = DOORS | {"Gateway", "Rollout"}
"""Of these, kinds that CustomResourceDefinitions make; others of the same names (Knative's Service) are custom ones."""


def _external(change: Change, _states: list[State], top: Topology, add: Add) -> None:
    """What Kubernetes does not know: the workload that it is said to concern, as its configuration would; the whole
    cluster, faintly, where no place is said."""
    if change.workload:
        touched_workloads(top, [(change.resource.namespace or "", change.workload)], add, READ)
    elif change.resource.namespace is None:
        add(CLUSTER, 2)


def reach(change: Change, top: Topology) -> Reach:
    """The entities that this change can touch, with hops: 0 is the thing itself."""
    resource = change.resource
    found: Reach = {}
    state = before_and_after(change, top)
    add = _adder(found)
    for entity in of_resource(resource):
        add(entity, 0)
    add(("named", resource.name), 0)
    if change.verb is not Verb.CREATE:  # others fight over what is there
        add(("written", resource.kind, resource.namespace or "", resource.name), 0)
    for reader in operators.addressed(change, top):
        add(("user", reader), 1)
    for value in (*_values_set(change), *quoted(change)):
        add(("named", value), 0)
    if resource.namespace:
        add(("ns", resource.namespace), 2)
    is_others = is_policy(resource) or (is_custom(resource) and resource.kind not in _CUSTOM)
    rule = _custom if is_others else RULES.get(resource.kind, _custom)
    if told_by(resource.api_group):
        rule = _external
    touched_nodes(change, add)
    rule(change, state, top, add)  # by its group first: Calico has NetworkPolicies too
    if (resource.kind, resource.namespace or "", resource.name) in top.parameters:
        for namespace in top.in_namespace:
            add(refuser("ValidatingAdmissionPolicy", namespace), READ)
    return found


def _values_set(change: Change) -> Iterator[str]:
    """The words that an update put into fields: a message may say that what they name does not exist."""
    for diff in change.diffs:
        if diff.path and isinstance(diff.new, str) and diff.path[0] != "metadata" and _NAME.fullmatch(diff.new):
            yield diff.new


def _adder(found: Reach) -> Add:
    def add(entity: Entity, hops: float) -> None:
        if hops < found.get(entity, 99):
            found[entity] = hops

    return add
