"""What all share, and one has more of it than before: the ports of nodes, the API server's seats."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat

from tests.lab import objects
from tests.lab.api import Answer, Json, Kind, now, path, stamp
from tests.lab.apps import Container, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import both, every, getting, informer, lagging
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

PORTS = "30000-30045"
"""Those of nodes that Services may have, as a firewall in front lets them through."""
TENANTS = ("acme", "birch", "cobalt", "dune", "ember", "fjord", "grove", "harbor", "iris", "jade", "krill", "lumen")
ENTRIES, ENTRY = ("http", "https", "grpc", "ssh"), "tenant-entry"
"""The ports of a tenant's load balancer, and what keeps those."""
WITHOUT_PORTS, AS_USUAL = "2.6.3", "3.0.0"
"""Up to a version it says that no ports of nodes are to be given for them, as the balancer leads to pods."""
TURN_SECONDS, TRIES, AGAIN_SECONDS, THREADS = 0.7, 5, 0.3, 4


@dataclass
class _Sessions:
    """Each has a port of all nodes for as long as it lasts, by a Service; where there is none it is asked for again."""

    namespace: str
    servers: str
    each: float
    lasts: float
    ends: dict[str, float] = field(default_factory=dict)
    lately: deque[bool] = field(default_factory=lambda: deque(maxlen=16))
    refused: int = 0

    async def begin(self, process: Process) -> None:
        body = objects.service(self.namespace, self.servers)
        body["metadata"] = {"generateName": f"{self.servers}-", "labels": {"session": "open"}}
        body["spec"] |= {"type": "NodePort", "externalTrafficPolicy": "Cluster"}
        for _ in range(TRIES):
            made = await process.api.call("POST", path("Service", self.namespace), body)
            if made.ok:
                self.ends[made.body["metadata"]["name"]] = now().timestamp() + self.lasts * process.rng.uniform(
                    0.7, 1.3
                )
                break
            self.refused += 1
            await asyncio.sleep(AGAIN_SECONDS * process.rng.uniform(0.5, 1.5))
        self.lately.append(made.ok)

    async def end(self, process: Process) -> None:
        for name in [one for one, at in self.ends.items() if at < now().timestamp()]:
            await process.api.call("DELETE", path("Service", self.namespace, name))
            del self.ends[name]

    async def run(self, process: Process) -> None:
        begins = every(self.each * THREADS, self.begin)
        await both(*repeat(begins, THREADS), every(0.5, self.end))(process)

    def failing(self, _: Container) -> float:
        """Of what it is asked most is for a new session."""
        return 0.8 * self.lately.count(False) / len(self.lately) if self.lately else 0.0


async def _keep_entries(process: Process) -> None:
    """It looks at the load balancers of all tenants in turn: what a version does not say any more is as usual."""
    if process.tag == AS_USUAL:
        await lagging(process)
    listed = await process.api.call("GET", f"{path('Service', 'tenants')}?labelSelector=tenant")
    for one in listed.body.get("items", []):
        if process.tag == AS_USUAL and not one["spec"].get("allocateLoadBalancerNodePorts", True):
            body = {"spec": {"allocateLoadBalancerNodePorts": None}}
            await process.api.call("PATCH", path("Service", "tenants", one["metadata"]["name"]), body)
            await asyncio.sleep(TURN_SECONDS * process.rng.uniform(0.5, 1.5))


@family(
    "A new version of what keeps tenants' load balancers no longer says that they need no ports of nodes: each has one"
    " for each of its own then, until hardly any of the few are left. What needs one for each session is refused, tries"
    " again at once, and is louder.",
    flags=(f"--service-node-port-range={PORTS}",),
    joined=47,
)
async def ports_for_all(lab: Lab) -> AsyncIterator[None]:
    """As the documentation of Services has it: a load balancer is given ports of nodes unless it says otherwise."""
    by = lab.rng.choice(("argocd", "flux", "ci"))
    places = lab.rng.sample((("media", "live-rooms"), ("shop", "fitting-rooms"), ("search", "notebooks")), 2)
    await lab.namespace("tenants")
    await lab.app("tenants", "tenant-proxy", tag="1.31.0")
    for tenant in TENANTS:
        ports = [{"name": one, "port": 8000 + number, "targetPort": 8080} for number, one in enumerate(ENTRIES)]
        selector = {"app.kubernetes.io/name": "tenant-proxy"}
        spec: Json = {"type": "LoadBalancer", "ports": ports, "selector": selector}
        spec["allocateLoadBalancerNodePorts"] = False
        meta = {"namespace": "tenants", "name": f"{tenant}-entry", "labels": {"tenant": tenant}}
        await lab.apply({"kind": "Service", "metadata": meta, "spec": spec})
    rules = ("", "services", "get,list,patch"), ("", "services", "create,delete")
    await lab.controller("platform", ENTRY, every(1.5, _keep_entries), rules[0], replicas=1, tag=WITHOUT_PORTS)
    paces = (0.9, 13.0), (1.8, 18.0)
    for (namespace, name), (each, lasts) in zip(places, paces, strict=True):
        sessions = _Sessions(namespace, f"{name}-server", each, lasts)
        await lab.app(namespace, sessions.servers, replicas=2, tag="6.2.0")
        app = await lab.controller(namespace, name, sessions.run, rules[1], replicas=1, tag="2.3.4")
        app.serves, app.failing, app.fails_with = True, sessions.failing, lambda _: "503"
        await lab.until(partial(backends, lab.world, namespace, name))
        await publish(lab, namespace, name)
        labels = {"namespace": namespace, "service": name}
        lab.measure("sessions_refused_total", partial(getattr, sessions, "refused"), "counter", **labels)
        lab.alert_errors(namespace, name, 0.1)
        lab.alert_ingress_errors(namespace, namespace, 0.1)
    await rolled(lab, "platform", ENTRY, WITHOUT_PORTS)
    await lab.pause(12)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(1, 6))
    await lab.roll(by, "platform", ENTRY, AS_USUAL, culprit=True)


PROJECTS, LEVEL, WATCHERS = "projects.corp.example", "platform-controllers", "observability"
FEW, USUAL, MANY = 12, 10, 1000
"""Shares: of those controllers, of what observes the cluster, and what it is given."""
QUEUE: Json = {"type": "Queue", "queuing": {"queues": 32, "handSize": 2, "queueLengthLimit": 8}}
REVIEW_SECONDS, ROUND_SECONDS, OBJECTS = 0.6, 3.4, 24
STALE_SECONDS, BACK_OFF = 15.0, 1.0


def _level(name: str, shares: int) -> Json:
    """Whoever is of it has its own seats, and lends and borrows none."""
    own = {"nominalConcurrencyShares": shares, "lendablePercent": 0, "borrowingLimitPercent": 0}
    spec = {"type": "Limited", "limited": {**own, "limitResponse": QUEUE}}
    return {"kind": "PriorityLevelConfiguration", "metadata": {"name": name}, "spec": spec}


def _flows(name: str, namespace: str) -> Json:
    """Whatever runs in a namespace asks by this level, each account in a flow of its own."""
    subject = {"kind": "Group", "group": {"name": f"system:serviceaccounts:{namespace}"}}
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
    spec = {
        "priorityLevelConfiguration": {"name": name},
        "matchingPrecedence": 600,
        "distinguisherMethod": {"type": "ByUser"},
        "rules": [{"subjects": [subject], "resourceRules": [everything]}],
    }
    return {"kind": "FlowSchema", "metadata": {"name": name}, "spec": spec}


async def _patient(ask: Callable[[], Awaitable[Answer]]) -> bool:
    """As client-go: what is rejected is asked for again after a second."""
    for _ in range(TRIES):
        answer = await ask()
        if answer.status != 429:
            return answer.ok
        await asyncio.sleep(BACK_OFF)
    return False


@dataclass
class _Rounds:
    """Of one controller: it notes at each object that is its own that it has looked at it."""

    kind: Kind
    name: str
    done: float = field(default_factory=lambda: now().timestamp())

    def manifest(self, number: int, owner: str) -> Json:
        """Of an object that it looks after."""
        meta = {"namespace": "projects", "name": f"{self.name}-{number:02}", "labels": {"kept-by": self.name}}
        return {"apiVersion": f"{PROJECTS}/v1", "kind": self.kind.name, "metadata": meta, "spec": {"owner": owner}}

    async def go(self, process: Process) -> None:
        listed = await process.api.call("GET", f"{self.kind.path('projects')}?labelSelector=kept-by={self.name}")
        places = [self.kind.path("projects", one["metadata"]["name"]) for one in listed.body.get("items", [])]
        body = {"spec": {"looked": stamp(now())}}
        asked = [partial(process.api.call, "PATCH", where, body) for where in places]
        if listed.ok and all(await asyncio.gather(*map(_patient, asked))):
            self.done = now().timestamp()

    @property
    def age(self) -> float:
        return now().timestamp() - self.done


@family(
    "What observes the cluster is to have a thousand requests at once in its priority level, and is given as many"
    " shares. These are no numbers of seats: all seats are dealt by them, so every other level has a fifth of what it"
    " had, and what has always waited for a moment there is rejected.",
    joined=47,
)
async def shares_apart(lab: Lab) -> AsyncIterator[None]:
    """As the documentation of priority and fairness has it: shares are relative to those of all levels."""
    by = lab.rng.choice(("alice", "bob", "flux"))
    names = lab.rng.sample(("project-quotas", "project-access", "project-costs", "project-backups"), 3)
    for name, shares, namespace in ((LEVEL, FEW, "platform"), (WATCHERS, USUAL, "monitoring")):
        await lab.apply(_level(name, shares))
        await lab.apply(_flows(name, namespace))
    kind = await lab.custom("Project", PROJECTS, ANY)
    await lab.served(kind)
    await lab.namespace("projects")

    async def review(request: Json) -> str | None:
        """It asks the directory of the company for each."""
        if not backends(lab.world, "platform", "project-policy"):
            raise ConnectionError("no pod is behind it")
        await asyncio.sleep(REVIEW_SECONDS)
        return None if request["object"]["spec"]["owner"] else "a project has an owner"

    await lab.app("platform", "project-policy", tag="1.2.0")
    await rolled(lab, "platform", "project-policy", "1.2.0")
    guard = Webhook(review, service=("platform", "project-policy"))
    await guard.start()
    lab.servers.append(guard)
    made = configuration("project-policy", guard)
    rule = {"apiGroups": [PROJECTS], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": [kind.plural]}
    made["webhooks"][0] |= {"rules": [rule], "namespaceSelector": {}}
    await lab.apply(made)
    rejected = []
    for name in names:
        rounds = _Rounds(kind, name)
        for number in range(OBJECTS):
            await lab.apply(rounds.manifest(number, lab.rng.choice(("shop", "media", "search"))))
        right = (PROJECTS, kind.plural, "list,patch")
        app = await lab.controller("platform", name, every(ROUND_SECONDS, rounds.go), right, replicas=1, tag="3.0.1")
        rejected.append(lab.refused(app.image, 429))
        labels = {"namespace": "platform", "service": name}
        lab.measure("last_success_age_seconds", partial(getattr, rounds, "age"), namespace="platform", service=name)
        stale = partial(lambda rounds: rounds.age > STALE_SECONDS, rounds)
        lab.alert("SyncStale", stale, f"{name} has not been through for {STALE_SECONDS:g}s", 3, **labels)
    asks = both(informer(path("Pod")), every(1, getting(path("Node"), path("Deployment"))))
    await lab.controller("monitoring", "state-metrics", asks, ("*", "*", "get,list,watch"), replicas=1, tag="2.15.0")
    fails = lab.rate(lambda: sum(one() for one in rejected), 0.5, seconds=12)
    lab.alert("ControllerRequestsRejected", fails, "requests of controllers are rejected", 6, namespace="platform")
    await rolled(lab, "platform", names[-1], "3.0.1")
    await lab.pause(10)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 8))
    body = {"spec": {"limited": {"nominalConcurrencyShares": MANY}}}
    await lab.culprit(by, "update", "PriorityLevelConfiguration", "", WATCHERS, body)
