"""Where a Service sends what it is asked, and where the pods behind it say that they listen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from app.core.edges.topology import State, Topology, behind, pod_template
from app.core.entities import WORKLOADS
from app.core.model import Change
from app.core.objects.untyped import objects, part

_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_KEYS = frozenset({"containerPort", "port", "name"})

Port = int | str
"""By number or by name: https://kubernetes.io/docs/concepts/services-networking/service/#field-spec-ports ."""


def missed(change: Change, top: Topology) -> str:
    """The Service that sends to where no pod listens any more, and the port, for a person; "" where none does.

    Pods need not say where they listen: only what was a port of theirs, and is none of those that they tell, is missed.
    """
    if change.resource.kind == "Service":
        return _sends_elsewhere(change, top)
    if change.resource.kind not in WORKLOADS:
        return ""
    key, taken = (change.resource.namespace or "", change.resource.name), set(_taken(change))
    there = _listens(top.states.get(change.resource) or {}) if taken else set()
    for service in sorted(top.fronts.get(key, ())) if there else ():
        where = replace(change.resource, api_group="", kind="Service", namespace=service[0], name=service[1])
        state = top.states.get(where) or {}
        for port in _targets(state):
            if port in taken and port not in there and behind(state, key[0], top) == [key]:
                return _said(service[1], port)
    return ""


def _sends_elsewhere(change: Change, top: Topology) -> str:
    moved = [d for d in change.diffs if d.path[:2] == ("spec", "ports") and d.path[-1] == "targetPort"]
    if not moved:
        return ""
    served = set(behind(top.states.get(change.resource) or {}, change.resource.namespace or "", top))
    told = [
        _listens(state)
        for one, state in top.states.items()
        if one.kind in WORKLOADS and (one.namespace or "", one.name) in served
    ]
    for diff in moved:
        is_told = bool(told) and _is_port(diff.old) and _is_port(diff.new)
        if is_told and all(diff.old in ports and diff.new not in ports for ports in told):
            return _said(change.resource.name, diff.new)
    return ""


def _said(service: str, port: object) -> str:
    return f"No container behind Service {service} says to listen at {port}"


def _targets(service: State) -> Iterator[Port]:
    for port in objects(part(service, "spec", "ports")):
        yield from _ports(port.get("targetPort", port.get("port")))


def _listens(workload: State) -> set[Port]:
    """The ports of the containers, and those at which they are probed."""
    found = set[Port]()
    for container in objects(part(pod_template(workload) or {}, "spec", "containers")):
        for port in objects(container.get("ports")):
            found.update(_ports(port.get("containerPort"), port.get("name")))
        for probe in _PROBES:
            found.update(_ports(*(part(container, probe, how, "port") for how in ("httpGet", "tcpSocket", "grpc"))))
    return found


def _taken(change: Change) -> Iterator[Port]:
    """What was a port of a container before an edit."""
    for diff in change.diffs:
        if "containers" not in diff.path:
            continue
        if diff.path[-1] in _KEYS:
            yield from _ports(diff.old)
        elif isinstance(diff.old, dict):
            yield from _ports(*(diff.old[key] for key in _KEYS & diff.old.keys()))


def _ports(*values: Any) -> Iterator[Port]:
    return filter(_is_port, values)


def _is_port(value: Any) -> bool:
    return isinstance(value, (int, str))
