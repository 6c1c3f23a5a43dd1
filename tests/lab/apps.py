"""What the containers of the laboratory do: by their image, their configuration and what they can reach.

Nothing runs in them but a program that calls the API, where they have one. All else of a process is this description.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tests.lab.api import Caller, Json, World

DNS = ("kube-system", "kube-dns")


class CrashError(Exception):
    """A program ends with this message; its container is restarted."""


@dataclass(frozen=True)
class Problem:
    """Why a container is not well: it ``crash``es, is ``oom``-killed, ``killed`` as not alive, or is ``unready``."""

    kind: str
    message: str


@dataclass(frozen=True)
class Container:
    """What a container sees: its pod, its image's tag, its mounted ConfigMaps as they are now, its Secrets."""

    pod: Json
    tag: str
    config: Mapping[str, str]
    secret: Mapping[str, str]
    index: int = 0
    """Which of its pod's containers it is; sidecars come after the first."""
    seconds: float = 0.0
    """Since it was started."""

    @property
    def spec(self) -> Json:
        """Its own part of the pod's manifest."""
        found: Json = self.pod["spec"]["containers"][self.index]
        return found


@dataclass
class Process:
    """A container's program as it runs: it calls the API with the token that is bound to its pod."""

    api: Caller
    see: Callable[[], Container]
    rng: random.Random
    started: datetime
    lag: float
    """Seconds before a new behaviour shows: caches are warm, queues empty."""

    @property
    def tag(self) -> str:
        return self.see().tag

    @property
    def config(self) -> Mapping[str, str]:
        return self.see().config

    @property
    def env(self) -> Mapping[str, str]:
        """What its manifest sets to a value."""
        listed = self.see().pod["spec"]["containers"][0].get("env", ())
        return {one["name"]: one["value"] for one in listed if "value" in one}


Program = Callable[[Process], Awaitable[None]]


@dataclass
class App:
    """One image. ``check`` says what is wrong with a container, for reasons of its own."""

    image: str
    memory_mi: int = 90
    path: str = "/healthz"
    port: int = 8080
    upstreams: tuple[tuple[str, str], ...] = ()
    """Services (namespace, name) that it cannot do without."""
    capacity: float = 100.0
    """Requests a second that one container stands."""
    load: float = 0.0
    """Requests a second that all of its containers get."""
    answer_seconds: float = 0.0
    """How long an idle container takes to answer a probe; the nearer its load comes to its capacity, the longer."""
    check: Callable[[Container], Problem | None] = lambda container: None
    program: Program | None = None
    ends_after: float | None = None
    """Seconds after which it is done, as the work of a Job; None for what runs for ever."""
    agent: str = ""
    """User agent of its program, before the tag."""


@dataclass
class Outside:
    """What no API server knows of."""

    missing: set[str] = field(default_factory=set)
    """Images with tag that no registry has."""
    registry_up: bool = True
    dead_nodes: set[str] = field(default_factory=set)
    full_disks: set[str] = field(default_factory=set)
    """Nodes whose disk has no room."""
    broken: dict[str, str] = field(default_factory=dict)
    """Services outside of the cluster that do not answer, and why."""
    cut_off: set[str] = field(default_factory=set)
    """Nodes whose pods reach none of another node: there are no routes, or no wire."""


def diagnose(
    app: App, container: Container, world: World, *, running: int, cut_off: AbstractSet[str] = frozenset()
) -> Problem | None:
    """What is wrong with a running container; ``running`` are the containers of its image."""
    spec = container.spec
    limit = spec.get("resources", {}).get("limits", {}).get("memory")
    if limit and mebibytes(limit) < app.memory_mi:
        return Problem("oom", f"needs {app.memory_mi}Mi, may have {limit}")
    if found := app.check(container):
        return found
    for probe, kind in (("livenessProbe", "killed"), ("readinessProbe", "unready")):
        asked = spec.get(probe, {}).get("httpGet")
        if asked and asked["port"] != app.port:
            return Problem(kind, f"probe failed: dial tcp :{asked['port']}: connect: connection refused")
        if asked and asked["path"] != app.path:
            return Problem(kind, "probe failed: HTTP probe failed with statuscode: 404")
    if late := _answers_late(app, spec, running):
        return late
    for namespace, name in app.upstreams:
        if trouble := unreachable(world, container.pod, namespace, name, cut_off=cut_off):
            return Problem("unready", f"probe failed: HTTP probe failed with statuscode: 503 ({trouble})")
    if app.load > app.capacity * max(running, 1):
        return Problem(
            "unready", "probe failed: context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        )
    return None


def _answers_late(app: App, spec: Json, running: int) -> Problem | None:
    """A liveness probe is not answered in its time: a queue grows as the share of the capacity that is free shrinks."""
    free = 1 - app.load / (app.capacity * max(running, 1))
    probe = spec.get("livenessProbe")
    if not probe or free <= 0 or app.answer_seconds / free <= probe.get("timeoutSeconds", 1):
        return None
    return Problem("killed", "probe failed: context deadline exceeded (Client.Timeout exceeded while awaiting headers)")


def unreachable(
    world: World, pod: Json, namespace: str, service: str, *, cut_off: AbstractSet[str] = frozenset()
) -> str:
    """Why a pod does not reach a Service, by names, backends, policies and routes; or ""."""
    corefile = world["ConfigMap"].get(("kube-system", "coredns"), {}).get("data", {}).get("Corefile", "")
    servers = _backends(world, *DNS)
    if "kubernetes cluster.local" not in corefile or not servers:
        return f"lookup {service}.{namespace}.svc.cluster.local: no such host"
    if not any(_connects(world, pod, server, 53, cut_off) for server in servers):
        return f"lookup {service}.{namespace}.svc.cluster.local: i/o timeout"
    backends = _backends(world, namespace, service)
    if not backends:
        return f"dial tcp {service}.{namespace}: connection refused"
    if not any(_connects(world, pod, backend, 8080, cut_off) for backend in backends):
        return f"dial tcp {service}.{namespace}: i/o timeout"
    return ""


def _backends(world: World, namespace: str, service: str) -> list[Json]:
    """The ready pods behind a Service, as its EndpointSlices say."""
    pods = world["Pod"]
    names = [
        endpoint["targetRef"]["name"]
        for piece in world["EndpointSlice"].values()
        if piece["metadata"]["namespace"] == namespace
        and piece["metadata"].get("labels", {}).get("kubernetes.io/service-name") == service
        for endpoint in piece.get("endpoints") or ()
        if endpoint.get("conditions", {}).get("ready") and "targetRef" in endpoint
    ]
    return [pods[namespace, name] for name in names if (namespace, name) in pods]


def _connects(world: World, pod: Json, backend: Json, port: int, cut_off: AbstractSet[str]) -> bool:
    """Whether there is a way, and the NetworkPolicies let a pod out to a backend, and into that one."""
    nodes = {one["spec"].get("nodeName", "") for one in (pod, backend)}
    if len(nodes) > 1 and nodes & cut_off:
        return False
    out, into = ("Egress", "egress", "to"), ("Ingress", "ingress", "from")
    return _allowed(world, pod, backend, port, *out) and _allowed(world, backend, pod, port, *into)


def _allowed(world: World, pod: Json, other: Json, port: int, way: str, rules: str, peers: str) -> bool:
    """One way of the policies on a pod: by podSelector, by name of the other's namespace and by number of the port."""
    policies = [
        policy["spec"]
        for (namespace, _), policy in world["NetworkPolicy"].items()
        if namespace == pod["metadata"]["namespace"]
        and way in policy["spec"].get("policyTypes", ["Ingress"])
        and _selects(policy["spec"].get("podSelector", {}), pod["metadata"].get("labels", {}))
    ]
    if not policies:
        return True
    labels = other["metadata"].get("labels", {})
    home = other["metadata"]["namespace"]
    near = home == pod["metadata"]["namespace"]
    for rule in (rule for policy in policies for rule in policy.get(rules) or ()):
        if rule.get("ports") and port not in [one.get("port", port) for one in rule["ports"]]:
            continue
        for peer in rule.get(peers, [{"namespaceSelector": {}}]):
            wanted = peer.get("namespaceSelector")
            same = near if wanted is None else _selects(wanted, {"kubernetes.io/metadata.name": home})
            if same and _selects(peer.get("podSelector", {}), labels):
                return True
    return False


def _selects(selector: Json, labels: Mapping[str, Any]) -> bool:
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


def mebibytes(quantity: str) -> float:
    """Of a memory quantity. Raises ValueError."""
    for suffix, factor in (("Ki", 1 / 1024), ("Mi", 1.0), ("Gi", 1024.0)):
        if quantity.endswith(suffix):
            return float(quantity[:-2]) * factor
    return float(quantity) / 2**20
