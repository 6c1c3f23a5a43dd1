"""What is asked of the API server: by an operator whose rights were cut, and by agents for all pods as they start."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime

from tests.lab import objects
from tests.lab.alerts import lacking
from tests.lab.api import Json, Kind, now, path, stamp
from tests.lab.apps import Container, Problem, Process
from tests.lab.company import APPS
from tests.lab.families.agents_and_callers import level
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.not_in_mind import TEAMS
from tests.lab.lab import Lab
from tests.lab.manifests import uid_of
from tests.lab.programs import every, getting, informer, tell
from tests.lab.scenario import family

HOME = "platform"
LATE_SECONDS = 9.0
"""For which a new object may not be ready."""


@dataclass
class _Operator:
    """For each of its objects it makes a Secret and a Service, and says then that it is ready."""

    name: str
    kind: Kind

    async def look(self, process: Process) -> None:
        listed = await process.api.call("GET", self.kind.path())
        for one in listed.body.get("items", ()):
            if not self.is_ready(one):
                await self._make({**one, "kind": self.kind.name}, process)

    async def _make(self, one: Json, process: Process) -> None:
        namespace, name = one["metadata"]["namespace"], one["metadata"]["name"]
        key = {"metadata": {"name": f"{name}-credentials"}, "stringData": {"username": name}}
        why = ""
        for kind, body in (("Secret", key), ("Service", objects.service(namespace, name))):
            made = await process.api.call("POST", path(kind, namespace), body)
            if not (made.ok or made.status == 409):
                why = str(made.body.get("message"))
                await tell(process, one, "Warning", "ReconcileError", why, by=self.name)
                break
        told = {"type": "Ready", "status": "False" if why else "True"}
        told |= {"reason": "ReconcileError", "message": why} if why else {"reason": "Provisioned", "message": ""}
        [before] = one.get("status", {}).get("conditions") or [{}]
        if before != {**before, **told}:
            body = {"status": {"conditions": [{**told, "lastTransitionTime": stamp(now())}]}}
            await process.api.call("PATCH", self.kind.path(namespace, name), body)

    @staticmethod
    def is_ready(one: Json) -> bool:
        return any(told["status"] == "True" for told in one.get("status", {}).get("conditions", ()))

    def is_late(self, one: Json) -> bool:
        made = datetime.fromisoformat(one["metadata"]["creationTimestamp"])
        return not self.is_ready(one) and (now() - made).total_seconds() > LATE_SECONDS


@family(
    "Somebody trims the rights of the operators to what an audit saw them use in a week. In that week nobody had"
    " ordered anything new of one of them: it may read what it manages, and makes none of it any more. What there"
    " is goes on, and what teams order from then on does not become ready.",
    joined=85,
)
async def pared_down_role(lab: Lab) -> AsyncIterator[None]:
    """As those tell who wrote a role from an audit log of quiet days."""
    sort, group, orders = lab.rng.choice(
        (
            ("MessageQueue", "queues.corp.example", ("returns", "receipts", "clips", "crawl", "stock")),
            ("CacheCluster", "caches.corp.example", ("sessions", "quotes", "covers", "terms", "prices")),
            ("ObjectBucket", "buckets.corp.example", ("invoices", "exports", "originals", "dumps", "images")),
        )
    )
    name, by, other = f"{sort.lower()}-operator", lab.rng.choice((*TEAMS, "flux")), f"{group.split('.')[0]}-exporter"
    lost, minor = lab.rng.choice(("secrets", "services")), lab.rng.randrange(2, 30)
    kind = await lab.custom(sort, group, ANY)
    operator, places = _Operator(name, kind), lab.rng.sample(sorted(APPS), 4)
    await lab.served(kind)

    async def order(by: str, namespace: str, what: str) -> None:
        meta, spec = {"namespace": namespace, "name": what}, {"size": lab.rng.choice(("small", "medium"))}
        await lab.apply({"apiVersion": f"{group}/v1", "kind": sort, "metadata": meta, "spec": spec}, by=by)

    own = (group, kind.plural, "get,list,watch,patch")
    rules = (own, ("", "services", "*"), ("", "secrets", "*"), ("", "events", "create,patch"))
    await lab.controller(HOME, name, every(1.5, operator.look), *rules, replicas=1, tag=f"1.{minor}.0")
    asking = every(3, getting(kind.path(), f"{path('Pod', HOME)}?limit=20"))
    reads = ((group, kind.plural, "*"), ("", "pods,services", "*"))
    await lab.controller(HOME, other, asking, *reads, replicas=1, tag="0.9.2")
    for place, what in zip(places[:3], orders, strict=False):
        await order("admin", place, what)
    await rolled(lab, HOME, name, f"1.{minor}.0")
    await rolled(lab, HOME, other, "0.9.2")
    late = lambda: any(map(operator.is_late, lab.world[sort].values()))  # noqa: E731
    lab.alert(f"{sort}NotReady", late, f"a {sort} has not become ready for a while", 3, namespace=HOME, service=name)
    await lab.until(lambda: all(map(operator.is_ready, lab.world[sort].values())))
    await lab.until(lab.is_well)

    async def trim(one: str, *kept: tuple[str, str, str], is_culprit: bool = False) -> None:
        body = {"rules": objects.cluster_role(one, *kept)["rules"]}
        if is_culprit:
            await lab.culprit(by, "update", "ClusterRole", "", one, body)
        else:
            await lab.edit(by, "ClusterRole", "", one, body)

    async def day() -> None:
        """Two teams order something, each what it needs."""
        for place, what in ((places[3], orders[3]), (places[0], orders[4])):
            await lab.pause(lab.rng.uniform(4, 9))
            await order(lab.rng.choice(("ci", "argocd", *TEAMS)), place, what)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), HOME, name, f"1.{minor}.1")
    await lab.pause(lab.rng.uniform(4, 8))
    await trim(other, (group, kind.plural, "get,list,watch"), ("", "pods,services", "get,list,watch"))
    await lab.pause(lab.rng.uniform(1, 3))
    kept = [(where, what, "get,list,watch" if what == lost else verbs) for where, what, verbs in rules]
    await trim(name, *kept, is_culprit=True)
    lab.start(day())


FILES, INPUTS, PATIENCE = 150, 4, 14.0
"""Log files of a node for which an agent wants to know of which pod they are, how many of them it reads at once, and
how long it may take for that until it answers its liveness probe."""


@dataclass
class _Agents:
    """An agent on each node that adds to each line of a log of which pod it is."""

    new: str
    known: Counter[str]
    """Of how many files each knows it, by uid of its pod."""

    async def run(self, process: Process) -> None:
        """The old ones ask for their node's pods once; the new ones list all pods for each file that they open."""
        pod = process.see().pod
        if process.tag != self.new:
            self.known[uid_of(pod)] = FILES
            await informer(f"{path('Pod')}?fieldSelector=spec.nodeName={pod['spec']['nodeName']}")(process)
        self.known[uid_of(pod)] = 0
        await asyncio.gather(*(self._read(process, uid_of(pod)) for _ in range(INPUTS)))
        await informer(path("Pod"))(process)

    async def _read(self, process: Process, uid: str) -> None:
        while self.known[uid] < FILES:
            if (await process.api.call("GET", path("Pod"))).ok:
                self.known[uid] += 1
            await asyncio.sleep(process.rng.uniform(0.2, 0.5))

    def check(self, container: Container) -> Problem | None:
        if self.known[uid_of(container.pod)] >= FILES:
            return None
        kind = "killed" if container.seconds > PATIENCE else "unready"
        return Problem(kind, "probe failed: dial tcp :8080: connect: connection refused", at_once=True)


@family(
    "An agent for logs on every node gets its next version, on all nodes at once. It lists all pods of the cluster as"
    " it starts, for each file that it finds, where the old one asked for those of its own node: what controllers may"
    " ask of the API server together is used up by it, and others are refused with 429.",
    flags=("--max-requests-inflight=80", "--max-mutating-requests-inflight=40"),
    joined=85,
)
async def every_pod_at_start(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose collector's filter had lost its field selector."""
    agent, old, new = lab.rng.choice(
        (("log-agent", "3.1.9", "4.0.0"), ("fluent-bit", "3.2.10", "4.1.1"), ("log-collector", "0.46.1", "0.47.0"))
    )
    by, place, agents = lab.rng.choice(("argocd", "flux", "ci", "bob")), ("monitoring", agent), _Agents(new, Counter())
    others = lab.rng.sample(("dns-sync", "quota-reporter", "backup-planner", "cost-exporter"), 2)
    rule = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
    groups = (f"system:serviceaccounts:{one}" for one in (HOME, "monitoring"))
    subjects = [{"kind": "Group", "group": {"name": one}} for one in groups]
    spec = {
        "priorityLevelConfiguration": {"name": "in-cluster-tools"},
        "matchingPrecedence": 800,
        "distinguisherMethod": {"type": "ByUser"},
        "rules": [{"subjects": subjects, "resourceRules": [rule]}],
    }
    shares = {"nominalConcurrencyShares": 4, "lendablePercent": 0, "borrowingLimitPercent": 0}
    meta = {"metadata": {"name": "in-cluster-tools"}}
    await lab.apply({"kind": "PriorityLevelConfiguration", **meta, **level(shares, {"type": "Reject"})})
    await lab.apply({"kind": "FlowSchema", **meta, "spec": spec})

    async def sync(process: Process) -> None:
        """What each namespace has; what is refused is asked for again, a few times."""
        for namespace in APPS:
            for _ in range(3):
                done = await process.api.call("GET", f"{path('ConfigMap', namespace)}?limit=10")
                if done.status != 429:
                    break
                await asyncio.sleep(0.2)

    images = []
    for one in others:
        made = await lab.controller(
            HOME, one, every(1.0, sync), ("", "configmaps", "get,list"), replicas=2, tag="1.4.0"
        )
        images.append(made.image)
    app = await lab.controller(*place, agents.run, ("", "pods,namespaces", "get,list,watch"), kind="DaemonSet", tag=old)
    app.check = agents.check
    at_once = {"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": "100%"}}}}
    await lab.edit("admin", "DaemonSet", *place, at_once)
    await rolled(lab, *place, old)
    refused = [lab.refused(one, 429) for one in images]
    fails = lab.rate(lambda: sum(one() for one in refused), 2.0, seconds=6)
    summary = "requests of controllers to the API server are rejected"
    lab.alert("ControllerRequestsRejected", fails, summary, 5, namespace=HOME)
    holds = lambda: lacking(lab.world, *place)  # noqa: E731
    summary = f"the rollout of {'/'.join(place)} has not been through for a while"
    lab.alert("KubeDaemonSetRolloutStuck", holds, summary, 15, namespace=place[0], daemonset=agent)
    await lab.until(lab.is_well)
    yield
    await lab.roll("ci", HOME, others[0], "1.4.1")
    await lab.pause(lab.rng.uniform(4, 9))
    there = lab.world["DaemonSet"][place]["spec"]["template"]["spec"]["containers"][0]
    image = f"{there['image'].rsplit(':', 1)[0]}:{new}"
    body = {"spec": {"template": {"spec": {"containers": [{**there, "image": image}]}}}}
    await lab.culprit(by, "update", "DaemonSet", *place, body)
    await lab.pause(lab.rng.uniform(1, 4))
    await lab.roll("argocd", HOME, others[1], "1.4.1")
