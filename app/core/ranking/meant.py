"""What an alert means that names no object as the cluster does: a probe from outside knows a host that an Ingress
serves, an exporter an instance that is a node."""

from __future__ import annotations

from msgspec.structs import replace

from app.core.alerted import on_node
from app.core.edges import front_doors
from app.core.edges.topology import Topology
from app.core.findings import Incident
from app.core.model import Resource
from app.core.objects.untyped import part


def with_meant(incident: Incident, top: Topology) -> Incident:
    """The incident; where its alerts name neither a workload nor a namespace, it is about the nodes that are instances
    of theirs, and what stands behind the hosts that they name, and in between."""
    scope = incident.scope
    if scope.control_plane or scope.namespaces or scope.workloads:
        return incident
    told = {alert.labels for alert in incident.alerts}
    nodes = {*scope.nodes, *(one for labels in told for one in _instances(labels, incident.cluster, top))}
    hosts = front_doors.named(front_doors.said(incident), top.doors)
    services = {service for host in hosts for service in top.doors[host]}
    meant = {key for key, fronts in top.fronts.items() if fronts & services}
    if services:
        meant |= {key for key in top.labels if front_doors.PROXIES.search(key[1])}
    # What stands before it may be in any namespace.
    workloads = tuple(sorted(f"{namespace}/{name}" for namespace, name in meant))
    return replace(incident, scope=replace(scope, workloads=workloads, nodes=tuple(sorted(nodes))))


def _instances(labels: tuple[tuple[str, str], ...], cluster: str, top: Topology) -> set[str]:
    """The nodes that an exporter's alert calls instances, with or without a port; where that is an address, the node on
    which the exporter runs."""
    found = {value.partition(":")[0] for label, value in labels if label == "instance"}
    if pod := on_node(labels):
        found.add(str(part(top.states.get(Resource(cluster, "", "Pod", *pod)), "spec", "nodeName")))
    return found & top.by_node.keys()
