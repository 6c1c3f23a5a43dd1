"""What an upgrade takes for old, does not take any more, or no longer installs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.api import Json, Kind, path
from tests.lab.apps import App, Container, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.moving import spare
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

KARPENTER = ("platform", "karpenter")
KNOWS_ALL, KNOWS_FEWER = "0.32.2", "0.33.0"
TYPE = "node.kubernetes.io/instance-type"
BOOT_SECONDS, LOOKS_EVERY = 7.0, 2.0
"""Until a machine is up in the place of another one, and how often those who replace them look."""
EGRESS = ("mesh-system", "zone-egress")


async def empty(process: Process, node: str) -> None:
    """Ask for the eviction of whatever no DaemonSet owns, until nothing of it is left."""
    where = f"{path('Pod')}?fieldSelector=spec.nodeName={node}"
    while rest := [
        one["metadata"]
        for one in (await process.api.call("GET", where)).body.get("items", [])
        if not any(owner["kind"] == "DaemonSet" for owner in one["metadata"].get("ownerReferences", ()))
    ]:
        for meta in rest:
            pod = {key: meta[key] for key in ("namespace", "name")}
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": pod}
            await process.api.call("POST", f"{path('Pod', *pod.values())}/eviction", body)
        await asyncio.sleep(1)


async def replaced(lab: Lab, process: Process, node: str, version: str, labels: dict[str, str]) -> None:
    """A node goes with its machine, and another machine comes in its place."""
    await process.api.call("DELETE", path("Node", None, node))
    lab.kubelets.crash(node)
    await asyncio.sleep(BOOT_SECONDS)
    await lab.kubelets.join(node, version, labels)


@family(
    "A new version of what provides nodes does not find the type of a pool's machines among those that it knows, takes"
    " all of them for drifted, and replaces them at once: apps that take their time to start are nowhere for a while.",
    joined=23,
)
async def drifted_nodes(lab: Lab) -> AsyncIterator[None]:
    """As users of Karpenter tell of the way to 0.33 (karpenter-provider-aws 5373, December 2023)."""
    namespace, name, caller = lab.rng.choice(
        (("search", "ranking", "results"), ("shop", "prices", "offers"), ("media", "subtitles", "player"))
    )
    group, pool = spare(lab, 3), {"pool": "workers"}
    by, team = lab.rng.choice(("argocd", "flux", "bob")), lab.rng.choice(("ci", "alice"))
    going: set[str] = set()

    async def give_up(process: Process, node: str) -> None:
        taints = [{"key": "karpenter.sh/disruption", "value": "disrupting", "effect": "NoSchedule"}]
        await process.api.call("PATCH", path("Node", None, node), {"spec": {"taints": taints}})
        await empty(process, node)
        await replaced(lab, process, node, "v1.36.1", {**pool, TYPE: "m7i.large"})
        going.discard(node)

    async def provide(process: Process) -> None:
        """Whatever has drifted is replaced, each on its own."""
        nodes = (await process.api.call("GET", f"{path('Node')}?labelSelector=pool=workers")).body.get("items", [])
        for one in nodes:
            meta = one["metadata"]
            has_drifted = process.tag == KNOWS_FEWER and "-flex." in meta["labels"].get(TYPE, "")
            if has_drifted and meta["name"] not in going:
                going.add(meta["name"])
                lab.start(give_up(process, meta["name"]))

    async def label(machines: str) -> None:
        for node in group:
            await lab.edit("admin", "Node", "", node, {"metadata": {"labels": {**pool, TYPE: machines}}})

    await label("m7i-flex.large")
    rules = ("", "nodes", "get,list,watch,patch,delete"), ("", "pods", "list"), ("", "pods/eviction", "create")
    general: Json = {"nodeSelector": {"pool": "general"}}
    await lab.controller(*KARPENTER, every(LOOKS_EVERY, provide), *rules, replicas=1, tag=KNOWS_ALL, **general)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", CACHE_MB="64"))
    like = App("", start_seconds=lab.rng.uniform(14, 18))
    await lab.app(namespace, name, like=like, replicas=3, config=name, nodeSelector=pool)
    await lab.app(namespace, caller, like=App("", upstreams=((namespace, name),)), replicas=2, **general)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3)
    await lab.until(lambda: len(backends(lab.world, namespace, caller)) == 2)
    await publish(lab, namespace, caller)
    lab.reserve(namespace, name)
    lab.alert_lacking(namespace, name, seconds=12)
    lab.alert_ingress_errors(namespace, namespace)
    async with before(lab, hours=22, cluster=lab.rng.choice(("eu-2", "ap-1"))) as then:
        await lab.roll(by, *KARPENTER, KNOWS_FEWER)
        await then.fires()
        await lab.until(lambda: not going)
        await then.is_well()
    await lab.roll("admin", *KARPENTER, KNOWS_ALL)
    await rolled(lab, *KARPENTER, KNOWS_ALL)
    await label("m7i-flex.large")
    yield
    await lab.edit(team, "ConfigMap", namespace, name, {"data": {"CACHE_MB": "128"}})
    await lab.pause(lab.rng.uniform(3, 5))
    await lab.roll(by, *KARPENTER, KNOWS_FEWER, culprit=True)


@family(
    "A group of machines gets a newer image, whose container runtime takes no value that is not text: what has some"
    " bytes of a Secret in its environment is not created on any new machine, and runs on the old ones until the last.",
    joined=23,
)
async def strict_runtime(lab: Lab) -> AsyncIterator[None]:
    """As the Ministry of Justice's Cloud Platform tells of 22 April 2026 (cloud-platform 8186)."""
    namespace, name, caller = lab.rng.choice(
        (("payments", "signatures", "statements"), ("media", "licences", "downloads"), ("shop", "vouchers", "basket"))
    )
    group, pool, label = spare(lab, 3), {"pool": "workers"}, "nodes.corp.example/image"
    old, new = "linux-2025.11.17", "linux-2026.04.13"
    by, team = lab.rng.choice(("carol", "flux", "argocd")), lab.rng.choice(("ci", "bob"))
    kind: Kind = await lab.custom("NodeGroup", "nodes.corp.example", ANY)

    def refusing(node: str, pod: Json) -> str:
        found = lab.world["Node"].get(("", node), {}).get("metadata", {}).get("labels", {})
        env = pod["spec"]["containers"][0].get("env", ())
        is_binary = any(one.get("valueFrom", {}).get("secretKeyRef", {}).get("name") == f"{name}-salt" for one in env)
        is_strict = is_binary and found.get(label) == new
        return "grpc: error unmarshalling request: string field contains invalid UTF-8" if is_strict else ""

    async def replace(process: Process) -> None:
        """One machine after the other that has not the image that is declared."""
        declared = await process.api.call("GET", kind.path("platform", "workers"))
        nodes = (await process.api.call("GET", f"{path('Node')}?labelSelector=pool=workers")).body.get("items", [])
        image = declared.body.get("spec", {}).get("image", "")
        for one in nodes if declared.ok else ():
            node, labels = one["metadata"]["name"], one["metadata"]["labels"]
            if labels.get(label) != image:
                await process.api.call("PATCH", path("Node", None, node), {"spec": {"unschedulable": True}})
                await empty(process, node)
                await replaced(lab, process, node, "v1.36.2", {**pool, label: image})
                return

    for node in group:
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": {**pool, label: old}}})
    await lab.served(kind)
    meta = {"namespace": "platform", "name": "workers"}
    spec = {"image": old, "maxUnavailable": 1}
    await lab.apply({"apiVersion": "nodes.corp.example/v1", "kind": "NodeGroup", "metadata": meta, "spec": spec})
    rules = (
        ("nodes.corp.example", "nodegroups", "get,list,watch"),
        ("", "nodes", "get,list,patch,delete"),
        ("", "pods", "list"),
        ("", "pods/eviction", "create"),
    )
    general: Json = {"nodeSelector": {"pool": "general"}}
    await lab.controller("platform", "node-groups", every(LOOKS_EVERY, replace), *rules, replicas=1, **general)
    salt = {"metadata": {"namespace": namespace, "name": f"{name}-salt"}, "data": {"SALT": "/5r+gACB0w=="}}
    await lab.apply({"kind": "Secret", **salt})
    lab.outside.refusing = refusing
    env = [{"name": "SALT", "valueFrom": {"secretKeyRef": {"name": f"{name}-salt", "key": "SALT"}}}]
    await lab.app(namespace, name, replicas=3, env=env, nodeSelector=pool)
    await lab.app("search", "suggestions", replicas=2, nodeSelector=pool)
    await lab.app(namespace, caller, like=App("", upstreams=((namespace, name),)), replicas=2, **general)
    await lab.until(lambda: len(backends(lab.world, namespace, caller)) == 2)
    lab.reserve(namespace, name)
    lab.alert_lacking(namespace, name, seconds=12)
    lab.alert_lacking("search", "suggestions", seconds=12)
    lab.alert_errors(namespace, caller)
    yield
    await lab.culprit(by, "update", "NodeGroup", "platform", "workers", {"spec": {"image": new}})
    await lab.pause(lab.rng.uniform(2, 3))
    await lab.roll(team, namespace, caller, "1.1.0")


@family(
    "The release of a mesh is made with a newer chart, which knows the setting for the mesh's way out by another name:"
    " as nothing asks for that any more, it is removed, and whatever goes outside through it fails.",
    joined=23,
)
async def zone_egress(lab: Lab) -> AsyncIterator[None]:
    """As those who make Kuma tell of the way to 3.0 (kuma 18332, September 2026)."""
    namespace, control_plane = EGRESS[0], "mesh-control-plane"
    places = lab.rng.sample(
        [
            ("payments", "acquiring", "api.acquirer.example"),
            ("shop", "shipping", "rates.carrier.example"),
            ("media", "captions", "speech.partner.example"),
            ("search", "translations", "api.translator.example"),
        ],
        3,
    )
    meshed, needs = places[:2], lab.rng.uniform(0.4, 0.8)

    def cut_off(_: Container) -> float:
        """What it asks a partner for leaves the cluster by the mesh's way out."""
        return 0.0 if backends(lab.world, *EGRESS) else needs

    def nobody(_: Container) -> float:
        return 0.0

    await lab.namespace(namespace)
    await lab.app(namespace, control_plane, like=App("", serves=False), tag="2.14.3")
    await lab.app(*EGRESS, like=App("", serves=False), tag="2.14.3")
    for where, name, host in places:
        is_meshed = (where, name, host) in meshed
        like = App("", abroad=(host,), failing=cut_off if is_meshed else nobody, fails_with=lambda _: "503")
        await lab.apply(objects.config_map(where, name, LOG_LEVEL="info", PARTNER_TIMEOUT_MS="2500"))
        await lab.app(where, name, like=like, replicas=2, config=name)
        lab.reserve(where, name)
        lab.alert_errors(where, name)
    await lab.until(lambda: all(backends(lab.world, where, name) for where, name, _ in places))
    await lab.until(lambda: backends(lab.world, *EGRESS))
    by, team = lab.rng.choice(("ci", "alice")), lab.rng.choice(("bob", "carol", "argocd"))
    yield
    where, name, _ = meshed[0]
    await lab.edit(team, "ConfigMap", where, name, {"data": {"PARTNER_TIMEOUT_MS": "1500"}})
    await lab.pause(lab.rng.uniform(3, 6))
    [container] = lab.world["Deployment"][namespace, control_plane]["spec"]["template"]["spec"]["containers"]
    image = f"{container['image'].rsplit(':', 1)[0]}:3.0.1"
    newer = {"spec": {"template": {"spec": {"containers": [{**container, "image": image}]}}}}
    why = "the same hand's same release"
    await lab.also(why, by, "update", "Deployment", namespace, control_plane, newer)
    await lab.culprit(by, "delete", "Deployment", *EGRESS)
    await lab.also(why, by, "delete", "Service", *EGRESS)
