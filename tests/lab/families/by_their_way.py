"""Whom others let in by how or from where they come: an address that a partner knows, a protocol that is spoken."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime

from tests.lab import objects
from tests.lab.api import Json, now
from tests.lab.apps import App, Container
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.ways_in import SETTINGS
from tests.lab.lab import NODES, Lab
from tests.lab.network import backends
from tests.lab.scenario import family

POLICY, GROUP = "EgressGatewayPolicy", "egress.corp.example"
OLD_POOL, NEW_POOL = {"egress-gateway": "a"}, {"egress-gateway": "b"}
"""By which label a policy finds the machine that calls leave the cluster by."""
ASKED, CONNECT_SECONDS = 26.0, 2.5
"""Requests a second of an app, and for how long it waits for a connection to a partner."""


def _leaves_by(pool: Json) -> Json:
    return {"spec": {"egressGateway": {"nodeSelector": {"matchLabels": pool}}}}


@dataclass
class _WayOut:
    """The machine by whose address calls leave, and a partner whose firewall knows one address."""

    lab: Lab
    policy: str
    known: str
    asks: float
    is_called: bool = True
    """Whether anybody calls a partner who looks at addresses."""
    since: datetime | None = None

    def machine(self) -> str:
        spec = self.lab.world[POLICY]["", self.policy]["spec"]
        wanted = spec["egressGateway"]["nodeSelector"]["matchLabels"].items()
        nodes = self.lab.world["Node"].items()
        return min((name for (_, name), node in nodes if wanted <= node["metadata"]["labels"].items()), default="")

    def lost(self) -> float:
        """The share of requests that need an answer of the partner's, and get none."""
        if not self.is_called or self.machine() == self.known:
            self.since = None
            return 0.0
        self.since = self.since or now()
        return self.asks if (now() - self.since).total_seconds() >= self.lab.lag else 0.0

    def failing(self, _: Container) -> float:
        return self.lost()

    def waits(self, _: Container) -> float:
        return self.lost() * CONNECT_SECONDS


@family(
    "Calls to those who acquire payments leave the cluster by one machine, whose address is in the firewall of each of"
    " them. The policy that says so is given a newer machine, as the old one is to be retired, as in a sibling that"
    " calls nobody who looks at addresses: connections to one partner, whom nobody has told, time out.",
    joined=51,
)
async def another_machine(lab: Lab) -> AsyncIterator[None]:
    """As users of Cilium tell of firewalls that know an address of old (cilium 38012)."""
    namespace = "payments"
    name, front, host = lab.rng.choice(
        (
            ("card-acquiring", "pay-page", "gateway.acquirer.example"),
            ("direct-debit", "mandates-page", "api.clearing.example"),
            ("payouts", "seller-page", "payouts.bank.example"),
        )
    )
    by, team = lab.rng.choice(("alice", "flux", "carol")), lab.rng.choice(("bob", "ci", "argocd"))
    kind = await lab.custom(POLICY, GROUP, ANY, namespaced=False)
    await lab.served(kind)
    old, new = lab.rng.sample(NODES, 2)
    for node, pool in ((old, OLD_POOL), (new, NEW_POOL)):
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": pool}})
    way = _WayOut(lab, "to-acquirers", old, lab.rng.uniform(0.5, 0.75))
    spec = {
        "selectors": [{"namespace": namespace}],
        "destinationCIDRs": ["203.0.113.0/24"],
        **_leaves_by(OLD_POOL)["spec"],
    }
    await lab.apply({"apiVersion": f"{GROUP}/v1", "kind": POLICY, "metadata": {"name": way.policy}, "spec": spec})
    await lab.until(lambda: ("", way.policy) in lab.world[POLICY] and way.machine() == old)
    await lab.apply(objects.config_map(namespace, name, PARTNER_TIMEOUT_MS="2500", RETRIES="0"))
    like = App(
        "", abroad=(host,), asked=lambda: ASKED, failing=way.failing, fails_with=lambda _: "504", latency=way.waits
    )
    await lab.app(namespace, name, like=like, replicas=3, tag="4.18.2", config=name)
    like = App("", upstreams=((namespace, name),), asked=lambda: 34.0)
    await lab.app(namespace, front, like=like, replicas=2, tag="7.1.0")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3)
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    for status in ("200", "IO_ERROR"):
        given = lambda status=status: ASKED * (way.asks - way.lost() if status == "200" else way.lost())  # noqa: E731
        told = {"namespace": namespace, "service": name, "client_name": host, "status": status}
        lab.measure("http_client_requests_total", lab.adding_up(given), "counter", **told)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    way.is_called = False
    async with before(lab, days=lab.rng.choice((1, 2, 6)), cluster="eu-2"):
        await lab.pause(4)
        await lab.edit(by, POLICY, "", way.policy, _leaves_by(NEW_POOL))
        await lab.pause(9)
    await lab.edit("admin", POLICY, "", way.policy, _leaves_by(OLD_POOL))
    await lab.until(lambda: way.machine() == old)
    way.is_called = True
    await lab.until(lab.is_well)
    yield
    timeout = lab.rng.choice(("2000", "3000"))
    await lab.edit(team, "ConfigMap", namespace, name, {"data": {"PARTNER_TIMEOUT_MS": timeout}})
    await lab.pause(lab.rng.uniform(4, 10))
    await lab.culprit(by, "update", POLICY, "", way.policy, _leaves_by(NEW_POOL))


OF_OLD, HARDENED = "TLSv1 TLSv1.1 TLSv1.2 TLSv1.3", "TLSv1.2 TLSv1.3"
NEWER, OLDER = 5.0, 31.0
"""Requests a second of those that speak a newer protocol, and of those that speak none but of old."""


@family(
    "The proxies of all Ingresses are told to speak no encryption of old any more, as an audit asks for. Browsers do"
    " not mind; most devices that call one app for years speak nothing else, and are refused before they have asked"
    " for anything: no proxy and no app counts an error, hardly anything comes.",
    joined=51,
)
async def devices_silent(lab: Lab) -> AsyncIterator[None]:
    """As told of clients that offer no newer protocol (kubernetes 26169 and 28888)."""
    namespace, name, counted = lab.rng.choice(
        (
            ("shop", "till-gateway", "receipts_received"),
            ("media", "set-top-gateway", "channel_lists_sent"),
            ("payments", "terminal-gateway", "authorisations_answered"),
        )
    )
    by, team, number = lab.rng.choice(("alice", "argocd", "flux")), lab.rng.choice(("ci", "bob")), lab.rng.randrange(9)
    since: list[datetime] = []

    def comes() -> float:
        """Connections that are open go on until the proxies' old workers have ended."""
        if "TLSv1.1" in lab.world["ConfigMap"][SETTINGS]["data"]["ssl-protocols"]:
            return NEWER + OLDER
        if not since:
            since.append(now())
        return NEWER if (now() - since[0]).total_seconds() >= lab.lag else NEWER + OLDER

    def is_silent() -> bool:
        answered = lab.traffic.of_ingress(namespace, namespace, 10).answers.total()
        return answered < 10 * (NEWER + OLDER) / 2

    settings = {"ssl-protocols": OF_OLD, "proxy-read-timeout": "60", "use-gzip": "true"}
    await lab.apply(objects.config_map(*SETTINGS, **settings))
    await lab.app(namespace, f"{name}-db", like=App("", serves=False), kind="StatefulSet", replicas=1, tag="16.8")
    like = App("", upstreams=((namespace, f"{name}-db"),), asked=comes)
    await lab.app(namespace, name, like=like, replicas=3, tag=f"5.{number}.0")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3)
    await publish(lab, namespace, name)
    lab.measure(f"{counted}_total", lab.adding_up(lambda: 0.9 * comes()), "counter", namespace=namespace, service=name)
    summary = f"less than half of what is usual comes to Ingress {namespace}/{namespace}"
    lab.alert("RequestRateDropped", is_silent, summary, 5, namespace=namespace, ingress=namespace)
    lab.alert_lacking(namespace, name)
    await lab.until(lab.is_well)
    yield
    await lab.roll(team, namespace, name, f"5.{number}.1")
    await rolled(lab, namespace, name, f"5.{number}.1")
    await lab.pause(lab.rng.uniform(3, 9))
    await lab.culprit(by, "update", "ConfigMap", *SETTINGS, {"data": {"ssl-protocols": HARDENED}})
