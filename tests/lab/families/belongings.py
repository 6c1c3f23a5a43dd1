"""What belongs together and does not any more: a chart and its image, tokens and their key, Secrets and their owner."""

from __future__ import annotations

import asyncio
import base64
import subprocess
from collections.abc import AsyncIterator
from typing import Any

from tests.lab import objects
from tests.lab.alerts import lacking, pods
from tests.lab.api import Caller, Json, Kind, path
from tests.lab.apps import App, Container, Problem, Process, Program
from tests.lab.families.between import publish
from tests.lab.families.loops import LOOSE
from tests.lab.families.upgrades import CALLERS
from tests.lab.lab import NODES, Lab
from tests.lab.manifests import is_ready
from tests.lab.network import unserved
from tests.lab.programs import both, every, leading
from tests.lab.scenario import family

READ_SECONDS = 3.0
"""For so long after its start a program reads its configuration, and never again."""
ASK_SECONDS = 1.5
"""How often an agent asks what there is on its node."""


@family(
    "A hub is deployed for one more disk of a course from a working copy whose chart, a part that Git keeps apart, is"
    " two weeks old: the settings have their old names, and the image is of today and ends on them.",
    joined=14,
)
async def old_chart(lab: Lab) -> AsyncIterator[None]:
    """As Berkeley tells of its hub (March 2017, infrastructure 20)."""
    namespace, old, new, value = lab.rng.choice(
        (
            ("datahub", "singleuser.image", "singleuser.image_spec", "data8/singleuser:1a6c6d8"),
            ("courses", "auth.type", "auth.class_name", "google"),
            ("labs", "mounts.server", "mounts.shared_server", "10.0.9.12"),
        )
    )

    def check(container: Container) -> Problem | None:
        """It reads its settings as it starts."""
        if container.seconds > READ_SECONDS or new in container.config:
            return None
        return Problem("crash", f"traitlets.config.configurable.ConfigError: {new} is not set")

    settings = {"cull.timeout": "3600", "hub.db": "sqlite:///srv/hub.sqlite"}
    disks = "data8x-20170301-120000"
    await lab.namespace(namespace)
    await lab.apply(objects.config_map(namespace, "hub", **settings, **{new: value, "disks": disks}))
    await lab.app(namespace, "hub", tag="e4af695", like=App("", check=check), replicas=1, config="hub")
    recreate: Json = {"type": "Recreate", "rollingUpdate": None}
    await lab.edit("admin", "Deployment", namespace, "hub", {"spec": {"strategy": recreate}})
    host = await publish(lab, namespace, "hub")
    holds = lambda: bool(unserved(lab.world, host))  # noqa: E731
    lab.alert("ProbeFailed", holds, f"https://{host} is not answered", 8, job="blackbox", instance=f"https://{host}")
    yield
    data = {new: None, old: value, "disks": f"{disks},cogneuro88-20170307-063643"}
    await lab.culprit("ci", "update", "ConfigMap", namespace, "hub", {"data": data})
    mark = {"checksum/config": f"{lab.rng.getrandbits(64):016x}"}
    body = {"spec": {"template": {"metadata": {"annotations": mark}}}}
    await lab.culprit("ci", "update", "Deployment", namespace, "hub", body)


@family(
    "The certificates of the control plane are over after a year and are made anew, and with them the key that signs"
    " the tokens of ServiceAccounts: whoever runs, as the network's agents, goes on with one that is taken no more.",
    culprit=False,
    joined=14,
)
async def signing_key(lab: Lab) -> AsyncIterator[None]:
    """As a user of Kubernetes tells of his cluster (July 2018, kubernetes 44298)."""
    asking: dict[str, Caller] = {}

    async def agent(process: Process) -> None:
        """Who is where is forgotten where nobody tells it. Its token is the one that it was started with."""
        node = process.see().pod["spec"]["nodeName"]
        asking[node] = process.api
        while True:
            asked = await process.api.call("GET", f"{path('Pod')}?fieldSelector=spec.nodeName={node}")
            if asked.ok:
                lab.outside.cut_off.discard(node)
            elif asked.status == 401:
                lab.outside.cut_off.add(node)
            await asyncio.sleep(ASK_SECONDS * process.rng.uniform(0.9, 1.1))

    async def renew() -> None:
        """The programs of the control plane end, and start with the new files."""
        plane = lab.plane
        manager, scheduler = plane.controller_manager, plane.scheduler
        assert manager
        assert scheduler
        for program in (scheduler, manager, plane.apiserver):
            await asyncio.to_thread(program.stop)
        key = str(plane.folder / "service-accounts.key")
        made = ("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key)
        await asyncio.to_thread(subprocess.run, made, check=True, capture_output=True)
        for program in (plane.apiserver, manager, scheduler):
            await asyncio.to_thread(program.start)

    await lab.controller("kube-system", "network-agent", agent, ("", "pods", "list"), kind="DaemonSet")
    await lab.until(lambda: set(NODES) <= asking.keys())
    for place in CALLERS:
        lab.reserve(*place)
        lab.alert_lacking(*place)
    yield
    lab.start(renew())


@family(
    "An operator has moved its API to another group, and what it was declared in before is deleted: the Secrets of a"
    " search cluster belong to that still and go with it. The operator makes them anew, from another authority, and"
    " the first pod that is made anew by the next, harmless update is trusted by none of the others.",
    joined=14,
)
async def secrets_owner(lab: Lab) -> AsyncIterator[None]:
    """As a user of the OpenSearch operator tells of its version 3 (January 2026, opensearch-k8s-operator 1273)."""
    namespace, name = lab.rng.choice((("search", "products"), ("media", "archive"), ("payments", "audit")))
    before = await lab.custom("SearchCluster", "search.opster.example", LOOSE)
    after = await lab.custom("SearchEngine", "search.project.example", LOOSE)
    presented: dict[str, str] = {}

    def process(pod: Json) -> str:
        told = pod.get("status", {}).get("containerStatuses", ())
        return f"{pod['metadata']['uid']} {sum(one['restartCount'] for one in told)}"

    def check(container: Container) -> Problem | None:
        """It reads its certificate as it starts, and joins those that trust it."""
        me = presented.setdefault(process(container.pod), container.secret.get("ca.crt", ""))
        own = container.pod["metadata"]["uid"]
        ready = [one for one in pods(lab.world, namespace, name) if is_ready(one) and one["metadata"]["uid"] != own]
        others = [presented.get(process(one)) for one in ready]
        if not others or me in others:
            return None
        why = "PKIX path validation failed: Path does not chain with any of the trust anchors"
        return Problem("crash", f"javax.net.ssl.SSLHandshakeException: {why}")

    await lab.served(before, after)
    made = {}
    for kind in (before, after):  # the operator has copied the one into the other
        body: Json = {
            "apiVersion": f"{kind.group}/v1",
            "kind": kind.name,
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"version": "3.3.0", "replicas": 3},
        }
        made[kind.name] = (await lab.who["argocd"].must("POST", kind.path(namespace), body)).body
    first = _certificates(before, made[before.name], lab.rng.getrandbits(128))
    await lab.apply({"kind": "Secret", **first})
    engine: dict[str, Any] = {"kind": "StatefulSet", "tag": "3.3.0", "replicas": 3, "secret": f"{name}-certs"}
    await lab.app(namespace, name, like=App("", check=check, start_seconds=2), **engine)
    rules = (after.group, after.plural, "get,list,watch"), ("", "secrets", "get,create"), ("apps", "statefulsets", "*")
    program = both(_reconciling(after, namespace, name), leading("platform", "search-operator"))
    leases = ("coordination.k8s.io", "leases", "*")
    await lab.controller("platform", "search-operator", program, *rules, leases, replicas=1, tag="3.0.0")
    holds = lambda: lacking(lab.world, namespace, name)  # noqa: E731
    summary = f"{namespace}/{name} has not had its replicas for a while"
    lab.alert("KubeStatefulSetReplicasMismatch", holds, summary, 12, namespace=namespace, statefulset=name)
    yield

    async def update() -> None:
        """The search cluster is to be of the next version, as planned."""
        await lab.pause(lab.rng.uniform(10, 16))
        by = lab.rng.choice(("argocd", "alice"))
        await lab.edit(by, after.name, namespace, name, {"spec": {"version": "3.4.0"}})

    await lab.culprit("argocd", "delete", before.name, namespace, name)
    lab.start(update())


def _reconciling(kind: Kind, namespace: str, name: str) -> Program:
    """As the operator: certificates where there are none, and a StatefulSet of the version that is asked for."""
    workload = path("StatefulSet", namespace, name)

    async def reconcile(process: Process) -> None:
        listed = await process.api.call("GET", kind.path(namespace))
        for one in listed.body.get("items", []):
            if (await process.api.call("GET", path("Secret", namespace, f"{name}-certs"))).status == 404:
                body = _certificates(kind, one, process.rng.getrandbits(128))
                await process.api.call("POST", path("Secret", namespace), body)
            found = await process.api.call("GET", workload)
            if found.ok:
                container = found.body["spec"]["template"]["spec"]["containers"][0]
                image = f"{container['image'].rsplit(':', 1)[0]}:{one['spec']['version']}"
                if image != container["image"]:
                    body = {"spec": {"template": {"spec": {"containers": [{**container, "image": image}]}}}}
                    await process.api.call("PATCH", workload, body)

    return every(1.5, reconcile)


def _certificates(kind: Kind, owner: Json, serial: int) -> Json:
    """A Secret of a search cluster's certificates and of the authority that they are from."""
    meta = owner["metadata"]
    one = {
        "apiVersion": kind.root.removeprefix("/apis/"),
        "kind": kind.name,
        "name": meta["name"],
        "uid": meta["uid"],
        "blockOwnerDeletion": True,
    }
    authority = base64.b64encode(f"authority {serial:032x}".encode()).decode()
    about = {"namespace": meta["namespace"], "name": f"{meta['name']}-certs", "ownerReferences": [one]}
    return {"metadata": about, "data": {"ca.crt": authority}}
