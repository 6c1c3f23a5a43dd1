"""What a cluster asks of what is to run in it: a rule that is kept, figures, a version of its API, a node for each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab.alerts import pending, restarts
from tests.lab.api import Json, path
from tests.lab.apps import App, CrashError, Process
from tests.lab.company import APPS
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import NODES, Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

CHECKED = "policies.corp.example/checked"
"""The label of the namespaces whose pods the policy server is asked about."""
LIVENESS: Json = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 5}


def _broken(rule: str, pod: Json) -> str:
    """Why a pod does not meet a rule; "" where it does."""
    containers, labels = pod["spec"]["containers"], pod["metadata"].get("labels", {})
    first = containers[0]["name"]
    if rule == "pods-have-owner" and "owner" not in labels:
        return "the following mandatory labels are missing: owner"
    if rule == "processor-limits" and any("cpu" not in one["resources"].get("limits", {}) for one in containers):
        return f"container '{first}' does not have a cpu limit"
    if rule == "liveness-probes" and any("livenessProbe" not in one for one in containers):
        return f"container '{first}' has no livenessProbe"
    return ""


def _meets_all(lab: Lab, namespace: str, name: str, tag: str) -> Json:
    """A release of an app by which its pods meet every one of the rules."""
    there = lab.world["Deployment"][namespace, name]["spec"]["template"]["spec"]["containers"][0]
    resources = {**there["resources"], "limits": {**there["resources"]["limits"], "cpu": "1"}}
    image = f"{str(there['image']).rsplit(':', 1)[0]}:{tag}"
    spec = {"containers": [{**there, "image": image, "resources": resources, "livenessProbe": LIVENESS}]}
    return {"spec": {"template": {"metadata": {"labels": {"owner": f"team-{namespace}"}}, "spec": spec}}}


@family(
    "What the policy server has only written down for months is to be refused from now on, as was told to all in a"
    " mail. Some teams have done what it asks; of one that has not the next release gets no new pods.",
    joined=80,
)
async def teams_not_told(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose ReplicaSet says that an admission webhook denied the request, on the day after."""
    rule = lab.rng.choice(("pods-have-owner", "processor-limits", "liveness-probes"))
    by, deploys = lab.rng.choice(("alice", "flux", "carol")), lab.rng.choice(("ci", "argocd"))
    has_done = lab.rng.choice((("media", "playlists"), ("shop", "gift-cards"), ("search", "spelling")))
    late = lab.rng.sample([("shop", "cart"), ("payments", "ledger"), ("search", "indexer"), ("media", "uploads")], 2)
    server = ("kubewarden", "policy-server-default")

    async def review(request: Json) -> str | None:
        """Of the one rule that is kept, if it is protected."""
        if not backends(lab.world, *server):
            raise ConnectionError("no pod is behind it")
        mode = lab.world["ClusterAdmissionPolicy"]["", rule]["spec"]["mode"]
        return (_broken(rule, request["object"]) or None) if mode == "protect" else None

    policy = await lab.custom("ClusterAdmissionPolicy", "policies.kubewarden.dev", ANY, namespaced=False)
    await lab.namespace(server[0])
    await lab.app(*server, like=App("", serves=False), replicas=2, tag="1.27.0")
    await lab.served(policy)
    spec = {"mode": "monitor", "module": f"registry://registry.corp.example/policies/{rule}:v1.0.4", "mutating": False}
    await lab.apply({"kind": "ClusterAdmissionPolicy", "metadata": {"name": rule}, "spec": spec})
    await lab.app(*has_done, replicas=2, tag="4.0.0")
    await lab.until(lambda: has_done in lab.world["Deployment"])
    await lab.edit("admin", "Deployment", *has_done, _meets_all(lab, *has_done, "4.0.1"))
    await rolled(lab, *has_done, "4.0.1")
    await rolled(lab, *server, "1.27.0")
    webhook = Webhook(review, service=server)
    await webhook.start()
    lab.servers.append(webhook)
    for namespace in APPS:
        await lab.edit("admin", "Namespace", "", namespace, {"metadata": {"labels": {CHECKED: "enabled"}}})
    manifest = configuration(f"clusterwide-{rule}", webhook, only=CHECKED)
    manifest["webhooks"][0]["name"] = f"clusterwide-{rule}.kubewarden.admission"
    await lab.apply(manifest)
    for place in (has_done, *late):
        lab.reserve(*place)
        lab.alert_stuck(*place)
    await lab.until(lab.is_well)

    async def releases() -> None:
        for place in (has_done, *late):
            await lab.pause(lab.rng.uniform(4, 9))
            await lab.roll(deploys, *place, f"4.{lab.rng.randrange(2, 40)}.0")

    yield
    await lab.roll(deploys, *has_done, "4.0.2")
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.culprit(by, "update", "ClusterAdmissionPolicy", "", rule, {"spec": {"mode": "protect"}})
    lab.start(releases())


SHIPPER: Json = {"name": "log-shipper", "image": "registry.corp.example/platform/log-shipper:2.1.0"}
"""A sidecar as it was copied from its page: of what it needs it says nothing."""


@family(
    "Each namespace gets a quota of what its pods may ask for, with ample room. From then on each container there has"
    " to say what it asks for: a sidecar, or the container of a job, says nothing, and its next pods are refused.",
    joined=80,
)
async def no_figures_given(lab: Lab) -> AsyncIterator[None]:
    """As everybody tells who has read must specify limits.cpu for the first time."""
    namespace, other = lab.rng.sample(sorted(APPS), 2)
    name, job = {
        "shop": ("loyalty", "close-of-day"),
        "payments": ("receipts", "reconcile-accounts"),
        "search": ("trends", "rebuild-synonyms"),
        "media": ("chapters", "expire-drafts"),
    }[namespace]
    by, deploys = lab.rng.choice(("carol", "flux", "alice")), lab.rng.choice(("ci", "argocd"))
    hard: Json = {"requests.cpu": "24", "requests.memory": "64Gi"}
    hard |= lab.rng.choice(({}, {"limits.memory": "96Gi"}, {"pods": "90"}))
    is_sidecar, minor = lab.rng.random() < 0.5, lab.rng.randrange(4, 30)

    def release(tag: str, *beside: Json) -> Json:
        there = lab.world["Deployment"][namespace, name]["spec"]["template"]["spec"]["containers"]
        image = f"{str(there[0]['image']).rsplit(':', 1)[0]}:{tag}"
        containers = [{**there[0], "image": image}, *(beside or there[1:])]
        return {"spec": {"template": {"spec": {"containers": containers}}}}

    async def run(number: int) -> None:
        """The job, as each evening."""
        container = {"name": job, "image": f"registry.corp.example/{namespace}/{job}:1.4.0"}
        spec = {"backoffLimit": 2, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
        meta = {"namespace": namespace, "name": f"{job}-{number}", "labels": {"job": job}}
        await lab.apply({"kind": "Job", "metadata": meta, "spec": spec}, by=deploys)

    def waits() -> bool:
        """Whether a job has no pod, and had none."""
        return any(
            where == namespace and not any(one.get("status", {}).get(key) for key in ("active", "succeeded", "failed"))
            for (where, _), one in lab.world["Job"].items()
        )

    image = f"registry.corp.example/{namespace}/{job}"
    lab.apps[image] = App(image, ends_after=5.0, serves=False)
    await lab.app(namespace, name, replicas=3, tag=f"2.{minor}.0")
    await rolled(lab, namespace, name, f"2.{minor}.0")
    if is_sidecar:
        await lab.edit("admin", "Deployment", namespace, name, release(f"2.{minor}.1", SHIPPER))
        await rolled(lab, namespace, name, f"2.{minor}.1")
    else:
        await run(2211)
    lab.alert_stuck(namespace, name)
    summary = f"a job in {namespace} has had no pod for a while"
    lab.alert("KubeJobNotStarted", waits, summary, 8, namespace=namespace)
    await lab.until(lab.is_well)
    yield
    await lab.roll(deploys, other, APPS[other][0], "1.44.0")
    await lab.pause(lab.rng.uniform(2, 5))
    body = {"metadata": {"name": "compute"}, "spec": {"hard": hard}}
    await lab.who[by].must("POST", path("ResourceQuota", other), body)
    await lab.pause(lab.rng.uniform(1, 3))
    await lab.culprit(by, "create", "ResourceQuota", namespace, "compute", body)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(6, 14))
        if is_sidecar:
            await lab.edit(deploys, "Deployment", namespace, name, release(f"2.{minor + 1}.0"))
        else:
            await lab.edit(deploys, "Deployment", namespace, name, release(f"2.{minor}.1"))
            await lab.pause(lab.rng.uniform(2, 6))
            await run(2212)

    lab.start(afterwards())


OLDER, NEWER = "1.35.4", "1.36.3"
UPGRADER = ("kube-system", "cluster-version-operator")
SERVED_BEFORE = (
    "--runtime-config=resource.k8s.io/v1beta1=true,storage.k8s.io/v1beta1=true,networking.k8s.io/v1beta1=true"
)
"""What the older version serves besides: the API server is of one version, which is told to."""


@dataclass
class _Upgrader:
    """What brings the control plane to the version that is wished for, and then the nodes' kubelets."""

    lab: Lab
    version: str = OLDER

    async def step(self, process: Process) -> None:
        found = await process.api.call("GET", path("ClusterVersion", None, "version"))
        if not found.ok or found.body["spec"]["version"] == self.version:
            return
        self.version = found.body["spec"]["version"]
        server = self.lab.plane.apiserver
        server.command = tuple(one for one in server.command if one != SERVED_BEFORE)
        await asyncio.to_thread(server.restart)
        await asyncio.sleep(2)  # what it keeps in memory is read
        for node in NODES:
            await self.lab.kubelets.update(node, f"v{self.version}")
            await asyncio.sleep(1)
        done = {"status": {"version": self.version}}
        await process.api.call("PATCH", path("ClusterVersion", None, "version"), done)


@family(
    "The cluster is upgraded to the next version of Kubernetes, which does not serve a beta version of an API any more"
    " that has had its final one for long. A controller asks for the old one still, and ends at each start.",
    flags=(SERVED_BEFORE,),
    joined=80,
)
async def older_than_served(lab: Lab) -> AsyncIterator[None]:
    """As all tell whose controller has no matches for a kind in a version, after an upgrade that went well."""
    namespace, name, group, plural, kind = lab.rng.choice(
        (
            ("platform", "gpu-shares", "resource.k8s.io", "deviceclasses", "DeviceClass"),
            ("platform", "volume-tuner", "storage.k8s.io", "volumeattributesclasses", "VolumeAttributesClass"),
            ("platform", "service-ranges", "networking.k8s.io", "servicecidrs", "ServiceCIDR"),
        )
    )
    by, upgrader = lab.rng.choice(("carol", "alice", "flux")), _Upgrader(lab)

    async def look(process: Process) -> None:
        listed = await process.api.call("GET", f"/apis/{group}/v1beta1/{plural}")
        if listed.status == 404:
            why = f'no matches for kind "{kind}" in version "{group}/v1beta1"'
            raise CrashError(f"failed to wait for {kind} caches to sync: {why}")

    for node in NODES:
        await lab.kubelets.update(node, f"v{OLDER}")
    made = await lab.custom("ClusterVersion", "infra.corp.example", ANY, namespaced=False)
    await lab.served(made)
    body = {"spec": {"version": OLDER, "channel": "stable"}, "status": {"version": OLDER}}
    await lab.apply({"kind": "ClusterVersion", "metadata": {"name": "version"}, **body})
    rule = ("infra.corp.example", "clusterversions", "get,list,watch,patch")
    await lab.controller(*UPGRADER, every(1.0, upgrader.step), rule, replicas=1, tag="4.2.0")
    await lab.controller(namespace, name, every(2.5, look), (group, plural, "get,list,watch"), replicas=1, tag="0.8.1")
    await rolled(lab, *UPGRADER, "4.2.0")
    await rolled(lab, namespace, name, "0.8.1")
    summary = f"containers of {namespace}/{name} are restarted again and again"
    crashes = lambda: restarts(lab.world, namespace, name) > 2  # noqa: E731
    lab.alert("KubePodCrashLooping", crashes, summary, 3, namespace=namespace, deployment=name)
    await lab.until(lab.is_well)
    yield
    await lab.roll("ci", "shop", "cart", "1.44.2")
    await lab.pause(lab.rng.uniform(3, 7))
    await lab.edit("bob", "ConfigMap", "media", "uploads", {"data": {"LOG_LEVEL": lab.rng.choice(("warn", "debug"))}})
    await lab.pause(lab.rng.uniform(3, 7))
    await lab.culprit(by, "update", "ClusterVersion", "", "version", {"spec": {"version": NEWER}})


@family(
    "An app of which no two pods may be on one node is to have more pods than there are nodes, as more visitors are to"
    " come. Those beyond that find no node, and so does what a release makes.",
    joined=80,
)
async def each_apart(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose pods didn't match pod anti-affinity rules on any node."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "stock-search", "stock-page"),
            ("payments", "fraud-check", "pay-form"),
            ("media", "live-chat", "live"),
        )
    )
    by, wanted = lab.rng.choice(("alice", "bob", "argocd", "flux")), lab.rng.randrange(7, 11)
    labels = {"matchLabels": {"app.kubernetes.io/name": name}}
    apart = [{"labelSelector": labels, "topologyKey": "kubernetes.io/hostname"}]
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}}
    before = lab.rng.choice((3, 4))
    await lab.app(namespace, name, replicas=before, tag="3.1.0", affinity=affinity)
    await rolled(lab, namespace, name, "3.1.0")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == before)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="5.0.0")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    no_node = lambda: pending(lab.world, namespace)  # noqa: E731
    lab.alert("KubePodNotScheduled", no_node, f"a pod in {namespace} has no node", 15, namespace=namespace)
    lab.alert_stuck(namespace, name)
    await lab.until(lab.is_well)

    async def releases() -> None:
        await lab.pause(lab.rng.uniform(4, 9))
        await lab.roll("ci", namespace, name, "3.2.0")

    yield
    await lab.roll("ci", namespace, front, "5.0.1")
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.edit(by, "Deployment", namespace, front, {"spec": {"replicas": 3}})
    await lab.pause(lab.rng.uniform(1, 3))
    await lab.culprit(by, "update", "Deployment", namespace, name, {"spec": {"replicas": wanted}})
    lab.start(releases())
