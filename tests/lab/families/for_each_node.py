"""On each node: what answers for names there, and what gives its pods their addresses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from hashlib import sha256

from tests.lab import objects
from tests.lab.alerts import pods, restarts
from tests.lab.api import Json
from tests.lab.apps import App, Container, Problem, mebibytes
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import NODES, Lab
from tests.lab.manifests import is_ready
from tests.lab.network import backends
from tests.lab.scenario import family

# -- names

CACHE, ADDRESS = ("kube-system", "node-local-dns"), "169.254.20.10"
CACHED = f"""cluster.local:53 {{
    errors
    cache {{
        success 9984 30
        denial 9984 5
    }}
    reload
    loop
    bind {ADDRESS}
    forward . __PILLAR__CLUSTER__DNS__ {{
        force_tcp
    }}
    prometheus :9253
    health {ADDRESS}:8080
}}
.:53 {{
    errors
    cache 30
    reload
    loop
    bind {ADDRESS}
    forward . __PILLAR__UPSTREAM__SERVERS__
    prometheus :9253
}}
"""
FILLS_SECONDS, LOST = 5.0, 0.7
"""Until a cache has what its node asks for, and the share of requests that need a name which is not known yet."""


@dataclass
class _Caches:
    """That of each node: what it needs of memory goes with what the pods there ask for."""

    lab: Lab
    need: dict[str, float]
    """In MiB, by node."""

    def check(self, container: Container) -> Problem | None:
        limit = container.spec["resources"]["limits"]["memory"]
        need = self.need[str(container.pod["spec"].get("nodeName"))]
        is_over = need > mebibytes(limit) and container.seconds >= FILLS_SECONDS
        return Problem("oom", f"needs {need:.0f}Mi, may have {limit}") if is_over else None

    def failing(self, container: Container) -> float:
        """One that was killed has left its address behind, at which nobody answers; one that ends takes it along."""
        node = container.pod["spec"].get("nodeName")
        there = [one for one in pods(self.lab.world, *CACHE) if one["spec"].get("nodeName") == node]
        is_silent = any(not is_ready(one) and _was_killed(one) for one in there)
        return LOST if is_silent else 0.0

    def memory(self, node: str) -> float:
        there = [one for one in pods(self.lab.world, *CACHE) if one["spec"].get("nodeName") == node and is_ready(one)]
        return self.need[node] * 2**20 if there else 0.0


def _was_killed(pod: Json) -> bool:
    return any(one["restartCount"] for one in pod.get("status", {}).get("containerStatuses", ()))


def _cache(memory: str) -> Json:
    home, name = CACHE
    image = f"registry.corp.example/{home}/{name}:1.26.4"
    more: Json = {"hostNetwork": True, "dnsPolicy": "Default", "priorityClassName": "system-node-critical"}
    made = objects.deployment(home, name, image, kind="DaemonSet", config=name, **more)
    [container] = made["spec"]["template"]["spec"]["containers"]
    container["args"] = ["-localip", ADDRESS, "-conf", "/etc/config/Corefile", "-upstreamsvc", "kube-dns"]
    container["resources"] = {"requests": {"cpu": "25m", "memory": "16Mi"}, "limits": {"memory": memory}}
    return made


@family(
    "What answers for names on each node may have less memory, in a tidying up of what agents ask for. On nodes whose"
    " pods ask much it is killed for it again and again, and leaves its address behind: pods there ask it for names,"
    " and get no answer.",
    joined=95,
)
async def cache_of_each_node(lab: Lab) -> AsyncIterator[None]:
    """As the issues of node-local-dns tell of those that were killed for their memory."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "loyalty-api", "loyalty-page"),
            ("payments", "mandates", "mandate-form"),
            ("media", "lyrics", "lyrics-page"),
            ("search", "spellings", "hints-page"),
        )
    )
    by, minor, limit = lab.rng.choice(("flux", "argocd", *TEAMS)), lab.rng.randrange(2, 30), lab.rng.choice((32, 40))
    busy = lab.rng.sample(NODES, 3)
    need = {node: lab.rng.uniform(46, 80) if node in busy else lab.rng.uniform(17, 26) for node in NODES}
    caches = _Caches(lab, need)
    image = f"registry.corp.example/{CACHE[0]}/{CACHE[1]}"
    lab.apps[image] = App(image, memory_mi=16, serves=False, check=caches.check)
    await lab.apply(objects.config_map(*CACHE, Corefile=CACHED))
    await lab.apply(_cache("128Mi"))
    await rolled(lab, *CACHE, "1.26.4")
    database = f"{name}-db"
    await lab.app(namespace, database, like=App("", serves=False), replicas=1, tag="16.6")
    await rolled(lab, namespace, database, "16.6")
    like = App("", upstreams=((namespace, database),), asked=lambda: 21.0)
    await lab.app(namespace, name, like=like, replicas=4, tag=f"3.{minor}.0")
    await rolled(lab, namespace, name, f"3.{minor}.0")
    await set_before(lab, namespace, front, name)
    for app in lab.apps.values():
        if app.upstreams and app.serves:
            app.failing = caches.failing
    for node in NODES:
        told = {"namespace": "monitoring", "service": "node-agent", "container": CACHE[1], "node": node}
        lab.measure("container_memory_working_set_bytes", partial(caches.memory, node), **told)
    many = lambda: restarts(lab.world, *CACHE) >= 4  # noqa: E731
    summary = "containers of kube-system/node-local-dns restart again and again"
    lab.alert("KubePodCrashLooping", many, summary, 6, namespace=CACHE[0], container=CACHE[1])
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(5, 10))
        await change_page(lab, namespace, front)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"3.{minor}.1")
    await lab.pause(lab.rng.uniform(6, 10))
    await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, front, {"data": {"PAGE_SIZE": "30"}})
    await lab.pause(lab.rng.uniform(4, 8))
    containers = _cache(f"{limit}Mi")["spec"]["template"]["spec"]["containers"]
    body = {"spec": {"template": {"spec": {"containers": containers}}}}
    await lab.culprit(by, "update", "DaemonSet", *CACHE, body)
    lab.start(afterwards())


# -- addresses

PLUGIN, CONFIGS, ZONE = ("kube-system", "aws-node"), "crd.k8s.amazonaws.com", "topology.kubernetes.io/zone"
NO_ADDRESS = 'plugin type="aws-cni" name="aws-cni" failed (add): add cmd: failed to assign an IP address to container'
BEFORE: dict[str, str] = {
    "AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG": "false",
    "AWS_VPC_K8S_CNI_LOGLEVEL": "DEBUG",
    "ENABLE_PREFIX_DELEGATION": "false",
    "WARM_ENI_TARGET": "1",
}
AFTER = {**BEFORE, "AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG": "true", "ENI_CONFIG_LABEL_DEF": ZONE}


@dataclass
class _Plugin:
    """The network's plugin on each node, which takes pods' addresses from the subnet that is declared for its zone."""

    lab: Lab
    zones: dict[str, str]
    declared: set[str]

    def _process(self, node: str) -> Json | None:
        there = [one for one in pods(self.lab.world, *PLUGIN) if one["spec"].get("nodeName") == node and is_ready(one)]
        return there[0] if there else None

    def is_without(self, node: str) -> bool:
        """Whether it looks for what is declared for its zone, and nothing is."""
        process = self._process(node)
        given = process["spec"]["containers"][0].get("env", ()) if process else ()
        looks = any(one["name"] == "ENI_CONFIG_LABEL_DEF" for one in given)
        return looks and self.zones[node] not in self.declared

    def refusal(self, node: str, pod: Json) -> str:
        if pod["spec"].get("hostNetwork") or "deletionTimestamp" in pod["metadata"] or not self.is_without(node):
            return ""
        sandbox = sha256(pod["metadata"]["uid"].encode()).hexdigest()
        return f'rpc error: code = Unknown desc = failed to setup network for sandbox "{sandbox}": {NO_ADDRESS}'

    def free(self, node: str) -> float:
        """Addresses that it has ready for further pods."""
        return 0.0 if self.is_without(node) else 14.0


def _plugin(tag: str, told: dict[str, str]) -> Json:
    home, name = PLUGIN
    more: Json = {"hostNetwork": True, "priorityClassName": "system-node-critical"}
    env = [{"name": key, "value": value} for key, value in told.items()]
    made = objects.deployment(
        home, name, f"registry.corp.example/{home}/{name}:{tag}", kind="DaemonSet", env=env, **more
    )
    made["spec"]["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "34%"}}
    return made


def _spread(name: str) -> list[Json]:
    """Over all nodes, as far as there is room."""
    where = {"topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    return [{"maxSkew": 1, **where, "labelSelector": {"matchLabels": {"app.kubernetes.io/name": name}}}]


def _alert_waiting(lab: Lab, namespace: str, name: str) -> None:
    def waits() -> bool:
        there = pods(lab.world, namespace, name)
        return any(one["spec"].get("nodeName") and "podIP" not in one.get("status", {}) for one in there)

    summary = f"a container of {namespace}/{name} has been waiting for a while"
    lab.alert("KubeContainerWaiting", waits, summary, 12, namespace=namespace, deployment=name)
    lab.alert_stuck(namespace, name)
    lab.alert_lacking(namespace, name, seconds=12)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)


@family(
    "The network's plugin is told to give pods addresses of subnets of their own, one for each zone. For one zone none"
    " is declared: what runs there goes on, and whatever is started there gets no address.",
    joined=95,
)
async def no_config_for_a_zone(lab: Lab) -> AsyncIterator[None]:
    """As those tell who turned custom networking on, and had machines in a third zone."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "bundles", "bundle-page", "bundle-feed"),
            ("payments", "direct-debits", "debit-form", "debit-export"),
            ("media", "artwork", "artwork-page", "artwork-sync"),
            ("search", "facets", "facet-page", "facet-log"),
        )
    )
    by, minor, is_release = lab.rng.choice(("flux", "ci", *TEAMS)), lab.rng.randrange(2, 30), lab.rng.random() < 0.6
    names, nodes = [f"eu-west-1{letter}" for letter in "abc"], lab.rng.sample(NODES, len(NODES))
    zones = {node: names[turn % 3] for turn, node in enumerate(nodes)}
    plugin, image = _Plugin(lab, zones, set(names[:2])), f"registry.corp.example/{PLUGIN[0]}/{PLUGIN[1]}"
    later = "v1.20.2" if lab.rng.random() < 0.5 else "v1.20.1"
    kind = await lab.custom("ENIConfig", CONFIGS, ANY, namespaced=False)
    await lab.served(kind)
    for node, zone in zones.items():
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": {ZONE: zone}}})
    lab.apps[image] = App(image, serves=False)
    await lab.apply(_plugin("v1.20.1", BEFORE))
    await rolled(lab, *PLUGIN, "v1.20.1")
    lab.outside.unplugged = plugin.refusal
    like = App("", asked=lambda: 24.0)
    await lab.app(namespace, name, like=like, replicas=6, tag=f"4.{minor}.0", topologySpreadConstraints=_spread(name))
    await rolled(lab, namespace, name, f"4.{minor}.0")
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.7.2", config=other)
    await rolled(lab, namespace, other, "1.7.2")
    await set_before(lab, namespace, front, name)
    for node in NODES:
        told = {"namespace": "monitoring", "service": "node-agent", "node": node}
        lab.measure("awscni_available_ip_addresses", partial(plugin.free, node), **told)

    _alert_waiting(lab, namespace, name)
    await lab.until(lambda: lab.is_well() and len(backends(lab.world, namespace, name)) == 6)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(7, 13))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, other, {"data": {"EVERY": "45s"}})
        await lab.pause(lab.rng.uniform(3, 7))
        if is_release:
            await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"4.{minor}.1")
        else:
            await lab.edit(lab.rng.choice(TEAMS), "Deployment", namespace, name, {"spec": {"replicas": 12}})
        await lab.pause(lab.rng.uniform(3, 7))
        await change_page(lab, namespace, front)

    yield
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(5, 9))
    for zone in names[:2]:
        spec = {"subnet": f"subnet-0{lab.rng.getrandbits(64):016x}", "securityGroups": ["sg-0a1b2c3d4e5f60718"]}
        body = {"apiVersion": f"{CONFIGS}/v1", "kind": kind.name, "metadata": {"name": zone}, "spec": spec}
        await lab.who[by].must("POST", kind.path(), body)
    await lab.pause(lab.rng.uniform(2, 5))
    wanted = _plugin(later, AFTER)["spec"]["template"]["spec"]["containers"]
    body = {"spec": {"template": {"spec": {"containers": wanted}}}}
    await lab.culprit(by, "update", "DaemonSet", *PLUGIN, body)
    lab.start(afterwards())
