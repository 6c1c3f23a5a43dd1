"""What is rolled out and asks for more than the last one: of the servers of names, of its own memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial

from tests.lab import objects
from tests.lab.alerts import pods, restarts
from tests.lab.api import Json
from tests.lab.apps import App, Container, Problem
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.manifests import uid_of
from tests.lab.network import DNS, backends
from tests.lab.scenario import family

SEARCHED, USUAL_LOOKUPS, LOOKUPS = 4, 70.0, 11.0
"""Names that are asked for in place of one with the dots that kubelets say; lookups a second of all others together,
and of one process of what gathers offers."""
FULL_NAMES: Json = {"options": [{"name": "ndots", "value": "1"}]}
OWN_MIB, LIMIT_MIB, KEPT_MIB = 120.0, 512.0, 21.0
"""Of a process at its start, its limit, and what it keeps of each second."""


@dataclass
class _Names:
    """What the servers of names are asked: a name with fewer dots than a pod says is looked for in all zones first."""

    lab: Lab
    namespace: str
    name: str

    def processes(self) -> tuple[int, int]:
        """Of what gathers: those that ask for each name as it is, and those that look for it in the cluster first."""
        running = [pod for pod in pods(self.lab.world, self.namespace, self.name) if self._runs(pod)]
        full = sum("dnsConfig" in pod["spec"] for pod in running)
        return full, len(running) - full

    def found(self) -> float:
        """Names a second that are asked for and that there are."""
        return USUAL_LOOKUPS + LOOKUPS * sum(self.processes())

    def not_found(self) -> float:
        """The same, of names that there are not."""
        return USUAL_LOOKUPS * 0.1 + LOOKUPS * (SEARCHED - 1) * self.processes()[1]

    async def ask(self) -> None:
        while True:
            self._servers.load = self.found() + self.not_found()
            await asyncio.sleep(0.5)

    def answered(self, asked: Callable[[], float]) -> float:
        """Of those a second, what the servers stand."""
        most = self._servers.capacity * len(pods(self.lab.world, *DNS))
        return asked() * min(1.0, most / max(1.0, self._servers.load))

    @property
    def _servers(self) -> App:
        return self.lab.apps[f"registry.corp.example/{'/'.join(DNS)}"]

    def _runs(self, pod: Json) -> bool:
        return pod.get("status", {}).get("phase") == "Running" and bool(uid_of(pod))


@family(
    "What gathers offers of many partners has asked for each of their names as it is. A chart that was written anew no"
    " longer says so: each is looked for in the cluster's own zones first, and the servers of names, which are asked"
    " many times as much, do not stand it.",
    joined=36,
)
async def dots_in_names(lab: Lab) -> AsyncIterator[None]:
    """As told of two servers, of names with few dots, and of what they are asked (grokdevops, a case study)."""
    namespace, name = lab.rng.choice(
        (("media", "feed-fetcher"), ("search", "offer-crawler"), ("payments", "rate-poller"))
    )
    partners = tuple(f"api.partner-{number}.example" for number in lab.rng.sample(range(10, 90), 4))
    names, by = _Names(lab, namespace, name), lab.rng.choice(("ci", "alice", "argocd"))
    like = App("", abroad=partners)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", INTERVAL_SECONDS="5"))
    await lab.app(namespace, name, like=like, replicas=4, tag="0.31.4", config=name, dnsConfig=FULL_NAMES)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 4)
    for rcode, rate in (("NOERROR", names.found), ("NXDOMAIN", names.not_found)):
        total = lab.adding_up(partial(names.answered, rate))
        lab.measure(
            "coredns_dns_responses_total", total, "counter", namespace=DNS[0], service=DNS[1], rcode=rcode, zone="."
        )
    lab.start(names.ask())
    lab.reserve(namespace, name)
    for place, front in (("shop", "frontend"), ("search", "query")):
        lab.reserve(place, front)
        lab.alert_lacking(place, front)
        lab.alert_errors(place, front)
    await lab.until(lab.is_well)
    yield
    there = lab.world["Deployment"][namespace, name]["spec"]["template"]["spec"]["containers"][0]
    image = str(there["image"]).rsplit(":", 1)[0]
    spec = {"dnsConfig": None, "containers": [{**there, "image": f"{image}:0.32.0"}]}
    await lab.culprit(by, "update", "Deployment", namespace, name, {"spec": {"template": {"spec": spec}}})


@family(
    "A release keeps in memory what it has read, and listens for changes of it. For each request it adds a listener"
    " and takes none away: its processes grow until they are killed, start anew, and grow again.",
    joined=36,
)
async def listeners_kept(lab: Lab) -> AsyncIterator[None]:
    """As told of a cache and its listeners, whose pods restarted every quarter of an hour (devseatit.com)."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "user-api", "my-account"),
            ("media", "profile-api", "profile-page"),
            ("payments", "payer-api", "wallet"),
        )
    )
    database, old, new = f"{name}-db", "3.8.2", "3.9.0"
    by, team = lab.rng.choice(("ci", "argocd", "flux")), lab.rng.choice(("alice", "bob", "carol"))

    def grown(container: Container) -> float:
        """What a process has in memory, in MiB; each has its own share of what all are asked."""
        if container.tag != new:
            return OWN_MIB
        share = 0.8 + int(container.pod["metadata"]["uid"][:2], 16) / 640
        return OWN_MIB + max(0.0, container.seconds - lab.lag) * KEPT_MIB * share

    def needs(container: Container) -> Problem | None:
        needed = grown(container)
        return Problem("oom", f"needs {needed:.0f}Mi, may have {LIMIT_MIB:.0f}Mi") if needed > LIMIT_MIB else None

    def collects(container: Container) -> float:
        """Near its limit a process does little but look for what it could let go of."""
        return 0.25 if grown(container) > 0.8 * LIMIT_MIB else 0.0

    await lab.app(namespace, database, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="15.7")
    like = App("", upstreams=((namespace, database),), check=needs, failing=collects)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", SESSION_MINUTES="30"))
    await lab.app(namespace, name, like=like, replicas=4, tag=old, memory=f"{LIMIT_MIB:.0f}Mi", config=name)
    at_once = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "100%", "maxUnavailable": 0}}
    await lab.edit("admin", "Deployment", namespace, name, {"spec": {"strategy": at_once}})
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="1.44.0")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 4)
    await lab.until(lambda: len(backends(lab.world, namespace, front)) == 2)
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    restarting = lab.rate(lambda: restarts(lab.world, namespace, name), 0.1, seconds=20)
    summary = f"pods of {namespace}/{name} are restarting"
    lab.alert("KubePodRestarting", restarting, summary, 3, namespace=namespace, deployment=name)
    lab.alert_errors(namespace, name)
    lab.alert_lacking(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.roll(by, namespace, name, new, culprit=True)
    await rolled(lab, namespace, name, new)
    await lab.pause(lab.rng.uniform(2, 5))
    await lab.edit(team, "ConfigMap", namespace, name, {"data": {"SESSION_MINUTES": "60"}})
