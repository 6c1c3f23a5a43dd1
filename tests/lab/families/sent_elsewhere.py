"""What a partner outside sends elsewhere: from some hour on it speaks nothing but encrypted, and says so politely."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from zlib import crc32

from tests.lab.api import now
from tests.lab.apps import App, Container
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.manifests import uid_of
from tests.lab.network import backends
from tests.lab.scenario import family

EDGES_SECONDS = 9
"""Within which all edges of a partner's have a new rule; a connection stays at one of them."""
FOLLOWS_SECONDS = 0.06
"""What it takes to be sent elsewhere and to ask there."""


@family(
    "A partner outside answers plain HTTP from some hour on with where the encrypted address is. One app calls by the"
    " address of old: as any client it follows, and as nearly any client it asks there with GET for what it had sent"
    " with POST, which is not allowed. An app that only reads from the same partner is sent on too, and is well.",
    culprit=False,
    joined=58,
)
async def redirected_partner(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose POST became a GET when somebody began to redirect http to https."""
    namespace, name, front, reader, host = lab.rng.choice(
        (
            ("shop", "parcel-orders", "parcel-page", "parcel-tracking", "api.forwarder.example"),
            ("payments", "payout-orders", "payout-page", "bank-holidays", "api.clearing.example"),
            ("media", "subtitle-orders", "upload-page", "subtitle-catalog", "api.subtitles.example"),
        )
    )
    by, since = lab.rng.choice(("ci", "argocd", "flux")), [float("inf")]
    share, rate, read = lab.rng.uniform(0.35, 0.7), lab.rng.uniform(16, 24), 14.0

    def is_sent_on(container: Container) -> bool:
        """Whether the edge at which a pod's connections are has the rule."""
        later = crc32(uid_of(container.pod).encode()) % EDGES_SECONDS
        return now().timestamp() >= since[0] + later + lab.lag

    def sent_on(app: str) -> float:
        """The share of an app's pods that are sent elsewhere."""
        there = [one.container for one in lab.kubelets.running() if one.container.spec["name"] == app]
        return sum(map(is_sent_on, there)) / max(1, len(there))

    async def enforce() -> None:
        await asyncio.sleep(lab.rng.uniform(6, 14))
        since[0] = now().timestamp()

    like = App("", abroad=(host,), asked=lambda: rate, failing=lambda one: share * is_sent_on(one))
    like.fails_with = lambda _: "502"
    told = [{"name": "PARTNER_URL", "value": f"http://{host}/v2"}]
    await lab.app(namespace, name, like=like, replicas=3, tag="4.18.2", env=told)
    like = App("", abroad=(host,), asked=lambda: read, latency=lambda one: FOLLOWS_SECONDS * is_sent_on(one))
    await lab.app(namespace, reader, like=like, replicas=2, tag="1.30.0", env=told)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="8.0.6")
    await rolled(lab, namespace, name, "4.18.2")
    await lab.until(lambda: backends(lab.world, namespace, front) and backends(lab.world, namespace, reader))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name, reader)
    for app, method, code, calls in (
        (name, "POST", "201", lambda: rate * share * (1 - sent_on(name))),
        (name, "POST", "301", lambda: rate * share * sent_on(name)),
        (name, "GET", "405", lambda: rate * share * sent_on(name)),
        (reader, "GET", "200", lambda: read),
        (reader, "GET", "301", lambda: read * sent_on(reader)),
    ):
        labels = {"namespace": namespace, "service": app, "host": host, "method": method, "code": code}
        lab.measure("http_client_requests_total", lab.adding_up(calls), "counter", **labels)
    lab.alert_errors(namespace, name, 0.1)
    lab.alert_ingress_errors(namespace, namespace, 0.1)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 5))
    await lab.edit(by, "Deployment", namespace, name, {"spec": {"replicas": 4}})
    lab.start(enforce())
