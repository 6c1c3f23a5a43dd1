"""What grows or fails by itself, while others that meet it ask more than it does: tenants, rates of exchange."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab import objects
from tests.lab.api import Caller, Json, Kind, now, path, stamp
from tests.lab.apps import App, Container, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.loops import LOOSE
from tests.lab.lab import Lab
from tests.lab.manifests import images
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

FIRST_TENANTS, MOST_TENANTS = 6, 70
QUEUE, REVIEW_SECONDS = 20, 0.15
"""So many requests of one priority level may wait at once, and so long a webhook looks at a tenant."""
TRIES = 3
"""How often a caller asks again for what failed."""
RATES, FAULTY, FAILS = ("payments", "exchange-rates"), "2.3.0", 0.5
"""What keeps rates of exchange, a version of it that fails, and the share of its answers that it does."""


@dataclass(frozen=True)
class _Tenants:
    """Who signs up at a portal becomes an object; an operator looks after all of them, each in a thread of its own."""

    lab: Lab
    kind: Kind
    portal: Caller

    async def sign_up(self, seconds: float, most: int) -> None:
        while (number := len(self.lab.world[self.kind.name])) < most:
            name = f"tenant-{number:03}-{self.lab.rng.randrange(16**4):04x}"
            spec = {"plan": self.lab.rng.choice(("free", "free", "team")), "region": "eu"}
            api = f"{self.kind.group}/v1"
            body = {"apiVersion": api, "kind": self.kind.name, "metadata": {"name": name}, "spec": spec}
            await self.portal.must("POST", self.kind.path("tenants"), body)
            await asyncio.sleep(seconds * self.lab.rng.uniform(0.6, 1.4))

    async def reconcile(self, process: Process) -> None:
        """Note at each that it was looked after; what is rejected is tried again, as clients do."""
        listed = await process.api.call("GET", self.kind.path("tenants"))
        names = [one["metadata"]["name"] for one in listed.body.get("items", [])]
        await asyncio.gather(*(self._note(process, name) for name in names))

    async def _note(self, process: Process, name: str) -> None:
        body = {"spec": {"seen": stamp(now())}}
        for _ in range(TRIES):
            if (await process.api.call("PATCH", self.kind.path("tenants", name), body)).status != 429:
                return
            await asyncio.sleep(process.rng.uniform(0.4, 0.8))

    async def guard(self) -> None:
        """A webhook that has a look at each tenant that is written."""

        async def review(request: Json) -> str | None:
            await asyncio.sleep(REVIEW_SECONDS)
            plan = request["object"]["spec"]["plan"]
            return None if plan in ("free", "team") else f"there is no plan {plan}"

        webhook = Webhook(review, service=("platform", "tenant-policy"))
        await webhook.start()
        self.lab.servers.append(webhook)
        made = configuration("tenant-policy", webhook)
        operations, resources = ["CREATE", "UPDATE"], [self.kind.plural]
        rule = {"apiGroups": [self.kind.group], "apiVersions": ["v1"], "operations": operations, "resources": resources}
        made["webhooks"][0] |= {"rules": [rule], "namespaceSelector": {}}
        await self.lab.apply(made)


@family(
    "After an article in the press more and more users sign up. What looks after their tenants writes to all of them"
    " at once, as ever, until their priority level lets no more wait: what is rejected is tried again, and rejected.",
    culprit=False,
    joined=25,
)
async def tenants_grow(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: priority and fairness does so with whoever grows."""
    level = {
        "nominalConcurrencyShares": 1,
        "lendablePercent": 0,
        "borrowingLimitPercent": 0,
        "limitResponse": {"type": "Queue", "queuing": {"queues": 1, "handSize": 1, "queueLengthLimit": QUEUE}},
    }
    meta = {"name": "platform-controllers"}
    spec: Json = {"type": "Limited", "limited": level}
    await lab.apply({"kind": "PriorityLevelConfiguration", "metadata": meta, "spec": spec})
    subject = {"kind": "Group", "group": {"name": "system:serviceaccounts:platform"}}
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
    spec = {
        "priorityLevelConfiguration": meta,
        "matchingPrecedence": 500,
        "rules": [{"subjects": [subject], "resourceRules": [everything]}],
    }
    await lab.apply({"kind": "FlowSchema", "metadata": meta, "spec": spec})
    group = "tenancy.corp.example"
    kind = await lab.custom("Tenant", group, LOOSE)
    await lab.served(kind)
    await lab.namespace("tenants")
    account = "portal"
    await lab.apply(objects.account("tenants", account))
    await lab.apply(objects.cluster_role(account, (group, kind.plural, "create")))
    await lab.apply(objects.binding(account, account, "tenants", account))
    await lab.app("tenants", account, account=account, replicas=1)
    await lab.robot(account, "tenants", account, "portal/5.1")
    tenants = _Tenants(lab, kind, lab.who[account])
    await lab.app("platform", "tenant-policy")
    await tenants.guard()
    await tenants.sign_up(0.05, FIRST_TENANTS)

    async def export(process: Process) -> None:
        """What tenants owe, by what they have; what is rejected is asked for once more."""
        for _ in range(2):
            if (await process.api.call("GET", f"{path('Service')}?limit=5")).status != 429:
                return
            await asyncio.sleep(0.2)

    rules = (group, kind.plural, "list,patch"), ("", "services", "list")
    operator = await lab.controller("platform", "tenant-operator", every(2, tenants.reconcile), *rules, replicas=1)
    exporter = await lab.controller("platform", "usage-exporter", every(0.4, export), *rules, replicas=1)
    rejected = [lab.refused(app.image, 429) for app in (operator, exporter)]
    fails = lab.rate(lambda: sum(one() for one in rejected), 2, seconds=10)
    lab.alert("ControllerRequestsRejected", fails, "requests of controllers are rejected", 6, namespace="platform")
    lab.start(tenants.sign_up(12, FIRST_TENANTS + 4))
    yield
    await lab.edit("alice", "Deployment", "platform", "usage-exporter", {"spec": {"replicas": 2}})
    await lab.pause(lab.rng.uniform(3, 6))
    lab.start(tenants.sign_up(0.5, MOST_TENANTS))


@dataclass
class _Rates:
    """Rates of exchange, from somebody outside; who needs them asks again for what it did not get."""

    lab: Lab
    usual: float
    missing: float = 0.0
    """The share of questions that the one outside does not answer."""

    def failing(self, container: Container) -> float:
        return max(self.missing, FAILS if container.tag == FAULTY else 0.0)

    @property
    def share(self) -> float:
        """What its callers meet."""
        tags = [images(pod)[0].rsplit(":", 1)[1] for pod in backends(self.lab.world, *RATES)]
        return max(self.missing, FAILS * tags.count(FAULTY) / max(1, len(tags)))

    @property
    def asked(self) -> float:
        """Each caller goes on until it has an answer or has tried as often as it does."""
        return self.usual * sum(self.share**tries for tries in range(TRIES + 1))

    def latency(self, _: Container) -> float:
        """Of a caller: it waits a while before it tries again."""
        return 0.6 * sum(self.share**tries for tries in range(1, TRIES + 1))


@family(
    "Who sells rates of exchange outside answers hardly any question. What keeps them in the cluster fails, and all"
    " who need one ask again and again, so that they are slower and louder than it is.",
    culprit=False,
    joined=25,
)
async def rates_missing(lab: Lab) -> AsyncIterator[None]:
    """What post-mortems of retries tell, with the first cause outside."""
    callers = lab.rng.sample((("shop", "price-tags"), ("payments", "payouts"), ("media", "subscriptions")), 2)
    host = lab.rng.choice(("api.rates.example", "fx.quotes.example"))
    rates = _Rates(lab, lab.rng.uniform(20, 32))
    team = lab.rng.choice(("alice", "bob", "ci"))
    like = App("", abroad=(host,), asked=lambda: rates.asked, failing=rates.failing, fails_with=lambda _: "502")
    await lab.app(*RATES, like=like, replicas=3, tag="2.2.0")
    for one, asked in zip(callers, (70.0, 50.0), strict=True):
        waiting = App("", upstreams=(RATES,), asked=functools.partial(float, asked), latency=rates.latency)
        await lab.app(*one, like=waiting, replicas=3, tag="6.0.0")
    await lab.until(lambda: all(len(backends(lab.world, *one)) == 3 for one in (RATES, *callers)))
    await publish(lab, *callers[0])
    for one in callers:
        lab.alert_errors(*one)
        lab.alert_slow(*one)
    async with before(lab, days=34) as then:
        answer = await lab.roll(team, *RATES, FAULTY)
        await then.fires()
        await lab.roll(team, *RATES, "2.2.0")
        await rolled(lab, *RATES, "2.2.0")
        await then.is_well()
        then.judge(answer, "it")

    async def fade() -> None:
        while rates.missing < 0.85:
            rates.missing = min(0.9, rates.missing + lab.rng.uniform(0.05, 0.15))
            await asyncio.sleep(1)

    yield
    await lab.roll(team, *callers[0], "6.0.1")
    await lab.pause(lab.rng.uniform(5, 9))
    lab.start(fade())
