"""What programs of the platform do as they start: an operator lists what it may, agents read their configuration."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import lacking, pods, restarts
from tests.lab.api import Json, Kind, now, path, stamp
from tests.lab.apps import App, Container, CrashError, Problem, Process
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.not_in_mind import TEAMS
from tests.lab.lab import Lab
from tests.lab.manifests import uid_of
from tests.lab.scenario import family

CACHES, SYNC_SECONDS = "caches.corp.example", 7.0
"""For how long an operator waits until it has listed all that it looks after."""
FURTHER = {
    "PodDisruptionBudget": "a budget, so that an upgrade of nodes does not take two at once",
    "NetworkPolicy": "a policy, so that nobody but its clients gets there",
    "HorizontalPodAutoscaler": "an autoscaler of its readers",
}
"""What a later version of the operator looks after too."""


@dataclass
class _Operator:
    """For each of its objects it keeps a ConfigMap; from a version on it also keeps an object of a further kind."""

    kind: Kind
    later: str
    further: str

    async def run(self, process: Process) -> None:
        await self._list(process, path("ConfigMap"))
        if process.tag == self.later:
            await self._list(process, path(self.further))
        while True:
            await self._look(process)
            await asyncio.sleep(1.5 * process.rng.uniform(0.9, 1.1))

    @staticmethod
    async def _list(process: Process, where: str) -> None:
        """As client-go: again, with a longer pause each time, until the time for it is up."""
        began, pause = now().timestamp(), 0.8
        while not (listed := await process.api.call("GET", where)).ok:
            if now().timestamp() - began > SYNC_SECONDS:
                message = str(listed.body.get("message"))
                raise CrashError(f"problem running manager: timed out waiting for caches to sync: {message}")
            await asyncio.sleep(pause * process.rng.uniform(0.9, 1.1))
            pause = min(pause * 1.6, 3.0)

    async def _look(self, process: Process) -> None:
        listed = await process.api.call("GET", self.kind.path())
        for one in listed.body.get("items", ()):
            namespace, name = one["metadata"]["namespace"], one["metadata"]["name"]
            if not is_kept(one):
                data = {"maxmemory": one["spec"]["memory"], "maxmemory-policy": "allkeys-lru"}
                body = objects.config_map(namespace, f"{name}-settings", **data)
                await process.api.call("POST", path("ConfigMap", namespace), body)
                ready = {"type": "Ready", "status": "True", "lastTransitionTime": f"{stamp(now())[:19]}Z"}
                await process.api.call("PATCH", self.kind.path(namespace, name), {"status": {"conditions": [ready]}})


def is_kept(one: Json) -> bool:
    """Whether the operator has said that it is done with an object."""
    return any(each["status"] == "True" for each in one.get("status", {}).get("conditions", ()))


@family(
    "An operator gets its next version by its image alone. That one looks after a further kind of objects too, which"
    " its ClusterRole says nothing of: it is forbidden to list them, waits for them until its time is up, ends, and"
    " starts anew.",
    joined=88,
)
async def right_not_granted(lab: Lab) -> AsyncIterator[None]:
    """As very many tell of *cannot list resource ... at the cluster scope*, where the role came by another way."""
    name = lab.rng.choice(("cache-operator", "redis-operator", "memstore-operator"))
    place, minor, further = ("platform", name), lab.rng.randrange(4, 40), lab.rng.choice(sorted(FURTHER))
    by, earlier, later = lab.rng.choice(("ci", "argocd", "flux", *TEAMS)), f"1.{minor}.2", f"1.{minor + 1}.0"
    kind = await lab.custom("CacheCluster", CACHES, ANY)
    await lab.served(kind)
    operator = _Operator(kind, later, further)
    rules = (CACHES, kind.plural, "get,list,watch,patch"), ("", "configmaps", "get,list,watch,create,patch")
    await lab.controller(*place, operator.run, *rules, replicas=1, tag=earlier)
    await rolled(lab, *place, earlier)

    def cache(namespace: str, one: str) -> Json:
        spec = {"members": 3, "memory": lab.rng.choice(("512mb", "1gb", "2gb"))}
        meta = {"namespace": namespace, "name": one}
        return {"apiVersion": f"{CACHES}/v1", "kind": kind.name, "metadata": meta, "spec": spec}

    for namespace, one in (("shop", "sessions"), ("payments", "rates"), ("media", "manifests")):
        await lab.apply(cache(namespace, one))
    await lab.until(lambda: len(lab.world[kind.name]) == 3 and all(map(is_kept, lab.world[kind.name].values())))
    crashes = lambda: restarts(lab.world, *place) > 2  # noqa: E731
    summary = f"containers of platform/{name} are restarted again and again"
    lab.alert("KubePodCrashLooping", crashes, summary, 3, namespace="platform", deployment=name)
    lab.alert_stuck(*place)
    waits = lambda: any(not is_kept(one) for one in lab.world[kind.name].values())  # noqa: E731
    lab.alert("CacheClusterNotReady", waits, "a CacheCluster has not been ready for a while", 12, namespace="search")
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(7, 13))
        await lab.who["ci"].call("POST", kind.path("search"), cache("search", "suggestions"))

    yield
    change = {"metadata": {"labels": {"team.corp.example/tier": lab.rng.choice(("one", "two"))}}}
    await lab.edit(lab.rng.choice(TEAMS), kind.name, "shop", "sessions", change)
    await lab.pause(lab.rng.uniform(5, 10))
    await lab.edit("flux", "ConfigMap", "search", "query", {"data": {"TIMEOUT_MS": "700"}})
    await lab.pause(lab.rng.uniform(2, 6))
    await lab.roll(by, *place, later, culprit=True)
    lab.start(afterwards())


FILE = "agent.toml"
SINK = """
[sinks.store]
type = "loki"
inputs = ["{inputs}"]
endpoint = "http://loki-gateway.monitoring"
batch.timeout_secs = {seconds}
"""
HEAD = """[sources.pods]
type = "kubernetes_logs"

[transforms.parsed]
type = "remap"
inputs = ["pods"]
source = '. = merge(., parse_json(.message) ?? {})'
"""
DROP = """
[transforms.fewer]
type = "filter"
inputs = ["parsed"]
condition = '.level != "debug"'
"""


def _written(slip: str) -> str:
    """The agent's file as it is to be from now on, with fewer lines kept, and with what somebody got wrong in it."""
    whole = f"{HEAD}{DROP}{SINK.format(inputs='fewer', seconds=5)}"
    return {
        "quote": whole.replace("condition = '", "condition = "),
        "bracket": whole.replace('inputs = ["fewer"]', 'inputs = ["fewer"'),
        "name": whole.replace('inputs = ["fewer"]', 'inputs = ["fewer_lines"]'),
        "table": whole.replace("[transforms.fewer]", "[transforms.parsed]"),
    }[slip]


def flaw(text: str) -> str:
    """Why an agent does not start with a file: it is no TOML, or a part takes its input from one that is not there."""
    try:
        told = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return f"Configuration error. error={error}"
    there = {*told.get("sources", {}), *told.get("transforms", {})}
    for sort in ("transforms", "sinks"):
        for name, one in told.get(sort, {}).items():
            for missing in (wanted for wanted in one["inputs"] if wanted not in there):
                who = f'{sort[:-1]} "{name}"'
                return f'Configuration error. error=Input "{missing}" for {who} doesn\'t match any components.'
    return ""


@dataclass
class _Agents:
    """Each reads its file as its process starts; some look whether it has changed, and start anew with it."""

    looks: bool
    had: dict[str, str] = field(default_factory=dict)

    def check(self, container: Container) -> Problem | None:
        told = container.pod.get("status", {}).get("containerStatuses", ())
        process = f"{uid_of(container.pod)} {sum(one['restartCount'] for one in told)}"
        now_there = container.config.get(FILE, "")
        text = now_there if self.looks else self.had.setdefault(process, now_there)
        why = flaw(text)
        return Problem("crash", why, at_once=True) if why else None


@family(
    "The configuration of the agent that reads the logs on every node is changed, so that fewer lines are kept, and is"
    " not what the agent can read any more. It is given to all nodes at once, as nobody waits for that agent: on each"
    " of them it ends as it starts.",
    joined=88,
)
async def log_config_unparsed(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had a check of their agent's file, for another version of it."""
    name, config = lab.rng.choice((("log-agent", "log-agent"), ("log-forwarder", "log-forwarder-config")))
    place, by = ("monitoring", name), lab.rng.choice((*TEAMS, *TEAMS, "flux", "argocd"))
    agents, slip = _Agents(lab.rng.random() < 0.4), lab.rng.choice(("quote", "bracket", "name", "table"))
    await lab.apply(
        objects.config_map("monitoring", config, **{FILE: f"{HEAD}{SINK.format(inputs='parsed', seconds=1)}"})
    )
    like = App("", serves=False, check=agents.check)
    await lab.app(*place, like=like, kind="DaemonSet", tag="0.46.1", config=config)
    at_once = {"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": "100%"}}}}
    await lab.edit("admin", "DaemonSet", *place, at_once)
    await rolled(lab, *place, "0.46.1")
    lab.reserve("monitoring", name)

    def sent() -> float:
        """Lines a second that reach the store, of all nodes."""
        there = (one.container for one in lab.kubelets.running() if one.app is like and one.problem is None)
        return sum(140.0 for one in there if agents.check(one) is None)

    told = {"namespace": "monitoring", "service": "loki-gateway"}
    lab.measure("loki_distributor_lines_received_total", lab.adding_up(sent), "counter", **told)
    crashes = lambda: restarts(lab.world, *place) > 2 * len(pods(lab.world, *place))  # noqa: E731
    summary = f"containers of monitoring/{name} are restarted again and again"
    lab.alert("KubePodCrashLooping", crashes, summary, 3, namespace="monitoring", daemonset=name)
    holds = lambda: lacking(lab.world, *place)  # noqa: E731
    summary = f"the rollout of monitoring/{name} has not been through for a while"
    lab.alert("KubeDaemonSetRolloutStuck", holds, summary, 15, namespace="monitoring", daemonset=name)
    silent = lambda: sent() < 140  # noqa: E731
    lab.alert("NoLogsReceived", silent, "hardly any line of a log has come for a while", 6, job="loki-gateway")
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 7))
        await lab.edit("flux", "ConfigMap", "media", "uploads", {"data": {"TIMEOUT_MS": "1100"}})

    yield
    there = lab.world["DaemonSet"][place]["spec"]["template"]["spec"]["containers"][0]
    more = {**there["resources"], "requests": {"cpu": "150m", "memory": "96Mi"}}
    body = {"spec": {"template": {"spec": {"containers": [{**there, "resources": more}]}}}}
    await lab.edit(lab.rng.choice(("argocd", "ci")), "DaemonSet", *place, body)
    await lab.pause(lab.rng.uniform(11, 16))
    await lab.culprit(by, "update", "ConfigMap", "monitoring", config, {"data": {FILE: _written(slip)}})
    if not agents.looks:
        await lab.pause(lab.rng.uniform(0.5, 2.5))
        at = {"kubectl.kubernetes.io/restartedAt": f"{now():%Y-%m-%dT%H:%M:%SZ}"}
        restart = {"spec": {"template": {"metadata": {"annotations": at}}}}
        why = "of the same hand, so that the agents read what they were given"
        await lab.also(why, by, "update", "DaemonSet", *place, restart)
    lab.start(afterwards())
