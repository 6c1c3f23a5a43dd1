"""Where images may be from, and what is in one: a list that a policy reads, a tag that is pushed once more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, path
from tests.lab.apps import App, Container, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.manifests import images, is_ready
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

POLICY, LIST = "permitted-registries", "image-registries"
OURS, MIRROR = "registry.corp.example/", "mirror.corp.example/"
BESIDE = "proxies/statsd-exporter:0.27.2"
"""What runs beside the app's own container."""
STANDS = 50
"""Requests a second of one pod."""


def _told(*registries: str) -> Json:
    return {"data": {"prefixes": ",".join(registries)}}


async def _policy(lab: Lab) -> None:
    """It reads its list from a ConfigMap, and is bound everywhere but to what is the cluster's own."""
    await lab.apply({"kind": "ConfigMap", "metadata": {"namespace": "platform", "name": LIST}, **_told(OURS, MIRROR)})
    rule = {
        "expression": "object.spec.containers.all(one,"
        " params.data.prefixes.split(',').exists(may, one.image.startsWith(may)))",
        "message": "images may only be from a registry of the list",
    }
    what = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    spec: Json = {
        "failurePolicy": "Fail",
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConstraints": {"resourceRules": [what]},
        "validations": [rule],
    }
    await lab.apply({"kind": "ValidatingAdmissionPolicy", "metadata": {"name": POLICY}, "spec": spec})
    system = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]}
    bound = {
        "policyName": POLICY,
        "paramRef": {"name": LIST, "namespace": "platform", "parameterNotFoundAction": "Deny"},
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": {"matchExpressions": [system]}},
    }
    await lab.apply({"kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": POLICY}, "spec": bound})


async def _release(lab: Lab, by: str, namespace: str, name: str, tag: str, registry: str) -> None:
    """Of an app whose pods have a second container, of an image of that registry."""
    [own, *_] = lab.world["Deployment"][namespace, name]["spec"]["template"]["spec"]["containers"]
    image, beside = f"{own['image'].rsplit(':', 1)[0]}:{tag}", f"{registry}{BESIDE}"
    second = {"name": "statsd-exporter", "image": beside, "resources": {"limits": {"memory": "64Mi"}}}
    body = {"spec": {"template": {"spec": {"containers": [{**own, "image": image}, second]}}}}
    await lab.edit(by, "Deployment", namespace, name, body)
    await lab.until(lambda: all(beside in images(pod) for pod in pods(lab.world, namespace, name)))
    await rolled(lab, namespace, name, tag)


@family(
    "A policy reads from a ConfigMap which registries images may be from, and somebody takes the old mirror out of it,"
    " as in a sibling. What runs goes on; as an app gets more pods in the evening, none is let in, for the image of"
    " what runs beside it there.",
    joined=34,
)
async def policy_parameter(lab: Lab) -> AsyncIterator[None]:
    """As told of a policy that was changed while all teams said that they had changed nothing (komodor.com)."""
    namespace, name = lab.rng.choice((("shop", "basket"), ("search", "listing"), ("media", "streams")))
    by, asked, evening = lab.rng.choice(("carol", "flux", "bob")), [120.0], lab.rng.uniform(300, 340)

    async def scale(process: Process) -> None:
        """By requests, with some to spare."""
        where = f"{path('Deployment', namespace, name)}/scale"
        found = await process.api.call("GET", where)
        wanted = max(4, round(asked[0] * 1.3 / STANDS))
        if found.ok and found.body["spec"]["replicas"] < wanted:
            await process.api.call("PATCH", where, {"spec": {"replicas": wanted}})

    def short(_: Container) -> float:
        there = sum(map(is_ready, pods(lab.world, namespace, name)))
        return max(0.0, 1 - STANDS * there / asked[0])

    async def rise() -> None:
        first = asked[0]
        for second in range(15):
            await asyncio.sleep(1)
            asked[0] = first + (evening - first) * (second + 1) / 15

    await _policy(lab)
    like = App("", asked=lambda: asked[0], failing=short, fails_with=lambda _: "503", capacity=3 * STANDS)
    await lab.app(namespace, name, like=like, replicas=4, tag="7.1.0")
    await lab.controller(
        "platform", "traffic-scaler", every(3, scale), ("apps", "deployments/scale", "get,patch"), replicas=1
    )
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 4)
    await publish(lab, namespace, name)
    await _release(lab, "admin", namespace, name, "7.1.0", OURS)
    lab.reserve(namespace, name)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    async with before(lab, days=2, cluster=lab.rng.choice(("staging", "eu-1"))):
        await lab.edit(by, "ConfigMap", "platform", LIST, _told(OURS))
        await lab.pause(3)
        await _release(lab, "ci", namespace, name, "7.1.1", OURS)
    await lab.edit("admin", "ConfigMap", "platform", LIST, _told(OURS, MIRROR))
    await lab.pause(2)
    await _release(lab, "admin", namespace, name, "7.1.1", MIRROR)
    yield
    await lab.culprit(by, "update", "ConfigMap", "platform", LIST, _told(OURS))
    await lab.pause(lab.rng.uniform(12, 18))
    lab.start(rise())


@family(
    "A team's pipeline pushes a new build under the tag that is in use, which no cluster records. What runs has the old"
    " one, and so has each node that has pulled it; as the app gets more replicas, those on other nodes have the new"
    " one, which fails a part of what it is asked.",
    culprit=False,
    joined=34,
)
async def tag_overwritten(lab: Lab) -> AsyncIterator[None]:
    """As told of tags that are written over, and of nodes with another build each (devops-atlasx, devopsinside)."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "delivery-slots", "checkout-page"),
            ("payments", "limits", "transfer"),
            ("media", "captions", "watch"),
        )
    )
    tag, share, by = (
        lab.rng.choice(("stable", "release", "prod")),
        lab.rng.uniform(0.35, 0.6),
        lab.rng.choice(("alice", "ci")),
    )
    pulled: set[str] = set()
    pushed: list[str] = []

    def failing(container: Container) -> float:
        """Of what the new build is asked."""
        return share if pushed and container.pod["spec"]["nodeName"] not in pulled else 0.0

    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": name}},
    }
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", CUTOFF_HOUR="17"))
    like = App("", failing=failing, asked=lambda: 70.0)
    await lab.app(namespace, name, like=like, replicas=3, tag=tag, config=name, topologySpreadConstraints=[spread])
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="1.14.0")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3 and backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    yield
    pulled |= {pod["spec"]["nodeName"] for pod in pods(lab.world, namespace, name)}
    pushed.append(tag)
    await lab.pause(lab.rng.uniform(4, 8))
    await lab.edit(by, "Deployment", namespace, name, {"spec": {"replicas": 6}})
