"""An incident without a culprit among the changes: the way to another region is a longer one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tests.lab.apps import App, Container
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family

USUAL_SECONDS, PATIENT_SECONDS = 0.003, 1.0
"""To the other region and back, as ever; and after which time the app itself gives some pages up."""
OWN_SECONDS, ROUND_TRIPS, FEW_TRIPS = 0.05, 36, 2
"""What a page takes of itself, and how often one app and another one ask the database for a page, one after another."""


@family(
    "A cable between two regions is cut outside, and what goes from one to the other takes a longer way. Whoever asks"
    " once hardly minds; an app that asks its database there dozens of times for each page, one after another, is late"
    " with all of them. It had a release just before.",
    culprit=False,
    joined=63,
)
async def longer_way(lab: Lab) -> AsyncIterator[None]:
    """As told of cut cables, by those whose applications had never been far from their database."""
    namespace, name, other = lab.rng.choice(
        (
            ("shop", "account-pages", "stock-levels"),
            ("payments", "contract-pages", "iban-checks"),
            ("media", "library-pages", "play-counts"),
        )
    )
    minor, host = lab.rng.randrange(3, 40), f"{namespace}-db.eu-north.corp.example"
    seconds = [USUAL_SECONDS]

    def takes(trips: int) -> float:
        return trips * seconds[0]

    def given_up(_: Container) -> float:
        return max(0.0, 1 - PATIENT_SECONDS / (OWN_SECONDS + takes(ROUND_TRIPS)))

    async def sway() -> None:
        """No two rounds are the same."""
        usual = seconds[0]
        while True:
            seconds[0] = usual * lab.rng.uniform(0.95, 1.1)
            await asyncio.sleep(1)

    like = App("", abroad=(host,), asked=lambda: 21.0, failing=given_up, fails_with=lambda _: "504")
    like.latency = lambda _: OWN_SECONDS + takes(ROUND_TRIPS)
    await lab.app(namespace, name, like=like, replicas=3, tag=f"8.{minor}.0")
    like = App("", abroad=(host,), asked=lambda: 34.0, latency=lambda _: takes(FEW_TRIPS))
    await lab.app(namespace, other, like=like, replicas=2, tag="3.3.1")
    await rolled(lab, namespace, name, f"8.{minor}.0")
    await lab.until(lambda: len(backends(lab.world, namespace, other)) == 2)
    await publish(lab, namespace, name)
    told = {"namespace": "monitoring", "service": "blackbox-exporter"}
    lab.measure("probe_icmp_duration_seconds", lambda: seconds[0], **told, instance="gw.eu-north.corp.example")
    lab.alert_slow(namespace, name)
    lab.alert_slow(namespace, other)
    lab.alert_errors(namespace, name)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(1, 5))
    await lab.roll("ci", namespace, name, f"8.{minor}.1")
    await rolled(lab, namespace, name, f"8.{minor}.1")
    await lab.pause(lab.rng.uniform(4, 10))
    seconds[0] = lab.rng.uniform(0.038, 0.052)
    lab.start(sway())
