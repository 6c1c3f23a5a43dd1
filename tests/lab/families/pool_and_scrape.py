"""What a platform team runs for all: the Ingresses' controller, Prometheus, agents on every node, the autoscaler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import lacking, pending, restarts
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Container, Problem, Process, mebibytes
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import LATER, Lab
from tests.lab.network import backends
from tests.lab.programs import both, every, informer, tell
from tests.lab.scenario import family

SETTINGS = ("ingress-nginx", "ingress-nginx-controller")
LARGE_HEAD_KB = 8
"""The head of an answer that sets the cookies of a session of some weeks."""


@dataclass
class _Since:
    """Whether something has been so for as long as it takes to show."""

    lab: Lab
    holds: Callable[[], bool]
    since: float = 0.0

    def __call__(self) -> bool:
        if not self.holds():
            self.since = 0.0
            return False
        self.since = self.since or now().timestamp()
        return now().timestamp() - self.since >= self.lab.lag


@family(
    "The settings of the Ingresses' controller are made the same as those of another cluster, and the room for the head"
    " of an answer is smaller there: pages whose sign-in sets large cookies are answered with 502 for some of their"
    " users.",
    joined=66,
)
async def header_buffers(lab: Lab) -> AsyncIterator[None]:
    """As very many tell of "upstream sent too big header"."""
    namespace, name, session = lab.rng.choice(
        (
            ("payments", "customer-portal", "identity"),
            ("media", "studio-app", "sessions"),
            ("shop", "my-account", "sign-in"),
        )
    )
    by, share, minor = lab.rng.choice(("alice", "carol", "flux")), lab.rng.uniform(0.12, 0.35), lab.rng.randrange(4, 20)

    def is_small() -> bool:
        data = lab.world["ConfigMap"].get(SETTINGS, {}).get("data", {})
        return int(data.get("proxy-buffer-size", "4k").removesuffix("k")) < LARGE_HEAD_KB

    shows = _Since(lab, is_small)
    buffers = {"proxy-buffer-size": "16k", "proxy-body-size": "20m", "use-forwarded-headers": "true"}
    await lab.apply(objects.config_map(*SETTINGS, **buffers))
    await lab.app(namespace, session, replicas=2, tag="3.1.4")
    await lab.until(lambda: backends(lab.world, namespace, session))
    upstreams = ((namespace, session),)
    like = App("", upstreams=upstreams, asked=lambda: 24.0, too_large=lambda _: share if shows() else 0.0)
    await lab.app(namespace, name, like=like, replicas=3, tag=f"2.{minor}.0")
    await rolled(lab, namespace, name, f"2.{minor}.0")
    await publish(lab, namespace, name)
    lab.reserve(namespace, session)
    lab.alert_ingress_errors(namespace, namespace)
    lab.alert_errors(namespace, name)
    await lab.until(lab.is_well)
    yield
    await lab.roll("ci", namespace, lab.rng.choice((name, session)), f"2.{minor}.1")
    await lab.pause(lab.rng.uniform(4, 10))
    body = {"data": {"proxy-buffer-size": "4k", "proxy-read-timeout": "60", "keep-alive-requests": "1000"}}
    await lab.culprit(by, "update", "ConfigMap", *SETTINGS, body)
    await lab.pause(lab.rng.uniform(1, 3))
    await lab.roll(lab.rng.choice(("ci", "argocd")), "search", "query", f"1.{minor + 20}.0")


MONITORS = "monitoring.coreos.com"


def _monitor(namespace: str, app: str) -> Json:
    """What Prometheus is to scrape of an app."""
    spec = {"selector": {"matchLabels": {"app": app}}, "endpoints": [{"port": "metrics", "interval": "30s"}]}
    meta = {"namespace": namespace, "name": app, "labels": {"release": "prometheus"}}
    return {"apiVersion": f"{MONITORS}/v1", "kind": "ServiceMonitor", "metadata": meta, "spec": spec}


async def _generate(process: Process) -> None:
    """What the operator makes of all monitors, and Prometheus reads."""
    found = (await process.api.call("GET", path("ServiceMonitor"))).body.get("items", [])
    jobs = sorted(f"{one['metadata']['namespace']}/{one['metadata']['name']}" for one in found)
    where, body = path("ConfigMap", "monitoring"), {"data": {"jobs": " ".join(jobs)}}
    if (await process.api.call("PATCH", f"{where}/prometheus-k8s", body)).status == 404:
        await process.api.call("POST", where, {"metadata": {"name": "prometheus-k8s"}, **body})


def _reordered(side: str, namespace: str, name: str) -> tuple[str, Json]:
    """The kind that is edited so that the labels are in order, and how."""
    if side == "service":
        labels = {"app": None, "app.kubernetes.io/name": name, "app.kubernetes.io/part-of": namespace}
        return "Service", {"metadata": {"labels": labels}}
    if side == "port":
        return "ServiceMonitor", {"spec": {"endpoints": [{"port": "http-metrics", "interval": "30s"}]}}
    return "ServiceMonitor", {"spec": {"selector": {"matchLabels": {"app": None, "app.kubernetes.io/name": name}}}}


@family(
    "Whoever keeps order in the labels changes them on one side only, and what Prometheus is to scrape does not find"
    " the Service of a worker any more: it works as ever, its series end, and the alert on their absence fires.",
    joined=66,
)
async def monitor_selector(lab: Lab) -> AsyncIterator[None]:
    """As many tell of a ServiceMonitor that selects nothing."""
    namespace, name, counter = lab.rng.choice(
        (
            ("payments", "payout-worker", "payouts_settled_total"),
            ("shop", "mail-worker", "mails_sent_total"),
            ("media", "encode-worker", "clips_encoded_total"),
        )
    )
    by, kind = lab.rng.choice(("alice", "bob", "argocd")), await lab.custom("ServiceMonitor", MONITORS, ANY)
    rate, side = lab.rng.uniform(4, 9), lab.rng.choice(("selector", "port", "service"))

    def is_scraped() -> bool:
        """Whether the monitor finds the Service, and the port in it."""
        spec = lab.world["ServiceMonitor"].get((namespace, name), {}).get("spec", {})
        service = lab.world["Service"].get((namespace, name), {})
        labels = service.get("metadata", {}).get("labels", {})
        wanted = spec.get("selector", {}).get("matchLabels", {})
        ports = {one.get("name") for one in service.get("spec", {}).get("ports", ())}
        return wanted.items() <= labels.items() and any(one["port"] in ports for one in spec.get("endpoints", ()))

    await lab.served(kind)
    rules = (MONITORS, "servicemonitors", "get,list,watch"), ("", "configmaps", "get,create,patch")
    program = both(informer(kind.path()), every(5, _generate))
    await lab.controller("monitoring", "prometheus-operator", program, *rules, replicas=1, tag="0.86.1")
    like = App("", serves=False)
    await lab.app(namespace, name, like=like, replicas=2, tag="4.4.0")
    ports = [{"name": "metrics", "port": 9090, "targetPort": 8080}]
    labelled = {"metadata": {"labels": {"app": name, "team": namespace}}, "spec": {"ports": ports}}
    await lab.edit("admin", "Service", namespace, name, labelled)
    await lab.apply(_monitor(namespace, name))
    await rolled(lab, namespace, name, "4.4.0")
    await lab.until(is_scraped)
    shows, total = _Since(lab, lambda: not is_scraped()), lab.adding_up(lambda: rate)
    lab.measure(counter, lambda: None if shows() else total(), "counter", namespace=namespace, service=name)
    summary = f"{counter} of {namespace}/{name} has been absent for a while"
    lab.alert("MetricAbsent", shows, summary, 8, namespace=namespace, job=name)
    lab.alert_lacking(namespace, name)
    await lab.until(lab.is_well)
    yield
    await lab.roll("ci", namespace, name, "4.4.1")
    await lab.pause(lab.rng.uniform(3, 8))
    edited, body = _reordered(side, namespace, name)
    await lab.culprit(by, "update", edited, namespace, name, body)
    await lab.pause(lab.rng.uniform(1, 3))
    await lab.edit("bob", "Service", "search", "query", {"metadata": {"labels": {"team": "search"}}})


def _large(namespace: str, name: str, image: str, replicas: int, cpu: str, memory: str) -> Json:
    """An app each pod of which takes much of a machine."""
    made = objects.deployment(namespace, name, image, replicas=replicas)
    asked = {"requests": {"cpu": cpu, "memory": memory}}
    made["spec"]["template"]["spec"]["containers"][0]["resources"] = asked
    return made


@family(
    "The agent that ships logs from every node is to stand the busiest hour, and its request is raised by as much: on"
    " most nodes there is no such room beside what else runs there, its new pods find no place, and the rollout ends"
    " after the first of them.",
    joined=66,
)
async def hungry_agent(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose DaemonSet has pods pending for too little cpu after a new request."""
    agent = ("monitoring", lab.rng.choice(("log-shipper", "fluent-agent", "trace-agent")))
    namespace, name = lab.rng.choice((("media", "transcoder"), ("search", "shards"), ("payments", "risk-models")))
    by, resource = lab.rng.choice(("carol", "argocd", "bob")), lab.rng.choice(("cpu", "memory"))
    image = f"registry.corp.example/{namespace}/{name}"
    lab.apps[image] = App(image)
    await lab.apply(_large(namespace, name, f"{image}:7.0.1", 5, "14300m", "59Gi"))
    await lab.apply(objects.service(namespace, name))
    await rolled(lab, namespace, name, "7.0.1")
    await lab.app(*agent, like=App("", serves=False), kind="DaemonSet", tag="3.2.0")
    await rolled(lab, *agent, "3.2.0")
    lab.reserve(namespace, name)
    summary = f"DaemonSet {'/'.join(agent)} has not had a pod ready on every node for a while"
    holds = lambda: lacking(lab.world, *agent)  # noqa: E731
    lab.alert("KubeDaemonSetRolloutStuck", holds, summary, 8, namespace=agent[0], daemonset=agent[1])
    await lab.until(lab.is_well)
    yield
    await lab.edit("ci", "ConfigMap", "media", "uploads", {"data": {"LOG_LEVEL": "warn"}})
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.roll("ci", "search", "indexer", "2.8.0")
    await lab.pause(lab.rng.uniform(2, 5))
    [there] = lab.world["DaemonSet"][agent]["spec"]["template"]["spec"]["containers"]
    asked = {"cpu": "2500m", "memory": "512Mi"} if resource == "cpu" else {"cpu": "100m", "memory": "8Gi"}
    limit = {"memory": "1Gi" if resource == "cpu" else "8Gi"}
    one = {**there, "resources": {"requests": asked, "limits": limit}}
    body = {"spec": {"template": {"spec": {"containers": [one]}}}}
    await lab.culprit(by, "update", "DaemonSet", *agent, body)


AUTOSCALER, WORKER_CPU, EACH_MESSAGES = ("kube-system", "cluster-autoscaler"), "7", 200
"""What one worker asks for, two of which a machine has room for, and how many messages there is one for."""


@dataclass
class _Autoscaler:
    """It has a machine join where a pod has no place, as long as it may."""

    lab: Lab
    told: set[str] = field(default_factory=set)
    has_joined: bool = False

    async def look(self, process: Process) -> None:
        bounds = next((one for one in process.see().spec.get("args", ()) if one.startswith("--nodes=")), "--nodes=0:0:")
        listed = await process.api.call("GET", f"{path('Pod')}?fieldSelector=status.phase%3DPending")
        nodes = (await process.api.call("GET", path("Node"))).body.get("items", [])
        waiting = [pod for pod in listed.body.get("items", []) if _has_no_place(pod)]
        if waiting and len(nodes) < int(bounds.split(":")[1]) and not self.has_joined:
            self.has_joined = True
            await self.lab.kubelets.join(LATER, "v1.36.1", {})
        for pod in waiting if not self.has_joined else ():
            if (uid := pod["metadata"]["uid"]) not in self.told:
                self.told.add(uid)
                why = "pod didn't trigger scale-up: 1 max node group size reached"
                await tell(process, {**pod, "kind": "Pod"}, "Normal", "NotTriggerScaleUp", why, by=AUTOSCALER[1])


def _has_no_place(pod: Json) -> bool:
    return any(one.get("reason") == "Unschedulable" for one in pod.get("status", {}).get("conditions", ()))


def _bounds(most: int) -> list[str]:
    """What the autoscaler is started with."""
    return ["--cloud-provider=clusterapi", f"--nodes=3:{most}:general", "--expander=least-waste"]


@family(
    "To save money the autoscaler may have no more machines than there are on a quiet morning. Later that day there is"
    " more to do, as on any day, the workers of a queue are scaled as ever, and some of them find no place.",
    joined=66,
)
async def node_ceiling(lab: Lab) -> AsyncIterator[None]:
    """As many tell of "max node group size reached"."""
    namespace, name = lab.rng.choice(
        (("media", "transcode-worker"), ("search", "crawl-worker"), ("shop", "feed-worker"))
    )
    by, scaler = lab.rng.choice(("alice", "carol", "argocd")), _Autoscaler(lab)
    most, messages, image = lab.rng.choice((9, 10, 12)), [1750.0], f"registry.corp.example/{namespace}/{name}"

    async def follow(process: Process) -> None:
        """As many workers as there is work for."""
        where = f"{path('Deployment', namespace, name)}/scale"
        there = await process.api.call("GET", where)
        wanted = max(2, round(messages[0] / EACH_MESSAGES))
        if there.ok and there.body["spec"]["replicas"] != wanted:
            await process.api.call("PATCH", where, {"spec": {"replicas": wanted}})

    async def come_in(until: float) -> None:
        """More is to be done."""
        while messages[0] < until:
            messages[0] += lab.rng.uniform(80, 160)
            await asyncio.sleep(1)

    app = lab.apps[f"registry.corp.example/{'/'.join(AUTOSCALER)}"]
    assert app.program
    app.program = both(app.program, every(1.5, scaler.look))
    await lab.apply(objects.cluster_role("cluster-autoscaler-events", ("", "events", "create,patch")))
    await lab.apply(objects.binding("cluster-autoscaler-events", "cluster-autoscaler-events", *AUTOSCALER))
    await lab.roll("admin", *AUTOSCALER, "1.36.0", args=_bounds(most))
    await rolled(lab, *AUTOSCALER, "1.36.0")
    lab.apps[image] = App(image, serves=False)
    await lab.apply(_large(namespace, name, f"{image}:3.4.0", 9, WORKER_CPU, "1Gi"))
    await rolled(lab, namespace, name, "3.4.0")
    rules = ("apps", "deployments,deployments/scale", "get,list,watch,patch")
    await lab.controller("platform", "keda-operator", every(2, follow), rules, replicas=1, tag="2.18.1")
    await rolled(lab, "platform", "keda-operator", "2.18.1")
    lab.reserve(namespace, name)
    told = {"namespace": "platform", "service": "rabbitmq", "queue": name}
    lab.measure("rabbitmq_queue_messages_ready", lambda: messages[0], **told)
    summary = f"pods in {namespace} have had no node for a while"
    lab.alert("KubePodNotScheduled", lambda: pending(lab.world, namespace), summary, 8, namespace=namespace)
    await lab.until(lab.is_well)
    yield
    await lab.roll("ci", "payments", "checkout", "1.60.0")
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.roll(by, *AUTOSCALER, "1.36.0", culprit=True, args=_bounds(6))
    await lab.pause(lab.rng.uniform(1, 4))
    await lab.roll("ci", "media", "uploads", "1.61.0")
    await lab.pause(lab.rng.uniform(4, 8))
    lab.start(come_in(lab.rng.uniform(2900, 3100)))


CACHE_MIB, FREE_RUNS = 512, 30
"""What a controller may have, and how many more objects it has room for as a recording begins."""


@family(
    "No culprit. Each run of a pipeline is an object, and nobody ever thought of deleting those that are done. The"
    " controller keeps all of them in memory: one busy day that is more than its limit, and it is killed again as often"
    " as it has listed them.",
    culprit=False,
    joined=66,
)
async def grown_cache(lab: Lab) -> AsyncIterator[None]:
    """As many tell of Tekton, Argo Workflows and others whose objects nobody prunes."""
    namespace, name, called, group = lab.rng.choice(
        (
            ("pipelines", "pipelines-controller", "PipelineRun", "tekton.dev"),
            ("workflows", "workflow-controller", "Workflow", "argoproj.io"),
            ("data", "spark-controller", "SparkApplication", "spark.apache.org"),
        )
    )
    kind, number, is_busy = await lab.custom(called, group, ANY), lab.rng.randrange(130, 190), False
    each, listener = (CACHE_MIB - 110) / (number + FREE_RUNS), f"{name.split('-')[0]}-listener"

    def used() -> float:
        return 110 + each * len(lab.world[kind.name])

    def full(container: Container) -> Problem | None:
        limit = container.spec["resources"]["limits"]["memory"]
        if container.seconds < 1.5 + lab.lag or used() <= mebibytes(limit):
            return None
        return Problem("oom", f"needs {used():.0f}Mi, may have {limit}")

    def run(process: Process | None = None) -> Json:
        drawn = (process.rng if process else lab.rng).getrandbits(40)
        spec = {"pipeline": f"build-{drawn % 12}", "params": [{"name": "revision", "value": f"{drawn:010x}"}]}
        meta = {"namespace": namespace, "name": f"build-{drawn % 12}-{drawn:010x}"}
        return {"apiVersion": f"{group}/v1", "kind": kind.name, "metadata": meta, "spec": spec}

    async def begin(process: Process) -> None:
        await process.api.call("POST", kind.path(namespace), run(process))

    async def finish(process: Process) -> None:
        """A run or two that are through since the last time."""
        found = (await process.api.call("GET", kind.path(namespace))).body.get("items", [])
        for one in [one for one in found if "status" not in one][:4]:
            done = {"status": {"phase": "Succeeded"}}
            await process.api.call("PATCH", kind.path(namespace, one["metadata"]["name"]), done)

    await lab.served(kind)
    await lab.namespace(namespace)
    for _ in range(number):
        await lab.apply({**run(), "status": {"phase": "Succeeded"}})
    rules, memory = (group, kind.plural, "*"), f"{CACHE_MIB}Mi"
    program = both(informer(kind.path()), every(2, finish))
    app = await lab.controller(namespace, name, program, rules, replicas=1, tag="1.3.2", memory=memory)
    app.check = full
    pushes = every(lambda _: 0.45 if is_busy else 7.0, begin)
    await lab.controller(namespace, listener, pushes, (group, kind.plural, "create"), replicas=1, tag="0.33.0")
    await rolled(lab, namespace, name, "1.3.2")
    told = {"namespace": namespace, "service": name, "container": name}
    measured = lambda: min(used(), CACHE_MIB) * 2**20  # noqa: E731
    lab.measure("container_memory_working_set_bytes", measured, **told)
    summary = f"a container of {namespace}/{name} is restarted again and again"
    crashes = lambda: restarts(lab.world, namespace, name) > 1  # noqa: E731
    lab.alert("KubePodCrashLooping", crashes, summary, 3, namespace=namespace, pod=name)
    await lab.until(lab.is_well)
    yield
    is_busy = True
    await lab.pause(lab.rng.uniform(2, 6))
    await lab.roll("ci", "shop", "catalog", "1.70.0")
    await lab.pause(lab.rng.uniform(2, 5))
    await lab.edit("alice", "ConfigMap", "payments", "checkout", {"data": {"TIMEOUT_MS": "850"}})
