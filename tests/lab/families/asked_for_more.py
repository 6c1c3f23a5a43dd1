"""Somebody wants more of something: a larger heap, fresher passwords."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import restarts
from tests.lab.api import Kind, now, path, stamp
from tests.lab.apps import App, Container, Problem, Process, mebibytes
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.manifests import uid_of
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

FLAGS = "jvm.options"
"""What a process reads at its start."""
LIMIT, BESIDE, AT_START = "768Mi", 150.0, 180.0
"""MiB that it needs beside its heap, and that its heap has at its start."""
FILLED_SECONDS = 21.0
"""After which a heap of a gibibyte is full, as nothing is collected that need not be."""
EACH_STANDS = 38.0
SECRETS = "external-secrets.io"
RELOADED = "reloader.stakater.com/last-reloaded-from"
USUALLY, LASTS_SECONDS, AVAILABLE_AFTER = "45m", 68.0, 5
"""How often another user is asked for, for how long each is good, and when a new process counts as available."""
NEED_ANOTHER = 0.8
"""The share of requests that need a new connection."""


def _process(container: Container) -> str:
    """The pod, and how often its containers were started anew."""
    told = container.pod.get("status", {}).get("containerStatuses", ())
    return f"{uid_of(container.pod)} {sum(one['restartCount'] for one in told)}"


@dataclass
class _Heaps:
    """The flags with which each process was started."""

    flags: dict[str, str] = field(default_factory=dict)

    def check(self, container: Container) -> Problem | None:
        """The kernel ends what needs more than its limit, whatever its heap may have."""
        flags = self.flags.setdefault(_process(container), container.config.get(FLAGS, ""))
        heap = min(_heap(flags), AT_START + (1024 - AT_START) * container.seconds / FILLED_SECONDS)
        limit, needed = str(container.spec["resources"]["limits"]["memory"]), BESIDE + heap
        return Problem("oom", f"needs {needed:.0f}Mi, may have {limit}") if needed > mebibytes(limit) else None


def _heap(flags: str) -> float:
    """The most MiB that these let a heap have."""
    [asked] = [one.removeprefix("-Xmx") for one in flags.split() if one.startswith("-Xmx")]
    return float(asked.removesuffix("m"))


@family(
    "Collecting garbage takes long, so somebody gives the heap of an app more in the file of its flags, and does not"
    " think of the limit of its container. What runs has read the file at its start. The processes of the next,"
    " harmless release fill the heap that they may have, and are killed one after another.",
    joined=40,
)
async def heap_size(lab: Lab) -> AsyncIterator[None]:
    """As told of Java in containers, whose limit and whose heap are written in two places (toolstac.com)."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "pricing", "offer-page"),
            ("payments", "risk-scores", "payment-page"),
            ("search", "rankings", "result-page"),
        )
    )
    by, then = lab.rng.choice(("carol", "alice", "flux")), lab.rng.choice(("ci", "argocd"))
    database, asked = f"{name}-db", lab.rng.uniform(100, 112)
    heaps = _Heaps()

    def short(_: Container) -> float:
        """What is more than those stand that are there."""
        return max(0.0, 1 - EACH_STANDS * len(backends(lab.world, namespace, name)) / asked)

    usual = "-Xms256m -Xmx512m -XX:+UseG1GC -XX:MaxGCPauseMillis=200"
    await lab.apply(objects.config_map(namespace, name, **{FLAGS: usual, "LOG_LEVEL": "info"}))
    await lab.app(namespace, database, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="15.8")
    like = App(
        "",
        upstreams=((namespace, database),),
        check=heaps.check,
        asked=lambda: asked,
        capacity=300,
        failing=short,
        fails_with=lambda _: "503",
    )
    await lab.app(namespace, name, like=like, replicas=4, tag="9.12.0", config=name, memory=LIMIT)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="3.3.1")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 4 and backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    restarting = lab.rate(lambda: restarts(lab.world, namespace, name), 0.12, seconds=20)
    summary = f"pods of {namespace}/{name} are restarting"
    lab.alert("KubePodRestarting", restarting, summary, 3, namespace=namespace, deployment=name)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    larger = usual.replace("-Xms256m -Xmx512m", "-Xms256m -Xmx1024m")
    await lab.culprit(by, "update", "ConfigMap", namespace, name, {"data": {FLAGS: larger}})
    await lab.pause(lab.rng.uniform(9, 17))
    await lab.roll(then, namespace, name, "9.13.0")


@dataclass
class _Passwords:
    """A store that makes another user of a database each time it is asked, for so long; who asks it, and who restarts.

    Each process has the user that it has read at its start.
    """

    lab: Lab
    kind: Kind
    namespace: str
    name: str
    until: dict[str, float] = field(default_factory=dict)
    users: dict[str, str] = field(default_factory=dict)

    @property
    def secret(self) -> str:
        return f"{self.name}-db"

    def read(self, container: Container) -> Problem | None:
        """Nothing is wrong with it for that."""
        user = base64.b64decode(container.secret.get("username", "")).decode()
        self.users.setdefault(_process(container), user)
        return None

    def refused(self, container: Container) -> float:
        """No new connection is made by a user that is over; what is open goes on for a while."""
        user = self.users.get(_process(container), "")
        return NEED_ANOTHER if now().timestamp() > self.until.get(user, math.inf) else 0.0

    async def refresh(self, process: Process) -> None:
        """As External Secrets: what is due is asked for, and written into a Secret."""
        listed = await process.api.call("GET", self.kind.path())
        for one in listed.body.get("items", []):
            status, meta = one.get("status", {}), one["metadata"]
            due = float(status.get("refreshed", 0)) + _minutes(one["spec"]["refreshInterval"])
            if now().timestamp() >= due:
                user = f"v-{self.name}-{process.rng.getrandbits(40):010x}"
                self.until[user] = now().timestamp() + LASTS_SECONDS
                told = {"username": user, "password": f"{process.rng.getrandbits(64):016x}"}
                where = path("Secret", meta["namespace"], one["spec"]["target"]["name"])
                await process.api.call("PATCH", where, {"stringData": told})
                seen = {"refreshed": f"{now().timestamp():.1f}", "refreshTime": f"{stamp(now())[:19]}Z"}
                await process.api.call("PATCH", self.kind.path(meta["namespace"], meta["name"]), {"status": seen})

    async def reload(self, process: Process) -> None:
        """As Reloader: who uses a Secret that has changed gets a note in its template, and so a rollout."""
        found = await process.api.call("GET", path("Secret", self.namespace, self.secret))
        there = await process.api.call("GET", path("Deployment", self.namespace, self.name))
        if not (found.ok and there.ok):
            return
        content = json.dumps(found.body.get("data", {}), sort_keys=True)
        mark = hashlib.sha1(content.encode(), usedforsecurity=False).hexdigest()
        noted = there.body["spec"]["template"]["metadata"].get("annotations", {}).get(RELOADED, "")
        if mark not in noted:
            source = json.dumps({"kind": "SECRET", "name": self.secret, "hash": mark})
            body = {"spec": {"template": {"metadata": {"annotations": {RELOADED: source}}}}}
            await process.api.call("PATCH", path("Deployment", self.namespace, self.name), body)


def _minutes(interval: str) -> float:
    """Of a refresh interval, each of which is a second here."""
    return float(interval[:-1]) * {"m": 1, "h": 60}[interval[-1]]


@family(
    "A store gives another user of a database each time it is asked, which is good for an hour, and an app is started"
    " anew for each. Somebody has it asked every few minutes, for passwords that are fresher: each rollout is begun"
    " again before a new process counts as available. So the old ones stay, and their user is over.",
    joined=40,
)
async def refresh_restarts(lab: Lab) -> AsyncIterator[None]:
    """As guides combine them: External Secrets, users that a vault makes, and Reloader (kubernetes.recipes)."""
    namespace, name, front = lab.rng.choice(
        (
            ("payments", "limits", "account-page"),
            ("shop", "stock", "shelf-page"),
            ("media", "credits", "cast-page"),
        )
    )
    by = lab.rng.choice(("bob", "alice", "flux"))
    kind = await lab.custom("ExternalSecret", SECRETS, ANY)
    await lab.served(kind)
    store = _Passwords(lab, kind, namespace, name)
    meta = {"namespace": namespace, "name": store.secret}
    await lab.apply({"kind": "Secret", "metadata": meta, "type": "Opaque", "stringData": {"username": ""}})
    await lab.app(namespace, store.secret, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="17.2")
    rights = (SECRETS, "externalsecrets", "list,patch"), ("", "secrets", "get,patch")
    operator = every(0.8, store.refresh)
    await lab.controller("platform", "external-secrets", operator, *rights, replicas=1, tag="0.19.2")
    spec = {
        "refreshInterval": USUALLY,
        "secretStoreRef": {"kind": "ClusterSecretStore", "name": "vault-database"},
        "target": {"name": store.secret},
        "dataFrom": [{"extract": {"key": f"database/creds/{name}"}}],
    }
    await lab.apply({"apiVersion": f"{SECRETS}/v1", "kind": kind.name, "metadata": meta, "spec": spec})
    await lab.until(lambda: store.until)
    like = App("", upstreams=((namespace, store.secret),), check=store.read, failing=store.refused, start_seconds=1.0)
    await lab.app(namespace, name, like=like, replicas=3, tag="5.20.1", secret=store.secret)
    gently = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}}
    paced = {"spec": {"minReadySeconds": AVAILABLE_AFTER, "strategy": gently}}
    await lab.edit("admin", "Deployment", namespace, name, paced)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="8.1.0")
    rights = ("", "secrets", "get"), ("apps", "deployments", "get,patch")
    await lab.controller("platform", "reloader", every(0.8, store.reload), *rights, replicas=1, tag="1.4.7")
    await lab.pause(3)
    await rolled(lab, namespace, name, "5.20.1")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    of_operator = {"namespace": "platform", "service": "external-secrets"}
    asked = lambda: float(len(store.until))  # noqa: E731
    lab.measure("externalsecret_sync_calls_total", asked, "counter", **of_operator)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.culprit(by, "update", kind.name, namespace, store.secret, {"spec": {"refreshInterval": "5m"}})
