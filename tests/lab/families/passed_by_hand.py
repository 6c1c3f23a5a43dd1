"""What goes from one to another: a table's column, a password's copies, a customer's orders, a message."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab.api import Json, now
from tests.lab.apps import App, Container
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family


def migration(namespace: str, name: str, number: int) -> Json:
    """A Job that brings an app's tables to where its next release expects them."""
    image = f"registry.corp.example/{namespace}/{name}-migrate:{number}"
    command = ["migrate", "up", "--to", f"{number:04}"]
    spec: Json = {"restartPolicy": "Never", "containers": [{"name": "migrate", "image": image, "command": command}]}
    template: Json = {"metadata": {"labels": {"job": f"{name}-migrate"}}, "spec": spec}
    return {"metadata": {"name": f"{name}-migrate-{number:04}"}, "spec": {"backoffLimit": 0, "template": template}}


@family(
    "The migration for the next release renames a column, and runs before the pods are rolled, as every one does. The"
    " rollout takes its time, and the old version, which still serves, goes on to read the column by its old name.",
    joined=70,
)
async def renamed_column(lab: Lab) -> AsyncIterator[None]:
    """As those tell who learnt to add a column first and to drop the old one a release later."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "order-history", "orders-page"),
            ("payments", "payouts", "payouts-page"),
            ("media", "collections", "collection-page"),
            ("search", "saved-searches", "alerts-page"),
        )
    )
    number, minor, share = lab.rng.randrange(20, 400), lab.rng.randrange(3, 40), lab.rng.uniform(0.4, 0.8)
    old, new, job = f"6.{minor}.0", f"6.{minor + 1}.0", migration(namespace, name, number)

    def fails(container: Container) -> float:
        there = lab.world["Job"].get((namespace, job["metadata"]["name"]), {})
        is_renamed = bool(there.get("status", {}).get("succeeded"))
        return share if is_renamed and container.tag == old else 0.0

    image = f"registry.corp.example/{namespace}/{name}-migrate"
    store = ((namespace, f"{name}-db"),)
    lab.apps[image] = App(image, ends_after=lab.rng.uniform(2, 5), serves=False)
    await lab.app(namespace, f"{name}-db", like=App("", serves=False), replicas=1, tag="16.4")
    like = App("", upstreams=store, asked=lambda: 24.0, failing=fails)
    await lab.app(namespace, name, like=like, replicas=4, tag=old)
    slowly = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    body = {"spec": {"minReadySeconds": lab.rng.choice((12, 15)), "strategy": slowly}}
    await lab.edit("admin", "Deployment", namespace, name, body)
    await rolled(lab, namespace, name, old)
    await set_before(lab, namespace, front, name)
    lab.alert_errors(namespace, name)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.culprit("ci", "create", "Job", namespace, job["metadata"]["name"], job)
    where = namespace, job["metadata"]["name"]
    await lab.until(lambda: lab.world["Job"].get(where, {}).get("status", {}).get("succeeded"))
    await lab.roll("ci", namespace, name, new)


CONNECTIONS_SECONDS = 12.0
"""For how long a pool keeps a connection; who has one is not asked for the password again."""


@dataclass
class _Login:
    """An app logs in at a database by the password in its own copy of the Secret."""

    lab: Lab
    database: App
    since: dict[str, float] = field(default_factory=dict)

    def taken(self) -> set[str]:
        """The passwords that the database takes."""
        there = (one for one in self.lab.kubelets.running() if one.app is self.database)
        return {one.container.secret.get("password", "") for one in there}

    def fails(self, container: Container) -> float:
        """The share of requests for which there is no connection any more."""
        uid, taken = str(container.pod["metadata"]["uid"]), self.taken()
        if not taken or container.secret.get("password", "") in taken:
            self.since.pop(uid, None)
            return 0.0
        seconds = now().timestamp() - self.since.setdefault(uid, now().timestamp()) - self.lab.lag
        return 0.95 * min(1.0, max(0.0, seconds / CONNECTIONS_SECONDS))


@family(
    "A database's password is changed, in its own Secret and in the copy that its main user has. Another team's app"
    " reads the same database with a copy of its own, of which nobody thought: as its connections end, it gets no new"
    " ones.",
    joined=70,
)
async def copy_forgotten(lab: Lab) -> AsyncIterator[None]:
    """As very many tell of a rotated password and of who else had it."""
    home, database, user, namespace, name, front = lab.rng.choice(
        (
            ("payments", "accounts-db", "accounts", "shop", "customer-export", "profile-page"),
            ("shop", "prices-db", "pricing", "search", "price-filter", "filter-page"),
            ("media", "assets-db", "assets", "shop", "gallery", "gallery-page"),
        )
    )
    by = lab.rng.choice((*TEAMS, "flux"))
    store, access = App("", serves=False), f"{database}-access"

    def password() -> Json:
        return {"data": {"password": base64.b64encode(f"{lab.rng.getrandbits(80):020x}".encode()).decode()}}

    first, second = password(), password()
    for where, held in ((home, f"{database}-auth"), (home, access), (namespace, access)):
        await lab.apply({"kind": "Secret", "metadata": {"namespace": where, "name": held}, **first})
    await lab.app(home, database, like=store, kind="StatefulSet", replicas=1, tag="16.4", secret=f"{database}-auth")
    await lab.until(lambda: backends(lab.world, home, database))
    for where, app, tag in ((home, user, "3.1.0"), (namespace, name, "2.7.0")):
        like = App("", upstreams=((home, database),), asked=lambda: 22.0, failing=_Login(lab, store).fails)
        await lab.app(where, app, like=like, replicas=3, tag=tag, secret=access)
        await rolled(lab, where, app, tag)
    await set_before(lab, namespace, front, name)
    lab.alert_errors(namespace, name, 0.2)
    lab.alert_ingress_errors(namespace, namespace, 0.1)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(1, 5))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(2, 6))
    await lab.culprit(by, "update", "Secret", home, f"{database}-auth", second)
    await lab.edit(by, "Secret", home, access, second)
    await lab.pause(lab.rng.uniform(2, 4))
    await lab.roll("ci", home, user, "3.1.1")


@family(
    "No culprit. A customer of another size than all before begins to work with an app: whatever they ask for goes"
    " through some hundred thousand rows of theirs, and is not there before the time is over.",
    culprit=False,
    joined=70,
)
async def outsized_customer(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose largest customer is a hundred times the second."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "seller-reports", "seller-page"),
            ("payments", "reconciliation", "treasurer-page"),
            ("media", "usage-reports", "studio-page"),
        )
    )
    share, is_there = lab.rng.uniform(0.15, 0.35), False

    def fails(_: Container) -> float:
        return share if is_there else 0.0

    def tenants() -> float:
        return 412.0 + is_there

    like = App("", asked=lambda: 24.0, failing=fails, fails_with=lambda _: "504", latency=lambda one: 5 * fails(one))
    await lab.app(namespace, name, like=like, replicas=3, tag="3.9.0")
    await rolled(lab, namespace, name, "3.9.0")
    await set_before(lab, namespace, front, name)
    lab.measure("tenants_active", tenants, namespace=namespace, service=name)
    lab.alert_errors(namespace, name)
    lab.alert_slow(namespace, name)
    lab.alert_errors(namespace, front)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 6))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(4, 12))
    is_there = True


@family(
    "No culprit. A partner's system sends one message that is cut off in its middle. The queue's consumer takes them in"
    " their order, cannot read this one, gives it back and gets it again, and behind it the queue grows.",
    culprit=False,
    joined=70,
)
async def unreadable_message(lab: Lab) -> AsyncIterator[None]:
    """As very many tell of a poison pill, who had no queue for dead letters."""
    namespace, bus, name, sender, front = lab.rng.choice(
        (
            ("shop", "parcel-bus", "parcel-tracker", "carrier-inbox", "tracking-page"),
            ("payments", "booking-bus", "bookkeeper", "bank-inbox", "balance-page"),
            ("media", "rights-bus", "rights-updater", "label-inbox", "rights-page"),
        )
    )
    arriving, waiting, is_stuck = lab.rng.uniform(14, 26), [0.0], False

    async def work() -> None:
        """What comes waits for a second, and is gone, as long as the consumer runs and gets on."""
        while True:
            runs = any(one.app is consumer and not one.problem for one in lab.kubelets.running())
            waiting[0] = waiting[0] + arriving if is_stuck or not runs else lab.rng.uniform(0.2, 1) * arriving
            await asyncio.sleep(1)

    queue = ((namespace, bus),)
    consumer = App("", upstreams=queue, serves=False)
    await lab.app(namespace, bus, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="4.0.5")
    await lab.until(lambda: backends(lab.world, namespace, bus))
    await lab.app(namespace, name, like=consumer, replicas=1, tag="1.18.0")
    await lab.app(namespace, sender, like=App("", upstreams=queue), replicas=2, tag="2.3.0")
    await rolled(lab, namespace, name, "1.18.0")
    await rolled(lab, namespace, sender, "2.3.0")
    await set_before(lab, namespace, front, sender)
    lab.start(work())
    told = {"namespace": namespace, "service": bus, "queue": name}
    again = lab.adding_up(lambda: 3.0 if is_stuck else 0.0)
    lab.measure("rabbitmq_queue_messages_ready", lambda: waiting[0], **told)
    lab.measure("rabbitmq_queue_messages_redelivered_total", again, "counter", **told)
    summary = f"more messages wait in {namespace}/{name} than its consumer takes in ten minutes"
    lab.alert("RabbitMQQueueGrows", lambda: waiting[0] > 10 * arriving, summary, 5, **told)
    await lab.pause(4)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 6))
    await lab.roll("ci", namespace, sender, "2.3.1")
    await lab.pause(lab.rng.uniform(4, 10))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(1, 6))
    is_stuck = True
