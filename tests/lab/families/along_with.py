"""What is deleted along with what was meant: bindings that are in no namespace, a kind and all that was made by it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tests.lab import objects
from tests.lab.alerts import lacking
from tests.lab.api import Json, Kind, now, path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.network import backends, unserved
from tests.lab.programs import every, tell
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

TUNNEL = ("kube-system", "konnectivity-server")
AGENT = ("kube-system", "konnectivity-agent")
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
RENEWED = timedelta(seconds=7)
"""For how long an agent is taken for who it is; then it has to show its token again."""
OLD_PART = "app.kubernetes.io/managed-by"
RELEASE, LEGACY = "helm.toolkit.fluxcd.io", "helm.fluxcd.io"
"""Groups of the same kind, of the second and of the first version of what installs charts."""
FINALIZER = "finalizers.fluxcd.io"
CHARTED = ("Service", "Deployment", "ConfigMap")
"""What a chart makes, all of it by the name of its release."""


@dataclass
class _Tunnel:
    """By which the API server, which is elsewhere, reaches what runs on the nodes: agents connect to it."""

    tokens: dict[str, str] = field(default_factory=dict)
    known: dict[str, datetime] = field(default_factory=dict)
    """Agents by name, and when their token was last found to be one."""

    async def connect(self, process: Process) -> None:
        """As an agent."""
        self.tokens[process.see().pod["metadata"]["name"]] = process.api.token

    async def review(self, process: Process) -> None:
        """As the server: it asks whose token that is."""
        for name, token in list(self.tokens.items()):
            done = await process.api.call("POST", REVIEWS, {"spec": {"token": token}})
            if done.ok and done.body["status"].get("authenticated"):
                self.known[name] = now()

    def is_connected(self, name: str) -> bool:
        return name in self.known and now() - self.known[name] < RENEWED

    def leads_anywhere(self) -> bool:
        return any(self.is_connected(name) for name in self.known)

    def apart(self, container: Container) -> Problem | None:
        if container.seconds < 5 or self.is_connected(container.pod["metadata"]["name"]):
            return None
        return Problem("unready", "probe failed: HTTP probe failed with statuscode: 500")


async def _wave(lab: Lab, number: int) -> str:
    """A namespace with a few things, to try something out. Raises RefusedError."""
    namespace = f"wave-{number}"
    await lab.namespace(namespace)
    await lab.apply(objects.config_map(namespace, "cases", LOAD="200", MINUTES="30"))
    await lab.apply(objects.binding("reader", "view", namespace, "default", within=namespace))
    await lab.apply(objects.deployment(namespace, "load", f"registry.corp.example/{namespace}/load:1.0.0"))
    return namespace


async def _clean_up(lab: Lab, by: str, namespace: str) -> None:
    """Delete all of some kinds there, one after another. Raises RefusedError."""
    for kind in ("ConfigMap", "RoleBinding", "Deployment"):
        for where, name in [key for key in lab.world[kind] if key[0] == namespace]:
            if name != "kube-root-ca.crt":
                await lab.who[by].must("DELETE", path(kind, where, name))


@family(
    "Somebody cleans up the namespace of a wave of tests with a command that deletes all of some kinds in it. One of"
    " the kinds is in no namespace: a binding goes by which agents of the control plane's tunnel are known.",
    joined=26,
)
async def bindings_everywhere(lab: Lab) -> AsyncIterator[None]:
    """As PLANA tells of 14 May 2026."""
    by, tunnel = lab.rng.choice(("alice", "bob", "carol")), _Tunnel()

    async def reach(request: Json) -> str | None:
        """The API server has no other way to the webhook's pods."""
        await asyncio.sleep(0 if tunnel.leads_anywhere() else 6)
        return None

    for place, program in ((TUNNEL, tunnel.review), (AGENT, tunnel.connect)):
        await lab.apply(objects.account(*place))
        like = App("", program=every(2, program), serves=False)
        like.check = tunnel.apart if place == AGENT else like.check
        kind = "DaemonSet" if place == AGENT else "Deployment"
        await lab.app(*place, like=like, account=place[1], kind=kind, replicas=1, tag="0.31.2")
    mark = {OLD_PART: "bootstrap"}
    others = ("bench-metrics-reader", "bench-node-viewer", "registry-mirror-view")
    for name, role, account in ((TUNNEL[1], "system:auth-delegator", TUNNEL), *((one, "view", None) for one in others)):
        bound = objects.binding(name, role, *(account or ("monitoring", "default")))
        await lab.apply({**bound, "metadata": {**bound["metadata"], "labels": mark}})
    await lab.app("platform", "policy")
    webhook = Webhook(reach, service=("platform", "policy"))
    await lab.until(lambda: not lacking(lab.world, *AGENT) and backends(lab.world, "platform", "policy"))
    await webhook.start()
    lab.servers.append(webhook)
    await lab.apply(configuration("policy", webhook, seconds=4))
    summary = "agents of the control plane's tunnel are not connected"
    holds = lambda: lacking(lab.world, *AGENT)  # noqa: E731
    lab.alert("KubeDaemonSetNotReady", holds, summary, 8, namespace=AGENT[0], daemonset=AGENT[1])
    for days, number in ((28, 3), (14, 4)):
        namespace = await _wave(lab, number)
        async with before(lab, days=days):
            await lab.pause(3)
            await _clean_up(lab, by, namespace)
            await lab.pause(4)
    last = await _wave(lab, 5)
    yield
    await _clean_up(lab, by, last)
    for name in sorted((*others, TUNNEL[1])):
        if name == TUNNEL[1]:
            await lab.culprit(by, "delete", "ClusterRoleBinding", "", name)
        else:
            await lab.also("the same command deleted it", by, "delete", "ClusterRoleBinding", "", name)


@dataclass
class _Installer:
    """What installs a chart for each object of its kind, and takes it away as that one goes."""

    kind: Kind

    async def reconcile(self, process: Process) -> None:
        listed = await process.api.call("GET", self.kind.path())
        for one in listed.body.get("items", []):
            meta = one["metadata"]
            if "deletionTimestamp" in meta:
                await self._uninstall(process, {**one, "kind": self.kind.name})
            elif FINALIZER not in meta.get("finalizers", ()):
                where = self.kind.path(meta["namespace"], meta["name"])
                await process.api.call("PATCH", where, {"metadata": {"finalizers": [FINALIZER]}})

    async def _uninstall(self, process: Process, one: Json) -> None:
        """What the chart has made, and then nothing holds the object any more."""
        home, name = one["metadata"]["namespace"], one["metadata"]["name"]
        for kind in CHARTED:
            await process.api.call("DELETE", path(kind, one["spec"]["targetNamespace"], name))
        said = (
            f"Helm uninstall succeeded for release {one['spec']['targetNamespace']}/{name}.v7 with chart {name}@4.2.0"
        )
        await tell(process, one, "Normal", "UninstallSucceeded", said, by="helm-controller")
        await process.api.call("PATCH", self.kind.path(home, name), {"metadata": {"finalizers": None}})


@family(
    "Somebody updates what installs all charts, takes another chart of nearly the same name for it, sees that this is"
    " an older one, and uninstalls that: the definition of the newer one's objects goes with it, then these, and all"
    " that was installed for each of them.",
    joined=26,
)
async def wrong_chart(lab: Lab) -> AsyncIterator[None]:
    """As Cloudplane tells of its outage."""
    home, target = "flux-system", lab.rng.choice(("storefront", "console", "studio"))
    apps = {"web": ("api",), "api": ("accounts",), "accounts": ()}
    release = await lab.custom("HelmRelease", RELEASE, ANY)
    installer = _Installer(release)
    await lab.namespace(target)
    for name, called in reversed(apps.items()):
        await lab.apply(objects.config_map(target, name, LOG_LEVEL="info"))
        like = App("", upstreams=tuple((target, one) for one in called))
        await lab.app(target, name, like=like, config=name, tag="4.2.0")
    await lab.served(release)
    for name in apps:
        mark = {"metadata": {"labels": {f"{RELEASE}/name": name, f"{RELEASE}/namespace": home}}}
        for kind in CHARTED:
            await lab.edit("admin", kind, target, name, mark)
        meta = {"namespace": home, "name": name, "finalizers": [FINALIZER]}
        spec = {"targetNamespace": target, "interval": "5m", "chart": {"spec": {"chart": name, "version": "4.2.0"}}}
        await lab.apply({"apiVersion": f"{RELEASE}/v1", "kind": "HelmRelease", "metadata": meta, "spec": spec})
    rules = (
        (RELEASE, "helmreleases", "get,list,watch,patch"),
        ("", "services,configmaps", "get,list,delete"),
        ("apps", "deployments", "get,list,delete"),
        ("", "events", "create"),
    )
    await lab.controller(home, "helm-controller", every(2, installer.reconcile), *rules, replicas=1, tag="1.4.0")
    await lab.until(lambda: all(len(backends(lab.world, target, name)) == 2 for name in apps))
    host = await publish(lab, target, "web")
    fails = lambda: bool(unserved(lab.world, host))  # noqa: E731
    instance = f"https://{host}"
    lab.alert("ProbeFailed", fails, f"{instance} is not answered", 6, job="blackbox", instance=instance)
    for name in ("web", "api"):
        lab.alert_lacking(target, name)
    yield
    by, older = "alice", f"helmreleases.{LEGACY}"
    names: Json = {
        "kind": "HelmRelease",
        "plural": "helmreleases",
        "singular": "helmrelease",
        "listKind": "HelmReleaseList",
    }
    version: Json = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": ANY}}
    defined: Json = {"group": LEGACY, "scope": "Namespaced", "names": names, "versions": [version]}
    await lab.apply({"kind": "CustomResourceDefinition", "metadata": {"name": older}, "spec": defined}, by)
    image = "registry.corp.example/flux-system/flux:1.25.4"
    await lab.apply(objects.account(home, "flux"), by)
    await lab.apply(objects.deployment(home, "flux", image, replicas=1, account="flux"), by)
    await lab.pause(lab.rng.uniform(7, 11))
    for kind, name in (("Deployment", "flux"), ("ServiceAccount", "flux")):
        await lab.who[by].must("DELETE", path(kind, home, name))
    await lab.who[by].must("DELETE", path("CustomResourceDefinition", None, older))
    await lab.culprit(by, "delete", "CustomResourceDefinition", "", f"helmreleases.{RELEASE}")
