"""What is in the care of a tool: copies that are taken, tenants that are set up, what is as it is in git."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime

from tests.lab.api import Json, Kind, now, path, stamp
from tests.lab.apps import App, Container, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.on_behalf import ARGO
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import both, event, every, leading
from tests.lab.scenario import family

VELERO = "velero.io"
COPIED_SECONDS, SNAPSHOT_SECONDS, EVERY_SECONDS = 14.0, 0.3, 20.0
"""For how long a volume is frozen while its files are copied, and while a snapshot of it is taken; a second stands for
a minute, so what is due each twenty minutes is due each twenty seconds."""
BY_NIGHT, BY_DAY = "15 2 * * *", "*/20 * * * *"


@dataclass
class _Copies:
    """Takes the backups that are due: its hooks freeze the database's volume before, and let it go after."""

    schedule: Kind
    backup: Kind
    is_frozen: bool = False
    last: datetime = field(default_factory=now)

    async def step(self, process: Process) -> None:
        listed = await process.api.call("GET", self.schedule.path("velero"))
        for one in listed.body.get("items", ()):
            is_due = (now() - self.last).total_seconds() >= EVERY_SECONDS
            if one["spec"]["schedule"] == BY_DAY and is_due:
                await self._take(process, one)

    async def _take(self, process: Process, schedule: Json) -> None:
        self.last, name = now(), f"{schedule['metadata']['name']}-{now():%Y%m%d%H%M%S}"
        template, labels = schedule["spec"]["template"], {f"{VELERO}/schedule-name": schedule["metadata"]["name"]}
        began = {"phase": "InProgress", "startTimestamp": stamp(now())}
        body = {
            "apiVersion": f"{VELERO}/v1",
            "kind": "Backup",
            "metadata": {"name": name, "labels": labels},
            "spec": template,
            "status": began,
        }
        if not (await process.api.call("POST", self.backup.path("velero"), body)).ok:
            return
        self.is_frozen = True
        await asyncio.sleep(COPIED_SECONDS if template["defaultVolumesToFsBackup"] else SNAPSHOT_SECONDS)
        self.is_frozen = False
        done = {"status": {"phase": "Completed", "completionTimestamp": stamp(now())}}
        await process.api.call("PATCH", self.backup.path("velero", name), done)


@family(
    "Copies of a database are to be taken through the day, or of its files in place of a snapshot, so that less is lost"
    " one day. For as long as a copy is taken its volume is frozen by a hook: what is written then waits, and is given"
    " up.",
    joined=78,
)
async def nightly_copies(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose backups were only ever taken while nobody was there."""
    namespace, database, name, front = lab.rng.choice(
        (
            ("shop", "returns-db", "returns", "returns-page"),
            ("media", "likes-db", "likes", "song-page"),
            ("payments", "mandates-db", "mandates", "mandate-page"),
        )
    )
    by, other, writes = lab.rng.choice(("alice", "bob", "flux")), lab.rng.choice(("ci", "argocd")), 0.55
    is_by_day = lab.rng.random() < 0.5
    await lab.namespace("velero")
    schedule, backup = await lab.custom("Schedule", VELERO, ANY), await lab.custom("Backup", VELERO, ANY)
    await lab.served(schedule, backup)
    copies = _Copies(schedule, backup)

    def waits(_: Container) -> float:
        return writes if copies.is_frozen else 0.0

    freeze, thaw = (
        {"exec": {"container": database, "command": ["/sbin/fsfreeze", f"--{what}", "/var/lib/data"]}}
        for what in ("freeze", "unfreeze")
    )
    hook = {"name": "freeze", "includedNamespaces": [namespace], "pre": [freeze], "post": [thaw]}
    template = {
        "includedNamespaces": [namespace],
        "hooks": {"resources": [hook]},
        "defaultVolumesToFsBackup": is_by_day,
        "ttl": "72h0m0s",
    }
    spec = {"schedule": BY_NIGHT if is_by_day else BY_DAY, "template": template}
    meta = {"namespace": "velero", "name": database}
    await lab.apply({"kind": "Schedule", "metadata": meta, "spec": spec})
    await lab.app(namespace, database, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="16.6")
    await lab.until(lambda: backends(lab.world, namespace, database))
    like = App("", upstreams=((namespace, database),), asked=lambda: 22.0, failing=waits, fails_with=lambda _: "503")
    await lab.app(namespace, name, like=like, replicas=3, tag="4.2.0")
    await rolled(lab, namespace, name, "4.2.0")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), tag="1.9.0")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    rules = (VELERO, "schedules,backups", "get,list,watch,create,patch")
    await lab.controller("velero", "velero", every(1, copies.step), rules, replicas=1, tag="1.16.1")
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await rolled(lab, "velero", "velero", "1.16.1")
    await lab.until(lab.is_well)
    yield
    await lab.roll(other, namespace, front, "1.9.1")
    await lab.pause(lab.rng.uniform(3, 8))
    more = {"schedule": BY_DAY} if is_by_day else {"template": {"defaultVolumesToFsBackup": True}}
    await lab.culprit(by, "update", "Schedule", "velero", database, {"spec": more})
    await lab.pause(lab.rng.uniform(1, 3))
    await lab.edit(other, "Deployment", namespace, name, {"metadata": {"annotations": {"on-call": "team"}}})


TENANTS = "tenants.corp.example"
WAITS_SECONDS = 9.0
"""How long a tenant may wait until it is set up; it usually takes one."""


@dataclass
class _Tenants:
    """Those who sign up, and a controller that sets up what each of them needs, until its queue is stuck."""

    lab: Lab
    kind: Kind
    is_hung: bool = False

    async def sign_up(self, process: Process) -> None:
        body: Json = {
            "apiVersion": f"{TENANTS}/v1",
            "kind": "Tenant",
            "metadata": {"name": f"t-{process.rng.randrange(10**6):06}"},
            "spec": {"plan": process.rng.choice(("free", "team"))},
        }
        await process.api.call("POST", self.kind.path("platform"), body)

    async def set_up(self, process: Process) -> None:
        if self.is_hung:
            await asyncio.Event().wait()  # for an answer that will not come, on a connection that is gone
        listed = await process.api.call("GET", self.kind.path("platform"))
        for one in listed.body.get("items", ()):
            if "status" not in one:
                where = self.kind.path("platform", one["metadata"]["name"])
                await process.api.call("PATCH", where, {"status": {"phase": "Ready", "since": stamp(now())}})

    def waiting(self) -> list[float]:
        """For how long, in seconds, each has waited that is not set up."""
        made = (
            one["metadata"]["creationTimestamp"] for one in self.lab.world["Tenant"].values() if "status" not in one
        )
        return [(now() - datetime.fromisoformat(at)).total_seconds() for at in made]

    def depth(self) -> float:
        return len(self.waiting())

    def is_late(self) -> bool:
        return max(self.waiting(), default=0.0) > WAITS_SECONDS


@family(
    "No culprit. A controller whose connection was cut for a moment waits for an answer on it for ever: it is ready, it"
    " renews its lease, and does nothing. Whoever signs up is not set up until somebody restarts it.",
    culprit=False,
    joined=78,
)
async def alive_and_idle(lab: Lab) -> AsyncIterator[None]:
    """As all tell who have found nothing in the log but that it had ended hours ago."""
    signup, minor = ("platform", "signup"), lab.rng.randrange(2, 30)
    controller, team = ("platform", "tenant-controller"), lab.rng.choice(("bob", "argocd", "ci"))
    kind = await lab.custom("Tenant", TENANTS, ANY)
    await lab.served(kind)
    tenants = _Tenants(lab, kind)
    program = both(every(1, tenants.set_up), leading(*controller))
    rules = (TENANTS, "tenants", "get,list,watch,patch"), ("coordination.k8s.io", "leases", "get,create,patch")
    await lab.controller(*controller, program, *rules, replicas=1, tag=f"1.{minor}.1")
    await lab.controller(*signup, every(4, tenants.sign_up), (TENANTS, "tenants", "create"), replicas=1, tag="5.5.0")
    await rolled(lab, *controller, f"1.{minor}.1")
    await rolled(lab, *signup, "5.5.0")
    told = {"namespace": controller[0], "service": controller[1]}
    lab.measure("workqueue_depth", tenants.depth, **told, name="tenant")
    summary = "somebody has signed up and has waited for ten minutes"
    lab.alert("TenantNotReady", tenants.is_late, summary, 5, namespace=controller[0], controller=controller[1])
    await lab.until(lambda: any("status" in one for one in lab.world["Tenant"].values()))
    await lab.until(lab.is_well)

    async def hang() -> None:
        await lab.pause(lab.rng.uniform(4, 10))
        tenants.is_hung = True

    yield
    await lab.roll(team, *lab.rng.choice((("shop", "frontend"), ("search", "query"))), "1.61.0")
    lab.start(hang())


GIT = "git.corp.example"
NO_GIT = f"dial tcp 203.0.113.17:443: i/o timeout ({GIT})"


@dataclass
class _Agent:
    """Compares each Application with its repository, and says of each how that was."""

    lab: Lab
    kind: Kind
    failed: int = 0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(2)
            for one in list(self.lab.world[self.kind.name].values()):
                await self._compare(one)

    async def _compare(self, one: Json) -> None:
        why = self.lab.outside.broken.get(GIT, "")
        self.failed += bool(why)
        status, agent = "Unknown" if why else "Synced", self.lab.who["argocd"]
        was = one.get("status", {}).get("sync", {}).get("status", "")
        if status == was:
            return
        message = f"Failed to load target state: failed to fetch {one['spec']['source']['repoURL']}: {why}"
        conditions = [{"type": "ComparisonError", "message": message}] if why else []
        body = {"status": {"sync": {"status": status}, "conditions": conditions}}
        await agent.call("PATCH", path(self.kind.name, "argocd", one["metadata"]["name"]), body)
        said = f"Updated sync status: {was} -> {status}"
        told = event(one, "Normal", "ResourceUpdated", said, by="argocd-application-controller")
        await agent.call("POST", path("Event", "argocd"), told)

    def told(self) -> set[str]:
        """What is said of one or another."""
        found = self.lab.world[self.kind.name].values()
        return {one.get("status", {}).get("sync", {}).get("status", "") for one in found}


@family(
    "No culprit. Whoever hosts the company's git is down. The GitOps agent cannot say of anything whether it is as it"
    " should be, and what has been merged does not arrive.",
    culprit=False,
    joined=78,
)
async def repository_unreached(lab: Lab) -> AsyncIterator[None]:
    """As all tell of the days on which a host of repositories was down."""
    teams = lab.rng.sample(("shop", "payments", "search", "media"), 3)
    application = await lab.custom("Application", ARGO, ANY)
    await lab.served(application)
    agent = _Agent(lab, application)
    for team in teams:
        source = {"repoURL": f"https://{GIT}/{team}/deploy.git", "path": "prod", "targetRevision": "main"}
        spec = {"project": team, "source": source, "syncPolicy": {"automated": {"selfHeal": True}}}
        await lab.apply({"kind": "Application", "metadata": {"namespace": "argocd", "name": team}, "spec": spec})
    summary = "the GitOps agent has not been able to compare an application for ten minutes"
    lab.alert(
        "ArgoCdAppSyncUnknown", lambda: "Unknown" in agent.told(), summary, 10, namespace="argocd", project=teams[0]
    )
    fetches = {"namespace": "argocd", "service": "argocd-repo-server"}
    lab.measure("argocd_git_fetch_fail_total", lambda: agent.failed, "counter", **fetches)
    lab.start(agent.run())
    await lab.until(lambda: agent.told() == {"Synced"})

    async def go_down() -> None:
        await lab.pause(lab.rng.uniform(4, 10))
        lab.outside.broken[GIT] = NO_GIT

    yield
    await lab.roll(lab.rng.choice(("ci", "bob")), *lab.rng.choice((("shop", "cart"), ("search", "query"))), "1.58.0")
    lab.start(go_down())
