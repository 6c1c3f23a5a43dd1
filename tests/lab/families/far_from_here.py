"""Far from here: a host of charts that does not answer, and a network of the provider that loses packets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial

from tests.lab.api import Json, Kind, now, path, stamp
from tests.lab.apps import App, Container, Process
from tests.lab.company import COREFILE
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import NODES, Lab
from tests.lab.network import RESOLVER, backends
from tests.lab.programs import both, every, leading, tell
from tests.lab.scenario import family

# -- a host of charts

SOURCES, HELM, FLUX = "source.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io", "flux-system"
FETCHES, INSTALLS = "source-controller", "helm-controller"
HOST, ADDRESS = "charts.corp.example", "203.0.113.40"
LEASE, EVENTS = ("coordination.k8s.io", "leases", "*"), ("", "events", "create")


def _is_ready(thing: Json) -> bool:
    conditions = thing.get("status", {}).get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


async def _say(process: Process, kind: Kind, thing: Json, *, reason: str, message: str, **status: str) -> None:
    """What a controller writes of an object, where that is news."""
    is_well = reason in ("Succeeded", "UpgradeSucceeded")
    told = {"type": "Ready", "status": str(is_well), "reason": reason, "message": message}
    [before] = thing.get("status", {}).get("conditions") or [{}]
    if all(before.get(key) == value for key, value in told.items()) and not status:
        return
    condition = {**told, "lastTransitionTime": f"{stamp(now())[:19]}Z"}
    where = kind.path(FLUX, thing["metadata"]["name"])
    done = await process.api.call("PATCH", where, {"status": {"conditions": [condition], **status}})
    if done.ok and before.get("message") != message:
        about = {**thing, "kind": kind.name}
        await tell(
            process, about, "Normal" if is_well else "Warning", reason, message, by=process.api.agent.split("/")[0]
        )


@dataclass
class _Charts:
    """Who fetches indexes of charts, and who installs what is declared of them."""

    lab: Lab
    sources: Kind
    releases: Kind
    is_away: bool = False

    async def run(self) -> None:
        """The two controllers. Raises RefusedError."""
        rights = (SOURCES, self.sources.plural, "get,list,watch,patch"), LEASE, EVENTS
        program = both(every(2.5, self.fetch), leading(FLUX, FETCHES))
        await self.lab.controller(FLUX, FETCHES, program, *rights, replicas=1, tag="v1.7.3")
        rights = (
            (f"{SOURCES},{HELM}", f"{self.sources.plural},{self.releases.plural}", "get,list,watch,patch"),
            LEASE,
            EVENTS,
        )
        program = both(every(2.0, self.install), leading(FLUX, INSTALLS))
        await self.lab.controller(
            FLUX, INSTALLS, program, *rights, ("apps", "deployments", "get,patch"), replicas=1, tag="v1.4.3"
        )
        await rolled(self.lab, FLUX, FETCHES, "v1.7.3")
        await rolled(self.lab, FLUX, INSTALLS, "v1.4.3")

    async def fetch(self, process: Process) -> None:
        for one in (await process.api.call("GET", self.sources.path(FLUX))).body.get("items", ()):
            url = f"{one['spec']['url']}/index.yaml"
            if self.is_away and HOST in url:
                why = f'Get "{url}": dial tcp {ADDRESS}:443: i/o timeout'
                message = f"failed to fetch Helm repository index: failed to cache index to temporary file: {why}"
                await _say(process, self.sources, one, reason="Failed", message=message)
            else:
                message = "stored artifact: fetched index of the repository"
                await _say(process, self.sources, one, reason="Succeeded", message=message)

    async def install(self, process: Process) -> None:
        """A version that is there is not fetched again."""
        for one in (await process.api.call("GET", self.releases.path(FLUX))).body.get("items", ()):
            name, spec = one["metadata"]["name"], one["spec"]
            version = spec["chart"]["spec"]["version"]
            if one.get("status", {}).get("lastAppliedRevision") == version:
                continue
            source = spec["chart"]["spec"]["sourceRef"]["name"]
            found = await process.api.call("GET", self.sources.path(FLUX, source))
            if not (found.ok and _is_ready(found.body)):
                message = f"HelmChart '{FLUX}/{FLUX}-{name}' is not ready: no artifact of version '{version}'"
                await _say(process, self.releases, one, reason="SourceNotReady", message=message)
                continue
            where = path("Deployment", spec["targetNamespace"], name)
            there = await process.api.call("GET", where)
            container = there.body["spec"]["template"]["spec"]["containers"][0]
            image = f"{container['image'].rsplit(':', 1)[0]}:{version}"
            body = {"spec": {"template": {"spec": {"containers": [{**container, "image": image}]}}}}
            if (await process.api.call("PATCH", where, body)).ok:
                message = f"Helm upgrade succeeded for release {spec['targetNamespace']}/{name} with chart {name}"
                told = {"reason": "UpgradeSucceeded", "message": f"{message}@{version}"}
                await _say(process, self.releases, one, **told, lastAppliedRevision=version)


@family(
    "No culprit. The host from which charts are fetched does not answer for an hour. What is installed goes on. The"
    " index of its charts is not fetched any more, and a release that is urgent waits, as no further chart comes.",
    culprit=False,
    joined=101,
)
async def charts_not_fetched(lab: Lab) -> AsyncIterator[None]:
    """As those tell who wanted to put something right while their hoster of charts, or of Git, was down."""
    namespace, name, other = lab.rng.choice(
        (
            ("shop", "order-limits", "order-mails"),
            ("payments", "sepa-export", "sepa-report"),
            ("media", "drm-proxy", "drm-stats"),
            ("search", "spelling", "spelling-feed"),
        )
    )
    minor, way = lab.rng.randrange(2, 30), lab.rng.choice(("interval", "secret", "level"))
    sources = await lab.custom("HelmRepository", SOURCES, ANY)
    releases = await lab.custom("HelmRelease", HELM, ANY)
    await lab.served(sources, releases)
    charts = _Charts(lab, sources, releases)
    for called, url in (("corp", f"https://{HOST}/stable"), ("vendor", "https://helm.vendor.example/charts")):
        spec = {"url": url, "interval": "10m", "secretRef": {"name": f"charts-{called}"}}
        meta = {"namespace": FLUX, "name": called}
        await lab.apply({"apiVersion": f"{SOURCES}/v1", "kind": sources.name, "metadata": meta, "spec": spec})
        secret = {"kind": "Secret", "metadata": {"namespace": FLUX, "name": f"charts-{called}"}}
        await lab.apply({**secret, "stringData": {"username": "flux", "password": f"{lab.rng.getrandbits(64):x}"}})
    for one in (name, other):
        await lab.app(namespace, one, replicas=2, tag=f"2.{minor}.0")
        await rolled(lab, namespace, one, f"2.{minor}.0")
        of = {"chart": one, "version": f"2.{minor}.0", "sourceRef": {"kind": sources.name, "name": "corp"}}
        spec = {"interval": "10m", "targetNamespace": namespace, "chart": {"spec": of}}
        meta = {"namespace": FLUX, "name": one}
        await lab.apply({"apiVersion": f"{HELM}/v1", "kind": releases.name, "metadata": meta, "spec": spec})
    await charts.run()
    for kind, called, seconds in ((sources, "corp", 12), (releases, name, 10), (releases, other, 10)):
        waits = lambda kind=kind, called=called: not _is_ready(lab.world[kind.name].get((FLUX, called), {}))  # noqa: E731
        told = {"namespace": FLUX, "kind": kind.name, "name": called}
        summary = f"{kind.name} {FLUX}/{called} has not been ready for a while"
        lab.alert("FluxResourceNotReady", waits, summary, seconds, **told)
    await lab.until(lab.is_well)

    async def release(one: str, version: str) -> None:
        body = {"spec": {"chart": {"spec": {"version": version}}}}
        await lab.edit(lab.rng.choice(("ci", *TEAMS)), releases.name, FLUX, one, body)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await release(name, f"2.{minor}.1")
        await lab.pause(lab.rng.uniform(3, 6))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", "search", "query", {"data": {"TIMEOUT_MS": "680"}})

    yield
    await release(other, f"2.{minor}.1")
    await lab.pause(lab.rng.uniform(5, 9))
    if way == "interval":
        await lab.edit(lab.rng.choice((*TEAMS, "ci")), sources.name, FLUX, "corp", {"spec": {"interval": "5m"}})
    elif way == "secret":
        body = {"stringData": {"password": f"{lab.rng.getrandbits(64):x}"}}
        await lab.edit(lab.rng.choice(TEAMS), "Secret", FLUX, "charts-vendor", body)
    else:
        await lab.roll(lab.rng.choice(("ci", *TEAMS)), FLUX, FETCHES, "v1.7.3", args=["--log-level=debug"])
    await lab.pause(lab.rng.uniform(8, 14))
    charts.is_away = True
    lab.start(afterwards())


# -- packets

ZONE, ZONES = "topology.kubernetes.io/zone", ("eu-1a", "eu-1b", "eu-1c")
USUAL, LOST_A_SECOND = 0.4, 22.0
"""How many segments a node sends again in a second."""


@dataclass
class _Network:
    """The provider's: between two zones, or on the way to its resolver, packets are lost for half an hour."""

    lab: Lab
    zones: tuple[str, ...]
    """The two; none where it is the resolver."""
    wait: float
    share: float
    begun: float = float("inf")
    seconds: float = 6.0

    def badness(self) -> float:
        return max(0.0, min(1.0, (now().timestamp() - self.begun) / self.seconds))

    def zone(self, node: str) -> str:
        return str(self.lab.world["Node"].get(("", node), {}).get("metadata", {}).get("labels", {}).get(ZONE, ""))

    def met(self, container: Container, called: tuple[str, str]) -> float:
        """Which share of what a container asks others goes by the way that is bad."""
        if not self.zones:
            return self.badness()
        here, *there = (self.zone(one["spec"].get("nodeName", "")) for one in (container.pod, *self._behind(called)))
        return self.badness() * sum({here, one} == set(self.zones) for one in there) / max(1, len(there))

    def _behind(self, called: tuple[str, str]) -> list[Json]:
        return backends(self.lab.world, *called)

    def slows(self, app: App, called: tuple[str, str]) -> App:
        """An app that asks somebody outside, or one who is called, is late by it, and fails what it gives up."""
        app.latency = lambda container: self.wait * self.met(container, called)
        app.failing = lambda container: self.share * self.met(container, called)
        app.fails_with = lambda _: "504"
        return app

    def sent_again(self, node: str) -> float:
        return USUAL + (LOST_A_SECOND * self.badness() if self.zone(node) in self.zones else 0.0)

    def be_measured(self) -> None:
        """By the servers of names and by an agent on each node."""
        if not self.zones:
            told = {"namespace": "kube-system", "service": "kube-dns", "to": f"{RESOLVER}:53"}
            failed = self.lab.adding_up(lambda: 1.6 * self.badness())
            self.lab.measure("coredns_forward_healthcheck_failures_total", failed, "counter", **told)
        for node in NODES:
            again = self.lab.adding_up(partial(self.sent_again, node))
            told = {"namespace": "monitoring", "service": "node-agent", "node": node}
            self.lab.measure("node_tcp_retransmitted_segments_total", again, "counter", **told)


@family(
    "No culprit. The cloud's resolver, or its network between two zones, loses packets for half an hour. Look-ups, or"
    " calls from one zone to the other, take seconds, and some are given up. All pods are well, and nothing in the"
    " cluster is other than it was.",
    culprit=False,
    joined=101,
)
async def packets_lost(lab: Lab) -> AsyncIterator[None]:
    """As status pages of clouds tell in the evening of what was seen at noon."""
    namespace, name, below, front, host = lab.rng.choice(
        (
            ("shop", "parcel-rates", "parcel-cache", "parcel-page", "api.parcels.example"),
            ("payments", "card-checks", "card-store", "card-page", "api.cardhouse.example"),
            ("media", "subtitle-api", "subtitle-store", "subtitle-page", "jobs.cloudcodec.example"),
            ("search", "place-finder", "place-store", "place-page", "geo.maps.example"),
        )
    )
    minor, is_resolver, second = lab.rng.randrange(2, 30), lab.rng.random() < 0.5, lab.rng.choice(("mailer", "sender"))
    for number, node in enumerate(NODES):
        label = {"metadata": {"labels": {ZONE: ZONES[number * len(ZONES) // len(NODES)]}}}
        await lab.edit("admin", "Node", "", node, label)
    zones = () if is_resolver else tuple(lab.rng.sample(ZONES, 2))
    network = _Network(lab, zones, lab.rng.uniform(2.4, 4.5), lab.rng.uniform(0.1, 0.25))
    network.seconds = lab.rng.uniform(4, 9)
    if not is_resolver:
        network.wait, network.share = 3 * network.wait, min(0.8, 3 * network.share)  # of two in nine calls
    await lab.app(namespace, below, like=App("", asked=lambda: 26.0), replicas=6, tag="1.9.3")
    await rolled(lab, namespace, below, "1.9.3")
    store = (namespace, below)
    like = App("", upstreams=(store,), abroad=(host,) if is_resolver else (), asked=lambda: 21.0)
    await lab.app(namespace, name, like=network.slows(like, store), replicas=6, tag=f"3.{minor}.0")
    await rolled(lab, namespace, name, f"3.{minor}.0")
    abroad = ("smtp.mail.example",) if is_resolver else ()
    like = App("", upstreams=() if is_resolver else (store,), abroad=abroad, asked=lambda: 9.0)
    await lab.app(namespace, second, like=network.slows(like, store), replicas=3, tag="2.2.1")
    await rolled(lab, namespace, second, "2.2.1")
    await set_before(lab, namespace, front, name)
    network.be_measured()
    for one in (name, second, front):
        lab.alert_slow(namespace, one)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(5, 9))
        await change_page(lab, namespace, front)

    yield
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(5, 10))
    if lab.rng.random() < 0.5:
        cached = {"data": {"Corefile": COREFILE.replace("cache 30", f"cache {lab.rng.choice((60, 120))}")}}
        await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", "kube-system", "coredns", cached)
    else:
        await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, below, "1.9.4")
    await lab.pause(lab.rng.uniform(9, 15))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, second, "2.2.2")
    await lab.pause(lab.rng.uniform(6, 10))
    network.begun = now().timestamp()
    lab.start(afterwards())
