"""Seen at the next start only: what Secrets are filled with, and an image that is not kept any more."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, Key, Kind, now, path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.moving import spare
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.families.still_more_stories import drain
from tests.lab.lab import NODES, Lab
from tests.lab.manifests import is_done, uid_of
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

# -- Secrets

SECRETS, STORE = "external-secrets.io", "vault"
TURN_SECONDS, GRACE_SECONDS = 24.0, 6.0
"""How often a password is another one where the vault makes them, and for how long the last one is still taken."""
UNSYNCED_SECONDS = 30


@dataclass
class _Vault:
    """Where passwords come from, and who is let in with which; the operator writes Secrets as the store is asked."""

    lab: Lab
    store: Kind
    wanted: Kind
    right: Json
    """How the store has to be asked: its path and its role."""
    makes: bool
    """Whether it makes passwords anew by itself, each for some time only."""
    now: dict[Key, str] = field(default_factory=dict)
    before: dict[Key, tuple[str, float]] = field(default_factory=dict)
    let_in: dict[str, bool] = field(default_factory=dict)
    """By the uid of a pod: it logs in at its start, and keeps its connections."""

    def _password(self) -> str:
        return f"{self.lab.kubelets.rng.getrandbits(80):020x}"

    def add(self, place: Key) -> None:
        self.now[place] = self._password()

    async def turn(self) -> None:
        """For ever: another password for each in turn."""
        places = sorted(self.now)
        while self.makes:
            for place in places:
                await asyncio.sleep(TURN_SECONDS / len(places))
                self.before[place] = self.now[place], now().timestamp()
                self.now[place] = self._password()

    def answer(self, asked: Json, place: Key) -> tuple[str, str]:
        """What is read there, and why nothing is."""
        if asked["role"] != self.right["role"]:
            return "", "Code: 403. Errors: * permission denied"
        return (self.now[place] if asked["path"] == self.right["path"] else f"of {asked['path']}"), ""

    async def refresh(self, process: Process) -> None:
        """Each Secret as the store has it now, and whether that was so."""
        stores = (await process.api.call("GET", self.store.path())).body.get("items", ())
        asked = {one["metadata"]["name"]: one["spec"]["provider"]["vault"] for one in stores}
        for one in (await process.api.call("GET", self.wanted.path())).body.get("items", ()):
            place = one["metadata"]["namespace"], one["metadata"]["name"]
            at = asked.get(one["spec"]["secretStoreRef"]["name"])
            value, why = self.answer(at, place) if at else ("", "store not found")
            if value:
                await self._write(process, place, one["spec"]["target"]["name"], value)
            ready = {"type": "Ready", "status": "True", "reason": "SecretSynced", "message": "secret synced"}
            if why:
                message = f"could not get secret data from provider: {why}"
                ready |= {"status": "False", "reason": "SecretSyncedError", "message": message}
            if one.get("status", {}).get("conditions") != [ready]:
                await process.api.call("PATCH", self.wanted.path(*place), {"status": {"conditions": [ready]}})

    async def _write(self, process: Process, place: Key, name: str, value: str) -> None:
        data = {"password": base64.b64encode(value.encode()).decode()}
        found = await process.api.call("GET", path("Secret", place[0], name))
        if found.status == 404:
            await process.api.call("POST", path("Secret", place[0]), {"metadata": {"name": name}, "data": data})
        elif found.ok and found.body.get("data") != data:
            await process.api.call("PATCH", path("Secret", place[0], name), {"data": data})

    def _takes(self, place: Key, password: str) -> bool:
        last, at = self.before.get(place, ("", 0.0))
        return password == self.now[place] or (password == last and now().timestamp() - at < GRACE_SECONDS)

    def logs_in(self, place: Key, container: Container) -> Problem | None:
        password = base64.b64decode(container.secret.get("password", "")).decode()
        if self.let_in.setdefault(uid_of(container.pod), self._takes(place, password)):
            return None
        return Problem("crash", f'FATAL: password authentication failed for user "{place[1]}"', at_once=True)

    def is_unsynced(self, place: Key) -> bool:
        told = self.lab.world[self.wanted.name].get(place, {}).get("status", {}).get("conditions", ())
        return any(one["status"] == "False" for one in told)


@family(
    "The path or the role is changed by which the store of all Secrets asks the vault. By the one another environment's"
    " values are read and written into each Secret; by the other nothing is read, and Secrets stay as they are, while"
    " the vault makes other passwords. What runs goes on with its connections. Pods that start are not let in.",
    joined=102,
)
async def path_of_the_vault(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose app was refused by its database after a release of a colour."""
    apps = lab.rng.sample(
        (("shop", "returns"), ("payments", "dunning"), ("media", "bookmarks"), ("search", "synonym-desk")), 3
    )
    by, minor, by_role = lab.rng.choice(("flux", "argocd", *TEAMS)), lab.rng.randrange(2, 30), lab.rng.random() < 0.5
    right = {"server": "https://vault.corp.example", "path": "kv/production", "role": "external-secrets"}
    change = {"role": "eso-production"} if by_role else {"path": lab.rng.choice(("kv/staging", "kv/shared"))}
    store = await lab.custom("ClusterSecretStore", SECRETS, ANY, namespaced=False)
    wanted = await lab.custom("ExternalSecret", SECRETS, ANY)
    vault = _Vault(lab, store, wanted, right, makes=by_role)
    await lab.served(store, wanted)
    body = {"metadata": {"name": STORE}, "spec": {"provider": {"vault": {**right, "version": "v2"}}}}
    await lab.apply({"kind": store.name, "apiVersion": f"{SECRETS}/v1", **body})
    rules = (SECRETS, "*", "get,list,watch,patch"), ("", "secrets", "get,create,patch")
    operator = ("platform", "external-secrets")
    await lab.controller(*operator, every(1.5, vault.refresh), *rules, replicas=1, tag="0.19.1")
    for place in apps:
        vault.add(place)
        spec = {
            "refreshInterval": "2m",
            "secretStoreRef": {"kind": store.name, "name": STORE},
            "target": {"name": f"{place[1]}-db"},
            "dataFrom": [{"extract": {"key": "/".join(place)}}],
        }
        meta = {"namespace": place[0], "name": place[1]}
        await lab.apply({"kind": wanted.name, "apiVersion": f"{SECRETS}/v1", "metadata": meta, "spec": spec})
        like = App("", check=lambda container, place=place: vault.logs_in(place, container), asked=lambda: 13.0)  # type: ignore[misc]
        await lab.app(*place, like=like, secret=f"{place[1]}-db", tag=f"3.{minor}.0", replicas=3)
        await rolled(lab, *place, f"3.{minor}.0")
        lab.alert_stuck(*place)
        lab.alert_errors(*place)
        if by_role:
            summary = f"ExternalSecret {'/'.join(place)} has not been synced for a while"
            fails = lambda place=place: vault.is_unsynced(place)  # noqa: E731
            lab.alert("ExternalSecretNotReady", fails, summary, UNSYNCED_SECONDS, namespace=place[0], name=place[1])
        lab.reserve(*place)
    await lab.until(lab.is_well)
    lab.start(vault.turn())

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(9, 16))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", "search", "indexer", {"data": {"TIMEOUT_MS": "830"}})
        for place in apps[1:]:
            await lab.pause(lab.rng.uniform(4, 9))
            await lab.roll(lab.rng.choice(("ci", "argocd")), *place, f"3.{minor}.1")

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), *apps[0], f"3.{minor}.1")
    await lab.pause(lab.rng.uniform(5, 9))
    if lab.rng.random() < 0.5:
        await lab.roll(lab.rng.choice(("flux", "argocd")), *operator, "0.19.2")
    else:
        often = {"spec": {"refreshInterval": "5m"}}
        await lab.edit(lab.rng.choice(TEAMS), wanted.name, *apps[1], often)
    await lab.pause(lab.rng.uniform(5, 9))
    await lab.culprit(by, "update", store.name, "", STORE, {"spec": {"provider": {"vault": change}}})
    lab.start(afterwards())


# -- an image

CLEANER = ("platform", "registry-cleanup")
CLEANS_SECONDS = 3.0
RULES = ("keep:\n  newest: 20\n  pulledWithin: 365d\n", "keep:\n  pulledWithin: 30d\n")
"""By the second one a tag goes that nobody has pulled for a month, and be it the newest."""


def _run(image: str, name: str) -> Json:
    """One run of what a CronJob does each night, as `kubectl create job --from` makes it."""
    made = objects.deployment(CLEANER[0], name, image, restartPolicy="Never", config=CLEANER[1])
    template = made["spec"]["template"]
    del template["spec"]["containers"][0]["readinessProbe"]
    note = {"cronjob.kubernetes.io/instantiate": "manual"}
    meta = {"namespace": CLEANER[0], "name": name, "annotations": note}
    return {"metadata": meta, "spec": {"template": template, "backoffLimit": 0}}


async def _clean(lab: Lab, run: str, gone: str) -> None:
    """What a run deletes in the registry, by the rule of that moment, as soon as it is done."""
    await lab.until(lambda: any(is_done(pod) for pod in pods(lab.world, CLEANER[0], run)))
    if lab.world["ConfigMap"][CLEANER]["data"]["rules"] == RULES[1]:
        lab.outside.missing.add(gone)


@family(
    "The registry is to have room again: what a job in the cluster deletes there goes by a rule, which is made"
    " stricter. Whatever nobody has pulled for a month is not kept any more. An app that has run for months is of such"
    " a tag. As its nodes are emptied it does not start on others.",
    joined=102,
)
async def tag_of_months_ago(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had not released an app for half a year, and then patched the nodes."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "zip-codes", "address-page", "address-import"),
            ("payments", "iban-check", "account-page", "account-export"),
            ("media", "age-gate", "player-page", "player-stats"),
            ("search", "stop-words", "results-page", "results-log"),
        )
    )
    by, drains, minor = lab.rng.choice(TEAMS), lab.rng.choice(TEAMS), lab.rng.randrange(2, 9)
    nodes, image = spare(lab, 2), f"registry.corp.example/{'/'.join(CLEANER)}"
    lab.apps[image] = App(image, serves=False, ends_after=CLEANS_SECONDS)
    await lab.apply(objects.config_map(*CLEANER, rules=RULES[0]))
    job = {"template": _run(f"{image}:2.0.1", CLEANER[1])["spec"]["template"], "backoffLimit": 0}
    spec = {"schedule": "30 3 * * *", "timeZone": "Etc/UTC", "jobTemplate": {"spec": job}}
    meta = {"namespace": CLEANER[0], "name": CLEANER[1]}
    await lab.apply({"kind": "CronJob", "metadata": meta, "spec": spec})
    others = [one for one in NODES if one not in nodes]
    for one in others:  # its pods have been on the same two for months
        await lab.edit("admin", "Node", "", one, {"spec": {"unschedulable": True}})
    await lab.app(namespace, name, like=App("", asked=lambda: 16.0), replicas=2, tag=f"1.0.{minor}")
    await rolled(lab, namespace, name, f"1.0.{minor}")
    for one in others:
        await lab.edit("admin", "Node", "", one, {"spec": {"unschedulable": None}})
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="4.7.0", config=other)
    await rolled(lab, namespace, other, "4.7.0")
    await set_before(lab, namespace, front, name)
    lab.alert_stuck(namespace, name)
    lab.alert_lacking(namespace, name, seconds=15)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lambda: lab.is_well() and len(backends(lab.world, namespace, name)) == 2)

    async def afterwards() -> None:
        """The nodes are emptied for their patches, one after the other, as each month."""
        await lab.pause(lab.rng.uniform(8, 14))
        await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "4.7.2")
        for node in nodes:
            await lab.pause(lab.rng.uniform(5, 9))
            await lab.edit(drains, "Node", "", node, {"spec": {"unschedulable": True}})
            await drain(lab, drains, node)
            await lab.pause(lab.rng.uniform(5, 8))
            await lab.edit(drains, "Node", "", node, {"spec": {"unschedulable": None}})

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "4.7.1")
    await lab.pause(lab.rng.uniform(5, 9))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.culprit(by, "update", "ConfigMap", *CLEANER, {"data": {"rules": RULES[1]}})
    await lab.pause(lab.rng.uniform(1, 3))
    run = f"{CLEANER[1]}-{lab.rng.choice(('manual', 'now', by))}"
    why = "the run that deletes by the new rule, by the same hand"
    await lab.also(why, by, "create", "Job", CLEANER[0], run, _run(f"{image}:2.0.1", run))
    lab.start(_clean(lab, run, f"registry.corp.example/{namespace}/{name}:1.0.{minor}"))
    lab.start(afterwards())
