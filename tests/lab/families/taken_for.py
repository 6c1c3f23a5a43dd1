"""Whom somebody is taken for: by all of the subject of a certificate, and by the group that a console acts for."""

from __future__ import annotations

import asyncio
import base64
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

from tests.lab import objects
from tests.lab.api import Json, Kind, now, path, stamp
from tests.lab.apps import App, Container, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.manifests import uid_of
from tests.lab.network import backends
from tests.lab.programs import every, tell
from tests.lab.scenario import family

GROUP, HOME, ISSUING = "cert-manager.io", "cert-manager", "cert-manager-issuing"
KEPT_SECONDS = 8.0
"""For how long a client keeps a connection: for the next one it shows the certificate that is there by then."""
LISTS = "acls.properties"


def _subject(spec: Json) -> str:
    """As a broker calls a client whose certificate was made for this."""
    subject = spec.get("subject", {})
    units, companies = subject.get("organizationalUnits", ()), subject.get("organizations", ())
    parts = [f"CN={spec['commonName']}", *(f"OU={one}" for one in units), *(f"O={one}" for one in companies)]
    return ",".join(parts)


@dataclass
class _Clients:
    """Certificates of clients, and a broker whose lists say which subject may what."""

    lab: Lab
    kind: Kind
    namespace: str
    broker: str
    issued: dict[str, str] = field(default_factory=dict)
    """By namespace and name, for which subject."""
    revision: int = 1
    strangers: dict[str, float] = field(default_factory=dict)
    """Since when a pod has shown a certificate whose subject is on no list, by uid."""

    async def open(self, namespace: str, name: str) -> None:
        """A client has its certificate. Raises RefusedError."""
        issuer = {"name": "internal", "kind": "ClusterIssuer"}
        spec: Json = {"secretName": f"{name}-client", "commonName": name, "issuerRef": issuer}
        spec |= {"subject": {"organizationalUnits": [namespace]}, "usages": ["client auth"]}
        meta = {"namespace": namespace, "name": f"{name}-client"}
        await self.lab.apply({"kind": "Secret", "metadata": meta, "stringData": self._files(spec)})
        self.issued[f"{namespace}/{name}-client"] = _subject(spec)
        ready = {"conditions": [{"type": "Ready", "status": "True", "reason": "Ready"}], "revision": self.revision}
        one = {"apiVersion": f"{GROUP}/v1", "kind": self.kind.name, "metadata": meta, "spec": spec}
        await self.lab.apply({**one, "status": ready})

    def _files(self, spec: Json) -> dict[str, str]:
        return {"tls.crt": f"certificate {self.revision} of {_subject(spec)}", "tls.key": f"key {self.revision}"}

    async def issue(self, process: Process) -> None:
        """As cert-manager: what is not as its object says is issued anew, at once."""
        listed = await process.api.call("GET", self.kind.path())
        for one in listed.body.get("items", []):
            meta, spec = one["metadata"], one["spec"]
            place, about = f"{meta['namespace']}/{meta['name']}", {**one, "kind": self.kind.name}
            if self.issued.get(place) == _subject(spec):
                continue
            why = "Fields on existing CertificateRequest resource not up to date: [spec.subject]"
            await tell(process, about, "Normal", "Issuing", why, by="cert-manager-certificates-trigger")
            await asyncio.sleep(0.5)
            self.revision, self.issued[place] = self.revision + 1, _subject(spec)
            body = {"stringData": self._files(spec)}
            await process.api.call("PATCH", path("Secret", meta["namespace"], spec["secretName"]), body)
            status = {"revision": self.revision, "notBefore": f"{stamp(now())[:19]}Z"}
            where = self.kind.path(meta["namespace"], meta["name"])
            await process.api.call("PATCH", where, {"status": status})
            done = "The certificate has been successfully issued"
            await tell(process, about, "Normal", "Issuing", done, by="cert-manager-certificates-issuing")

    def denied(self, container: Container) -> float:
        """The share of a client's connections whose subject the broker's lists do not have."""
        lists = self.lab.world["ConfigMap"][self.namespace, self.broker]["data"][LISTS].splitlines()
        shown = base64.b64decode(container.secret.get("tls.crt", "")).decode().partition(" of ")[2]
        uid, at = uid_of(container.pod), now().timestamp()
        if any(line.startswith(f"User:{shown} ") for line in lists):
            self.strangers.pop(uid, None)
            return 0.0
        since = at - self.strangers.setdefault(uid, at) - self.lab.lag
        return min(1.0, max(0.0, since / KEPT_SECONDS))


@family(
    "What declares the certificates of all clients writes the company's name into their subject, as an audit asks for."
    " Who calls by HTTP does not mind. A broker knows its clients by the whole subject: the next connection of one is"
    " that of somebody whom no list names, and may write nothing.",
    joined=56,
)
async def whole_subject(lab: Lab) -> AsyncIterator[None]:
    """As users of Kafka tell whose lists name clients by their distinguished name."""
    namespace, name, front, topic = lab.rng.choice(
        (
            ("shop", "order-intake", "basket-page", "orders"),
            ("payments", "payment-intake", "pay-page", "payments"),
            ("media", "view-counter", "player-page", "views"),
        )
    )
    by, broker, company = lab.rng.choice(("ci", "argocd", "flux")), f"{namespace}-kafka", "Corp Example Ltd"
    kind = await lab.custom("Certificate", GROUP, ANY)
    clients = _Clients(lab, kind, namespace, broker)
    await lab.served(kind)
    lines = (f"User:CN={name},OU={namespace} Write {topic}", f"User:CN={topic}-archive,OU={namespace} Read {topic}")
    await lab.apply(objects.config_map(namespace, broker, **{LISTS: "\n".join(lines)}))
    others = (("search", "query"), ("shop", "catalog"), ("media", "uploads"))
    for place in (*others, (namespace, name)):
        await clients.open(*place)
    rules = ((GROUP, kind.plural, "*"), ("", "secrets", "get,patch"), ("", "events", "create"))
    await lab.controller(HOME, ISSUING, every(1.5, clients.issue), *rules, replicas=1, tag="v1.17.4")
    like = App("", serves=False)
    await lab.app(namespace, broker, like=like, kind="StatefulSet", replicas=1, tag="3.9.0", config=broker)
    share = lab.rng.uniform(0.5, 0.8)
    like = App("", upstreams=((namespace, broker),), asked=lambda: 24.0)
    like.failing = lambda container: share * clients.denied(container)
    await lab.app(namespace, name, like=like, replicas=3, tag="7.4.2", secret=f"{name}-client")
    await rolled(lab, namespace, name, "7.4.2")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="3.1.0")
    await lab.until(lambda: backends(lab.world, namespace, front) and len(backends(lab.world, namespace, name)) == 3)
    await publish(lab, namespace, front)
    lab.reserve(namespace, name, broker)

    def denials() -> float:
        there = [one.container for one in lab.kubelets.running() if one.app is like]
        return 24.0 * share * sum(map(clients.denied, there)) / max(1, len(there))

    told = lab.adding_up(denials)
    counted = "kafka_server_authorizer_authorization_denied_total"
    lab.measure(counted, told, "counter", namespace=namespace, service=broker)
    lab.alert_errors(namespace, name, 0.1)
    lab.alert_ingress_errors(namespace, namespace, 0.1)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(3, 10))
    body = {"spec": {"subject": {"organizations": [company]}}}
    last = lab.rng.choice(others)
    for where, one in filter(lambda place: place != last, others):
        await lab.edit(by, kind.name, where, f"{one}-client", body)
        await lab.pause(lab.rng.uniform(0.3, 1.0))
    await lab.culprit(by, "update", kind.name, namespace, f"{name}-client", body)
    await lab.pause(lab.rng.uniform(0.3, 1.0))
    await lab.edit(by, kind.name, last[0], f"{last[1]}-client", body)


CONSOLE = "team-console"
TEAMS = {"shop": "team-shop", "payments": "team-payments", "media": "team-media", "search": "search-engineering"}
"""The group of those who work in a namespace: three by a later custom, one of old."""
LATELY_SECONDS = 10.0


@dataclass
class _Console:
    """What people use in place of kubectl: each of its requests it makes as the one who is signed in."""

    lately: deque[tuple[float, bool]] = field(default_factory=deque)
    """When it asked the API, and whether that was refused."""

    async def serve(self, process: Process) -> None:
        namespace = process.rng.choice(sorted(TEAMS))
        user = f"{process.rng.choice(('erin', 'frank', 'grace', 'heidi'))}.{namespace}@corp.example"
        asked = replace(process.api, acts_for=(user, TEAMS[namespace]))
        places = [path(kind, namespace) for kind in ("Pod", "Deployment", "ConfigMap")]
        answer = await asked.call("GET", process.rng.choice(places))
        self.lately.append((now().timestamp(), answer.status == 403))
        if process.rng.random() < 0.1:
            body = {"data": {"FLAGS_REVISION": str(process.rng.randrange(1000))}}
            answer = await asked.call("PATCH", path("ConfigMap", namespace, "preview-flags"), body)
            self.lately.append((now().timestamp(), answer.status == 403))

    def refused(self) -> float:
        """The share of what it asked for lately."""
        while self.lately and self.lately[0][0] < now().timestamp() - LATELY_SECONDS:
            self.lately.popleft()
        return sum(one for _, one in self.lately) / max(1, len(self.lately))


@family(
    "A console makes each request as the one who is signed in, and might be anybody for that. Its rights are narrowed"
    " to the groups of the teams by their names, and one team's group has a name of old: whoever is of that one is"
    " refused all that they ask for.",
    joined=56,
)
async def named_groups(lab: Lab) -> AsyncIterator[None]:
    """As those tell who gave a proxy of the API the right to impersonate named groups only."""
    by, console = lab.rng.choice(("alice", "flux", "bob")), _Console()
    teams = ("", "pods,configmaps", "get,list,patch"), ("apps", "deployments", "get,list,patch")
    await lab.apply(objects.cluster_role("team-member", *teams))
    for namespace, group in TEAMS.items():
        await lab.apply(objects.config_map(namespace, "preview-flags", FLAGS_REVISION="0"))
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}
        bound = objects.binding("team-members", "team-member", namespace, "", within=namespace)
        await lab.apply({**bound, "subjects": [subject]})
    anybody = ("", "users,groups", "impersonate")
    program = every(0.3, console.serve)
    like = await lab.controller("platform", CONSOLE, program, anybody, replicas=2, tag="0.31.1")
    like.serves, like.asked = True, lambda: 20.0
    like.failing, like.fails_with = (lambda _: console.refused()), (lambda _: "403")
    await lab.until(lambda: len(backends(lab.world, "platform", CONSOLE)) == 2)

    def refused() -> bool:
        answers = lab.traffic.of_app("platform", CONSOLE, LATELY_SECONDS).answers
        return answers["403"] > 0.1 * answers.total() > 0

    summary = f"more than 10% of the requests to platform/{CONSOLE} are answered with 403"
    lab.alert("HighForbiddenRate", refused, summary, 6, namespace="platform", service=CONSOLE)
    await lab.until(lambda: console.lately)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(3, 10))
    groups = [f"team-{one}" for one in sorted(TEAMS)]
    rules = [
        {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]},
        {"apiGroups": [""], "resources": ["groups"], "resourceNames": groups, "verbs": ["impersonate"]},
    ]
    await lab.culprit(by, "update", "ClusterRole", "", CONSOLE, {"rules": rules})
