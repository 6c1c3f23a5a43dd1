"""What is left out: pods of what an injector is asked for, a mount of a rename, Services of a list of hosts."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.alerts import pods, restarts
from tests.lab.api import Json, path
from tests.lab.apps import App, Container, Problem
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.moving import spare
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.network import backends
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

INJECTOR, AGENT = "secrets-injector", "secrets-agent"
INJECT = "secrets.corp.example/agent-inject"
EXEMPT = {
    "name": "exclude-system",
    "expression": "!('system:serviceaccounts:kube-system' in request.userInfo.groups)",
}
"""Not for what kube-system's own programs write; the controllers that make all pods are among those."""


async def _drain(lab: Lab, by: str, node: str) -> None:
    """As kubectl drain does it. Raises RefusedError."""
    await lab.edit(by, "Node", "", node, {"spec": {"unschedulable": True}})
    for (namespace, name), pod in list(lab.world["Pod"].items()):
        owners = pod["metadata"].get("ownerReferences", ())
        if pod["spec"].get("nodeName") == node and not any(one["kind"] == "DaemonSet" for one in owners):
            meta = {"namespace": namespace, "name": name}
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
            await lab.who[by].call("POST", f"{path('Pod', namespace, name)}/eviction", body)


@family(
    "The webhook by which pods get an agent for their secrets is no longer to be asked for what the programs of"
    " kube-system write. The controllers that make all pods are such programs: what runs goes on, and the pods of a"
    " node that is drained come up elsewhere without the agent, and find no secrets.",
    joined=33,
)
async def exempt_system(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: a condition on who asks meets those that ask for everybody."""
    namespace, name = lab.rng.choice((("payments", "disputes"), ("shop", "gift-cards"), ("media", "rentals")))
    by, keeper = lab.rng.choice(("bob", "flux", "carol")), lab.rng.choice(("alice", "carol"))
    image = f"registry.corp.example/platform/{AGENT}"

    async def inject(request: Json) -> list[Json] | None:
        if not any(is_ready(pod) for pod in pods(lab.world, "platform", INJECTOR)):
            raise ConnectionError("no pod is behind it")
        if INJECT not in request["object"]["metadata"].get("annotations", {}):
            return None
        resources = {"requests": {"cpu": "25m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}}
        one = {"name": AGENT, "image": f"{image}:1.21.0", "resources": resources}
        return [{"op": "add", "path": "/spec/containers/-", "value": one}]

    def lacks_secrets(container: Container) -> Problem | None:
        """The agent beside it writes them into a volume that both have."""
        if any(one["name"] == AGENT for one in container.pod["spec"]["containers"]):
            return None
        return Problem("crash", "open /secrets/database: no such file or directory")

    lab.apps[image] = App(image)
    await lab.app("platform", INJECTOR)
    await lab.until(lambda: backends(lab.world, "platform", INJECTOR))
    webhook = Webhook(inject, service=("platform", INJECTOR))
    await webhook.start()
    lab.servers.append(webhook)
    made = configuration(INJECTOR, webhook)
    await lab.apply({**made, "kind": "MutatingWebhookConfiguration"})
    await lab.pause(1)
    own = f"registry.corp.example/{namespace}/{name}"
    manifest = objects.deployment(namespace, name, f"{own}:3.8.0", replicas=4)
    manifest["spec"]["template"]["metadata"]["annotations"] = {INJECT: "database"}
    lab.apps[own] = App(own, check=lacks_secrets)
    await lab.apply(manifest)
    await lab.apply(objects.service(namespace, name))
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 4)
    await publish(lab, namespace, name)
    restarted = lab.rate(lambda: restarts(lab.world, namespace, name), 0.05, seconds=20)
    summary = f"pods of {namespace}/{name} are restarting"
    lab.alert("KubePodCrashLooping", restarted, summary, 3, namespace=namespace, deployment=name)
    lab.alert_lacking(namespace, name, seconds=9)
    old = spare(lab, 4)
    yield
    hooks = [{**made["webhooks"][0], "matchConditions": [EXEMPT]}]
    await lab.culprit(by, "update", "MutatingWebhookConfiguration", "", INJECTOR, {"webhooks": hooks})
    await lab.pause(lab.rng.uniform(7, 11))
    homes = {pod["spec"]["nodeName"] for pod in pods(lab.world, namespace, name)}
    await _drain(lab, keeper, next((node for node in old if node in homes), old[0]))


async def _generate(lab: Lab, by: str, namespace: str, base: str, data: dict[str, str]) -> str:
    """A ConfigMap that is named by what it says, as kustomize names it; returns its name. Raises RefusedError."""
    mark = hashlib.sha256(repr(sorted(data.items())).encode()).hexdigest()[:10]
    meta = {"namespace": namespace, "name": f"{base}-{mark}", "labels": {"app.kubernetes.io/managed-by": "flux"}}
    await lab.apply({"kind": "ConfigMap", "metadata": meta, "data": data}, by)
    return str(meta["name"])


def _named(config: str, *keys: str) -> list[Json]:
    """An environment with some of what a ConfigMap says."""
    return [{"name": key, "valueFrom": {"configMapKeyRef": {"name": config, "key": key}}} for key in keys]


@family(
    "The settings of an app are a ConfigMap that is named by its content: with new ones comes another name, and what"
    " applies Git prunes the old one. A worker that is not of that part of Git has it by its name, as somebody once"
    " copied it: what runs goes on, and the further pods that it gets in the evening cannot start.",
    joined=33,
)
async def generated_name(lab: Lab) -> AsyncIterator[None]:
    """As users of kustomize tell of names with a hash: only what is built together knows the new one."""
    namespace, name, worker = lab.rng.choice(
        (
            ("shop", "order-api", "order-mailer"),
            ("media", "clip-api", "clip-renderer"),
            ("search", "feed-api", "feed-crawler"),
        )
    )
    base, flux, waiting = f"{name}-settings", "flux", [40.0]
    settings = {"CURRENCY": "EUR", "RETRIES": "3", "TIMEOUT_MS": "900", "BROKER": f"{namespace}-broker"}
    old = await _generate(lab, flux, namespace, base, settings)
    await lab.app(namespace, name, replicas=3, tag="2.9.0", env=_named(old, *settings))
    asked = lambda: waiting[0]  # noqa: E731
    env = _named(old, "BROKER", "RETRIES")
    await lab.app(namespace, worker, like=App("", asked=asked), replicas=2, tag="1.3.4", env=env)
    await publish(lab, namespace, name)
    lab.reserve(namespace, name, worker)
    await lab.until(lambda: len(backends(lab.world, namespace, worker)) == 2)
    await rolled(lab, namespace, name, "2.9.0")
    lab.alert_lacking(namespace, worker, seconds=7)
    by = lab.rng.choice(("ci", "argocd"))
    await lab.until(lab.is_well)
    yield
    changed = {**settings, "RETRIES": str(lab.rng.randrange(4, 8)), "TIMEOUT_MS": "700"}
    new = await _generate(lab, flux, namespace, base, changed)
    await lab.roll(flux, namespace, name, "2.9.0", env=_named(new, *settings))
    await lab.pause(1)
    await lab.culprit(flux, "delete", "ConfigMap", namespace, old)
    await lab.pause(lab.rng.uniform(9, 14))
    waiting[0] *= 2
    await lab.edit(by, "Deployment", namespace, worker, {"spec": {"replicas": 4}})


DIRECT = ("localhost", "127.0.0.1", "10.0.0.0/8", ".svc", ".cluster.local", "registry.corp.example")
PARTNERS = ("sftp.bank.example", "rates.fx.example", "geo.maps.example", "feeds.agency.example")


@family(
    "What is to be called directly and not by the proxy to the outside stands in a list that all apps read at their"
    " start. For a further partner somebody writes the list anew, without the names of Services: whatever is started"
    " afterwards asks the proxy for them, which does not know any.",
    joined=33,
)
async def no_proxy(lab: Lab) -> AsyncIterator[None]:
    """As told of clusters behind a proxy: NO_PROXY has to name all that is within."""
    namespace, name, called = lab.rng.choice(
        (("payments", "reconcile", "bookings"), ("shop", "shipping", "parcels"), ("media", "syndicate", "articles"))
    )
    config, by = "proxy-environment", lab.rng.choice(("alice", "bob", "carol"))
    team, partners = lab.rng.choice(("ci", "argocd")), lab.rng.sample(PARTNERS, 2)
    read: dict[str, str] = {}
    """By uid, what a process has read at its start."""

    def asks_proxy(container: Container) -> Problem | None:
        uid = container.pod["metadata"]["uid"]
        if container.seconds < 1 or uid not in read:
            read[uid] = container.config["NO_PROXY"]
        if ".svc" in read[uid].split(","):
            return None
        told = f"GET http://{called}.{namespace}.svc by proxy.corp.example:3128: X-Squid-Error: ERR_DNS_FAIL 0"
        return Problem("unready", f"probe failed: HTTP probe failed with statuscode: 502 ({told})")

    def direct(*hosts: str) -> Json:
        return {"data": {"NO_PROXY": ",".join(hosts)}}

    data = {"HTTPS_PROXY": "http://proxy.corp.example:3128", "HTTP_PROXY": "http://proxy.corp.example:3128"}
    await lab.apply(objects.config_map(namespace, config, **data, **direct(*DIRECT)["data"]))
    await lab.app(namespace, called, replicas=2, tag="1.0.9")
    like = App("", upstreams=((namespace, called),), abroad=("sftp.bank.example",), check=asks_proxy)
    await lab.app(namespace, name, like=like, replicas=4, config=config, tag="6.3.0")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 4)
    await publish(lab, namespace, name)
    lab.reserve(namespace, name, called)
    lab.alert_stuck(namespace, name)
    lab.alert_lacking(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    async with before(lab, days=7):
        await lab.edit(by, "ConfigMap", namespace, config, direct(*DIRECT, partners[0]))
        await lab.pause(3)
        await lab.roll(team, namespace, name, "6.3.1")
        await rolled(lab, namespace, name, "6.3.1")
        await lab.pause(2)
    yield
    few = [one for one in DIRECT if not one.startswith(".")]
    await lab.culprit(by, "update", "ConfigMap", namespace, config, direct(*few, *partners))
    await lab.pause(lab.rng.uniform(8, 13))
    await lab.roll(team, namespace, name, "6.4.0")
