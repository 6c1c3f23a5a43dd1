"""Incidents without a culprit among the changes: whoever is outside of the cluster is down, or has moved on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.api import Json, Kind, now
from tests.lab.apps import App, Container, CrashError, Problem, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import both, every
from tests.lab.scenario import family

OLD, FAULTY, MENDED, NEXT = "5.11.0", "5.12.0", "5.12.1", "5.12.2"
GROUP, KEPT_TOPICS = "kafka.strimzi.io", 10
ORDERED = 0.35
"""The share of a portal's requests that order something, and wait until it is there."""
PATIENCE_SECONDS = 8.0


@family(
    "Whether an app is ready it makes depend on everybody whom it asks, also on a partner whose part of the page it"
    " could well do without. The partner is down, so no pod is ready, and nobody gets any page at all.",
    culprit=False,
    joined=36,
)
async def partner_probed(lab: Lab) -> AsyncIterator[None]:
    """As told of what goes wrong with readiness probes (novaaiops.com, the dependent failure mode)."""
    namespace, name, partner = lab.rng.choice(
        (
            ("shop", "product-page", "reviews.stars.example"),
            ("media", "watch-page", "subtitles.captions.example"),
            ("search", "results-page", "weather.widgets.example"),
        )
    )
    by = lab.rng.choice(("ci", "argocd"))

    def probed(_: Container) -> Problem | None:
        if partner not in lab.outside.broken:
            return None
        return Problem("unready", "probe failed: HTTP probe failed with statuscode: 503")

    def failing(container: Container) -> float:
        return 0.3 if container.tag == FAULTY else 0.0

    like = App("", abroad=(partner,), check=probed, failing=failing)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", PAGE_SIZE="24"))
    await lab.app(namespace, name, like=like, replicas=4, tag=OLD, config=name)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 4)
    await publish(lab, namespace, name)
    lab.alert_errors(namespace, name)
    lab.alert_lacking(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    async with before(lab, days=lab.rng.randrange(12, 30)) as then:
        answer = await lab.roll(by, namespace, name, FAULTY)
        await then.fires()
        await lab.roll(by, namespace, name, OLD)
        await then.is_well()
        then.judge(answer, "it")
    await lab.roll("admin", namespace, name, MENDED)
    await rolled(lab, namespace, name, MENDED)
    await lab.until(lab.is_well)

    async def go_down() -> None:
        await asyncio.sleep(lab.rng.uniform(9, 15))
        lab.outside.broken[partner] = "503 Service Unavailable"

    yield
    await lab.roll(by, namespace, name, NEXT)
    lab.start(go_down())


@dataclass
class _Operator:
    """It makes what is declared, once it knows which version the API server has; that it asks at its start only."""

    lab: Lab
    kind: Kind
    namespace: str
    name: str
    upgraded: asyncio.Event = field(default_factory=asyncio.Event)
    """The provider has gone on to a version whose answer has fields that the operator's library does not know."""

    async def run(self, process: Process) -> None:
        told = await process.api.call("GET", "/version")
        if self.upgraded.is_set():
            unknown = next(key for key in told.body if key.startswith("emulation"))
            raise CrashError(f'Detection of Kubernetes version failed: Unrecognized field "{unknown}"')
        await both(every(1.5, self._make), self._cut)(process)

    async def _make(self, process: Process) -> None:
        listed = await process.api.call("GET", self.kind.path(self.namespace))
        for one in listed.body.get("items", []):
            if "status" not in one:
                status = {"conditions": [{"type": "Ready", "status": "True"}], "topicName": one["metadata"]["name"]}
                where = self.kind.path(self.namespace, one["metadata"]["name"])
                await process.api.call("PATCH", where, {"status": status})

    async def _cut(self, _: Process) -> None:
        """As the API server goes for the new one, whoever leads cannot renew its lease."""
        await self.upgraded.wait()
        raise CrashError("leader election lost: dial tcp 10.96.0.1:443: connect: connection refused")

    def waiting(self) -> list[Json]:
        """What was ordered and is not there after what anybody waits for."""
        found = [one for one in self.lab.world[self.kind.name].values() if "status" not in one]
        return [one for one in found if _age(one) > PATIENCE_SECONDS]


def _age(one: Json) -> float:
    return now().timestamp() - float(one["spec"]["config"]["ordered"])


@family(
    "The provider upgrades the API server by itself, at night. Its answer to which version it has got further fields,"
    " which the library of an operator does not know: that one, whose connection was cut meanwhile, ends at each start,"
    " and what is ordered of it is not made.",
    culprit=False,
    joined=36,
)
async def version_unread(lab: Lab) -> AsyncIterator[None]:
    """As told of an automatic upgrade and an operator for Kafka (vourteen14.xyz, October 2025)."""
    namespace, portal = "kafka", lab.rng.choice(("stream-portal", "event-console", "integration-api"))
    name, made = "strimzi-cluster-operator", await lab.custom("KafkaTopic", GROUP, ANY)
    operator, numbers = _Operator(lab, made, namespace, name), [0]
    await lab.namespace(namespace)
    await lab.served(made)

    async def order(process: Process) -> None:
        """One for each who asks; the oldest is given back."""
        numbers[0] += 1
        topic = f"{portal}-{numbers[0]:04}"
        spec = {"partitions": 6, "replicas": 3, "config": {"ordered": f"{now().timestamp():.0f}"}}
        body = {"apiVersion": f"{GROUP}/v1", "kind": made.name, "metadata": {"name": topic}, "spec": spec}
        await process.api.call("POST", made.path(namespace), body)
        listed = (await process.api.call("GET", made.path(namespace))).body.get("items", [])
        for one in sorted(listed, key=lambda one: str(one["metadata"]["name"]))[:-KEPT_TOPICS]:
            await process.api.call("DELETE", made.path(namespace, one["metadata"]["name"]))

    def in_vain(_: Container) -> float:
        return ORDERED if operator.waiting() else 0.0

    await lab.controller(namespace, name, operator.run, (GROUP, made.plural, "*"), replicas=1, tag="0.43.0")
    app = await lab.controller(
        "platform", portal, every(2.5, order), (GROUP, made.plural, "*"), replicas=2, tag="1.9.2"
    )
    app.serves, app.failing, app.fails_with = True, in_vain, lambda _: "504"
    await lab.until(lambda: len(backends(lab.world, "platform", portal)) == 2)
    await publish(lab, "platform", portal)
    late = lambda: len(operator.waiting()) > 1  # noqa: E731
    lab.alert("KafkaTopicsNotReady", late, "topics that were ordered are not there", 3, namespace=namespace)
    lab.alert_errors("platform", portal)
    lab.alert_ingress_errors("platform", "platform")
    await lab.until(lab.is_well)

    async def upgrade() -> None:
        await asyncio.sleep(lab.rng.uniform(3, 9))
        operator.upgraded.set()

    yield
    lab.start(upgrade())
