"""Incidents without a culprit among the changes: calls grow, and what carries them has only so much for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.apps import App, Container
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.network import backends
from tests.lab.scenario import family

STANDS, USUAL = 90.0, 150.0
"""Calls a second that one pod stands, and how many come in all on a usual day."""


@dataclass
class _Streams:
    """Each process of a caller has one connection for all its calls, and keeps it as long as the pod there lives."""

    lab: Lab
    called: tuple[str, str]
    caller: tuple[str, str]
    calls: float = USUAL
    kept: dict[str, str] = field(default_factory=dict)
    """Whom the calls of each caller's pod go to."""

    def weights(self) -> dict[str, float]:
        """How many callers each pod has, by its name: a new connection goes to whoever has the fewest."""
        there = sorted(pod["metadata"]["name"] for pod in backends(self.lab.world, *self.called))
        callers = [pod["metadata"]["name"] for pod in pods(self.lab.world, *self.caller) if is_ready(pod)]
        self.kept = {one: held for one, held in self.kept.items() if one in callers and held in there}
        for one in callers if there else ():
            held = list(self.kept.values())
            self.kept.setdefault(one, min(there, key=held.count))
        return {one: float(list(self.kept.values()).count(one)) for one in there}

    def weight(self, container: Container) -> float:
        return self.weights().get(container.pod["metadata"]["name"], 0.0)

    def beyond(self, container: Container) -> float:
        """The share of what a pod gets that is more than it stands."""
        weights = self.weights()
        whole = sum(weights.values())
        mine = self.calls * weights.get(container.pod["metadata"]["name"], 0.0) / whole if whole else 0.0
        return max(0.0, 1 - STANDS / mine) if mine else 0.0

    async def grow(self, most: float) -> None:
        while self.calls < most:
            self.calls += 15
            await asyncio.sleep(1)


@family(
    "Users come as each evening before a holiday, and an app has been given twice the pods for it. Whoever calls it has"
    " one connection for all calls and keeps it: new pods get nothing, and those of before do not stand what comes.",
    culprit=False,
    joined=53,
)
async def connections_stay(lab: Lab) -> AsyncIterator[None]:
    """As one tells of charge points, and another of ten replicas of which one has nine tenths (michal-drozd.com)."""
    namespace, name, caller = lab.rng.choice(
        (
            ("shop", "delivery-slots", "basket-api"),
            ("search", "embeddings", "results-api"),
            ("payments", "fraud-rules", "cards-api"),
        )
    )
    team = lab.rng.choice(("alice", "bob", "carol", "argocd"))
    streams = _Streams(lab, (namespace, name), (namespace, caller))
    like = App("", capacity=STANDS, asked=lambda: streams.calls, weight=streams.weight, failing=streams.beyond)
    like.fails_with, like.latency = (lambda _: "503"), (lambda one: 1.2 if streams.beyond(one) else 0.0)
    await lab.app(namespace, name, like=like, replicas=3, tag="1.27.0")
    await rolled(lab, namespace, name, "1.27.0")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3)
    like = App("", upstreams=((namespace, name),), asked=lambda: streams.calls / 3)
    await lab.app(namespace, caller, like=like, replicas=4, tag="9.3.2")
    await rolled(lab, namespace, caller, "9.3.2")
    await publish(lab, namespace, caller)
    lab.reserve(namespace, name)
    lab.alert_errors(namespace, name, 0.1)
    lab.alert_errors(namespace, caller, 0.1)
    lab.alert_slow(namespace, name)
    await lab.until(lab.is_well)
    yield
    await lab.edit(team, "Deployment", namespace, name, {"spec": {"replicas": 6}})
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 6)
    await lab.pause(lab.rng.uniform(4, 10))
    lab.start(streams.grow(lab.rng.uniform(300, 360)))


PORTS, HELD_SECONDS = 64_512, 240.0
"""Of a gateway's one address for calls to the same address outside, and for how long a call has its port."""
CONNECT_SECONDS = 2.0
"""For how long an app waits for a connection."""


@dataclass
class _Gateway:
    """All that leaves the cluster has the address of one gateway, and a port of it for each call to a partner."""

    lab: Lab
    calls: float
    """A second, of all apps to one partner."""

    def lost(self) -> float:
        """The share of calls for which there is no port."""
        return max(0.0, 1 - PORTS / (self.calls * HELD_SECONDS))

    async def grow(self, most: float) -> None:
        while self.calls < most:
            self.calls = min(most, self.calls * 1.05)
            await asyncio.sleep(1)


@family(
    "All calls that leave the cluster have the address of one gateway, which has a port of it for each connection to"
    " the same partner, and keeps that for minutes. More and more is sold with that partner's help: one day there are"
    " more calls than ports, and the partner, who is well, is not reached by a share of them.",
    culprit=False,
    joined=53,
)
async def gateway_ports(lab: Lab) -> AsyncIterator[None]:
    """As told of clusters on Google Cloud that call a resource on the internet (ieuan.net, August 2019)."""
    namespace, names, host = lab.rng.choice(
        (
            ("shop", ("parcel-labels", "parcel-tracking"), "api.parcels.example"),
            ("payments", ("card-checks", "wallet-top-ups"), "api.cardnetwork.example"),
            ("media", ("ad-breaks", "ad-reports"), "api.adserver.example"),
        )
    )
    gateway = _Gateway(lab, lab.rng.uniform(190, 220))
    asked = dict(zip(names, (0.12, 0.06), strict=True))
    share = lab.rng.uniform(0.7, 0.9)  # of an app's requests, which have a call outside

    async def sells(name: str) -> None:
        """One of the apps that call the partner."""
        like = App("", abroad=(host,), asked=lambda: gateway.calls * asked[name])
        like.failing, like.fails_with = (lambda _: share * gateway.lost()), (lambda _: "504")
        like.latency = lambda _: share * gateway.lost() * CONNECT_SECONDS
        await lab.apply(objects.config_map(namespace, name, CONNECT_TIMEOUT_MS="2000", KEEP_ALIVE="false"))
        await lab.app(namespace, name, like=like, replicas=3, tag="4.0.7", config=name)
        await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3)
        lab.alert_errors(namespace, name, 0.08)
        part = asked[name] * share
        told = {"namespace": namespace, "service": name, "client_name": host}
        for status, given in (
            ("200", lambda: gateway.calls * part * (1 - gateway.lost())),
            ("CONNECT_TIMEOUT", lambda: gateway.calls * part * gateway.lost()),
        ):
            lab.measure("http_client_requests_total", lab.adding_up(given), "counter", **told, status=status)

    for name in names:
        await sells(name)
    await publish(lab, namespace, names[0])
    lab.reserve(namespace, names[1])
    told = {"namespace": "monitoring", "service": "cloud-exporter", "gateway_name": "nat-eu-1"}
    ports = lambda: min(float(PORTS), gateway.calls * HELD_SECONDS)  # noqa: E731
    lab.measure("nat_gateway_allocated_ports", ports, "gauge", **told)
    dropped = lab.adding_up(lambda: gateway.calls * gateway.lost())
    lab.measure("nat_gateway_dropped_connections_total", dropped, "counter", **told)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(3, 8))
    lab.start(gateway.grow(lab.rng.uniform(380, 460)))
