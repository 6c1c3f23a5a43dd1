"""What a server is known by beside its name: the key of its certificate, which one of its callers has written down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tests.lab import objects
from tests.lab.api import Json, Kind, now, path, stamp
from tests.lab.apps import App, Container, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every, tell
from tests.lab.scenario import family

GROUP, HOME, ISSUING = "cert-manager.io", "cert-manager", "cert-manager-issuing"
KEEPS, MAKES = "v1.17.4", "v1.18.2"
"""The last version that renews a certificate with the key that it has where nothing is said, and one that does not."""
LASTS, MARGIN = 90.0, 30.0
"""Seconds for which a certificate is good, and before its end at which it is renewed."""
KEPT_SECONDS = 8.0
"""For how long a caller keeps a connection, which asks for no certificate any more."""
PIN = "PINNED_PUBLIC_KEY"


@dataclass
class _Keys:
    """Certificates of servers, by namespace and name: which key each has, until when it is good, since when."""

    kind: Kind
    lag: float
    keys: dict[tuple[str, str], int] = field(default_factory=dict)
    ends: dict[tuple[str, str], float] = field(default_factory=dict)
    changed: dict[tuple[str, str], float] = field(default_factory=dict)
    """When a server was given another key."""
    revision: int = 1

    async def open(self, lab: Lab, servers: Sequence[tuple[str, str]]) -> None:
        """All servers have one, which is due at a time of its own. Raises RefusedError."""
        for number, (namespace, name) in enumerate(servers):
            place, meta = (namespace, name), {"namespace": namespace, "name": name}
            self.keys[place], self.ends[place] = 100 + number, now().timestamp() + LASTS - number * 9
            data = {"tls.crt": f"certificate {self.revision}", "tls.key": f"key {self.keys[place]}"}
            await lab.apply({"kind": "Secret", "metadata": {**meta, "name": f"{name}-cert"}, "stringData": data})
            issuer = {"name": "internal", "kind": "ClusterIssuer"}
            spec = {"secretName": f"{name}-cert", "dnsNames": [f"{name}.{namespace}.svc"], "issuerRef": issuer}
            one = {"apiVersion": f"{GROUP}/v1", "kind": self.kind.name, "metadata": meta, "spec": spec}
            await lab.apply({**one, "status": self.status(place)})
            told = {"namespace": HOME, "service": ISSUING, "exported_namespace": namespace, "name": name}
            end = lambda at=place: self.ends[at]  # noqa: E731
            lab.measure("certmanager_certificate_expiration_timestamp_seconds", end, "gauge", **told)

    def pin(self, place: tuple[str, str]) -> str:
        """How a caller writes a key down."""
        return f"sha256/{place[1]}+{self.keys[place]:04}"

    def status(self, place: tuple[str, str]) -> Json:
        after, renewal = (
            f"{stamp(datetime.fromtimestamp(at, UTC))[:19]}Z" for at in (self.ends[place], self.ends[place] - MARGIN)
        )
        ready = [{"type": "Ready", "status": "True", "reason": "Ready"}]
        return {"conditions": ready, "notAfter": after, "renewalTime": renewal, "revision": self.revision}

    async def renew(self, process: Process) -> None:
        """As cert-manager: what is due is issued anew; by which key, its version says where the object does not."""
        listed = await process.api.call("GET", self.kind.path())
        for one in listed.body.get("items", []):
            place = one["metadata"]["namespace"], one["metadata"]["name"]
            if now().timestamp() >= self.ends[place] - MARGIN:
                policy = "Always" if process.tag == MAKES else "Never"
                policy = one["spec"].get("privateKey", {}).get("rotationPolicy", policy)
                await self._issue(process, one, place, is_new=policy == "Always")

    async def _issue(self, process: Process, one: Json, place: tuple[str, str], *, is_new: bool) -> None:
        namespace, name = place
        about, secret = {**one, "kind": self.kind.name}, one["spec"]["secretName"]
        self.ends[place] = now().timestamp() + LASTS
        due = f"Renewing certificate as renewal was scheduled at {one['status'].get('renewalTime')}"
        await tell(process, about, "Normal", "Issuing", due, by="cert-manager-certificates-trigger")
        keyed = ("Generated", f'Stored new private key in temporary Secret resource "{name}-next"')
        if not is_new:
            keyed = ("Reused", f'Reusing private key stored in existing Secret resource "{secret}"')
        await tell(process, about, "Normal", *keyed, by="cert-manager-certificates-key-manager")
        await asyncio.sleep(0.5)
        self.revision += 1
        if is_new:
            self.keys[place] += 1
            self.changed[place] = now().timestamp()
        data = {"tls.crt": f"certificate {self.revision}", "tls.key": f"key {self.keys[place]}"}
        await process.api.call("PATCH", path("Secret", namespace, secret), {"stringData": data})
        await process.api.call("PATCH", self.kind.path(namespace, name), {"status": self.status(place)})
        done = "The certificate has been successfully issued"
        await tell(process, about, "Normal", "Issuing", done, by="cert-manager-certificates-issuing")

    def refused(self, place: tuple[str, str], container: Container) -> float:
        """The share of a caller's connections for which it does not find the key that it knows."""
        if container.config.get(PIN) == self.pin(place):
            return 0.0
        since = now().timestamp() - self.changed[place] - self.lag
        return min(1.0, max(0.0, since / KEPT_SECONDS))


@family(
    "What issues certificates gets its next version, which makes a new key at each renewal where nothing is said, while"
    " the one before kept it. Nothing happens until the certificate of a server is due, and then one of its callers,"
    " who has that server's key in its settings, takes it for somebody else.",
    joined=54,
)
async def key_pinned(lab: Lab) -> AsyncIterator[None]:
    """As cert-manager 1.18 warns of its new default for those who pin keys (cert-manager.io, release notes)."""
    namespace, name, caller, other = lab.rng.choice(
        (
            ("payments", "card-vault", "terminal-gateway", "card-updater"),
            ("media", "rights-server", "player-licences", "rights-reports"),
            ("shop", "price-signer", "till-sync", "price-tags"),
        )
    )
    by, place = lab.rng.choice(("ci", "argocd", "flux")), (namespace, name)
    kind = await lab.custom("Certificate", GROUP, ANY)
    keys = _Keys(kind, lab.lag)
    await lab.served(kind)
    servers = (place, ("search", "query"), ("media", "uploads"), ("shop", "catalog"))
    await keys.open(lab, servers)
    rules = ((GROUP, kind.plural, "*"), ("", "secrets", "get,patch"), ("", "events", "create"))
    await lab.controller(HOME, ISSUING, every(1.5, keys.renew), *rules, replicas=1, tag=KEEPS)

    def reached() -> float:
        """The share of the caller's calls that come to the server."""
        there = [one.container for one in lab.kubelets.running() if one.container.spec["name"] == caller]
        return 1 - max((keys.refused(place, one) for one in there), default=0.0)

    like = App("", asked=lambda: 8.0 + 16.0 * reached())
    await lab.app(namespace, name, like=like, replicas=2, tag="2.9.1", secret=f"{name}-cert")
    settings = {PIN: keys.pin(place), "LOG_LEVEL": "info", "CONNECT_TIMEOUT_MS": "1500"}
    await lab.apply(objects.config_map(namespace, caller, **settings))
    like = App("", upstreams=(place,), asked=lambda: 20.0)
    like.failing, like.fails_with = (lambda one: 0.8 * keys.refused(place, one)), (lambda _: "502")
    await lab.app(namespace, caller, like=like, replicas=3, tag="5.3.0", config=caller)
    await lab.app(namespace, other, like=App("", upstreams=(place,), asked=lambda: 8.0), replicas=2, tag="1.14.2")
    await lab.until(lambda: len(backends(lab.world, namespace, caller)) == 3)
    await publish(lab, namespace, caller)
    lab.reserve(namespace, name, other)
    lab.alert_errors(namespace, caller)
    lab.alert_ingress_errors(namespace, namespace)
    await rolled(lab, HOME, ISSUING, KEEPS)
    await lab.until(lab.is_well)
    async with before(lab, days=lab.rng.choice((1, 2, 6)), cluster="eu-2"):
        keys.ends[place] = now().timestamp() + LASTS + MARGIN  # there it is due some other day
        await lab.pause(2)
        await lab.roll(by, HOME, ISSUING, MAKES)
        await rolled(lab, HOME, ISSUING, MAKES)
        await lab.pause(10)
    await lab.roll("admin", HOME, ISSUING, KEEPS)
    await rolled(lab, HOME, ISSUING, KEEPS)
    due = now().timestamp() + lab.rng.uniform(75, 85)
    keys.ends[place] = due + MARGIN
    await lab.edit("admin", kind.name, namespace, name, {"status": keys.status(place)})
    yield
    await lab.pause(max(3.0, due - now().timestamp() - lab.rng.uniform(9, 16)))
    await lab.roll(by, HOME, ISSUING, MAKES, culprit=True)
