"""What an alert means that names no object of the cluster: a probe from outside knows a host that an Ingress serves."""

from __future__ import annotations

from msgspec.structs import replace

from app.core import front_doors
from app.core.findings import Incident
from app.core.topology import Topology


def with_hosts(incident: Incident, top: Topology) -> Incident:
    """The incident; where its alerts name neither a workload nor a namespace but hosts that Ingresses or routes serve,
    it is about what stands behind these, and what is in between."""
    scope = incident.scope
    if scope.control_plane or scope.namespaces or scope.workloads or not top.doors:
        return incident
    said = " ".join(f"{alert.message} {' '.join(value for _, value in alert.labels)}" for alert in incident.alerts)
    services = {service for host in front_doors.named(said, top.doors) for service in top.doors[host]}
    if not services:
        return incident
    meant = {key for key, fronts in top.fronts.items() if fronts & services}
    meant |= {key for key in top.labels if front_doors.PROXIES.search(key[1])}
    # What stands before it may be in any namespace.
    return replace(incident, scope=replace(scope, workloads=tuple(sorted(f"{space}/{name}" for space, name in meant))))
