"""The states of a cluster's objects -> the edges between them.

Nothing is read here: states are handed in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from app.core.counted import NO_CALLS, Calls
from app.core.edges import front_doors
from app.core.edges.mesh_calls import SERVICE
from app.core.edges.read_by import read_anew, read_by
from app.core.edges.references import is_custom, node_labels, reading, references, secret_made, watched
from app.core.edges.renewals import kept_up
from app.core.edges.topology import (
    Named,
    State,
    Topology,
    pod_spec,
    pod_template,
    pods_at_once,
    servers_of,
    subject_users,
)
from app.core.entities import ACCESS, WORKLOADS, of_resource
from app.core.model import CallEdge, Change, ObjectState, Resource, Symptom
from app.core.objects import dependencies
from app.core.objects.revisions import revisions
from app.core.objects.selectors import keys_of
from app.core.objects.untyped import fields, objects, part

_CONFIGURES_NODES = re.compile(
    r"/(?:\Z|etc/(?:containerd|cri|docker|crio|kubernetes|cni|systemd|sysctl)|opt/cni)|/etc/?\Z"
)
"""https://kubernetes.io/docs/setup/production-environment/container-runtimes/ ."""
_OUTSIDE = re.compile(r"\w+://(?:[^/@\s]*@)?(?:[\w-]+\.){2,}(?!(?:svc|local|internal|cluster)\b)[a-z]{2,}(?=[:/]|\Z)")
"""An address of three words, of which the last is not one of a cluster's own names."""
_NODE_CRITICAL = "system-node-critical"
"""https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/"""
_SELECTING = re.compile(r"(?:WebhookConfiguration|Policy|PolicyBinding)$")


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
        top.of_kind[resource.api_group, resource.kind].append(state)
        _index(top, resource, state)
    for pod in gone:
        _index_gone(top, pod)
    complaints = tuple(complaints)
    anew = read_anew(complaints)
    for one in (*states, *gone):
        if one.resource.kind == "Pod":
            home, named = (one.resource.namespace or "", of_resource(one.resource)[0][2]), _named(one.resource)
            top.pods[home].append((named, max(one.seen_at, anew.get(named, one.seen_at))))
    of_pods = {s.workload for s in complaints if s.workload and s.resource and s.resource.kind == "Pod"}
    for whose in (one for one in of_pods if _named(one) not in top.labels):
        top.unlisted[whose.namespace or ""].add((whose.name, of_resource(whose)[0]))
    _index_dependencies(top, {(_named(s.workload), s.message) for s in complaints if s.workload}, edges)
    _index_pulls(top)
    top.keeps_up = kept_up(changes, running_as=top.by_account, read_by=top.by_config)
    _index_reads(top)
    _index_rests(top)
    _index_parameters(top)
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
    elif resource.kind == "Pod" and (node := part(state, "spec", "nodeName")):
        top.by_node[str(node)].add((resource.namespace or "", of_resource(resource)[0][2]))
    elif resource.kind == "Namespace":
        top.namespace_labels[resource.name] = fields(part(state, "metadata", "labels"))
    elif _SELECTING.search(resource.kind):
        top.selecting.update(_selecting(state))
    elif resource.kind in ACCESS and not is_custom(resource):
        _index_access(top, resource, state)
    elif "." in resource.api_group and (secret := secret_made(resource, state)):
        top.fills_secret[(resource.namespace or "", secret)].add((resource.kind, resource.name))


def _index_labels(top: Topology, resource: Resource, state: State) -> None:
    """What a custom resource is called, and what its labels, or a Node's, say."""
    if is_custom(resource):
        top.customs_named[resource.namespace or "", resource.name].append(resource)
    elif resource.kind != "Node":
        return
    for key, value in fields(part(state, "metadata", "labels")).items():
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
    if pod.deleted_at is not None and (node := part(pod.state, "spec", "nodeName")):
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
        for hook in objects(state.get("webhooks")) if resource.kind.endswith("WebhookConfiguration") else ():
            for key in _answering(hook, resource.name, services, top):
                top.answers[key].append((resource.kind, hook))
        if resource.kind == "APIService" and isinstance(asked := part(state, "spec", "service"), dict):
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


def _index_reads(top: Topology) -> None:
    for kind in ("ConfigMap", "Secret"):
        for named, users in top.by_config.items():
            for reader in users if named[0] == kind else ():
                top.reads[reader].append(named)


def _index_rests(top: Topology) -> None:
    for client, servers in top.upstream.items():
        top.rests_on[client] |= servers
    for writer, served in top.keeps_up.items():
        for reader in served:
            top.rests_on[reader].add(writer)


def _index_parameters(top: Topology) -> None:
    """What admission policies go by, where a binding names it
    (https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/#parameter-resources)."""
    kinds = {
        resource.name: str(part(state, "spec", "paramKind", "kind"))
        for resource, state in top.states.items()
        if resource.kind.endswith("AdmissionPolicy")
    }
    for resource, state in top.states.items():
        if resource.kind.endswith("AdmissionPolicyBinding") and (name := part(state, "spec", "paramRef", "name")):
            kind = kinds.get(str(part(state, "spec", "policyName")), "")
            top.parameters.add((kind, str(part(state, "spec", "paramRef", "namespace") or ""), str(name)))


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
    asked = part(hook, "clientConfig", "service")
    if not isinstance(asked, dict):
        return [key for key in top.labels if key[1] == name]
    service = (str(asked.get("namespace")), str(asked.get("name")))
    return servers_of(services.get(service, {}), service[0], top)


def _configured(top: Topology) -> Iterator[tuple[Named, str, str]]:
    """(workload, name, text) of everything that workloads are told, in their own spec, in a ConfigMap, or of where the
    files are that they claim."""
    for resource, state in top.states.items():
        here = resource.namespace or ""
        if resource.kind in WORKLOADS and resource.kind != "ReplicaSet":
            for name, text in dependencies.told(pod_spec(state)):
                yield (here, resource.name), name, text
        elif resource.kind == "PersistentVolume" and (server := part(state, "spec", "nfs", "server")):
            claim = fields(part(state, "spec", "claimRef"))
            here, name = str(claim.get("namespace")), str(claim.get("name"))
            for key in top.by_config.get(("PersistentVolumeClaim", here, name), ()):
                yield key, "server", str(server)
        elif resource.kind == "ConfigMap" and isinstance(state.get("data"), dict):
            for key in top.by_config.get(("ConfigMap", here, resource.name), ()):
                yield from ((key, name, text) for name, text in state["data"].items() if isinstance(text, str))


def _index_workload(top: Topology, resource: Resource, state: State) -> None:
    template = pod_template(state)
    key = (resource.namespace or "", resource.name)
    if template is None:
        return
    spec = fields(template.get("spec"))
    account = str(spec.get("serviceAccountName") or spec.get("serviceAccount") or "default")
    top.by_account[(key[0], account)].add(key)
    top.accounts[key] = account
    if not spec.get("imagePullSecrets"):
        top.pulls_as[(key[0], account)].add(key)
    for word in {key[1], *key[1].split("-")}:
        top.by_word[word].add(key)
    for word in (key[1], key[1].partition("-")[0]):
        top.called[word].add(key)
    if not all(part(one, "resources", "limits") for one in objects(spec.get("containers"))):
        top.unlimited.add(key)
    top.wanted[key] = pods_at_once(state["spec"])
    top.labels[key] = fields(part(template, "metadata", "labels"))
    top.in_namespace[key[0]].append(key)
    for label, value in top.labels[key].items():
        top.with_label[key[0], label, str(value)].append(key)
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
    for claim in objects(own.get("volumeClaimTemplates")):  # without a class it has the default one
        top.by_config[("StorageClass", "", str(part(claim, "spec", "storageClassName") or ""))].add(key)
    for kind, name, is_live in read_by(spec):
        top.by_config[(kind, key[0], name)].add(key)
        if is_live:
            top.live[(kind, key[0], name)].add(key)
    for kind, path in (("PriorityClass", "priorityClassName"), ("RuntimeClass", "runtimeClassName")):
        if spec.get(path):
            top.by_config[(kind, "", str(spec[path]))].add(key)


def _index_pulls(top: Topology) -> None:
    """Pods that name no pull secret have those of their ServiceAccount:
    https://kubernetes.io/docs/tasks/configure-pod-container/configure-service-account/ ."""
    for account in top.of_kind["", "ServiceAccount"]:
        here, name = (str(part(account, "metadata", word) or "") for word in ("namespace", "name"))
        for secret in objects(account.get("imagePullSecrets")):
            top.by_config[("Secret", here, str(secret.get("name", "")))] |= top.pulls_as[(here, name)]


def _sets_up_nodes(spec: State) -> bool:
    """Whether pods write into directories of their nodes by which a kubelet or a container runtime goes."""
    paths = (part(volume, "hostPath", "path") for volume in objects(spec.get("volumes")))
    return any(_CONFIGURES_NODES.match(str(path)) for path in paths if path)


def _index_placing(top: Topology, key: Named, spec: State) -> None:
    for label in _placed_by(spec):
        top.placing[label].add(key)
    for port in _numbers(spec.get("containers"), "hostPort"):
        top.by_port[port].add(key)


def _placed_by(spec: State) -> Iterator[str]:
    """The label keys of nodes by which a pod's spec says where it may run."""
    affinity = fields(spec.get("affinity"))
    yield from fields(spec.get("nodeSelector"))
    yield from _strings(affinity.get("nodeAffinity"), "key")
    yield from _strings([affinity, spec.get("topologySpreadConstraints")], "topologyKey")


def _numbers(containers: Any, name: str) -> Iterator[int]:
    """Every number of that name in the ports of containers."""
    ports = (port for one in objects(containers) for port in objects(one.get("ports")))
    yield from (port[name] for port in ports if isinstance(port.get(name), int))


def _strings(value: Any, name: str) -> Iterator[str]:
    """Every string of that name within a value."""
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _strings(inner, name)
    if isinstance(value, dict) and isinstance(found := value.get(name), str):
        yield found


def _index_access(top: Topology, resource: Resource, state: State) -> None:
    """Whom a binding gives which role, and of which others a role is made."""
    for label in keys_of(objects(part(state, "aggregationRule", "clusterRoleSelectors"))):
        top.aggregated[label].add(resource.name)
    if not resource.kind.endswith("Binding"):
        return
    role = fields(state.get("roleRef"))
    where = "" if role.get("kind") == "ClusterRole" else (resource.namespace or "")
    top.subjects[(str(role.get("kind")), where, str(role.get("name")))].update(subject_users(state, resource.namespace))
