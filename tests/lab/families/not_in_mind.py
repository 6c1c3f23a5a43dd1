"""What a change brings along that nobody had in mind: a port, a key's name, a flood of lines, a shorter queue."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from tests.lab import objects
from tests.lab.apps import App, Container
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.manifests import image_of
from tests.lab.network import backends
from tests.lab.scenario import family

TEAMS = ("alice", "bob", "carol")


async def set_before(lab: Lab, namespace: str, front: str, name: str) -> None:
    """A page that calls an app, has a configuration of its own, and is what users see of it."""
    await lab.apply(objects.config_map(namespace, front, LOG_LEVEL="info", PAGE_SIZE="50"))
    like = App("", upstreams=((namespace, name),), asked=lambda: 18.0)
    await lab.app(namespace, front, like=like, replicas=2, tag="6.1.5", config=front)
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)


async def change_page(lab: Lab, namespace: str, front: str) -> None:
    """As its team does on many a day: a release, or a value of its configuration."""
    if lab.rng.random() < 0.6:
        await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, front, f"6.1.{lab.rng.randrange(6, 20)}")
    else:
        data = {"data": {"PAGE_SIZE": lab.rng.choice(("40", "60", "80"))}}
        await lab.edit(lab.rng.choice(("flux", *TEAMS)), "ConfigMap", namespace, front, data)


@family(
    "A release of a service comes with a newer framework, whose servers listen on 9090 unless they are told otherwise."
    " Its probes ask the port for management, where all is well, and the Service goes on to send to 8080: each call is"
    " refused.",
    joined=70,
)
async def port_moved(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose pods are all ready and whose page says connection refused."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "stock-levels", "product-page"),
            ("payments", "exchange-rates", "quote-page"),
            ("search", "suggestions", "search-page"),
            ("media", "captions", "player-page"),
        )
    )
    minor, team = lab.rng.randrange(3, 40), lab.rng.choice(("ci", "argocd"))
    old, new, is_declared = f"2.{minor}.1", "3.0.0", lab.rng.random() < 0.6

    def is_missed(container: Container) -> bool:
        [port] = lab.world["Service"][namespace, name]["spec"]["ports"]
        return bool(port["targetPort"] != (9090 if container.tag == new else 8080))

    like = App("", port=8081, asked=lambda: 30.0, deaf=is_missed)
    await lab.app(namespace, name, like=like, replicas=3, tag=old, probe={"port": 8081})
    named = [{"name": "http", "containerPort": 8080}, {"name": "management", "containerPort": 8081}]
    await lab.roll("admin", namespace, name, old, ports=named)
    await rolled(lab, namespace, name, old)
    await set_before(lab, namespace, front, name)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(3, 9))
    further: dict[str, Any] = {"ports": [{**named[0], "containerPort": 9090}, named[1]]} if is_declared else {}
    await lab.roll(team, namespace, name, new, culprit=True, **further)
    await lab.pause(lab.rng.uniform(1, 4))
    await change_page(lab, namespace, front)


@family(
    "Somebody tidies up and gives a key the name that such keys have in all other teams. Who runs has read it long ago;"
    " the pods of the next release, some time later, ask for the old name and do not start.",
    joined=70,
)
async def key_renamed(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose rollout stops at CreateContainerConfigError without a change of their own."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "wish-lists", "account-page"),
            ("payments", "invoices", "billing-page"),
            ("media", "playlists", "library-page"),
        )
    )
    by, minor, is_secret = lab.rng.choice((*TEAMS, "flux")), lab.rng.randrange(3, 40), lab.rng.random() < 0.5
    kind, held = ("Secret", f"{name}-db") if is_secret else ("ConfigMap", f"{name}-settings")
    before, after = ("password", "DB_PASSWORD") if is_secret else ("db.host", "DB_HOST")
    value = f"{lab.rng.getrandbits(64):016x}" if is_secret else f"{name}-db.{namespace}"
    data = {before: base64.b64encode(value.encode()).decode() if is_secret else value}
    await lab.apply({"kind": kind, "metadata": {"namespace": namespace, "name": held}, "data": data})
    source = {f"{'secret' if is_secret else 'configMap'}KeyRef": {"name": held, "key": before}}
    env = [{"name": after, "valueFrom": source}]
    await lab.app(namespace, f"{name}-db", like=App("", serves=False), replicas=1, tag="16.4")
    like = App("", upstreams=((namespace, f"{name}-db"),), asked=lambda: 20.0)
    await lab.app(namespace, name, like=like, replicas=3, tag=f"4.{minor}.0", env=env)
    await rolled(lab, namespace, name, f"4.{minor}.0")
    await set_before(lab, namespace, front, name)
    lab.alert_stuck(namespace, name)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(1, 5))
    await lab.culprit(by, "update", kind, namespace, held, {"data": {before: None, after: data[before]}})
    await lab.pause(lab.rng.uniform(3, 7))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(5, 10))
    await lab.roll("ci", namespace, name, f"4.{minor + 1}.0")


@family(
    "To look for a fault that one customer has, somebody sets an app's log level to debug in production, and leaves it"
    " so. Each request writes hundreds of lines, one after the other, and is answered once all are written.",
    joined=70,
)
async def debug_left_on(lab: Lab) -> AsyncIterator[None]:
    """As very many tell of a log level in production."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "promotions", "basket-page"),
            ("payments", "risk-checks", "pay-page"),
            ("search", "facets", "results-page"),
        )
    )
    by, wait = lab.rng.choice(TEAMS), lab.rng.uniform(0.9, 1.6)

    def is_wordy(container: Container) -> bool:
        return container.config.get("LOG_LEVEL") == "debug" and container.seconds >= lab.lag

    def lines() -> float:
        return sum(900.0 if is_wordy(one.container) else 12.0 for one in lab.kubelets.running() if one.app is like)

    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", CACHE_SECONDS="60"))
    like = App("", asked=lambda: 28.0, latency=lambda container: wait if is_wordy(container) else 0.0)
    await lab.app(namespace, name, like=like, replicas=3, tag="5.2.0", config=name)
    await rolled(lab, namespace, name, "5.2.0")
    await set_before(lab, namespace, front, name)
    lab.measure("log_lines_total", lab.adding_up(lines), "counter", namespace=namespace, service=name)
    lab.alert_slow(namespace, name)
    lab.alert_slow(namespace, front)
    await lab.until(lab.is_well)
    yield
    await lab.roll("ci", namespace, name, "5.2.1")
    await lab.pause(lab.rng.uniform(8, 14))
    await lab.culprit(by, "update", "ConfigMap", namespace, name, {"data": {"LOG_LEVEL": "debug"}})
    await lab.pause(lab.rng.uniform(1, 3))
    await change_page(lab, namespace, front)


WORK_SECONDS, POOL_WAIT_SECONDS = 0.2, 2.0
"""For how long a request keeps a connection, and how long it waits for one before it gives up."""


@dataclass
class _Pool:
    """Each process has as many connections to the database as its configuration said at its start."""

    lab: Lab
    rate: float
    sizes: dict[str, int] = field(default_factory=dict)

    def use(self, container: Container) -> float:
        """How much of its pool the requests of a process need; more than 1 is not to be had."""
        start = str(container.pod["metadata"]["uid"])
        size = self.sizes.setdefault(start, int(container.config["DB_POOL_SIZE"]))
        there = sum(one.app is self.lab.apps[image_of(container.pod)] for one in self.lab.kubelets.running())
        return self.rate / max(1, there) * WORK_SECONDS / size if container.seconds >= self.lab.lag else 0.0

    def wait(self, container: Container) -> float:
        use = self.use(container)
        return POOL_WAIT_SECONDS if use >= 1 else WORK_SECONDS * use**4 / (1 - use)

    def fails(self, container: Container) -> float:
        return max(0.0, 1 - 1 / max(1.0, self.use(container)))


@family(
    "The database has many connections that do nothing, and somebody makes an app's pool smaller in its chart, with"
    " which its pods are rolled. At the usual load there are more requests than connections now: they wait for one, and"
    " some give up.",
    joined=70,
)
async def smaller_pool(lab: Lab) -> AsyncIterator[None]:
    """As those tell who wait for a connection of Hikari, or of SQLAlchemy's queue."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "reviews", "review-page"),
            ("payments", "statements", "statement-page"),
            ("media", "comments", "watch-page"),
        )
    )
    by, pool = lab.rng.choice(("ci", *TEAMS)), _Pool(lab, lab.rng.uniform(52, 66))
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", DB_POOL_SIZE="20"))
    await lab.app(namespace, f"{name}-db", like=App("", serves=False), replicas=1, tag="16.4")
    store = ((namespace, f"{name}-db"),)
    like = App("", upstreams=store, asked=lambda: pool.rate, latency=pool.wait, failing=pool.fails)
    await lab.app(namespace, name, like=like, replicas=3, tag="8.4.0", config=name)
    await rolled(lab, namespace, name, "8.4.0")
    await set_before(lab, namespace, front, name)

    def waiting() -> float:
        there = [pool.use(one.container) for one in lab.kubelets.running() if one.app is like]
        return sum(max(0.0, use - 1) * 20 for use in there)

    lab.measure("hikaricp_connections_pending", waiting, namespace=namespace, service=name)
    lab.alert_slow(namespace, name)
    lab.alert_errors(namespace, name, 0.1)
    lab.alert_slow(namespace, front)
    await lab.until(lab.is_well)
    yield
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(4, 9))
    size = {"data": {"DB_POOL_SIZE": lab.rng.choice(("2", "3"))}}
    await lab.culprit(by, "update", "ConfigMap", namespace, name, size)
    mark = {"checksum/config": f"{lab.rng.getrandbits(64):016x}"}
    body = {"spec": {"template": {"metadata": {"annotations": mark}}}}
    why = "the same upgrade has the pods read the smaller pool"
    await lab.also(why, by, "update", "Deployment", namespace, name, body)
    await lab.pause(lab.rng.uniform(2, 4))
    await change_page(lab, namespace, front)
