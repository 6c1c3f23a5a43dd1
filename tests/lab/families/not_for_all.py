"""What hits only some of those who ask, and all others by what it sets off: an expression, a way to sign in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab import objects
from tests.lab.api import Answer, Json, now
from tests.lab.apps import App, Container
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family

KEY, BLOCKED = "BLOCKED_EXPRESSIONS", r"<\+secrets\..*>,<\+exportedVariables\..*>"
WRITES, MOST_WRITES = 1.0, 2.2
"""What all executions write as on any day, and what the database stands."""


@dataclass
class _Executions:
    """Those with a blocked expression fail, and are tried again at once, which is written down each time."""

    lab: Lab
    namespace: str
    name: str
    with_it: float
    writes: float = WRITES

    def is_blocked(self) -> bool:
        found = self.lab.world["ConfigMap"].get((self.namespace, self.name), {}).get("data", {})
        return bool(found.get(KEY))

    async def run(self) -> None:
        """Each that fails is there again with the next ones; of those that get through nothing is left soon."""
        while True:
            await asyncio.sleep(0.5)
            grown = self.writes * (1 + self.with_it / 2) if self.is_blocked() and self.with_it else self.writes * 0.85
            self.writes = min(4 * WRITES, max(WRITES, grown))

    def turned_away(self, _: Container) -> float:
        """The share of writes for which the database is too late."""
        return max(0.0, 1 - MOST_WRITES / self.writes)

    def waits(self, _: Container) -> float:
        return 1.6 * max(0.0, self.writes - 0.8 * MOST_WRITES)


@family(
    "Expressions that read secrets are blocked in the settings of what runs pipelines. Executions that have one fail"
    " and are tried again at once, each try is written to a database, and whoever else has that one waits.",
    joined=24,
)
async def blocked_expressions(lab: Lab) -> AsyncIterator[None]:
    """As Harness tells of 6 May 2026."""
    namespace, name, others = lab.rng.choice(
        (
            ("platform", "pipelines", ("triggers", "approvals")),
            ("media", "workflows", ("schedules", "review-board")),
            ("payments", "batch-flows", ("mandates", "statements")),
        )
    )
    database = f"{name}-mongo"
    executions = _Executions(lab, namespace, name, with_it=0.0)
    await lab.app(namespace, database, like=App("", serves=False), kind="StatefulSet", replicas=3)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", **{KEY: ""}))
    for one in (name, *others):
        like = App(
            "",
            upstreams=((namespace, database),),
            failing=executions.turned_away,
            fails_with=lambda _: "504",
            latency=executions.waits,
        )
        await lab.app(namespace, one, like=like, replicas=3, config=name if one == name else "")
    await lab.until(lambda: all(len(backends(lab.world, namespace, one)) == 3 for one in (name, *others)))
    await publish(lab, namespace, others[0])
    lab.reserve(namespace, name, *others)
    pressure = lambda: executions.writes * 900  # noqa: E731
    lab.measure("mongodb_op_counters_total", lab.adding_up(pressure), "counter", namespace=namespace, service=database)
    for one in (name, *others):
        lab.alert_errors(namespace, one)
        lab.alert_slow(namespace, one, 0.8)
    lab.start(executions.run())
    blocked: Json = {"data": {KEY: BLOCKED}}
    by = lab.rng.choice(("ci", "flux"))
    async with before(lab, days=1, cluster="prod-eu"):
        await lab.edit(by, "ConfigMap", namespace, name, blocked)
        await lab.pause(12)
    await lab.edit("admin", "ConfigMap", namespace, name, {"data": {KEY: ""}})
    executions.with_it = lab.rng.uniform(0.2, 0.35)  # here, some customers have such expressions
    yield
    await lab.roll("argocd", namespace, others[0], "1.1.0")
    await lab.pause(lab.rng.uniform(6, 10))
    await lab.culprit(by, "update", "ConfigMap", namespace, name, blocked)


@dataclass
class _SignIn:
    """Who signs users in by a company's own directory."""

    lab: Lab
    namespace: str
    name: str
    bad: str
    share: float
    directory_late: bool = False

    def failing(self, container: Container) -> float:
        """Of all who sign in, those whose company provisions its users itself; or who waited for the directory."""
        wrong = self.share if container.tag == self.bad else 0.0
        return max(wrong, 0.5 if self.directory_late else 0.0)

    async def rotate(self) -> Answer:
        """What signs its answers is made anew, and read at the next start."""
        body: Json = {"stringData": {"tls.key": f"key {self.lab.rng.randrange(9999)}"}}
        await self.lab.edit("flux", "Secret", self.namespace, f"{self.name}-signing", body)
        again = {"kubectl.kubernetes.io/restartedAt": f"{now():%Y-%m-%dT%H:%M:%SZ}"}
        template = {"spec": {"template": {"metadata": {"annotations": again}}}}
        return await self.lab.edit("flux", "Deployment", self.namespace, self.name, template)


@family(
    "A release of what signs users in hands requests on in another way: whoever's company provisions its users itself"
    " is not signed in any more, all others are.",
    joined=24,
)
async def provisioned_users(lab: Lab) -> AsyncIterator[None]:
    """As Harness tells of its product Split, 18 March 2026."""
    namespace, name, front = lab.rng.choice(
        (("platform", "sso", "console"), ("shop", "partner-login", "partners"), ("media", "identity", "studio"))
    )
    signs = _SignIn(lab, namespace, name, "5.2.0", lab.rng.uniform(0.2, 0.35))
    host = "directory.workforce.example"
    meta = {"namespace": namespace, "name": f"{name}-signing"}
    await lab.apply({"kind": "Secret", "metadata": meta, "stringData": {"tls.key": "key"}})
    like = App("", abroad=(host,), failing=signs.failing)
    await lab.app(namespace, name, like=like, replicas=3, tag="5.1.3", secret=f"{name}-signing")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=3)
    await lab.until(lambda: len(backends(lab.world, namespace, front)) == 3)
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    async with before(lab, days=28) as then:
        answer = await signs.rotate()
        await lab.pause(3)
        signs.directory_late = True
        await then.fires()
        signs.directory_late = False
        await then.is_well()
        then.judge(answer, "not it")
    async with before(lab, days=14):
        await signs.rotate()
        await lab.pause(8)
    yield
    await signs.rotate()
    await lab.pause(lab.rng.uniform(8, 12))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, "5.2.0", culprit=True)
