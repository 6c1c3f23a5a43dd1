"""What the containers of the laboratory do: by their image, their configuration and what they can reach.

Nothing runs in them but a program that calls the API, where they have one. All else of a process is this description.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from zlib import crc32

from tests.lab.api import Caller, Json, World, now
from tests.lab.network import POOL, are_shut_in, goes_round, is_lacked, shadowing, unreachable

LATE = "probe failed: context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
BURST_EVERY, BURST_SECONDS, IDLE_SECONDS = 16.0, 5.0, 3.0
"""How often a container has much to do at once, and for how long; after its start it has nothing to do for a while."""


class CrashError(Exception):
    """A program ends with this message; its container is restarted."""


@dataclass(frozen=True)
class Problem:
    """Why a container is not well: it ``crash``es, is ``oom``-killed, ``killed`` as not alive, or is ``unready``.

    One that is ``starting`` has a startup probe that goes on. ``probe`` is the one by which it is killed.
    """

    kind: str
    message: str
    probe: str = "Liveness"
    answers: bool = False
    """Whether it goes on to answer what it is asked, as it has only told its probe to send it nothing more."""
    at_once: bool = False
    """Whether it is so from its start, so that no lag lets it be well before."""


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
    abroad: tuple[str, ...] = ()
    """Names outside of the cluster that it cannot do without."""
    start_seconds: float = 0.0
    """For which it answers nothing after its start."""
    capacity: float = 100.0
    """Requests a second that one container stands."""
    load: float = 0.0
    """Requests a second that all of its containers get."""
    asked: Callable[[], float] | None = None
    """The same, where it changes and its probes do not fail for it alone."""
    answer_seconds: float = 0.0
    """How long an idle container takes to answer a probe; the nearer its load comes to its capacity, the longer."""
    check: Callable[[Container], Problem | None] = lambda container: None
    burst_m: int = 0
    """Thousandths of a processor that it uses while it has much to do at once; in between next to none."""
    program: Program | None = None
    ends_after: float | None = None
    """Seconds after which it is done, as the work of a Job; None for what runs for ever."""
    agent: str = ""
    """User agent of its program, before the tag."""
    serves: bool = True
    """Whether it counts requests, where it is behind a Service; controllers get none."""
    failing: Callable[[Container], float] = lambda container: 0.0
    """The share of its requests that it answers wrongly for reasons of its own while its probes see nothing."""
    fails_with: Callable[[Container], str] = lambda container: "500"
    """The status of those."""
    too_large: Callable[[Container], float] = lambda container: 0.0
    """The share of its answers whose head what serves the Ingresses does not take: users get its 502 in place of it."""
    latency: Callable[[Container], float] = lambda container: 0.0
    """Seconds that each of its answers takes beside the usual, for reasons of its own."""
    weight: Callable[[Container], float] = lambda container: 1.0
    """How much of what the app gets comes to a container, beside the others: clients may keep to the one they have."""
    deaf: Callable[[Container], bool] = lambda container: False
    """Whether nothing listens where its Service sends requests; its probes ask elsewhere, and are answered."""


@dataclass
class Outside:
    """What no API server knows of."""

    missing: set[str] = field(default_factory=set)
    """Images with tag that no registry has."""
    registry_up: bool = True
    pulls: int | None = None
    """How many requests for images the registry takes in a while from the address that all nodes share."""
    denied: Callable[[str, Json], str] = lambda image, pod: ""
    """Why the registry does not give an image out by the credentials that a pod has for it; "" where it does."""
    credentials: dict[tuple[str, str], Mapping[str, str]] = field(default_factory=dict)
    """The data of the pull secrets (namespace, name) that pods name, as kubelets found them at their last pull."""
    reached: Callable[[], bool] = lambda: True
    """Whether whoever is outside reaches what serves the Ingresses."""
    lost: Callable[[], float] = lambda: 0.0
    """The share of requests from outside that what serves the Ingresses loses itself, and answers with 502."""
    misled: Callable[[str], float] = lambda namespace: 0.0
    """The share of requests to the Ingresses of a namespace that it sends where nobody is any more, likewise."""
    unreached: set[str] = field(default_factory=set)
    """Public names by which nobody outside gets a connection: they are not found, or what is there is not trusted."""
    resolver_up: bool = True
    """The one that the cluster's DNS asks for all other names."""
    nameless: set[str] = field(default_factory=set)
    """Nodes whose own list of resolvers is empty: what runs there in pods has that of its start."""
    dead_nodes: set[str] = field(default_factory=set)
    stalled: set[str] = field(default_factory=set)
    """Nodes whose container runtime does not answer; what runs there goes on."""
    kept: dict[str, float] = field(default_factory=dict)
    """What kubelets themselves have in memory beside the usual, in MiB by node: the kernel never ends them."""
    drivers: dict[str, Callable[[str], bool]] = field(default_factory=dict)
    """Drivers of volumes whose plugin may be missing on a node, and whether a node's kubelet has it."""
    unpacking_none: set[str] = field(default_factory=set)
    """Nodes whose container runtime cannot unpack an image; what was unpacked before is there."""
    silent_nodes: set[str] = field(default_factory=set)
    """Nodes whose kubelets nobody hears; what runs there goes on."""
    hung: set[str] = field(default_factory=set)
    """Nodes whose kubelets say that they are well and take on no further pod; what runs there goes on."""
    full_disks: set[str] = field(default_factory=set)
    """Nodes whose disk has no room."""
    written: dict[str, float] = field(default_factory=dict)
    """What pods wrote to their node's disk beside the usual, in MiB by uid."""
    broken: dict[str, str] = field(default_factory=dict)
    """Services outside of the cluster that do not answer, and why."""
    cut_off: set[str] = field(default_factory=set)
    """Nodes whose pods reach none of another node: there are no routes, or no wire."""
    apart: set[str] = field(default_factory=set)
    """Nodes where an agent of the network lets nobody in from another namespace."""
    refusing: Callable[[str, Json], str] = lambda node, pod: ""
    """Why a node's container runtime does not create what a pod is to run; "" where it does."""
    unplugged: Callable[[str, Json], str] = lambda node, pod: ""
    """Why the network's plugin on a node neither connects a pod nor lets one go; "" where it does."""
    addresses: dict[str, int] = field(default_factory=dict)
    """How many pods the network has an address for, by node; a node that is not named has enough."""
    taken: dict[str, float] = field(default_factory=dict)
    """What pods have in memory beside the usual, in MiB by uid, where no limit holds them back."""
    thrashing_seconds: float = 24.0
    """For how long a node whose memory is full does nothing but look for some."""
    kubelet_qps: float | None = None
    """How often a kubelet may ask for something in a second; None where that is more than it ever wants."""
    counted_seconds: float = 0.0
    """For how long a kubelet still counts what a pod asked for that has ended."""
    pools: defaultdict[str, str] = field(default_factory=lambda: defaultdict(lambda: POOL))
    """How the addresses begin that a node's network has for new pods."""


def is_done(app: App | None, seconds: float) -> bool:
    """Whether a container that runs for so long has ended by itself, as the work of a Job does."""
    return app is not None and app.ends_after is not None and seconds >= app.ends_after


def diagnose(
    app: App,
    container: Container,
    world: World,
    *,
    running: int,
    cut_off: AbstractSet[str] = frozenset(),
    apart: AbstractSet[str] = frozenset(),
    resolver_up: bool = True,
) -> Problem | None:
    """What is wrong with a running container; ``running`` are the containers of its image."""
    spec = container.spec
    limit = spec.get("resources", {}).get("limits", {}).get("memory")
    if limit and mebibytes(limit) < app.memory_mi:
        return Problem("oom", f"needs {app.memory_mi}Mi, may have {limit}")
    if found := app.check(container):
        return found
    if container.seconds < app.start_seconds:
        return _starting(app, spec, container.seconds)
    if found := _asked_wrongly(app, spec) or _answers_late(app, spec, running) or _throttled(app, container):
        return found
    if trouble := _misses(app, container.pod, world, cut_off, apart, resolver_up=resolver_up):
        return Problem("unready", f"probe failed: {trouble}")
    if app.load > app.capacity * max(running, 1):
        return Problem("unready", LATE)
    return None


def _asked_wrongly(app: App, spec: Json) -> Problem | None:
    """A probe asks at a port or for a path that it does not have."""
    for probe, kind in (("livenessProbe", "killed"), ("readinessProbe", "unready")):
        asked = spec.get(probe, {}).get("httpGet")
        if asked and asked["port"] != app.port:
            return Problem(kind, f"probe failed: dial tcp :{asked['port']}: connect: connection refused")
        if asked and asked["path"] != app.path:
            return Problem(kind, "probe failed: HTTP probe failed with statuscode: 404")
    return None


def _misses(
    app: App, pod: Json, world: World, cut_off: AbstractSet[str], apart: AbstractSet[str], *, resolver_up: bool
) -> str:
    """Whom it cannot do without and does not reach, and why; or ""."""
    for namespace, name in app.upstreams:
        if trouble := unreachable(world, pod, namespace, name, cut_off=cut_off, apart=apart):
            return f"HTTP probe failed with statuscode: 503 ({trouble})"
    for host in app.abroad:
        if address := shadowing(world, pod, host):
            return f"HTTP probe failed with statuscode: 503 ({host}: dial tcp {address}:443: i/o timeout)"
        if is_lacked(world, pod, host):
            return f"HTTP probe failed with statuscode: 503 (lookup {host}: no such host)"
        if goes_round(world, pod, host):
            return f"HTTP probe failed with statuscode: 503 (lookup {host}: i/o timeout)"
    if app.abroad and (not resolver_up or are_shut_in(world, pod)):
        return f"HTTP probe failed with statuscode: 503 (lookup {app.abroad[0]}: server misbehaving)"
    return ""


def _starting(app: App, spec: Json, seconds: float) -> Problem:
    """It answers nothing yet: a startup probe waits for it, a liveness probe for as long as it may fail."""
    kind, name = ("starting", "Startup") if "startupProbe" in spec else ("unready", "Liveness")
    probe = spec.get(f"{name.lower()}Probe", {})
    allowed = probe.get("initialDelaySeconds", 0) + probe.get("failureThreshold", 3) * probe.get("periodSeconds", 10)
    if probe and seconds >= allowed:
        kind = "killed"
    return Problem(kind, f"probe failed: dial tcp :{app.port}: connect: connection refused", name)


def _throttled(app: App, container: Container) -> Problem | None:
    """With a limit below what it uses in a burst it stands still for most of it, and answers no probe in time."""
    limit = container.spec.get("resources", {}).get("limits", {}).get("cpu")
    if not limit or millicores(limit) >= app.burst_m or container.seconds < IDLE_SECONDS:
        return None
    turn = crc32(container.pod["metadata"]["uid"].encode()) % BURST_EVERY  # each has its own
    if (now().timestamp() + turn) % BURST_EVERY > BURST_SECONDS:
        return None
    return Problem("killed" if "livenessProbe" in container.spec else "unready", LATE)


def _answers_late(app: App, spec: Json, running: int) -> Problem | None:
    """A liveness probe is not answered in its time: a queue grows as the share of the capacity that is free shrinks."""
    free = 1 - app.load / (app.capacity * max(running, 1))
    probe = spec.get("livenessProbe")
    if not probe or free <= 0 or app.answer_seconds / free <= probe.get("timeoutSeconds", 1):
        return None
    return Problem("killed", LATE)


def millicores(quantity: str) -> float:
    """Of a quantity of processors. Raises ValueError."""
    return float(quantity[:-1]) if quantity.endswith("m") else float(quantity) * 1000


def mebibytes(quantity: str) -> float:
    """Of a memory quantity. Raises ValueError."""
    for suffix, factor in (("Ki", 1 / 1024), ("Mi", 1.0), ("Gi", 1024.0)):
        if quantity.endswith(suffix):
            return float(quantity[:-2]) * factor
    return float(quantity) / 2**20
