"""What is stated where nothing was: what certificates are good for, by what the entries of a list are told apart."""

from __future__ import annotations

import base64
import hashlib
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime

from tests.lab.api import Json, Kind, now, path
from tests.lab.apps import App, Container, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

PKI, SERVER, CLIENT = "cert-manager.io", "server auth", "client auth"
NAMES = {SERVER: "TLS Web Server Authentication", CLIENT: "TLS Web Client Authentication"}
"""How a certificate calls what it is good for."""
ISSUED_FOR = "pki.corp.example/usages"
REOPENED_SECONDS = 9.0
"""After which all connections of a pool have been made anew."""
WELL, FAULTY, MENDED = "3.3.2", "3.4.0", "3.4.1"
FAULT, NEEDED = 0.35, (0.45, 0.7)
"""The share of requests that a faulty release fails, and of those that need the store, at least and at most."""


def _certificate(name: str, usages: list[str]) -> str:
    """As `openssl x509 -text` has it; one that does not say what it is good for is good for anything."""
    told = f"X509v3 Extended Key Usage: {', '.join(NAMES[one] for one in usages)}\n" if usages else ""
    text = base64.encodebytes(hashlib.sha512(f"{name} {usages} {now()}".encode()).digest() * 6).decode()
    return f"Subject: CN = {name}\n{told}-----BEGIN CERTIFICATE-----\n{text}-----END CERTIFICATE-----\n"


async def _issue(kind: Kind, process: Process) -> None:
    """As the issuer: what was issued for another purpose than is asked for is issued anew at once."""
    listed = await process.api.call("GET", kind.path())
    for one in listed.body.get("items", []):
        namespace, spec = one["metadata"]["namespace"], one["spec"]
        where, usages = path("Secret", namespace, spec["secretName"]), spec.get("usages", [])
        found = await process.api.call("GET", where)
        marks = {ISSUED_FOR: ",".join(usages)}
        if found.ok and found.body["metadata"].get("annotations", {}).get(ISSUED_FOR) == marks[ISSUED_FOR]:
            continue
        body: Json = {
            "metadata": {"annotations": marks},
            "stringData": {"tls.crt": _certificate(spec["commonName"], usages)},
        }
        if found.status == 404:
            body["metadata"] = {"name": spec["secretName"], "annotations": marks}
            await process.api.call("POST", path("Secret", namespace), body)
        elif found.ok:
            await process.api.call("PATCH", where, body)


@dataclass
class _Shown:
    """An app that shows its store the certificate by which it answers itself."""

    needed: float
    since: dict[str, datetime] = field(default_factory=dict)

    def refused(self, container: Container) -> float:
        """The share of its requests for which it needs a connection that the store refuses."""
        told = base64.b64decode(container.secret.get("tls.crt", "")).decode()
        uid = container.pod["metadata"]["uid"]
        if "Extended Key Usage" not in told or NAMES[CLIENT] in told:
            self.since.pop(uid, None)
            return 0.0
        passed = (now() - self.since.setdefault(uid, now())).total_seconds()
        return self.needed * min(1.0, passed / REOPENED_SECONDS)

    def failing(self, container: Container) -> float:
        return max(self.refused(container), FAULT if container.tag == FAULTY else 0.0)


@family(
    "Nobody has said what the company's certificates are good for, so they are for anything. After an audit somebody"
    " says it: for servers. All are issued anew at once, and one app shows its store the same certificate, as a"
    " client: the store refuses each new connection.",
    joined=52,
)
async def for_servers_only(lab: Lab) -> AsyncIterator[None]:
    """As users of cert-manager tell of clients that show a certificate for servers."""
    namespace, name, front = lab.rng.choice(
        (
            ("payments", "postings", "statement-page"),
            ("shop", "reservations", "stock-page"),
            ("media", "entitlements", "library-page"),
        )
    )
    store, by, team = f"{name}-db", lab.rng.choice(("alice", "flux", "bob")), lab.rng.choice(("ci", "argocd"))
    shown, others = _Shown(lab.rng.uniform(*NEEDED)), (("shop", "frontend"), ("search", "query"))
    kind = await lab.custom("Certificate", PKI, ANY)
    await lab.served(kind)
    for home, one in ((namespace, name), *others):
        spec = {"secretName": f"{one}-server-tls", "commonName": f"{one}.{home}.svc", "issuerRef": {"name": "corp-ca"}}
        meta = {"namespace": home, "name": one}
        await lab.apply({"apiVersion": f"{PKI}/v1", "kind": kind.name, "metadata": meta, "spec": spec})

    async def issue(process: Process) -> None:
        await _issue(kind, process)

    rules = (PKI, kind.plural, "get,list,watch"), ("", "secrets", "get,create,patch")
    await lab.controller("cert-manager", "corp-issuer", every(1.5, issue), *rules, replicas=1, tag="0.9.3")
    await lab.app(namespace, store, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="16.9")
    like = App("", upstreams=((namespace, store),), failing=shown.failing)
    await lab.app(namespace, name, like=like, replicas=3, tag=WELL, secret=f"{name}-server-tls")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="1.14.0")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3 and backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name, store)

    def refusals() -> float:
        there = [one.container for one in lab.kubelets.running() if one.app is like]
        return 9.0 * sum(map(shown.refused, there)) / max(1, len(there))

    reason = {"reason": "unsupported_certificate"}
    counted = lab.adding_up(refusals)
    lab.measure("tls_handshakes_refused_total", counted, "counter", namespace=namespace, service=store, **reason)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    async with before(lab, days=lab.rng.choice((15, 20, 27))) as then:
        faulty = await lab.roll(team, namespace, name, FAULTY)
        await then.fires()
        await lab.roll(team, namespace, name, WELL)
        await then.is_well()
        then.judge(faulty, "it")
    await rolled(lab, namespace, name, WELL)
    await lab.until(lab.is_well)
    yield
    await lab.roll(team, namespace, name, MENDED)
    await rolled(lab, namespace, name, MENDED)
    await lab.pause(lab.rng.uniform(5, 11))
    body = {"spec": {"usages": [SERVER]}}
    await lab.edit(by, kind.name, *others[0], body)
    await lab.culprit(by, "update", kind.name, namespace, name, body)
    await lab.edit(by, kind.name, *others[1], body)


CALLS, PORT = "calls.corp.example", 3478
ORDERED_EVERY, LATELY = 1.1, 14
OLD_OPERATOR, NEW_OPERATOR = "0.18.2", "0.19.0"


def _rooms(*, told_apart: bool) -> Json:
    """The definition of rooms: entries of a list may be told apart by one of their fields."""
    properties = {"port": {"type": "integer"}, "protocol": {"type": "string", "enum": ["TCP", "UDP"]}}
    entry = {"type": "object", "properties": properties, "required": ["port", "protocol"]}
    listeners: Json = {"type": "array", "items": entry}
    if told_apart:
        listeners |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port"]}
    spec = {"type": "object", "properties": {"customer": {"type": "string"}, "listeners": listeners}}
    return {"type": "object", "properties": {"spec": spec, "status": ANY}}


@dataclass
class _Rooms:
    """What opens rooms for customers, and what of it came to be lately."""

    kind: Kind
    both: float
    """The share of rooms that listen by both protocols, at the one port that firewalls let out."""
    refused: int = 0
    lately: deque[bool] = field(default_factory=lambda: deque(maxlen=LATELY))

    async def open(self, process: Process) -> None:
        protocols = ("UDP", "TCP") if process.rng.random() < self.both else ("UDP",)
        spec: Json = {"customer": f"customer-{process.rng.randrange(400):03}"}
        spec["listeners"] = [{"port": PORT, "protocol": one} for one in protocols]
        meta = {"name": f"room-{process.rng.getrandbits(32):08x}"}
        body = {"apiVersion": f"{CALLS}/v1", "kind": self.kind.name, "metadata": meta, "spec": spec}
        is_made = (await process.api.call("POST", self.kind.path("media"), body)).ok
        self.refused += not is_made
        self.lately.append(is_made)

    async def serve(self, process: Process) -> None:
        """As the operator of rooms; one that was served for long enough is closed."""
        found = (await process.api.call("GET", self.kind.path("media"))).body.get("items", [])
        listed = sorted(found, key=lambda one: str(one["metadata"]["creationTimestamp"]))
        for one in listed:
            where = self.kind.path("media", one["metadata"]["name"])
            if "status" not in one:
                await process.api.call("PATCH", where, {"status": {"phase": "Serving"}})
        for one in listed[:-30]:
            await process.api.call("DELETE", self.kind.path("media", one["metadata"]["name"]))

    def failing(self, _: Container) -> float:
        return 0.7 * self.lately.count(False) / len(self.lately) if self.lately else 0.0


@family(
    "A chart's new definition tells the listeners of a room apart by their port, so that each can be written by"
    " itself. Most rooms listen at one port by two protocols, which are two entries with the same port: who opens such"
    " a room is answered with 422, and all others are opened.",
    joined=52,
)
async def told_by_port(lab: Lab) -> AsyncIterator[None]:
    """As with the ports of Services and of containers, two of which may have one number (kubernetes 39188)."""
    console, page = lab.rng.choice((("rooms", "meeting-page"), ("calls", "call-page"), ("webinars", "lobby-page")))
    by = lab.rng.choice(("argocd", "flux", "ci"))
    kind = await lab.custom("Room", CALLS, _rooms(told_apart=False))
    definition = f"{kind.plural}.{CALLS}"
    await lab.served(kind)
    rooms = _Rooms(kind, lab.rng.uniform(0.5, 0.8))
    rights = (CALLS, kind.plural, "list,patch,delete")
    await lab.controller("media", "room-operator", every(1.7, rooms.serve), rights, replicas=1, tag=OLD_OPERATOR)
    creates = (CALLS, kind.plural, "create")
    app = await lab.controller("media", console, every(ORDERED_EVERY, rooms.open), creates, replicas=1, tag="6.1.4")
    app.serves, app.failing, app.fails_with = True, rooms.failing, lambda _: "502"
    await lab.app("media", page, like=App("", upstreams=(("media", console),)), replicas=2, tag="3.0.9")
    await lab.until(lambda: all(backends(lab.world, "media", one) for one in (console, page)))
    await publish(lab, "media", page)
    lab.reserve("media", console)
    labels = {"namespace": "media", "service": console}
    refused = lambda: rooms.refused  # noqa: E731
    lab.measure("rooms_not_opened_total", refused, "counter", **labels)
    lab.alert("RoomsNotOpened", lab.rate(refused, 0.15, seconds=10), f"{console} cannot open rooms", 4, **labels)
    lab.alert_errors("media", console, 0.1)
    await rolled(lab, "media", "room-operator", OLD_OPERATOR)
    await lab.until(lambda: len(rooms.lately) == LATELY)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(3, 9))
    version = {"name": "v1", "served": True, "storage": True}
    body = {"spec": {"versions": [{**version, "schema": {"openAPIV3Schema": _rooms(told_apart=True)}}]}}
    await lab.culprit(by, "update", "CustomResourceDefinition", "", definition, body)
    await lab.pause(1)
    await lab.roll(by, "media", "room-operator", NEW_OPERATOR)
