"""On every node and for everybody: an agent that takes more, and the servers of names, of which there are fewer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import pods, restarts
from tests.lab.apps import App, Container
from tests.lab.families.by_annotation import rolled
from tests.lab.families.more_than_was_meant import Lately
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import NODES, Lab
from tests.lab.manifests import is_ready
from tests.lab.network import DNS
from tests.lab.scenario import family

STEP = 0.5

# -- an agent

AGENTS = (
    ("monitoring", "log-shipper", "PARSE", "lines", "multiline-json"),
    ("platform", "runtime-sensor", "WATCH", "exec", "all-files"),
    ("monitoring", "profile-agent", "SAMPLES_PER_SECOND", "11", "997"),
)
"""Where one is, its name, and of its settings the one that costs most: as it was, and as it gets."""
BEFORE, AFTER = "2.11.4", "3.0.0"


@dataclass
class _Agents:
    """Those of all nodes: where one takes more, all others wait for a processor."""

    lab: Lab
    app: App
    key: str
    more: str
    is_told: Lately
    """Whether the configuration has them take more, and they have read that."""
    wait: float
    busy: set[str] = field(default_factory=set)
    """Nodes whose processors are never idle."""

    def _takes_more(self, container: Container) -> bool:
        if container.config.get(self.key) == self.more:
            return self.is_told()
        return container.tag == AFTER and container.seconds >= self.lab.lag

    async def run(self) -> None:
        """For ever."""
        while True:
            there = [one.container for one in self.lab.kubelets.running() if one.app is self.app]
            self.busy = {one.pod["spec"]["nodeName"] for one in there if self._takes_more(one)}
            await asyncio.sleep(STEP)

    def waits(self, container: Container) -> float:
        """Of whatever answers something on such a node, beside the usual."""
        return self.wait if container.pod["spec"]["nodeName"] in self.busy else 0.0

    def measure(self) -> None:
        """What the exporter of each node says of its processors."""
        told = {"namespace": "monitoring", "service": "node-exporter"}
        for node in NODES:
            load = lambda node=node: self.lab.kubelets.rng.uniform(26, 38) if node in self.busy else 4.2  # noqa: E731
            waiting = lambda node=node: 0.82 if node in self.busy else 0.03  # noqa: E731
            self.lab.measure("node_load1", load, **told, node=node)
            counted = self.lab.adding_up(waiting)
            self.lab.measure("node_pressure_cpu_waiting_seconds_total", counted, "counter", **told, node=node)


@family(
    "An agent that runs on every node, for logs, for security or for profiles, gets a new version, or is told to look"
    " at more. It has no limit, and takes whatever of a node's processors it finds. It is well itself; all apps on the"
    " nodes that have it answer late, and none of them was changed.",
    joined=104,
)
async def agent_takes_more(lab: Lab) -> AsyncIterator[None]:
    """As those tell for whom everything was slow, and each team looked for it at home."""
    (home, name, front), (away, other, page) = lab.rng.sample(
        (
            ("shop", "size-finder", "size-page"),
            ("payments", "limit-checks", "limit-page"),
            ("media", "chapter-marks", "chapter-page"),
            ("search", "did-you-mean", "meant-page"),
        ),
        2,
    )
    namespace, agent, key, less, more = lab.rng.choice(AGENTS)
    by, minor, is_release = lab.rng.choice(("flux", "argocd", *TEAMS)), lab.rng.randrange(2, 40), lab.rng.random() < 0.6

    def is_told() -> bool:
        return bool(lab.world["ConfigMap"][namespace, agent]["data"].get(key) == more)

    agents = _Agents(lab, App("", serves=False), key, more, Lately(lab, is_told), lab.rng.uniform(0.9, 1.5))
    settings = {"LOG_LEVEL": "info", "BUFFER": "32Mi", key: less}
    await lab.apply(objects.config_map(namespace, agent, **settings))
    await lab.app(namespace, agent, like=agents.app, kind="DaemonSet", tag=BEFORE, config=agent)
    await lab.until(lambda: sum(map(is_ready, pods(lab.world, namespace, agent))) == len(NODES))
    for place, before in (((home, name), front), ((away, other), page)):
        await lab.apply(objects.config_map(*place, LOG_LEVEL="info", CACHE_SECONDS="20"))
        await lab.app(*place, like=App("", asked=lambda: 19.0), replicas=4, tag=f"2.{minor}.0", config=place[1])
        await rolled(lab, *place, f"2.{minor}.0")
        await set_before(lab, place[0], before, place[1])
    for app in lab.apps.values():
        if app.serves:
            app.latency = agents.waits
    agents.measure()
    for place in ((home, name), (away, other), ("shop", "catalog"), ("search", "query")):
        lab.alert_slow(*place)
    for one in (home, away):
        lab.alert_ingress_errors(one, one)
    lab.start(agents.run())
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 9))
        await change_page(lab, home, front)

    yield
    await change_page(lab, away, page)
    await lab.pause(lab.rng.uniform(5, 9))
    body = {"data": {"CACHE_SECONDS": lab.rng.choice(("10", "40"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", home, name, body)
    await lab.pause(lab.rng.uniform(4, 8))
    await lab.roll(lab.rng.choice(("ci", "argocd")), away, other, f"2.{minor}.1")
    await lab.pause(lab.rng.uniform(5, 10))
    if is_release:
        [there] = lab.world["DaemonSet"][namespace, agent]["spec"]["template"]["spec"]["containers"]
        newer = {**there, "image": f"{there['image'].rsplit(':', 1)[0]}:{AFTER}"}
        spec = {"template": {"spec": {"containers": [newer]}}}
        await lab.culprit(by, "update", "DaemonSet", namespace, agent, {"spec": spec})
    else:
        await lab.culprit(by, "update", "ConfigMap", namespace, agent, {"data": {key: more}})
    lab.start(afterwards())


# -- servers of names

EACH_STANDS, EACH_ASKS, OTHERS = 150.0, 6.0, 60.0
"""Names a second that a server answers in time, for how many a request of a customer has somebody ask, and the rest."""
AGAIN_SECONDS = 2.5
"""After which one asks again who has got no answer."""
LESS = "112Mi"


@dataclass
class _Names:
    """What is asked of the cluster's DNS, and what its servers stand."""

    lab: Lab
    app: App
    asked: float
    """Requests of customers a second, of one of two apps."""

    def queries(self) -> float:
        return 2 * self.asked * EACH_ASKS + OTHERS

    def servers(self) -> int:
        return sum(one.app is self.app and one.problem is None for one in self.lab.kubelets.running())

    def late(self) -> float:
        """The share of the names that are found only once they are asked for again."""
        return max(0.0, 1 - EACH_STANDS * self.servers() / self.queries())

    def waits(self, _: Container) -> float:
        return AGAIN_SECONDS * self.late()

    def fails(self, _: Container) -> float:
        """What is given up, as it is late a second time."""
        return self.late() ** 2

    async def run(self) -> None:
        """For ever: what a server has in memory grows with what it is asked."""
        while True:
            self.app.memory_mi = round(70 + 0.5 * self.queries() / max(1, self.servers()))
            await asyncio.sleep(STEP)

    async def busy_hour(self, to: float) -> None:
        first = self.asked
        for step in range(8):
            self.asked = first + (to - first) * (step + 1) / 8
            await asyncio.sleep(0.8)


@family(
    "The cluster's DNS has more servers, or more memory, than it has needed in the quiet hours that somebody looked at,"
    " and gets less. All goes well for a while. In the next busy hour more names are asked for than those that are left"
    " stand: they are found seconds late, or the servers are ended for their memory, and whoever calls anybody waits.",
    joined=104,
)
async def fewer_servers_of_names(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had followed a list of what was too large, by the figures of a week without a sale."""
    (home, name, front), (away, other, page) = lab.rng.sample(
        (
            ("shop", "flash-sales", "sale-page"),
            ("payments", "wallets", "wallet-page"),
            ("media", "live-scores", "scores-page"),
            ("search", "trends", "trends-page"),
        ),
        2,
    )
    by, minor, fewer = lab.rng.choice(("flux", "argocd", *TEAMS)), lab.rng.randrange(2, 40), lab.rng.random() < 0.5
    names = _Names(lab, lab.apps[f"registry.corp.example/{'/'.join(DNS)}"], lab.rng.uniform(13, 16))
    await lab.edit("admin", "Deployment", *DNS, {"spec": {"replicas": 4}})
    await lab.until(lambda: names.servers() == 4)
    for place, before in (((home, name), front), ((away, other), page)):
        like = App("", asked=lambda: names.asked, latency=names.waits, failing=names.fails)
        await lab.apply(objects.config_map(*place, LOG_LEVEL="info", KEEPALIVE="false"))
        await lab.app(*place, like=like, replicas=3, tag=f"9.{minor}.0", config=place[1])
        await rolled(lab, *place, f"9.{minor}.0")
        await set_before(lab, place[0], before, place[1])
        lab.alert_slow(*place)
        lab.alert_errors(*place)
        lab.alert_ingress_errors(place[0], place[0])
    told = {"namespace": DNS[0], "service": DNS[1]}
    lab.measure("coredns_dns_requests_total", lab.adding_up(names.queries), "counter", **told)
    lab.measure(
        "coredns_dns_request_duration_seconds", lambda: 0.002 + names.late() * AGAIN_SECONDS, **told, quantile="0.9"
    )
    many = lambda: restarts(lab.world, *DNS) >= 4  # noqa: E731
    summary = f"containers of {'/'.join(DNS)} restart again and again"
    lab.alert("KubePodCrashLooping", many, summary, 4, namespace=DNS[0], container=DNS[1])
    lab.start(names.run())
    lab.reserve(*DNS)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        """The rest of the quiet hours, and what comes then."""
        await lab.pause(lab.rng.uniform(6, 11))
        await lab.roll(lab.rng.choice(("ci", "argocd")), away, other, f"9.{minor}.1")
        await lab.pause(lab.rng.uniform(4, 9))
        await names.busy_hour(names.asked * lab.rng.uniform(2.15, 2.4))

    yield
    await change_page(lab, home, front)
    await lab.pause(lab.rng.uniform(5, 10))
    body = {"data": {"LOG_LEVEL": "warn"}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", home, name, body)
    await lab.pause(lab.rng.uniform(5, 10))
    if fewer:
        await lab.culprit(by, "update", "Deployment", *DNS, {"spec": {"replicas": 2}})
    else:
        room = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": LESS}}
        await lab.roll(by, *DNS, "1.0.0", culprit=True, resources=room)
    lab.start(afterwards())
