"""What was told of what nobody looks at: a certificate in memory, a number that is no longer written, a local disk."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from datetime import UTC, datetime

from tests.lab import objects
from tests.lab.alerts import pending, restarts
from tests.lab.api import Json, now, path, stamp
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.families.joining import forgetting, leaving
from tests.lab.families.moving import spare
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

GOOD_FOR_SECONDS, RENEWED_BEFORE_SECONDS = 115.0, 40.0
"""A certificate, and how long before its end an agent has another one."""
READ_SECONDS = 2.0
"""After its start a server has read its certificate."""
NOTICE_SECONDS = 8.0
"""From a cloud's notice that it takes a machine until it does."""
PROBE_LEAVES, PIDS_LIMIT = 160.0, 1024
"""Processes that nobody waits for after one run of a probe, all those of a minute; how many a pod may have."""


@family(
    "An agent renews a server's certificate in time, as ever, but the server has read it at its start and never again:"
    " when that one is over, whoever calls it trusts it no more, though a good one is beside it.",
    culprit=False,
    joined=12,
)
async def unread_certificate(lab: Lab) -> AsyncIterator[None]:
    """After the key words of "101 Ways to Break and Recover Kubernetes Cluster" (Yahoo, 2018)."""
    namespace, name = lab.rng.choice((("payments", "tokens"), ("shop", "identity"), ("media", "signer")))
    secret, callers = f"{name}-server-cert", (("shop", "basket"), ("search", "suggest"))
    served: dict[str, float] = {}  # until when what a pod has read is good, by its uid

    def issued() -> Json:
        until = now().timestamp() + GOOD_FOR_SECONDS
        return {"tls.crt": f"certificate {lab.rng.randrange(10**6)}", "not-after": f"{until}"}

    async def renew(process: Process) -> None:
        where = path("Secret", namespace, secret)
        found = await process.api.call("GET", where)
        if not found.ok:
            return
        left = float(base64.b64decode(found.body["data"]["not-after"])) - now().timestamp()
        if left < RENEWED_BEFORE_SECONDS:
            await process.api.call("PATCH", where, {"stringData": issued()})

    def read(container: Container) -> Problem | None:
        """Its own probe knows of no certificate."""
        uid = container.pod["metadata"]["uid"]
        if uid not in served or container.seconds < READ_SECONDS:
            served[uid] = float(base64.b64decode(container.secret["not-after"]))
        return None

    def check(container: Container) -> Problem | None:
        found = [served.get(pod["metadata"]["uid"], 0.0) for pod in backends(lab.world, namespace, name)]
        if not found or max(found) > now().timestamp():
            return None
        why = f"certificate has expired or is not yet valid: current time {stamp(now())[:19]}Z is after"
        refused = f"https://{name}.{namespace}: tls: failed to verify certificate: x509: {why} {over}"
        return Problem("unready", f"probe failed: HTTP probe failed with statuscode: 503 ({refused})")

    await lab.apply({"kind": "Secret", "metadata": {"namespace": namespace, "name": secret}, "stringData": issued()})
    await lab.controller("platform", "identity-agent", every(2, renew), ("", "secrets", "get,patch"), replicas=1)
    await lab.app(namespace, name, like=App("", check=read), secret=secret)
    await lab.until(lambda: len(served) == 2)
    ends = min(served.values())
    over = f"{stamp(datetime.fromtimestamp(ends, UTC))[:19]}Z"
    for where, caller in callers:
        await lab.app(where, caller, like=App("", check=check), replicas=3)
        lab.alert_lacking(where, caller)
    yield
    await lab.pause(ends - now().timestamp())


@family(
    "An autoscaler has an app's replicas, so the team no longer writes how many there are: what is not written is one,"
    " and that one, with what the autoscaler makes of it at once, does not stand the load.",
    joined=12,
)
async def replicas_unset(lab: Lab) -> AsyncIterator[None]:
    """As in "10 Ways to Shoot Yourself in the Foot with Kubernetes" (Datadog, 2019)."""
    namespace, name = lab.rng.choice((("shop", "recommend"), ("search", "facets"), ("media", "streams")))
    await lab.app(namespace, name, like=App("", capacity=50, load=220), replicas=6)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    spec = {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 12}
    meta = {"namespace": namespace, "name": name}
    await lab.apply({"kind": "HorizontalPodAutoscaler", "metadata": meta, "spec": spec})
    lab.alert_lacking(namespace, name)
    yield
    by = lab.rng.choice(("ci", "argocd", "carol"))
    await lab.culprit(by, "update", "Deployment", namespace, name, {"spec": {"replicas": None}})


@family(
    "The cloud evens its zones out and takes a machine for it: the pod of a database that has its data on a disk of"
    " that one is evicted in time, but no other node has its volume.",
    culprit=False,
    joined=12,
)
async def local_volume(lab: Lab) -> AsyncIterator[None]:
    """As in "10 Ways to Shoot Yourself in the Foot with Kubernetes" (Datadog, 2019), after its key words."""
    namespace, name = lab.rng.choice((("search", "documents"), ("shop", "sessions"), ("media", "timelines")))
    homes = spare(lab, 3)
    taken, told = lab.rng.choice(homes), set[str]()
    provisioner = "kubernetes.io/no-provisioner"
    meta = {"name": "local-ssd"}
    wait = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
    await lab.apply({"kind": "StorageClass", "metadata": meta, **wait})
    for node in homes:
        here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        spec = {
            "capacity": {"storage": "300Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local-ssd",
            "local": {"path": "/mnt/disks/ssd0"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        }
        await lab.apply({"kind": "PersistentVolume", "metadata": {"name": f"local-ssd-{node}"}, "spec": spec})
    image = f"registry.corp.example/{namespace}/{name}"
    lab.apps[image] = App(image)
    mount: Json = {"name": "data", "mountPath": "/var/lib/data"}
    body = objects.deployment(namespace, name, f"{image}:4.1.0", kind="StatefulSet", replicas=3)
    body["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = [mount]
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local-ssd",
        "resources": {"requests": {"storage": "300Gi"}},
    }
    body["spec"] |= {"serviceName": name, "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}]}
    await lab.apply(objects.service(namespace, name))
    await lab.apply(body)
    rules = ("", "nodes", "get,list,patch"), ("", "pods", "get,list"), ("", "pods/eviction", "create")
    await lab.controller("kube-system", "node-termination-handler", leaving(told), *rules, kind="DaemonSet")
    program, may = forgetting(lambda: told & lab.outside.dead_nodes), ("", "nodes", "get,list,delete")
    await lab.controller("kube-system", "cloud-controller-manager", program, may, replicas=1)
    summary = f"a pod of {namespace} has had no node for a while"
    lab.alert("KubePodPending", lambda: pending(lab.world, namespace), summary, 12, namespace=namespace)

    async def take() -> None:
        told.add(taken)
        await asyncio.sleep(NOTICE_SECONDS)
        lab.kubelets.crash(taken)

    yield
    lab.start(take())


@family(
    "A release asks for its readiness by a command in the container, for a check that goes deeper: what the command"
    " leaves behind nobody waits for, and after a while the pod may have no further process: its program ends.",
    joined=12,
)
async def zombie_probe(lab: Lab) -> AsyncIterator[None]:
    """As in "10 Ways to Shoot Yourself in the Foot with Kubernetes" (Datadog, 2019)."""
    namespace, name = lab.rng.choice((("search", "shards"), ("payments", "queue"), ("media", "cache")))

    def check(container: Container) -> Problem | None:
        """Its first process is the program, which reaps nobody; all that is left is gone once it is started anew."""
        probe = container.spec.get("readinessProbe", {})
        left = PROBE_LEAVES * container.seconds / probe.get("periodSeconds", 10)
        if "exec" not in probe or left < PIDS_LIMIT:
            return None
        return Problem("crash", "runtime: failed to create new OS thread (have 14 already; errno=11)")

    await lab.app(namespace, name, tag="3.2.0", like=App("", check=check), replicas=4)
    crashing = lambda: restarts(lab.world, namespace, name) >= 3  # noqa: E731
    lab.alert("KubePodRestarting", crashing, f"pods of {name} restart", 2, namespace=namespace, deployment=name)
    yield
    line = lab.rng.choice(("/opt/bin/check --deep", "/app/health.sh", "curl -sf localhost:8080/deep | grep -q ok"))
    probe = {"exec": {"command": ["/bin/sh", "-c", line]}, "periodSeconds": 5, "timeoutSeconds": 5}
    by = lab.rng.choice(("argocd", "ci", "alice"))
    await lab.roll(by, namespace, name, "3.3.0", culprit=True, readinessProbe=probe)
