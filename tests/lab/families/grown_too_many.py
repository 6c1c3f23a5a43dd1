"""What a Prometheus keeps in memory: series that a release makes many of, and such as have come over months."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from tests.lab import objects
from tests.lab.alerts import lacking
from tests.lab.apps import App, Container, Problem, mebibytes
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family

PROMETHEUS, GRAFANA = ("monitoring", "prometheus"), ("monitoring", "grafana")
LIMIT = "4Gi"
BASE_MIB, SERIES_KIB = 380.0, 6.0
"""What it needs for itself, and what each series of its head takes."""
REPLAY_SECONDS = 4.0
"""For which it reads after a start what it has written of its head."""


class _Head:
    """The series that a Prometheus has in memory, also after a restart: it reads them anew."""

    def __init__(self, series: float, grows: Callable[[], float]) -> None:
        self.series, self._grows = series, grows

    async def grow(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            self.series += 0.5 * self._grows()

    @property
    def mib(self) -> float:
        return BASE_MIB + self.series * SERIES_KIB / 1024

    def check(self, container: Container) -> Problem | None:
        limit = container.spec["resources"]["limits"]["memory"]
        has_read = min(1.0, container.seconds / REPLAY_SECONDS)
        if self.mib * has_read > mebibytes(limit):
            return Problem("oom", f"needs {self.mib:.0f}Mi, may have {limit}")
        return None


async def _monitored(lab: Lab, head: _Head) -> None:
    """A Prometheus, whoever draws what it has, and what another one says of it."""
    scraped = "scrape_interval: 30s\nscrape_timeout: 10s\n"
    await lab.apply(objects.config_map(*PROMETHEUS, **{"prometheus.yml": scraped}))
    like = App("", serves=False, check=head.check, start_seconds=REPLAY_SECONDS + 1)
    await lab.app(
        *PROMETHEUS, like=like, kind="StatefulSet", replicas=1, memory=LIMIT, tag="v3.5.0", config=PROMETHEUS[1]
    )
    await lab.until(lambda: backends(lab.world, *PROMETHEUS))
    await lab.apply(objects.config_map(*GRAFANA, REFRESH="30s"))
    await lab.app(*GRAFANA, like=App("", upstreams=(PROMETHEUS,)), replicas=2, tag="12.1.0", config=GRAFANA[1])
    await rolled(lab, *GRAFANA, "12.1.0")
    told = {"namespace": PROMETHEUS[0], "service": PROMETHEUS[1]}
    lab.measure("prometheus_tsdb_head_series", lambda: round(head.series), **told)
    lab.measure("process_resident_memory_bytes", lambda: head.mib * 2**20, **told)
    down = "Prometheus monitoring/prometheus is not there"
    lab.alert("PrometheusDown", lambda: lacking(lab.world, *PROMETHEUS), down, 4, **told)
    lab.alert_errors(*GRAFANA)
    lab.start(head.grow())


@family(
    "A release counts its requests by customer, as somebody wants to know who asks most: each customer becomes a series"
    " of each pod, and Prometheus needs more memory than it may have, ends, reads them all again and ends once more.",
    joined=72,
)
async def label_per_customer(lab: Lab) -> AsyncIterator[None]:
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "price-quotes", "quote-page"),
            ("payments", "invoices", "invoice-page"),
            ("media", "feeds", "feed-page"),
        )
    )
    minor, replicas, each = lab.rng.randrange(8, 50), 4, lab.rng.uniform(5000, 8000)
    old, new = f"3.{minor}.1", f"3.{minor + 1}.0"
    teller = lab.rng.choice(("alice", "bob", "carol"))

    def grows() -> float:
        """With each customer who is seen by a pod for the first time."""
        there = [one.container for one in lab.kubelets.running() if one.app is like]
        return 60 + sum(each for one in there if one.tag == new and one.seconds > 1 + lab.lag)

    like = App("", asked=lambda: 44.0)
    await lab.app(namespace, name, like=like, replicas=replicas, tag=old)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="8.0.4")
    await rolled(lab, namespace, name, old)
    await rolled(lab, namespace, front, "8.0.4")
    await _monitored(lab, _Head(lab.rng.uniform(390e3, 420e3), grows))
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(1, 3))
    await lab.roll("ci", namespace, front, "8.0.5")
    await lab.pause(lab.rng.uniform(3, 7))
    await lab.roll("ci", namespace, name, new, culprit=True)
    await lab.pause(lab.rng.uniform(3, 6))
    await lab.edit(teller, "ConfigMap", *GRAFANA, {"data": {"REFRESH": lab.rng.choice(("10s", "15s"))}})


@family(
    "No culprit. Teams have come one after the other, and what all their pods tell of themselves has grown for months."
    " Nobody has given Prometheus more memory since the first of them: tonight it reaches its limit, and each time that"
    " it is back it ends while it still reads what it had.",
    culprit=False,
    joined=72,
)
async def months_of_series(lab: Lab) -> AsyncIterator[None]:
    goes_on = False
    pace = lab.rng.uniform(900, 1300)
    namespace, name = lab.rng.choice((("shop", "wish-lists"), ("search", "synonyms"), ("media", "captions")))
    by = lab.rng.choice(("alice", "bob", "flux"))
    await lab.app(namespace, name, replicas=3, tag="2.4.0")
    await rolled(lab, namespace, name, "2.4.0")
    limit = (mebibytes(LIMIT) - BASE_MIB) * 1024 / SERIES_KIB
    head = _Head(limit - pace * lab.rng.uniform(14, 20) - 9000, lambda: pace if goes_on else 80.0)
    await _monitored(lab, head)
    await lab.until(lab.is_well)
    yield
    goes_on = True
    await lab.pause(lab.rng.uniform(2, 5))
    await lab.roll("ci", namespace, name, "2.5.0")
    await lab.pause(lab.rng.uniform(2, 4))
    await lab.edit(by, "ConfigMap", *GRAFANA, {"data": {"REFRESH": lab.rng.choice(("20s", "60s"))}})
