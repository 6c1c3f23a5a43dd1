"""From node to node: what leads connections to Services there is told to do it otherwise."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Container, Process
from tests.lab.company import APPS, UPSTREAMS
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.families.passwords import restarted
from tests.lab.lab import NODES, Lab
from tests.lab.manifests import is_ready
from tests.lab.network import backends
from tests.lab.programs import both, event, informer
from tests.lab.scenario import family

PROXY, OLD, NEW = ("kube-system", "kube-proxy"), "v1.33.5", "v1.35.1"
OLDER_KERNEL, KERNEL = "4.19.315", "6.1.147"


def _settings(mode: str) -> Json:
    told = (
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1",
        "kind: KubeProxyConfiguration",
        "clusterCIDR: 10.244.0.0/16",
        "conntrack:",
        "  maxPerCore: 32768",
        f"mode: {mode}",
    )
    return {"data": {"config.conf": "\n".join(told) + "\n"}}


@dataclass
class _Proxies:
    """That of each node has begun with a mode: with a newer one, connections from nodes of an older kernel hang."""

    lab: Lab
    older: frozenset[str]
    share: float
    """Of connections from such a node that hang until they are given up."""
    begun: dict[str, float] = field(default_factory=dict)
    """When that of a node began as it does not go well there."""

    async def begin(self, process: Process) -> None:
        """What it tells of its start, and what it does from then on."""
        node = process.see().pod["spec"]["nodeName"]
        meta = {"namespace": "default", "name": node, "uid": node}
        made = event({"kind": "Node", "metadata": meta}, "Normal", "Starting", "", by="kube-proxy")
        del made["involvedObject"]["namespace"]
        await process.api.call("POST", path("Event", "default"), made)
        is_newer = "mode: iptables" not in process.config["config.conf"] or process.tag == NEW
        if is_newer and node in self.older:
            self.begun.setdefault(node, now().timestamp())
        else:
            self.begun.pop(node, None)
        await both(informer(path("Service")), informer(path("EndpointSlice")))(process)

    def hangs(self, container: Container) -> float:
        since = self.begun.get(str(container.pod["spec"].get("nodeName")), float("inf"))
        return self.share if now().timestamp() - since >= self.lab.lag else 0.0

    def waits(self, container: Container) -> float:
        return 5.0 * self.hangs(container)


@family(
    "What leads connections to Services on each node is told to work in another mode, or gets the next version, which"
    " writes its rules by newer tools. It is rolled out node by node. On nodes with an older kernel some of the"
    " connections that pods there open to Services hang until they are given up; from all others all is well.",
    joined=99,
)
async def hang_from_some_nodes(lab: Lab) -> AsyncIterator[None]:
    """As those tell who changed kube-proxy to IPVS or nftables, and of whose calls one in some timed out."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "bundle-prices", "bundle-page", "price-feed"),
            ("payments", "iban-check", "transfer-page", "iban-import"),
            ("media", "watch-next", "next-page", "next-feed"),
            ("search", "typo-fixer", "fixer-page", "typo-import"),
        )
    )
    by, by_mode = lab.rng.choice(("flux", "argocd", *TEAMS)), lab.rng.random() < 0.6
    mode, minor = lab.rng.choice(("ipvs", "nftables")), lab.rng.randrange(2, 30)
    older = frozenset(lab.rng.sample(NODES, 3))
    proxies = _Proxies(lab, older, lab.rng.uniform(0.3, 0.6))
    for node in NODES:
        await lab.kubelets.run_kernel(node, OLDER_KERNEL if node in older else KERNEL)
    await lab.apply(objects.config_map(*PROXY, **_settings("iptables")["data"]))
    rights = ("", "services,nodes", "get,list,watch"), ("discovery.k8s.io", "endpointslices", "get,list,watch")
    more: Json = {"kind": "DaemonSet", "config": PROXY[1], "hostNetwork": True}
    await lab.controller(*PROXY, proxies.begin, *rights, ("", "events", "create,patch"), tag=OLD, **more)
    await lab.edit("admin", "DaemonSet", *PROXY, {"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}}}})
    await lab.until(lambda: sum(map(is_ready, pods(lab.world, *PROXY))) == len(NODES))
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.5.0", config=other)
    await rolled(lab, namespace, other, "1.5.0")
    database, callers = f"{name}-db", [lab.apps[f"registry.corp.example/{place}"] for place in _callers()]
    await lab.app(namespace, database, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="16.4")
    like = App("", upstreams=((namespace, database),), asked=lambda: 22.0)
    await lab.app(namespace, name, like=like, replicas=4, tag=f"2.{minor}.0")
    await rolled(lab, namespace, name, f"2.{minor}.0")
    await set_before(lab, namespace, front, name)
    callers += [like, lab.apps[f"registry.corp.example/{namespace}/{front}"]]
    for app in callers:
        app.failing, app.latency, app.fails_with = proxies.hangs, proxies.waits, lambda _: "504"
    for one in (name, front):
        lab.alert_slow(namespace, one)
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 4 and lab.is_well())

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 8))
        await change_page(lab, namespace, front)

    yield
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, other, {"data": {"EVERY": "45s"}})
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"2.{minor}.1")
    await lab.pause(lab.rng.uniform(9, 14))
    if by_mode:
        await lab.culprit(by, "update", "ConfigMap", *PROXY, _settings(mode))
        await lab.pause(lab.rng.uniform(0.5, 2))
        await lab.culprit(by, "update", "DaemonSet", *PROXY, restarted())
    else:
        [there] = lab.world["DaemonSet"][PROXY]["spec"]["template"]["spec"]["containers"]
        newer = {**there, "image": f"{there['image'].rsplit(':', 1)[0]}:{NEW}"}
        body = {"spec": {"template": {"spec": {"containers": [newer]}}}}
        await lab.culprit(by, "update", "DaemonSet", *PROXY, body)
    lab.start(afterwards())


def _callers() -> list[str]:
    """Apps of the company that call others, as their images are called."""
    called = {name: home for home, names in APPS.items() for name in names}
    return [f"{called[name]}/{name}" for name in UPSTREAMS]
