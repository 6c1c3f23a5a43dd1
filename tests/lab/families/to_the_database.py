"""What gets an app to its database: connections of which there are fewer, and a password that is another one now."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, now
from tests.lab.apps import App, Container, Problem
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.families.sent_to_production import stored
from tests.lab.lab import Lab
from tests.lab.manifests import environment, image_of, is_done, uid_of
from tests.lab.network import backends
from tests.lab.scenario import family

# -- fewer connections

HOLDS_SECONDS, GIVES_UP_SECONDS = 0.12, 3.0
"""For how long a request keeps a connection, and how long it waits for one before it fails."""
POOL = "DB_POOL_MAX"


@dataclass
class _Pools:
    """Each process has as many connections as it was told at its start, and what comes is shared by all of them."""

    lab: Lab
    asked: float
    sizes: dict[str, int] = field(default_factory=dict)

    def use(self, container: Container) -> float:
        """How much of its connections a process needs; of more than 1 the rest waits in vain."""
        told = environment(container.spec).get(POOL) or container.config[POOL]
        size = self.sizes.setdefault(uid_of(container.pod), int(told))
        there = sum(one.app is self.lab.apps[image_of(container.pod)] for one in self.lab.kubelets.running())
        return self.asked / max(1, there) * HOLDS_SECONDS / size if container.seconds >= self.lab.lag else 0.0

    def waits(self, container: Container) -> float:
        use = self.use(container)
        return GIVES_UP_SECONDS if use >= 1 else min(GIVES_UP_SECONDS, HOLDS_SECONDS * use**4 / (1 - use))

    def fails(self, container: Container) -> float:
        return max(0.0, 1 - 1 / max(1.0, self.use(container)))

    def queued(self, like: App) -> int:
        """How many requests wait for a connection just now."""
        there = [one.container for one in self.lab.kubelets.running() if one.app is like]
        return round(sum(self.asked / len(there) * self.waits(one) for one in there))

    def given_up(self, like: App) -> float:
        """How many a second wait in vain."""
        there = [one.container for one in self.lab.kubelets.running() if one.app is like]
        return sum(self.asked / len(there) * self.fails(one) for one in there)

    async def rise(self, to: float, seconds: float) -> None:
        first = self.asked
        for step in range(round(seconds * 2)):
            self.asked = first + (to - first) * (step + 1) / (seconds * 2)
            await asyncio.sleep(0.5)


@family(
    "A database is near the most connections that it takes, and most of an app's are idle whenever somebody looks: its"
    " pool is set smaller. At the peak of the day there are more requests than connections, they wait, and some fail.",
    joined=96,
)
async def fewer_at_the_peak(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose connection is not available, request timed out after 30000ms."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "basket-api", "basket-view", "basket-mails"),
            ("payments", "transfers-api", "transfers-view", "transfers-export"),
            ("media", "progress-api", "continue-page", "progress-stats"),
            ("search", "saved-searches", "searches-page", "searches-digest"),
        )
    )
    by, minor, is_variable = lab.rng.choice(("ci", "argocd", *TEAMS)), lab.rng.randrange(2, 40), lab.rng.random() < 0.5
    before, after, tag = lab.rng.choice(("12", "15", "20")), lab.rng.choice(("2", "3")), f"7.{minor}.2"
    pools, db = _Pools(lab, lab.rng.uniform(22, 27)), f"{name}-db"
    await stored(lab, namespace, db)
    settings = {"LOG_LEVEL": "info", "TIMEOUT_MS": "900", **({} if is_variable else {POOL: before})}
    await lab.apply(objects.config_map(namespace, name, **settings))
    env = [{"name": POOL, "value": before}] if is_variable else []
    like = App("", upstreams=((namespace, db),), asked=lambda: pools.asked, latency=pools.waits, failing=pools.fails)
    await lab.app(namespace, name, like=like, replicas=3, tag=tag, config=name, env=env)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.5.0", config=other)
    await rolled(lab, namespace, name, tag)
    await rolled(lab, namespace, other, "1.5.0")
    await set_before(lab, namespace, front, name)
    told = {"namespace": namespace, "service": name}
    lab.measure("hikaricp_connections_pending", lambda: pools.queued(like), **told)
    given_up = lab.adding_up(lambda: pools.given_up(like))
    lab.measure("hikaricp_connections_timeout_total", given_up, "counter", **told)
    for one in (name, front):
        lab.alert_slow(namespace, one)
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def peak() -> None:
        await lab.pause(lab.rng.uniform(4, 10))
        await change_page(lab, namespace, front)
        await lab.pause(lab.rng.uniform(4, 9))
        lab.start(pools.rise(lab.rng.uniform(84, 98), lab.rng.uniform(20, 28)))
        await lab.pause(lab.rng.uniform(4, 12))
        await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, other, {"data": {"EVERY": "45s"}})

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.5.1")
    await lab.pause(lab.rng.uniform(4, 10))
    if is_variable:
        await lab.roll(by, namespace, name, tag, culprit=True, env=[{"name": POOL, "value": after}])
    else:
        await lab.culprit(by, "update", "ConfigMap", namespace, name, {"data": {POOL: after}})
        mark = {"kubectl.kubernetes.io/restartedAt": f"{now():%Y-%m-%dT%H:%M:%SZ}"}
        if by in ("ci", "argocd"):
            mark = {"checksum/config": f"{lab.rng.getrandbits(64):016x}"}
        body = {"spec": {"template": {"metadata": {"annotations": mark}}}}
        why = "of the same hand: it has the pods read the smaller pool"
        await lab.also(why, by, "update", "Deployment", namespace, name, body)
    lab.start(peak())


# -- another password

KEY, NEXT, SET_BY_HAND = "password", "next-password", "set by hand"
PSQL = "registry.corp.example/platform/psql"
OLDEST_SECONDS = (15.0, 26.0)
"""For how long a pool keeps a connection, at least and at most: a new one has to have the password of now."""


@dataclass
class _Role:
    """A user of a database, whose password is what the database has it from, or what somebody's statement has set."""

    lab: Lab
    namespace: str
    store: App
    statement: str
    oldest: float
    last: str = ""
    changed: float = 0.0
    """When it was seen to be another one than the app's."""

    def password(self) -> str:
        """That by which the database lets the user in."""
        if any(is_done(pod) for pod in pods(self.lab.world, self.namespace, self.statement)):
            return SET_BY_HAND
        held = [one.container.secret.get(KEY, "") for one in self.lab.kubelets.running() if one.app is self.store]
        self.last = held[0] if held else self.last
        return self.last

    def fails(self, container: Container) -> float:
        """The share of requests that find no connection any more."""
        asked, at = self.password(), now().timestamp()
        if not asked or container.secret.get(KEY, "") == asked:
            self.changed = 0.0
            return 0.0
        self.changed = self.changed or at
        is_later = container.seconds < at - self.changed
        return 0.97 * (1.0 if is_later else min(1.0, max(0.0, (at - self.changed - self.lab.lag) / self.oldest)))


def _secret(namespace: str, name: str, **values: str) -> Json:
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    return {"kind": "Secret", "metadata": {"namespace": namespace, "name": name}, "data": data}


def _statement(namespace: str, name: str, user: str, db: str) -> Json:
    """As somebody runs psql in the cluster, since a database lets nobody in from elsewhere."""
    keys = {"PGPASSWORD": KEY, "NEW_PASSWORD": NEXT}
    env: list[Json] = [{"name": "PGHOST", "value": db}]
    for variable, key in keys.items():
        env.append({"name": variable, "valueFrom": {"secretKeyRef": {"name": f"{db}-admin", "key": key}}})
    made = objects.deployment(namespace, name, f"{PSQL}:16.4", restartPolicy="Never", env=env)
    [container] = made["spec"]["template"]["spec"]["containers"]
    del container["readinessProbe"]
    container["args"] = ["-U", "postgres", "-c", f"ALTER ROLE {user} PASSWORD '$(NEW_PASSWORD)'"]
    meta = {"namespace": namespace, "name": name}
    return {"kind": "Job", "metadata": meta, "spec": {"template": made["spec"]["template"], "backoffLimit": 0}}


@family(
    "The password of a database's user is changed, where the database has it from or by a statement, and not in the"
    " Secret of the app that is this user. Its connections go on until they are as old as they may be; each new one is"
    " refused.",
    joined=96,
)
async def still_the_old_password(lab: Lab) -> AsyncIterator[None]:
    """As those tell who read *password authentication failed for user* half an hour after a rotation."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "voucher-api", "voucher-page", "voucher-mails"),
            ("payments", "invoice-api", "invoice-view", "invoice-archive"),
            ("media", "ratings-api", "ratings-page", "ratings-feed"),
            ("search", "click-log", "insights-page", "insights-export"),
        )
    )
    by, minor, is_declared = lab.rng.choice((*TEAMS, "flux")), lab.rng.randrange(2, 40), lab.rng.random() < 0.6
    is_probed, db, user = lab.rng.random() < 0.4, f"{name}-db", name.replace("-", "_")
    store, step = App("", serves=False), f"{db}-alter-role"
    role = _Role(lab, namespace, store, step, lab.rng.uniform(*OLDEST_SECONDS))

    def check(container: Container) -> Problem | None:
        """Its readiness asks for a connection, where it does."""
        if not is_probed or role.fails(container) < 0.95:
            return None
        return Problem("unready", "probe failed: HTTP probe failed with statuscode: 503", at_once=True)

    def refused() -> float:
        there = [one.container for one in lab.kubelets.running() if one.app is like]
        return sum(2.5 * (role.fails(one) > 0) for one in there)

    old, new = (f"{lab.rng.getrandbits(80):020x}" for _ in range(2))
    admin = {KEY: "postgres", NEXT: new}
    for held, values in ((f"{db}-roles", {KEY: old}), (f"{name}-db-login", {KEY: old}), (f"{db}-admin", admin)):
        await lab.apply(_secret(namespace, held, **values))
    lab.apps[PSQL] = App(PSQL, ends_after=1.5, serves=False)
    await lab.app(namespace, db, like=store, kind="StatefulSet", replicas=1, tag="16.4", secret=f"{db}-roles")
    await lab.until(lambda: backends(lab.world, namespace, db))
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", TIMEOUT_MS="900"))
    like = App("", upstreams=((namespace, db),), asked=lambda: 21.0, failing=role.fails, check=check)
    login = {"config": name, "secret": f"{name}-db-login"}
    await lab.app(namespace, name, like=like, replicas=3, tag=f"4.{minor}.1", **login)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.1.4", config=other)
    await rolled(lab, namespace, name, f"4.{minor}.1")
    await rolled(lab, namespace, other, "1.1.4")
    await set_before(lab, namespace, front, name)
    lab.reserve(namespace, db)
    counted = lab.adding_up(refused)
    lab.measure("db_connection_errors_total", counted, "counter", namespace=namespace, service=name, sqlstate="28P01")
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_lacking(namespace, name, seconds=8)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 9))
        await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.1.5")
        await lab.pause(lab.rng.uniform(3, 8))
        await change_page(lab, namespace, front)

    yield
    size = {"data": {"TIMEOUT_MS": lab.rng.choice(("700", "1200"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, size)
    await lab.pause(lab.rng.uniform(5, 12))
    if is_declared:
        changed = _secret(namespace, f"{db}-roles", **{KEY: new})
        await lab.culprit(by, "update", "Secret", namespace, f"{db}-roles", {"data": changed["data"]})
    else:
        person = by if by in TEAMS else lab.rng.choice(TEAMS)
        await lab.culprit(person, "create", "Job", namespace, step, _statement(namespace, step, user, db))
    lab.start(afterwards())
