"""The edges between the objects of one cluster, indexed once for a ranking: who runs as whom, who reads what.

Nothing is read here: states are handed in, and what is not known has no edges.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from app.core.counted import NO_CALLS, Calls
from app.core.edges import front_doors
from app.core.edges.mesh_calls import SERVICE
from app.core.edges.read_by import read_anew, read_by
from app.core.edges.references import Reading, Reference, Watched, is_custom, node_labels, reading, references, watched
from app.core.edges.renewals import kept_up
from app.core.entities import ACCESS, WORKLOADS, Entity, of_resource
from app.core.model import CallEdge, Change, ObjectState, Resource, Symptom
from app.core.objects import dependencies
from app.core.objects.revisions import Revisions, revisions
from app.core.objects.selectors import keys_of, selects

_CONFIGURES_NODES = re.compile(
    r"/(?:\Z|etc/(?:containerd|cri|docker|crio|kubernetes|cni|systemd|sysctl)|opt/cni)|/etc/?\Z"
)
"""https://kubernetes.io/docs/setup/production-environment/container-runtimes/ ."""
_OUTSIDE = re.compile(r"\w+://(?:[^/@\s]*@)?(?:[\w-]+\.){2,}(?!(?:svc|local|internal|cluster)\b)[a-z]{2,}(?=[:/]|\Z)")
"""An address of three words, of which the last is not one of a cluster's own names."""
_NODE_CRITICAL = "system-node-critical"
"""https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/"""
_CHOOSES = re.compile(r"inject|^pod-security\.kubernetes\.io/enforce|^istio\.io/rev$")
"""Label keys of a Namespace that are known to decide how its pods are made, whoever reads them; what pod security only
warns of or writes down it lets in (https://kubernetes.io/docs/concepts/security/pod-security-admission/)."""
_SELECTING = re.compile(r"(?:WebhookConfiguration|Policy|PolicyBinding)$")
Named = tuple[str, str]  # (namespace, name)
State = dict[str, Any]
"""A normalised object: read by path, so its values stay untyped here."""


@dataclass(slots=True)
class Topology:
    """The edges between the objects of one cluster, indexed once for a ranking."""

    states: dict[Resource, State] = field(default_factory=dict)
    by_account: dict[Named, set[Named]] = field(default_factory=lambda: defaultdict(set))
    by_config: dict[tuple[str, str, str], set[Named]] = field(default_factory=lambda: defaultdict(set))
    live: dict[tuple[str, str, str], set[Named]] = field(default_factory=lambda: defaultdict(set))
    """Those of them whose running pods get what is new (read_by.py)."""
    pods: dict[Named, list[tuple[Named, datetime]]] = field(default_factory=lambda: defaultdict(list))
    """By workload: its pods, and when each was last told anew, mostly as it was given its node, or read anew."""
    labels: dict[Named, dict[str, str]] = field(default_factory=dict)
    in_namespace: dict[str, list[Named]] = field(default_factory=lambda: defaultdict(list))
    """The workloads of each namespace."""
    revisions: Revisions = field(default_factory=dict)
    by_node: dict[str, set[Named]] = field(default_factory=lambda: defaultdict(set))
    left: dict[str, list[tuple[Named, datetime]]] = field(default_factory=lambda: defaultdict(list))
    """By node: the workloads whose pods went from there lately, and when."""
    accounts: dict[Named, str] = field(default_factory=dict)
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
    aggregated: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By label key: the ClusterRoles that are made of those that have it."""

    def ignores(self, change: Change) -> bool:
        """Whether only labels of a Namespace or a Node changed that nothing chooses it by."""
        keys = {str(diff.path[2]) for diff in change.diffs if diff.path[:2] == ("metadata", "labels") and diff.path[2:]}
        if not keys or len(keys) < len(change.diffs):
            return False
        if change.resource.kind == "Node":
            return not keys & (self.placing.keys() | self.choosing.keys())
        if change.resource.kind != "Namespace":
            return False
        return not any(key in self.selecting or _CHOOSES.search(key) for key in keys)

    def heeds(self, change: Change) -> bool:
        """Whether a label of a ClusterRole changed by which others are made of it."""
        labels = {
            str(diff.path[2]) for diff in change.diffs if diff.path[:2] == ("metadata", "labels") and diff.path[2:]
        }
        return change.resource.kind == "ClusterRole" and not labels.isdisjoint(self.aggregated)

    def users_of(self, found: Named) -> Iterator[Entity]:
        account = self.accounts.get(found)
        if account:
            yield ("user", f"system:serviceaccount:{found[0]}:{account}")


def topology(
    states: Iterable[ObjectState],
    calls: Calls = NO_CALLS,
    *,
    gone: Iterable[ObjectState] = (),
    complaints: Iterable[Symptom] = (),
    changes: Iterable[Change] = (),
    edges: Iterable[CallEdge] = (),
) -> Topology:
    """Index the last known states of a cluster's objects (pods count for where they run), and who watches what.

    ``gone`` are pods that went lately: what became of their node became of their workloads. ``complaints`` name
    whom a workload calls and does not reach; ``changes`` tell who keeps up what others read; ``edges`` are what meshes
    counted of who calls whom.
    """
    states, gone = tuple(states), tuple(gone)
    top = Topology(watched=watched(calls), reading=reading(calls), revisions=revisions(states, gone))
    for resource, state in _known(states):
        top.states[resource] = state
        _index(top, resource, state)
    for pod in gone:
        _index_gone(top, pod)
    complaints = tuple(complaints)
    anew = read_anew(complaints)
    for one in (*states, *gone):
        if one.resource.kind == "Pod":
            home, named = (one.resource.namespace or "", of_resource(one.resource)[0][2]), _named(one.resource)
            top.pods[home].append((named, max(one.seen_at, anew.get(named, one.seen_at))))
    _index_dependencies(top, {(_named(s.workload), s.message) for s in complaints if s.workload}, edges)
    top.keeps_up = kept_up(changes, running_as=top.by_account, read_by=top.by_config)
    _index_rests(top)
    top.has_default_priority = any(r.kind == "PriorityClass" and s.get("globalDefault") for r, s in top.states.items())
    return top


def _known(states: Iterable[ObjectState]) -> Iterator[tuple[Resource, State]]:
    yield from ((known.resource, known.state) for known in states if known.state is not None)


def _index(top: Topology, resource: Resource, state: State) -> None:
    if is_custom(resource) or resource.kind == "HorizontalPodAutoscaler":
        _index_referer(top, resource, state)
    _index_labels(top, resource, state)
    if is_custom(resource) or resource.kind == "Service" or front_doors.is_door(resource):
        top.beside[resource.namespace or "", resource.kind].append(resource)
    if resource.kind in WORKLOADS and resource.kind != "ReplicaSet":
        _index_workload(top, resource, state)
    elif resource.kind == "Pod" and (node := _get(state, "spec", "nodeName")):
        top.by_node[str(node)].add((resource.namespace or "", of_resource(resource)[0][2]))
    elif resource.kind == "Namespace":
        top.namespace_labels[resource.name] = _get(state, "metadata", "labels") or {}
    elif _SELECTING.search(resource.kind):
        top.selecting.update(_selecting(state))
    elif resource.kind in ACCESS and not is_custom(resource):
        _index_access(top, resource, state)
    elif "." in resource.api_group and (secret := _get(state, "spec", "secretName")):
        top.fills_secret[(resource.namespace or "", str(secret))].add((resource.kind, resource.name))


def _index_labels(top: Topology, resource: Resource, state: State) -> None:
    """What a custom resource is called, and what its labels, or a Node's, say."""
    if is_custom(resource):
        top.customs_named[resource.namespace or "", resource.name].append(resource)
    elif resource.kind != "Node":
        return
    for key, value in (_get(state, "metadata", "labels") or {}).items():
        domain, _, kind = key.partition("/")
        if kind:
            top.labelled[kind, str(value)].append((domain, resource))


def _index_referer(top: Topology, resource: Resource, state: State) -> None:
    top.customs[resource.api_group, resource.kind] += 1
    for kind, namespace, name in references(state, resource.namespace or ""):
        for home in {namespace, ""} if kind else {namespace}:  # a ClusterIssuer has no namespace
            top.referers[kind, home, name].add(resource)
    for label in node_labels(state.get("spec")):
        top.choosing[label].add(resource)


def _index_gone(top: Topology, pod: ObjectState) -> None:
    if pod.deleted_at is not None and (node := _get(pod.state, "spec", "nodeName")):
        home = (pod.resource.namespace or "", of_resource(pod.resource)[0][2])
        top.left[str(node)].append((home, pod.deleted_at))


def _selecting(value: Any, *, here: bool = False) -> Iterator[str]:
    """The keys in every namespaceSelector within a value."""
    if isinstance(value, list):
        for inner in value:
            yield from _selecting(inner, here=here)
    elif isinstance(value, dict):
        if here:
            yield from keys_of([value])
        for key, inner in value.items():
            yield from _selecting(inner, here=key == "namespaceSelector")


def _named(resource: Resource) -> Named:
    return resource.namespace or "", resource.name


def _index_dependencies(top: Topology, complaints: Iterable[tuple[Named, str]], edges: Iterable[CallEdge]) -> None:
    """Who calls which Service, and which workloads stand behind it."""
    services = {(r.namespace or "", r.name): state for r, state in top.states.items() if r.kind == "Service"}
    top.services = frozenset(services)
    for resource, state in top.states.items():
        for hook in state.get("webhooks") or [] if resource.kind.endswith("WebhookConfiguration") else ():
            for key in _answering(hook, resource.name, services, top):
                top.answers[key].append((resource.kind, hook))
        if resource.kind == "APIService" and isinstance(asked := _get(state, "spec", "service"), dict):
            top.groups[str(asked.get("namespace")), str(asked.get("name"))].add(resource.name.partition(".")[2])
    _index_clients(top, top.services, complaints)
    _index_counted(top, edges)
    for service, state in services.items():
        for key in servers_of(state, service[0], top):
            top.fronts[key].add(service)
            for client in top.clients.get(service, set()) - {key}:
                top.upstream[client].add(key)


def _index_counted(top: Topology, edges: Iterable[CallEdge]) -> None:
    """Of workloads that are known: a mesh remembers for a while who is gone."""
    for one in edges:
        if one.caller in top.labels:
            if one.kind == SERVICE:
                top.clients[one.callee].add(one.caller)
            else:
                top.upstream[one.caller].add(one.callee)


def _index_rests(top: Topology) -> None:
    for client, servers in top.upstream.items():
        top.rests_on[client] |= servers
    for writer, served in top.keeps_up.items():
        for reader in served:
            top.rests_on[reader].add(writer)


def _index_clients(top: Topology, known: frozenset[Named], complaints: Iterable[tuple[Named, str]]) -> None:
    """Who is told of which Service, or names it: by its DNS name, or by the variables that pods start with."""
    for resource, state in top.states.items():
        for host in front_doors.served(state) if front_doors.is_door(resource) else ():
            top.doors[host].update((resource.namespace or "", name) for name in front_doors.backends(state))
    by_variable = {(here, one): (here, name) for here, name in known for one in dependencies.variables(name)}
    said = ((key, "", text) for key, text in complaints if key in top.labels)
    for key, name, text in (*_configured(top), *said):
        top.told[text].add(key)
        if "://" in text and _OUTSIDE.match(text):
            top.outside[key].add(text)
        for service in dependencies.hosts(name, text, key[0], known=known):
            top.clients[service].add(key)
        for host in front_doors.named(text, top.doors) if top.doors else ():
            top.callers[host].add(key)
            for service in top.doors[host]:
                top.clients[service].add(key)
        for variable in dependencies.variables_in(text):
            if started_with := by_variable.get((key[0], variable)):
                top.clients[started_with].add(key)
                top.by_config["Service", *started_with].add(key)


def _answering(hook: State, name: str, services: dict[Named, State], top: Topology) -> list[Named]:
    """The workloads behind the Service that a webhook calls; where it has a URL, by convention those called like it."""
    asked = _get(hook, "clientConfig", "service")
    if not isinstance(asked, dict):
        return [key for key in top.labels if key[1] == name]
    service = (str(asked.get("namespace")), str(asked.get("name")))
    return servers_of(services.get(service, {}), service[0], top)


def _configured(top: Topology) -> Iterator[tuple[Named, str, str]]:
    """(workload, name, text) of everything that workloads are told, in their own spec or in a ConfigMap."""
    for resource, state in top.states.items():
        here = resource.namespace or ""
        if resource.kind in WORKLOADS and resource.kind != "ReplicaSet":
            for name, text in dependencies.told((pod_template(state) or {}).get("spec") or {}):
                yield (here, resource.name), name, text
        elif resource.kind == "ConfigMap" and isinstance(state.get("data"), dict):
            for key in top.by_config.get(("ConfigMap", here, resource.name), ()):
                yield from ((key, name, text) for name, text in state["data"].items() if isinstance(text, str))


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
    selector = _get(service, "spec", "selector")
    return [key for key in top.in_namespace.get(namespace, ()) if selector and selects(selector, top.labels[key])]


def servers_of(service: State, namespace: str, top: Topology) -> list[Named]:
    """The workloads whose pods a Service selects; where none is, the one that it would select but for labels that no
    template has: an operator labels the primary of its database, as Patroni does
    (https://patroni.readthedocs.io/en/latest/kubernetes.html)."""
    if found := behind(service, namespace, top):
        return found
    there = [(key, top.labels[key]) for key in top.in_namespace.get(namespace, ())]
    known = {label for _, labels in there for label in labels}
    selector = {k: v for k, v in (_get(service, "spec", "selector") or {}).items() if k in known}
    fits = [key for key, labels in there if selector and selects(selector, labels)]
    return fits if len(fits) == 1 else []


def _index_workload(top: Topology, resource: Resource, state: State) -> None:
    template = pod_template(state)
    key = (resource.namespace or "", resource.name)
    if template is None:
        return
    spec = template.get("spec") or {}
    account = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
    top.by_account[(key[0], account)].add(key)
    top.accounts[key] = account
    if not all(_get(one, "resources", "limits") for one in spec.get("containers") or []):
        top.unlimited.add(key)
    top.wanted[key] = pods_at_once(state["spec"])
    top.labels[key] = _get(template, "metadata", "labels") or {}
    top.in_namespace[key[0]].append(key)
    if resource.kind == "DaemonSet":
        top.daemon_sets.add(key)
        is_critical = spec.get("priorityClassName") == _NODE_CRITICAL
        if _sets_up_nodes(spec):
            top.runtimes.add(key)
        if key[0] == "kube-system" or spec.get("hostNetwork") or is_critical:
            top.node_parts.add(key)
    _index_placing(top, key, spec)
    _index_read(top, key, state["spec"], spec)


def _index_read(top: Topology, key: Named, own: State, spec: State) -> None:
    """What the pods of a workload read, or are made by. ``own`` is its spec, ``spec`` theirs."""
    for claim in own.get("volumeClaimTemplates") or []:  # without a class it has the default one
        top.by_config[("StorageClass", "", str(_get(claim, "spec", "storageClassName") or ""))].add(key)
    for kind, name, is_live in read_by(spec):
        top.by_config[(kind, key[0], name)].add(key)
        if is_live:
            top.live[(kind, key[0], name)].add(key)
    for kind, path in (("PriorityClass", "priorityClassName"), ("RuntimeClass", "runtimeClassName")):
        if spec.get(path):
            top.by_config[(kind, "", spec[path])].add(key)


def _sets_up_nodes(spec: State) -> bool:
    """Whether pods write into directories of their nodes by which a kubelet or a container runtime goes."""
    paths = (_get(volume, "hostPath", "path") for volume in spec.get("volumes") or [])
    return any(_CONFIGURES_NODES.match(str(path)) for path in paths if path)


def _index_placing(top: Topology, key: Named, spec: State) -> None:
    for label in _placed_by(spec):
        top.placing[label].add(key)
    for port in _numbers(spec.get("containers"), "hostPort"):
        top.by_port[port].add(key)


def _placed_by(spec: State) -> Iterator[str]:
    """The label keys of nodes by which a pod's spec says where it may run."""
    affinity = spec.get("affinity") or {}
    yield from spec.get("nodeSelector") or {}
    yield from _strings(affinity.get("nodeAffinity"), "key")
    yield from _strings([affinity, spec.get("topologySpreadConstraints")], "topologyKey")


def _numbers(containers: Any, name: str) -> Iterator[int]:
    """Every number of that name in the ports of containers."""
    ports = (port for one in containers or () for port in one.get("ports") or ())
    yield from (port[name] for port in ports if isinstance(port.get(name), int))


def _strings(value: Any, name: str) -> Iterator[str]:
    """Every string of that name within a value."""
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _strings(inner, name)
    if isinstance(value, dict) and isinstance(found := value.get(name), str):
        yield found


def pod_template(state: State) -> dict[str, Any] | None:
    """The pod template of a workload, wherever its kind keeps it."""
    spec: Any = state.get("spec") or {}
    if isinstance(spec, dict) and "jobTemplate" in spec:
        spec = _get(spec, "jobTemplate", "spec") or {}
    template = spec.get("template") if isinstance(spec, dict) else None
    return template if isinstance(template, dict) else None


def pods_at_once(spec: dict[str, Any]) -> int:
    """Replicas; the parallel pods of a Job or of one run of a CronJob."""
    job = (spec.get("jobTemplate") or {}).get("spec") if "jobTemplate" in spec else spec
    count = spec.get("replicas", (job or {}).get("parallelism", 1))
    return count if isinstance(count, int) else 1


def _index_access(top: Topology, resource: Resource, state: State) -> None:
    """Whom a binding gives which role, and of which others a role is made."""
    for label in keys_of(_get(state, "aggregationRule", "clusterRoleSelectors") or ()):
        top.aggregated[label].add(resource.name)
    if not resource.kind.endswith("Binding"):
        return
    role: Any = state.get("roleRef") or {}
    where = "" if role.get("kind") == "ClusterRole" else (resource.namespace or "")
    top.subjects[(str(role.get("kind")), where, str(role.get("name")))].update(subject_users(state, resource.namespace))


def subject_users(state: State, namespace: str | None) -> set[str]:
    """The user names (groups as "group:NAME") that a binding names."""
    users = set()
    for subject in state.get("subjects") or []:
        if not isinstance(subject, dict):
            continue
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


def _get(value: Any, *path: str) -> Any:
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value
