"""Whether a pod reaches what it calls: names, backends, policies, routes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from ipaddress import ip_address, ip_network
from typing import Any

from tests.lab.api import Json, World

DNS = ("kube-system", "kube-dns")
INGRESS_CONTROLLER, INGRESS_CLASS = ("ingress-nginx", "ingress-nginx"), "nginx"
CONTROL_PLANE = "endpointslice-controller.k8s.io"
"""Who keeps the EndpointSlices of a Service that has a selector."""
RESOLVER = "169.254.169.253"
"""The one that the cluster's DNS asks for all names that are not the cluster's own."""
POOL = "10.244"
"""How the addresses of pods begin that there are routes for between nodes."""

EVERYWHERE = {"cidr": "0.0.0.0/0"}
ZONE = re.compile(r"^([\w.-]*?)\.?:53 \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
"""A block of a Corefile: the zone, which is empty for the one of all others, and what is said of it."""


def unreachable(
    world: World,
    pod: Json,
    namespace: str,
    service: str,
    *,
    cut_off: AbstractSet[str] = frozenset(),
    apart: AbstractSet[str] = frozenset(),
) -> str:
    """Why a pod does not reach a Service, by names, backends, policies and routes; or ""."""
    corefile = world["ConfigMap"].get(("kube-system", "coredns"), {}).get("data", {}).get("Corefile", "")
    servers = backends(world, *DNS)
    if "kubernetes cluster.local" not in corefile or not servers or _asks_its_node(pod):
        return f"lookup {service}.{namespace}.svc.cluster.local: no such host"
    if not any(_connects(world, pod, server, 53, cut_off, apart) for server in servers):
        return f"lookup {service}.{namespace}.svc.cluster.local: i/o timeout"
    found = backends(world, namespace, service)
    if not found:
        return _refusal(world, namespace, service)
    if world["Service"].get((namespace, service), {}).get("spec", {}).get("internalTrafficPolicy") == "Local":
        found = [one for one in found if one["spec"].get("nodeName") == pod["spec"].get("nodeName")]
    if not any(_connects(world, pod, backend, 8080, cut_off, apart) for backend in found):
        return f"dial tcp {service}.{namespace}: i/o timeout"
    return ""


def _refusal(world: World, namespace: str, service: str) -> str:
    """What who calls a Service without a backend is told: it may be gone, or name pods that are."""
    if (namespace, service) not in world["Service"]:
        return f"lookup {service}.{namespace}.svc.cluster.local: no such host"
    is_stale = bool(_ready_names(world, namespace, service))
    return f"dial tcp {service}.{namespace}: {'no route to host' if is_stale else 'connection refused'}"


def shadowing(world: World, pod: Json, host: str) -> str:
    """The address of a Service that is found for a name outside of the cluster, or "".

    A name with few dots is looked for in the cluster's own domains first, and ``svc.cluster.local`` is among them.
    """
    name, _, namespace = host.partition(".")
    service = world["Service"].get((namespace, name))
    return "" if service is None or _asks_its_node(pod) else str(service["spec"].get("clusterIP", ""))


def is_lacked(world: World, pod: Json, host: str) -> bool:
    """Whether the cluster's DNS answers for a zone that a name outside is in, and does not have that name.

    A zone of its own is a block of the Corefile that forwards nothing and lets nothing fall through.
    """
    if _asks_its_node(pod):
        return False
    corefile = world["ConfigMap"].get(("kube-system", "coredns"), {}).get("data", {}).get("Corefile", "")
    return any(
        zone and host.endswith(f".{zone}") and host not in block and "forward" not in block
        for zone, block in ZONE.findall(corefile)
    )


def goes_round(world: World, pod: Json, host: str) -> bool:
    """Whether a name is in a zone for which the cluster's DNS asks itself, by the address of its own Service."""
    address = str(world["Service"].get(DNS, {}).get("spec", {}).get("clusterIP", ""))
    return not _asks_its_node(pod) and any(host.endswith(f".{zone}") for zone in zones_led_to(world, address))


def zones_led_to(world: World, address: str) -> list[str]:
    """The zones that the Corefile has somebody at an address asked for."""
    corefile = world["ConfigMap"].get(("kube-system", "coredns"), {}).get("data", {}).get("Corefile", "")
    asked = (f"forward . {address}\n", f"forward . {address}:53\n")
    return [zone for zone, block in ZONE.findall(corefile) if zone and address and any(one in block for one in asked)]


def are_shut_in(world: World, pod: Json) -> bool:
    """Whether policies keep all servers of names that a pod asks from the resolver outside."""
    servers = [] if _asks_its_node(pod) else backends(world, *DNS)
    return bool(servers) and not any(leaves(world, server, RESOLVER, 53) for server in servers)


def lacks_address(world: World, pod: Json, most: int) -> bool:
    """Whether the other pods of its node have all the addresses that there are."""
    node, uid = pod["spec"].get("nodeName"), pod["metadata"]["uid"]
    others = (one for one in world["Pod"].values() if one["spec"].get("nodeName") == node)
    taken = (one["metadata"]["uid"] != uid and _holds_address(one) for one in others)
    return not pod["spec"].get("hostNetwork") and sum(taken) >= most


def _holds_address(pod: Json) -> bool:
    """What has ended has none any more; what is on its node's network needs none."""
    status = pod.get("status", {})
    is_over = status.get("phase") in ("Succeeded", "Failed")
    return "podIP" in status and not is_over and not pod["spec"].get("hostNetwork")


def unserved(world: World, host: str) -> str:
    """Why nobody is answered who asks for a public name, by Ingresses, their controller and backends; or ""."""
    if not backends(world, *INGRESS_CONTROLLER):
        return "dial tcp 198.51.100.7:443: connect: connection refused"
    found = [
        (namespace, path["backend"]["service"])
        for (namespace, _), ingress in world["Ingress"].items()
        if ingress["spec"].get("ingressClassName") == INGRESS_CLASS
        for rule in ingress["spec"].get("rules", ())
        if rule.get("host") == host
        for path in rule["http"]["paths"]
    ]
    if not found:
        return "404 Not Found (default backend)"
    behind = (
        _has_port(world["Service"].get((home, one["name"]), {}), one) and backends(world, home, one["name"])
        for home, one in found
    )
    return "" if any(behind) else "503 Service Temporarily Unavailable"


def led_to(world: World, namespace: str, ingress: Json) -> dict[str, bool]:
    """The Services that an Ingress leads to, and whether each has the port that is named: else nobody is found."""
    rules = ingress["spec"].get("rules", ())
    named = [path["backend"]["service"] for rule in rules for path in rule.get("http", {}).get("paths", ())]
    return {one["name"]: _has_port(world["Service"].get((namespace, one["name"]), {}), one) for one in named}


def _has_port(service: Json, backend: Json) -> bool:
    ports, named = service.get("spec", {}).get("ports", ()), backend.get("port", {})
    return not ports or any(named in ({"number": one["port"]}, {"name": one.get("name")}) for one in ports)


def _asks_its_node(pod: Json) -> bool:
    """Its names are resolved as its node's are: the cluster's are not among them."""
    policy, on_host = pod["spec"].get("dnsPolicy", "ClusterFirst"), pod["spec"].get("hostNetwork", False)
    return bool(policy == "Default" or (on_host and policy == "ClusterFirst"))


def backends(world: World, namespace: str, service: str) -> list[Json]:
    """The ready pods behind a Service, as its EndpointSlices say: one whose pods lack the port's name has no ports."""
    pods = world["Pod"]
    return [pods[namespace, name] for name in _ready_names(world, namespace, service) if (namespace, name) in pods]


def _ready_names(world: World, namespace: str, service: str) -> list[str]:
    """Of pods that its EndpointSlices call ready, also where nobody keeps them and such a pod is gone."""
    ports = world["Service"].get((namespace, service), {}).get("spec", {}).get("ports", ())
    return [
        endpoint["targetRef"]["name"]
        for piece in world["EndpointSlice"].values()
        if piece["metadata"]["namespace"] == namespace
        and piece["metadata"].get("labels", {}).get("kubernetes.io/service-name") == service
        and _leads_on(piece, ports)
        for endpoint in piece.get("endpoints") or ()
        if endpoint.get("conditions", {}).get("ready") and "targetRef" in endpoint
    ]


def _leads_on(piece: Json, ports: Sequence[Json]) -> bool:
    """Whether a slice has a port that is one of its Service's, by its name; the control plane keeps the two in step."""
    there = piece.get("ports") or ()
    if not ports or piece["metadata"]["labels"].get("endpointslice.kubernetes.io/managed-by") == CONTROL_PLANE:
        return bool(there)
    return not {one.get("name") or "" for one in there}.isdisjoint(one.get("name", "") for one in ports)


def lets_nobody_in(backend: Json, caller: str, apart: AbstractSet[str]) -> bool:
    """Whether a pod is on a node whose agent keeps namespaces apart, and its ``caller`` is of another one."""
    return backend["spec"].get("nodeName") in apart and backend["metadata"]["namespace"] != caller


def _is_routed(pod: Json) -> bool:
    """Whether other nodes have a route to its address; a pod whose address is not told yet asks nobody."""
    return str(pod.get("status", {}).get("podIP", POOL)).startswith(POOL)


def _connects(
    world: World, pod: Json, backend: Json, port: int, cut_off: AbstractSet[str], apart: AbstractSet[str]
) -> bool:
    """Whether there is a way, and the NetworkPolicies let a pod out to a backend, and into that one."""
    if lets_nobody_in(backend, pod["metadata"]["namespace"], apart):
        return False
    nodes = {one["spec"].get("nodeName", "") for one in (pod, backend)}
    if len(nodes) > 1 and (nodes & cut_off or not (_is_routed(pod) and _is_routed(backend))):
        return False
    out, into = ("Egress", "egress", "to"), ("Ingress", "ingress", "from")
    return _allowed(world, pod, backend, port, *out) and _allowed(world, backend, pod, port, *into)


def _allowed(world: World, pod: Json, other: Json, port: int, way: str, rules: str, peers: str) -> bool:
    """One way of the policies on a pod: by podSelector, labels of the other's namespace and number of the port."""
    policies = _policies(world, pod, way)
    if not policies:
        return True
    labels = other["metadata"].get("labels", {})
    home = other["metadata"]["namespace"]
    of_home = world["Namespace"].get(("", home), {}).get("metadata", {}).get("labels", {})
    home_labels = {**of_home, "kubernetes.io/metadata.name": home}
    near = home == pod["metadata"]["namespace"]
    for rule in (rule for policy in policies for rule in policy.get(rules) or ()):
        if rule.get("ports") and port not in [one.get("port", port) for one in rule["ports"]]:
            continue
        for peer in rule.get(peers, [{"namespaceSelector": {}}]):
            wanted = peer.get("namespaceSelector")
            same = near if wanted is None else _selects(wanted, home_labels)
            if same and _selects(peer.get("podSelector", {}), labels):
                return True
    return False


def leaves(world: World, pod: Json, address: str, port: int) -> bool:
    """Whether the policies on a pod let it out to an address that is no pod's."""
    policies = _policies(world, pod, "Egress")
    return not policies or any(
        port in [one.get("port", port) for one in rule.get("ports") or [{}]]
        and any(_holds(peer.get("ipBlock", {}), address) for peer in rule.get("to") or [{"ipBlock": EVERYWHERE}])
        for policy in policies
        for rule in policy.get("egress") or ()
    )


def _holds(block: Json, address: str) -> bool:
    """Whether an address is in a block of them, and not in what is taken out of it."""
    is_in = [ip_address(address) in ip_network(one) for one in (block.get("cidr"), *block.get("except", ())) if one]
    return is_in[:1] == [True] and not any(is_in[1:])


def _policies(world: World, pod: Json, way: str) -> list[Json]:
    """What those of one way say that are on a pod."""
    return [
        policy["spec"]
        for (namespace, _), policy in world["NetworkPolicy"].items()
        if namespace == pod["metadata"]["namespace"]
        and way in policy["spec"].get("policyTypes", ["Ingress"])
        and _selects(policy["spec"].get("podSelector", {}), pod["metadata"].get("labels", {}))
    ]


def _selects(selector: Json, labels: Mapping[str, Any]) -> bool:
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())
