"""What several have in one place: settings in one folder, requests in one queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from tests.lab import objects
from tests.lab.api import Answer, Json, Kind, now, stamp
from tests.lab.apps import App, Container, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.manifests import uid_of
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

DEFAULTS, LIMIT = "platform-defaults", "rate-limit"
OWN_LIMIT, COMMON_LIMIT = "250", "10"
"""Requests a second that one process takes before it answers 429."""


@dataclass
class _Limiter:
    """In the process of an app: what it reads of its folder it goes by a lag later, and without a limit it has none."""

    lab: Lab
    asked: float
    place: tuple[str, str]
    read: dict[str, tuple[str, str, float]] = field(default_factory=dict)
    """Of each pod: the limit that it goes by, the one in its folder, and since when that one is there."""

    def refused(self, container: Container) -> float:
        """The share of what comes to a process that is above its limit."""
        uid, told = uid_of(container.pod), container.config.get(LIMIT, "")
        goes_by, seen, since = self.read.get(uid, (told, told, 0.0))
        since = since if told == seen else now().timestamp()
        if now().timestamp() - since >= self.lab.lag:
            goes_by = told
        self.read[uid] = goes_by, told, since
        each = self.asked / max(1, len(backends(self.lab.world, *self.place)))
        return max(0.0, 1 - float(goes_by) / each) if goes_by else 0.0


@family(
    "Each app has a folder of settings that are its own or everybody's. What is everybody's gets a limit on requests,"
    " which is meant for whoever has none. One app names its own settings first and those of everybody after them, so"
    " that these win: it answers 429 to much of what another app asks it.",
    joined=49,
)
async def defaults_win(lab: Lab) -> AsyncIterator[None]:
    """As the documentation of projected volumes lets it be: of two sources with one key the later one is read."""
    namespace, name, front, others = lab.rng.choice(
        (
            ("shop", "price-api", "product-page", ("review-api", "gift-api")),
            ("media", "rights-api", "player-page", ("chapter-api", "poster-api")),
            ("search", "facet-api", "result-page", ("spelling-api", "trend-api")),
        )
    )
    by, asked = lab.rng.choice(("flux", "alice", "bob")), lab.rng.uniform(54, 72)
    await lab.apply(objects.config_map(namespace, DEFAULTS, **{"log-format": "json", "region": "eu-central"}))

    async def add(one: str, order: tuple[str, str], own: dict[str, str], like: App, replicas: int) -> None:
        await lab.apply(objects.config_map(namespace, one, **own))
        sources = [{"configMap": {"name": source}} for source in order]
        volumes = [{"name": "config", "projected": {"sources": sources}}]
        await lab.app(namespace, one, like=like, replicas=replicas, config=one, volumes=volumes, tag="5.2.0")

    limiter = _Limiter(lab, asked, (namespace, name))
    like = App("", asked=lambda: asked, failing=limiter.refused, fails_with=lambda _: "429")
    await add(name, (name, DEFAULTS), {"log-level": "warn", LIMIT: OWN_LIMIT}, like, 3)
    for other, own, comes in zip(others, ({LIMIT: OWN_LIMIT}, {"log-level": "info"}), (40.0, 11.0), strict=True):
        asks = partial(float, comes)
        limiter = _Limiter(lab, comes, (namespace, other))
        like = App("", asked=asks, failing=limiter.refused, fails_with=lambda _: "429")
        await add(other, (DEFAULTS, other), own, like, 2)
    upstreams = tuple((namespace, one) for one in (name, *others))
    await lab.app(namespace, front, like=App("", upstreams=upstreams, asked=lambda: 35.0), replicas=3, tag="9.0.3")
    await lab.until(lambda: len(backends(lab.world, namespace, front)) == 3)
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 8))
    await lab.culprit(by, "update", "ConfigMap", namespace, DEFAULTS, {"data": {LIMIT: COMMON_LIMIT}})


GROUP, LEVEL, IMPORTER = "projects.corp.example", "automation", "directory-importer"
REVIEW_SECONDS, ROUND_SECONDS, OBJECTS, WORKERS = 0.6, 4.0, 8, 28
"""How long a webhook looks at each write, a pause between rounds, what one controller keeps, and who imports."""
TRIES, BACK_OFF, STALE_SECONDS = 3, 1.0, 18.0


def _flows(told_apart: str) -> Json:
    """Whatever runs in the platform's namespace asks by one level."""
    subject = {"kind": "Group", "group": {"name": "system:serviceaccounts:platform"}}
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
    spec = {
        "priorityLevelConfiguration": {"name": LEVEL},
        "matchingPrecedence": 600,
        "distinguisherMethod": {"type": told_apart},
        "rules": [{"subjects": [subject], "resourceRules": [everything]}],
    }
    return {"kind": "FlowSchema", "metadata": {"name": LEVEL}, "spec": spec}


async def _patient(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """What is rejected is asked for again after a second, a few times."""
    for _ in range(TRIES):
        answer = await ask()
        if answer.status != 429:
            break
        await asyncio.sleep(BACK_OFF)
    return answer


@dataclass
class _Rounds:
    """Of one controller: it notes at each object that is its own that it has looked at it."""

    kind: Kind
    name: str
    done: float = field(default_factory=lambda: now().timestamp())

    async def go(self, process: Process) -> None:
        where = f"{self.kind.path('projects')}?labelSelector=kept-by={self.name}"
        listed = await _patient(lambda: process.api.call("GET", where))
        places = [self.kind.path("projects", one["metadata"]["name"]) for one in listed.body.get("items", [])]
        body = {"spec": {"looked": stamp(now())}}
        asked = [partial(process.api.call, "PATCH", place, body) for place in places]
        answers = await asyncio.gather(*map(_patient, asked))
        if listed.ok and all(one.ok for one in answers):
            self.done = now().timestamp()

    @property
    def age(self) -> float:
        return now().timestamp() - self.done


def _importing(kind: Kind) -> Callable[[Process], Awaitable[None]]:
    """It has always asked for more than it gets: whoever of its workers is rejected tries it again soon."""

    async def run(process: Process) -> None:
        async def work(number: int) -> None:
            place = kind.path("projects", f"{IMPORTER}-{number:02}")
            while True:
                done = await process.api.call("PATCH", place, {"spec": {"imported": stamp(now())}})
                if not done.ok:
                    await asyncio.sleep(process.rng.uniform(0.4, 0.6))

        async with asyncio.TaskGroup() as group:
            for number in range(WORKERS):
                group.create_task(work(number))

    return run


@family(
    "Requests of all automation share one priority level, fairly, as each user has a flow of its own there. Somebody"
    " has flows told apart by namespace, so that each team would have its share: that is the namespace which is asked"
    " about, and one for all. An importer that has always asked for more than it got fills the queues of everybody.",
    joined=49,
)
async def one_flow(lab: Lab) -> AsyncIterator[None]:
    """As the documentation of priority and fairness has it of what tells flows apart."""
    by, team = lab.rng.choice(("alice", "bob", "flux")), lab.rng.choice(("ci", "argocd"))
    names = lab.rng.sample(("project-quotas", "project-access", "project-costs", "project-backups"), 2)
    queue = {"type": "Queue", "queuing": {"queues": 16, "handSize": 2, "queueLengthLimit": 10}}
    limited = {"nominalConcurrencyShares": 2, "lendablePercent": 0, "borrowingLimitPercent": 0, "limitResponse": queue}
    spec: Json = {"type": "Limited", "limited": limited}
    await lab.apply({"kind": "PriorityLevelConfiguration", "metadata": {"name": LEVEL}, "spec": spec})
    await lab.apply(_flows("ByUser"))
    kind = await lab.custom("Project", GROUP, ANY)
    await lab.served(kind)
    await lab.namespace("projects")

    async def review(request: Json) -> str | None:
        """It asks the directory of the company for each."""
        if not backends(lab.world, "policies", "project-policy"):
            raise ConnectionError("no pod is behind it")
        await asyncio.sleep(REVIEW_SECONDS)
        return None if request["object"]["spec"]["owner"] else "a project has an owner"

    await lab.namespace("policies")
    await lab.app("policies", "project-policy", tag="1.2.0")
    await rolled(lab, "policies", "project-policy", "1.2.0")
    guard = Webhook(review, service=("policies", "project-policy"))
    await guard.start()
    lab.servers.append(guard)
    made = configuration("project-policy", guard)
    rule = {"apiGroups": [GROUP], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": [kind.plural]}
    made["webhooks"][0] |= {"rules": [rule], "namespaceSelector": {}}
    await lab.apply(made)
    for name, many in (*((one, OBJECTS) for one in names), (IMPORTER, WORKERS)):
        for number in range(many):
            meta = {"namespace": "projects", "name": f"{name}-{number:02}", "labels": {"kept-by": name}}
            body = {"apiVersion": f"{GROUP}/v1", "kind": kind.name, "metadata": meta}
            await lab.apply({**body, "spec": {"owner": lab.rng.choice(("shop", "media", "search"))}})
    right = (GROUP, kind.plural, "list,patch")
    await lab.controller("platform", IMPORTER, _importing(kind), right, replicas=1, tag="2.7.0")
    rejected = []
    for name in names:
        rounds = _Rounds(kind, name)
        app = await lab.controller("platform", name, every(ROUND_SECONDS, rounds.go), right, replicas=1, tag="3.0.1")
        rejected.append(lab.refused(app.image, 429))
        labels = {"namespace": "platform", "service": name}
        lab.measure("last_success_age_seconds", partial(getattr, rounds, "age"), namespace="platform", service=name)
        stale = partial(lambda rounds: rounds.age > STALE_SECONDS, rounds)
        lab.alert("SyncStale", stale, f"{name} has not been through for {STALE_SECONDS:g}s", 3, **labels)
    fails = lab.rate(lambda: sum(one() for one in rejected), 0.8, seconds=12)
    lab.alert("ControllerRequestsRejected", fails, "requests of controllers are rejected", 6, namespace="platform")
    await rolled(lab, "platform", names[-1], "3.0.1")
    await lab.pause(10)
    await lab.until(lab.is_well)
    yield
    await lab.roll(team, "platform", IMPORTER, "2.7.1")
    await lab.pause(lab.rng.uniform(8, 14))
    body = {"spec": {"distinguisherMethod": {"type": "ByNamespace"}}}
    await lab.culprit(by, "update", "FlowSchema", "", LEVEL, body)
