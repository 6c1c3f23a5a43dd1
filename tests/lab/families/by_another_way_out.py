"""By another way out: partners know a company by the address from which it asks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Literal

from tests.lab import objects
from tests.lab.api import Json, Kind
from tests.lab.apps import App, Container, Process
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.more_than_was_meant import Lately
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

KNOWN = "203.0.113.17"
"""The address that partners have entered years ago."""
OTHERS = ("203.0.113.81", "198.51.100.36", "192.0.2.44")
POLICY, GATEWAY, PROXY = "egress-partners", "prod-eu-1a", ("platform", "egress-proxy")
Means = Literal["policy", "gateway", "proxy"]


def _squid(address: str, *, log: str = "none") -> str:
    rules = "acl inside src 10.0.0.0/8\nhttp_access allow inside\nhttp_access deny all\n"
    return f"http_port 3128\n{rules}tcp_outgoing_address {address}\ncache deny all\naccess_log {log}\n"


@dataclass
class _Way:
    """How what leaves the cluster leaves it, and from which address."""

    lab: Lab
    means: Means
    other: str
    kind: Kind | None = None
    allocations: dict[str, str] = field(default_factory=dict)
    """Of the cloud: the addresses that it has given, by their ids."""

    async def set_up(self, *namespaces: str) -> None:
        """Raises RefusedError, TimeoutError."""
        lab = self.lab
        if self.means == "policy":
            self.kind = await lab.custom("CiliumEgressGatewayPolicy", "cilium.io", ANY, namespaced=False)
            await lab.served(self.kind)
            chosen = [{"podSelector": {"matchLabels": {"io.kubernetes.pod.namespace": one}}} for one in namespaces]
            leads = {"nodeSelector": {"matchLabels": {"pool": "general"}}, "egressIP": KNOWN}
            spec = {"selectors": chosen, "destinationCIDRs": ["0.0.0.0/0"], "egressGateway": leads}
            made = {"kind": self.kind.name, "apiVersion": f"{self.kind.group}/v1", "metadata": {"name": POLICY}}
            await lab.apply({**made, "spec": spec})
        elif self.means == "gateway":
            self.kind = await lab.custom("NATGateway", "ec2.aws.upbound.io", ANY, namespaced=False)
            await lab.served(self.kind)
            self.allocations = {f"eipalloc-{lab.rng.getrandbits(68):017x}": one for one in (KNOWN, self.other)}
            provider: Json = {"allocationId": next(iter(self.allocations)), "connectivityType": "public"}
            spec = {"forProvider": {**provider, "region": "eu-1", "tags": {"team": "platform"}}}
            made = {"kind": self.kind.name, "apiVersion": f"{self.kind.group}/v1", "metadata": {"name": GATEWAY}}
            await lab.apply({**made, "spec": spec})
            rights = (self.kind.group, "natgateways", "get,list,watch,patch")
            keeps = every(1.5, self._keep)
            await lab.controller("platform", "provider-aws-ec2", keeps, rights, replicas=1, tag="v2.1.1")
            await lab.until(lambda: self.address() == KNOWN)
        else:
            await lab.apply(objects.config_map(*PROXY, **{"squid.conf": _squid(KNOWN)}))
            await lab.app(*PROXY, like=App("", serves=False), replicas=2, tag="6.13", config=PROXY[1])
            await rolled(lab, *PROXY, "6.13")
            await lab.until(lambda: backends(lab.world, *PROXY))

    async def _keep(self, process: Process) -> None:
        """As the cloud's provider: what is declared of a gateway becomes of it, made anew where it has to be."""
        assert self.kind
        found = await process.api.call("GET", self.kind.path(None, GATEWAY))
        if found.ok:
            address = self.allocations[found.body["spec"]["forProvider"]["allocationId"]]
            if found.body.get("status", {}).get("atProvider", {}).get("publicIp") != address:
                ready = [{"type": "Ready", "status": "True", "reason": "Available"}]
                status = {"status": {"atProvider": {"publicIp": address, "state": "available"}, "conditions": ready}}
                await process.api.call("PATCH", self.kind.path(None, GATEWAY), status)

    def address(self) -> str:
        """As those outside see it."""
        world = self.lab.world
        if self.means == "policy":
            leads = world["CiliumEgressGatewayPolicy"]["", POLICY]["spec"]["egressGateway"]
            return str(leads["egressIP"])
        if self.means == "gateway":
            status = world["NATGateway"]["", GATEWAY].get("status", {})
            return str(status.get("atProvider", {}).get("publicIp", ""))
        told = world["ConfigMap"][PROXY]["data"]["squid.conf"]
        return str(next(line.split()[1] for line in told.splitlines() if line.startswith("tcp_outgoing_address")))

    async def touch(self, by: str) -> None:
        """What it says of other things. Raises RefusedError."""
        cost = f"{self.lab.rng.randrange(1000, 9999)}"
        if self.kind is None:
            conf = {"data": {"squid.conf": _squid(KNOWN, log="stdio:/dev/stdout")}}
            await self.lab.edit(by, "ConfigMap", *PROXY, conf)
        elif self.means == "policy":
            await self.lab.edit(by, self.kind.name, "", POLICY, {"metadata": {"labels": {"cost-center": cost}}})
        else:
            tags = {"spec": {"forProvider": {"tags": {"cost-center": cost}}}}
            await self.lab.edit(by, self.kind.name, "", GATEWAY, tags)

    async def change(self, by: str) -> None:
        """Another address from now on. Raises RefusedError."""
        if self.kind is None:
            log = self.lab.world["ConfigMap"][PROXY]["data"]["squid.conf"].rsplit("access_log ", 1)[1].strip()
            conf = {"data": {"squid.conf": _squid(self.other, log=log)}}
            await self.lab.culprit(by, "update", "ConfigMap", *PROXY, conf)
            return
        allocation = next((key for key, value in self.allocations.items() if value == self.other), "")
        spec: Json = (
            {"egressGateway": {"egressIP": self.other}}
            if self.means == "policy"
            else {"forProvider": {"allocationId": allocation}}
        )
        name = POLICY if self.means == "policy" else GATEWAY
        await self.lab.culprit(by, "update", self.kind.name, "", name, {"spec": spec})


@family(
    "What leaves the cluster leaves it from another address from now on: the gateway of the cloud gets another one, the"
    " policy names another one, or the proxy for what is outside is told to use one. One partner lets in only those"
    " whose address it has on its list, and refuses all that two teams ask of it; other partners ask nobody where they"
    " are from.",
    joined=105,
)
async def from_an_unknown_address(lab: Lab) -> AsyncIterator[None]:
    """As those tell who found their own address in a contract of years ago."""
    (home, name, front), (away, other), (free, third), host = lab.rng.choice(
        (
            (
                ("payments", "transfer-api", "transfer-page"),
                ("shop", "payment-links"),
                ("search", "geo-names"),
                "api.clearing.example",
            ),
            (
                ("shop", "parcel-labels", "label-page"),
                ("media", "print-orders"),
                ("payments", "vat-numbers"),
                "gateway.parcels.example",
            ),
            (
                ("media", "rights-check", "rights-page"),
                ("search", "title-licences"),
                ("shop", "address-api"),
                "registry.rights.example",
            ),
            (
                ("search", "flight-offers", "flight-page"),
                ("payments", "ticket-issue"),
                ("media", "weather-maps"),
                "b2b.airlines.example",
            ),
        )
    )
    way = _Way(lab, lab.rng.choice(("policy", "gateway", "proxy")), lab.rng.choice(OTHERS))
    minor, is_dropped, needs = lab.rng.randrange(2, 40), lab.rng.random() < 0.4, lab.rng.uniform(0.4, 0.85)
    by = lab.rng.choice(("flux", "argocd", *TEAMS))
    await way.set_up(home, away, free)
    is_unknown = Lately(lab, lambda: way.address() != KNOWN)

    def fails(_: Container) -> float:
        return needs if is_unknown() else 0.0

    def waits(_: Container) -> float:
        """For an answer of somebody who gives none."""
        return 3.0 * needs if is_dropped and is_unknown() else 0.0

    hosts = {(home, name): host, (away, other): host, (free, third): "api.open-data.example"}
    to = (PROXY,) if way.means == "proxy" else ()
    env = [{"name": "HTTPS_PROXY", "value": "http://egress-proxy.platform:3128"}] if to else []
    for place, asks in hosts.items():
        like = App("", abroad=(asks,), upstreams=to, asked=lambda: 19.0, fails_with=lambda _: "502")
        if asks == host:
            like.failing, like.latency = fails, waits
        await lab.apply(objects.config_map(*place, LOG_LEVEL="info", PARTNER_TIMEOUT_MS="3000"))
        await lab.app(*place, like=like, replicas=3, tag=f"4.{minor}.0", config=place[1], env=env)
        await rolled(lab, *place, f"4.{minor}.0")
        lab.reserve(*place)
        for code in ("200", "403"):

            def answered(code: str = code, asks: str = asks) -> float:
                is_refused = asks == host and is_unknown()
                return 0.0 if is_refused and is_dropped else 19.0 * needs * (is_refused == (code == "403"))

            told = {"namespace": place[0], "service": place[1], "host": asks, "code": code}
            lab.measure("http_client_responses_total", lab.adding_up(answered), "counter", **told)
        lab.alert_errors(*place)
    await set_before(lab, home, front, name)
    lab.alert_ingress_errors(home, home)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await change_page(lab, home, front)

    yield
    await way.touch(lab.rng.choice(TEAMS))
    await lab.pause(lab.rng.uniform(5, 10))
    await lab.roll(lab.rng.choice(("ci", "argocd")), home, name, f"4.{minor}.1")
    await lab.pause(lab.rng.uniform(5, 10))
    wait = {"data": {"PARTNER_TIMEOUT_MS": lab.rng.choice(("2000", "5000"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", away, other, wait)
    await lab.pause(lab.rng.uniform(3, 8))
    await way.change(by)
    lab.start(afterwards())
