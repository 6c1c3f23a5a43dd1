"""What is over as of today: a table that has no room for a new month, and the address where a partner was."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from zlib import crc32

from tests.lab.api import Json, now
from tests.lab.apps import App, Container, Problem
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.manifests import uid_of
from tests.lab.network import backends, leaves
from tests.lab.scenario import family


@family(
    "A table has a part for each month, and the parts of a year were made by hand when it was new. Nobody has made any"
    " since: as the first hour of a new month comes, there is none for whatever is written, and each write fails. The"
    " app has had its weekly, harmless release shortly before.",
    culprit=False,
    joined=56,
)
async def no_partition(lab: Lab) -> AsyncIterator[None]:
    """As users of PostgreSQL tell whose partitions ended: "no partition of relation found for row"."""
    namespace, name, front, reader = lab.rng.choice(
        (
            ("payments", "bookings", "transfer-page", "statements"),
            ("shop", "order-events", "order-page", "order-reports"),
            ("media", "play-history", "player-page", "play-charts"),
        )
    )
    by, minor, store = lab.rng.choice(("ci", "argocd", "flux")), lab.rng.randrange(4, 30), f"{name}-db"
    share, rate, midnight = lab.rng.uniform(0.3, 0.6), 22.0, [float("inf")]

    def refused() -> float:
        """The share of what an app is asked that writes a row of the new month."""
        return share if now().timestamp() >= midnight[0] + lab.lag else 0.0

    await lab.app(namespace, store, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="16.6")
    like = App("", upstreams=((namespace, store),), asked=lambda: rate, failing=lambda _: refused())
    like.start_seconds = 1.0
    await lab.app(namespace, name, like=like, replicas=3, tag=f"3.{minor}.0")
    await rolled(lab, namespace, name, f"3.{minor}.0")
    await lab.app(namespace, reader, like=App("", upstreams=((namespace, store),)), replicas=2, tag="1.9.5")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="6.0.2")
    await lab.until(lambda: backends(lab.world, namespace, front) and len(backends(lab.world, namespace, name)) == 3)
    await publish(lab, namespace, front)
    lab.reserve(namespace, name, store)
    rolled_back = lab.adding_up(lambda: 0.02 + rate * refused())
    lab.measure("pg_stat_database_xact_rollback_total", rolled_back, "counter", namespace=namespace, service=store)
    lab.alert_errors(namespace, name, 0.1)
    lab.alert_ingress_errors(namespace, namespace, 0.1)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 5))
    await lab.roll(by, namespace, name, f"3.{minor + 1}.0")
    await rolled(lab, namespace, name, f"3.{minor + 1}.0")
    midnight[0] = now().timestamp() + lab.rng.uniform(3, 12)


OLD, NEW = "203.0.113.24", "203.0.113.187"
KEPT_SECONDS = 7
"""For how long a name's address is kept that was asked for."""


def _policy(namespace: str, name: str) -> Json:
    """An app may call what is in the cluster, and the address of one partner outside."""
    partner = {"to": [{"ipBlock": {"cidr": f"{OLD}/32"}}], "ports": [{"protocol": "TCP", "port": 443}]}
    spec = {
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": name}},
        "policyTypes": ["Egress"],
        "egress": [{"to": [{"namespaceSelector": {}}]}, partner],
    }
    return {"metadata": {"namespace": namespace, "name": f"{name}-egress"}, "spec": spec}


@family(
    "A partner outside moves to another provider, and its name leads to another address. A policy of old lets an app"
    " out to the address where that partner has always been, and to nothing else: as the name's old address is over,"
    " calls of that app time out, and those of other apps do not.",
    culprit=False,
    joined=56,
)
async def partner_moved(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose NetworkPolicy names a service outside by its address, which has changed."""
    callers = (
        ("payments", "card-gateway", "card-page", "api.acquirer.example"),
        ("shop", "parcel-labels", "parcels-page", "api.parcels.example"),
        ("search", "address-lookup", "address-page", "api.geocoder.example"),
    )
    namespace, name, front, host = lab.rng.choice(callers)
    moved = [float("inf")]

    def address(container: Container) -> str:
        """Where its name leads for a pod, which keeps for a while what it was answered."""
        kept = crc32(uid_of(container.pod).encode()) % KEPT_SECONDS
        return NEW if now().timestamp() >= moved[0] + kept else OLD

    def check(container: Container) -> Problem | None:
        where = address(container)
        if leaves(lab.world, container.pod, where, 443):
            return None
        return Problem(
            "unready", f"probe failed: HTTP probe failed with statuscode: 503 (dial tcp {where}:443: i/o timeout)"
        )

    async def move() -> None:
        await asyncio.sleep(lab.rng.uniform(4, 14))
        moved[0] = now().timestamp()

    await lab.apply({"kind": "NetworkPolicy", **_policy(namespace, name)}, "flux")
    await lab.app(namespace, name, like=App("", abroad=(host,), check=check), replicas=3, tag="5.7.0")
    await lab.app("media", "partner-stats", like=App("", abroad=(host,), check=check), replicas=2, tag="1.1.8")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="9.3.1")
    await lab.until(lambda: backends(lab.world, namespace, front) and len(backends(lab.world, namespace, name)) == 3)
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    lab.alert_errors(namespace, name)
    lab.alert_lacking(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    lab.start(move())
