"""Incidents without a culprit among the changes: what goes on with what it has, and who comes anew does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime

from tests.lab.api import now, stamp
from tests.lab.apps import App, Container, Problem
from tests.lab.families.between import publish
from tests.lab.lab import Lab
from tests.lab.network import unserved
from tests.lab.scenario import family

GOOD_FOR_SECONDS, YEAR_SECONDS = 75.0, 365 * 86400.0
"""How long the old copy of a certificate is good from here on, and the new one."""
WILDCARD = "wildcard-tls"


@family(
    "Somebody renewed the certificate of all public names by hand, long ago, and copied it to where it is used, but for"
    " one place: the old one there is over at its hour, and no browser goes on.",
    culprit=False,
    joined=19,
)
async def wildcard_certificate(lab: Lab) -> AsyncIterator[None]:
    """As users of Wire tell (April 2024, wire-webapp 17239)."""
    doors = {"shop": "frontend", "payments": "checkout", "search": "query", "media": "uploads"}
    forgotten = lab.rng.choice(sorted(doors))
    ends, hosts = {}, {}
    for namespace, name in doors.items():
        hosts[namespace] = host = await publish(lab, namespace, name)
        ends[host] = now().timestamp() + (GOOD_FOR_SECONDS if namespace == forgotten else YEAR_SECONDS)
        until = f"{stamp(datetime.fromtimestamp(ends[host], now().tzinfo))[:19]}Z"
        meta = {"namespace": namespace, "name": WILDCARD}
        data = {"tls.crt": f"*.corp.example not after {until}", "tls.key": f"{lab.rng.randrange(10**9)}"}
        await lab.apply({"kind": "Secret", "metadata": meta, "type": "kubernetes.io/tls", "stringData": data})
        tls = [{"hosts": [host], "secretName": WILDCARD}]
        await lab.edit("admin", "Ingress", namespace, namespace, {"spec": {"tls": tls}})

    async def browse() -> None:
        """Who is shown a certificate that is over goes away."""
        while True:
            lab.outside.unreached = {host for host, until in ends.items() if until < now().timestamp()}
            await asyncio.sleep(0.5)

    for host in hosts.values():
        fails = lambda host=host: host in lab.outside.unreached or bool(unserved(lab.world, host))  # noqa: E731
        instance = f"https://{host}"
        lab.alert("ProbeFailed", fails, f"{instance} is not answered", 6, job="blackbox", instance=instance)
    lab.start(browse())
    yield
    await lab.pause(max(0.0, ends[hosts[forgotten]] - now().timestamp()))


@family(
    "A rule of the cloud's firewall is changed by mistake and no longer lets new connections through to a broker in"
    " another cluster: who has one keeps it, and whoever is started anew, as by a harmless rollout, gets none.",
    culprit=False,
    joined=19,
)
async def new_connections(lab: Lab) -> AsyncIterator[None]:
    """As Particle tells of 14 March (its status page)."""
    host, closed = "events.queues.example", list[datetime]()
    places = lab.rng.sample(
        [("media", "notifications"), ("payments", "webhooks"), ("shop", "shipping"), ("search", "ingest")], 3
    )

    def connect(container: Container) -> Problem | None:
        """Once, at its start."""
        if not closed or container.seconds > (now() - closed[0]).total_seconds():
            return None
        why = f"{host}: dial tcp 203.0.113.77:5671: i/o timeout"
        return Problem("unready", f"probe failed: HTTP probe failed with statuscode: 503 ({why})")

    for namespace, name in places:
        await lab.app(namespace, name, like=App("", check=connect, abroad=(host,)), replicas=3)
        lab.reserve(namespace, name)
        lab.alert_stuck(namespace, name)
        lab.alert_lacking(namespace, name)

    async def work_on() -> None:
        """Releases come as ever."""
        for namespace, name in places[:2]:
            await asyncio.sleep(lab.rng.uniform(9, 15))
            await lab.roll(lab.rng.choice(("argocd", "ci", "flux")), namespace, name, "1.0.1")

    yield
    closed.append(now())
    lab.start(work_on())
