"""What happens outside of the cluster and is written down nowhere in it: at a provider's console, at a vault."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.api import Json, Kind, now, path, stamp
from tests.lab.apps import App, Container, Process
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every, tell
from tests.lab.scenario import family

RESTART_SECONDS, CONNECTED_SECONDS = 5.0, 15.0
"""For how long a database is away that is given another machine, and how long a pool keeps a connection."""


@dataclass
class _Managed:
    """A database that a provider runs, and what somebody has done to it in the provider's console."""

    lab: Lab
    done: str
    hard: float
    """How hard it hits, from 0 to 1."""
    at: list[float] = field(default_factory=list)

    def seconds(self) -> float:
        """Since it was done, and shows; negative before."""
        return now().timestamp() - self.at[0] - self.lab.lag if self.at else -1.0

    def fails(self, _: Container) -> float:
        passed = self.seconds()
        if passed < 0:
            return 0.0
        if self.done == "smaller":
            return 0.8 if passed < RESTART_SECONDS else 0.02
        most = 0.95 if self.done == "encrypted" else 0.3 + 0.3 * self.hard
        return most * min(1.0, passed / CONNECTED_SECONDS)

    def waits(self, _: Container) -> float:
        """A smaller machine has no memory for what is asked for most, and reads it from its disk."""
        passed = self.seconds()
        if self.done != "smaller" or passed < RESTART_SECONDS:
            return 0.0
        return (0.9 + self.hard) * min(1.0, (passed - RESTART_SECONDS) / 4)

    def pending(self) -> float:
        """How many requests of an app wait for a connection: the fewer of those are left, the more."""
        passed = self.seconds()
        if passed < 0:
            return 0.0
        most = 4.0 if self.done == "encrypted" else 18 + 20 * self.hard
        return round(most * min(1.0, passed / CONNECTED_SECONDS) * self.lab.rng.uniform(0.7, 1.2))


REASONS = {"smaller": "connection_reset", "encrypted": "no_pg_hba_entry_no_encryption", "fewer": "too_many_connections"}


@family(
    "No culprit. Somebody changes the company's managed database by hand, in its provider's console: to a smaller"
    " machine, to fewer connections, or to encrypted ones alone. It is written down nowhere in the cluster. The apps of"
    " two teams suffer at the same moment.",
    culprit=False,
    joined=87,
)
async def changed_in_the_console(lab: Lab) -> AsyncIterator[None]:
    """As those tell who found it in the provider's own log, after an hour."""
    (home, name, front), (away, other, page) = lab.rng.sample(
        (
            ("shop", "order-history", "history-page"),
            ("payments", "refunds", "refund-page"),
            ("media", "watch-lists", "list-page"),
            ("search", "saved-searches", "saved-page"),
        ),
        2,
    )
    done, minor = lab.rng.choice(("smaller", "encrypted", "fewer")), lab.rng.randrange(2, 50)
    host = f"prod-{lab.rng.randrange(1, 5)}.c{lab.rng.getrandbits(32):08x}.eu-central-1.rds.cloud.example"
    managed = _Managed(lab, done, lab.rng.random())
    for namespace, one, before in ((home, name, front), (away, other, page)):
        await lab.apply(objects.config_map(namespace, one, LOG_LEVEL="info", POOL_SIZE="20"))
        like = App("", abroad=(host,), asked=lambda: 23.0, failing=managed.fails, latency=managed.waits)
        env = [{"name": "DB_HOST", "value": host}, {"name": "DB_SSLMODE", "value": "prefer"}]
        await lab.app(namespace, one, like=like, replicas=3, tag=f"6.{minor}.0", config=one, env=env)
        await rolled(lab, namespace, one, f"6.{minor}.0")
        await set_before(lab, namespace, before, one)
        lab.measure("hikaricp_connections_pending", managed.pending, namespace=namespace, service=one)
        refused = lab.adding_up(lambda: 23 * managed.fails(None))  # type: ignore[arg-type]
        told = {"namespace": namespace, "service": one, "reason": REASONS[done]}
        lab.measure("db_connection_failures_total", refused, "counter", **told)
        lab.alert_errors(namespace, one, 0.1)
        lab.alert_slow(namespace, one)
        lab.alert_ingress_errors(namespace, namespace, 0.1)
    await lab.until(lab.is_well)

    async def console() -> None:
        await lab.pause(lab.rng.uniform(3, 9))
        managed.at.append(now().timestamp())
        await lab.pause(lab.rng.uniform(2, 6))
        await change_page(lab, away, page)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), home, name, f"6.{minor}.1")
    await lab.pause(lab.rng.uniform(6, 11))
    await change_page(lab, home, front)
    await lab.pause(lab.rng.uniform(2, 5))
    size = {"data": {"POOL_SIZE": lab.rng.choice(("15", "25", "30"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", away, other, size)
    lab.start(console())


VAULT, SYNCED_BY, SECRETS = "vault.corp.example", ("platform", "external-secrets"), "external-secrets.io"
LEASED_SECONDS, RENEWED_SECONDS = 34.0, 10.0
"""For how long a login is good that the vault makes, and after how long the next one is asked for."""


@dataclass
class _Vault:
    """Makes logins for a database, for whoever shows a token that is good; and what writes them into Secrets."""

    lab: Lab
    kind: Kind
    over: list[float] = field(default_factory=list)
    """Since when the token is over."""
    until: dict[str, float] = field(default_factory=dict)
    """Until when each password is good."""
    asked: dict[tuple[str, str], float] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)

    def password(self) -> str:
        """A further login, as a Secret has it."""
        made = base64.b64encode(f"{self.lab.rng.getrandbits(80):020x}".encode()).decode()
        self.until[made] = now().timestamp() + LEASED_SECONDS
        return made

    async def sync(self, process: Process) -> None:
        listed = await process.api.call("GET", self.kind.path())
        for one in listed.body.get("items", ()):
            place = one["metadata"]["namespace"], one["metadata"]["name"]
            if now().timestamp() - self.asked.get(place, 0.0) < RENEWED_SECONDS:
                continue
            if not self.over:
                self.asked[place] = now().timestamp()
                named = path("Secret", place[0], one["spec"]["target"]["name"])
                await process.api.call("PATCH", named, {"data": {"password": self.password()}})
            await self._tell(process, {**one, "kind": self.kind.name}, is_well=not self.over)

    async def _tell(self, process: Process, one: Json, *, is_well: bool) -> None:
        """The condition of what was to be synced, if that is news; what failed is told again each time."""
        namespace, name, key = one["metadata"]["namespace"], one["metadata"]["name"], one["spec"]["data"][0]
        said = "secret synced"
        if not is_well:
            url = f"GET https://{VAULT}:8200/v1/{key['remoteRef']['key']}"
            refused = f"Error making API request. URL: {url} Code: 403. Errors: * permission denied * invalid token"
            said = f"error processing spec.data[0] (key: {key['remoteRef']['key']}), err: {refused}"
            await tell(process, one, "Warning", "UpdateFailed", said, by="external-secrets")
        if self.told.get(f"{namespace}/{name}") != said:
            self.told[f"{namespace}/{name}"] = said
            ready = {"type": "Ready", "status": str(is_well), "message": said}
            ready["reason"] = "SecretSynced" if is_well else "SecretSyncedError"
            status = {"conditions": [{**ready, "lastTransitionTime": f"{stamp(now())[:19]}Z"}]}
            await process.api.call("PATCH", self.kind.path(namespace, name), {"status": status})

    def fails(self, container: Container) -> float:
        """The share of requests for which there is no connection: those that are there end one by one."""
        passed = now().timestamp() - self.until.get(container.secret.get("password", ""), now().timestamp())
        return 0.95 * min(1.0, max(0.0, passed - self.lab.lag) / CONNECTED_SECONDS)

    def is_synced(self, namespace: str, name: str) -> bool:
        found = self.lab.world[self.kind.name].get((namespace, name), {}).get("status", {}).get("conditions", ())
        return any(one["status"] == "True" for one in found)


@family(
    "No culprit. What writes Secrets from the company's vault asks it with a token that was made by hand and is good"
    " for a year. The year is over. Nothing is taken away, but the logins of databases, which the vault makes for a"
    " while each time, are not renewed any more: as the last ones run out, the apps that have them get no connection.",
    culprit=False,
    joined=87,
)
async def vault_token_over(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose Secrets were there, and old."""
    namespace, name, database, front = lab.rng.choice(
        (
            ("shop", "stock-counts", "stock-db", "stock-page"),
            ("payments", "account-views", "accounts-db", "account-page"),
            ("media", "license-book", "licenses-db", "license-page"),
            ("search", "synonym-store", "synonyms-db", "synonym-page"),
        )
    )
    held, minor = f"{name}-db", lab.rng.randrange(2, 50)
    kind = await lab.custom("ExternalSecret", SECRETS, ANY)
    await lab.served(kind)
    vault = _Vault(lab, kind)
    first = {"metadata": {"namespace": namespace, "name": held}, "data": {"password": vault.password()}}
    await lab.apply({"kind": "Secret", **first})
    remote = {"secretKey": "password", "remoteRef": {"key": f"database/creds/{name}", "property": "password"}}
    spec = {
        "refreshInterval": "10m",
        "secretStoreRef": {"kind": "ClusterSecretStore", "name": "vault"},
        "target": {"name": held, "creationPolicy": "Owner"},
        "data": [remote],
    }
    meta = {"namespace": namespace, "name": held}
    await lab.apply({"apiVersion": f"{SECRETS}/v1", "kind": "ExternalSecret", "metadata": meta, "spec": spec})
    rules = (SECRETS, "externalsecrets", "get,list,watch,patch"), ("", "secrets,events", "get,list,create,patch")
    await lab.controller(*SYNCED_BY, every(2.0, vault.sync), *rules, replicas=1, tag="0.20.1")
    await rolled(lab, *SYNCED_BY, "0.20.1")
    await lab.until(lambda: vault.is_synced(namespace, held))
    await lab.app(namespace, database, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="16.4")
    await lab.until(lambda: backends(lab.world, namespace, database))
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", POOL_SIZE="20"))
    like = App("", upstreams=((namespace, database),), asked=lambda: 23.0, failing=vault.fails)
    await lab.app(namespace, name, like=like, replicas=3, tag=f"3.{minor}.0", config=name, secret=held)
    await rolled(lab, namespace, name, f"3.{minor}.0")
    await set_before(lab, namespace, front, name)
    lab.reserve(namespace, database)

    def refused() -> float:
        there = [one.container for one in lab.kubelets.running() if one.app is like]
        return 23 * sum(map(vault.fails, there)) / max(1, len(there))

    told = {"namespace": namespace, "service": name, "reason": "invalid_password"}
    lab.measure("db_connection_failures_total", lab.adding_up(refused), "counter", **told)
    lab.alert_errors(namespace, name, 0.1)
    lab.alert_ingress_errors(namespace, namespace, 0.1)
    unsynced = lambda: not vault.is_synced(namespace, held)  # noqa: E731
    summary = f"the ExternalSecret {namespace}/{held} has not been synced for a while"
    lab.alert("ExternalSecretNotSynced", unsynced, summary, 60, namespace=namespace, exported_name=held)
    await lab.until(lab.is_well)

    async def the_year_is_over() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        vault.over.append(now().timestamp())
        await lab.pause(lab.rng.uniform(5, 12))
        size = {"data": {"POOL_SIZE": lab.rng.choice(("15", "25", "30"))}}
        await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, size)
        await lab.pause(lab.rng.uniform(4, 9))
        await change_page(lab, namespace, front)

    yield
    await lab.roll(lab.rng.choice(("argocd", "flux")), *SYNCED_BY, "0.20.2")
    await lab.pause(lab.rng.uniform(9, 14))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"3.{minor}.1")
    lab.start(the_year_is_over())
