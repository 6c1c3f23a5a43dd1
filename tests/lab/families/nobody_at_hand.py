"""What nobody of the company did: a card of a machine that is slow, a list that is not issued any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import now, path, stamp
from tests.lab.apps import App, Container, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import NODES, Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

FULL_SPEED, SLOW_SPEED = 1.25e9, 1.25e7
"""Bytes a second of a machine's network card: as it should be, and after it has agreed on a hundredth."""
ANSWER_BYTES, MOST_BUSY = 2.5e6, 0.96
ISSUED_EVERY, GOOD_FOR = 12.0, 26.0
"""Seconds between two lists of revoked certificates, and for which each may be gone by."""
LIST, NEXT_UPDATE = "client-crl", "NEXT_UPDATE"


@family(
    "The network card of one machine agrees on a hundredth of its speed with the switch, after a cable got loose. Small"
    " answers come as ever, probes too, and the node is ready; what sends large files from there takes seconds. The app"
    " has just had its release of the week.",
    culprit=False,
    joined=35,
)
async def slow_card(lab: Lab) -> AsyncIterator[None]:
    """As told of links that come up with a hundred megabits: nothing is lost, and nobody is told."""
    namespace, name, page = lab.rng.choice(
        (
            ("media", "downloads", "library-page"),
            ("shop", "product-media", "product-page"),
            ("search", "exports", "reports"),
        )
    )
    asked, by, minor = lab.rng.uniform(18.2, 19.0), lab.rng.choice(("ci", "argocd")), lab.rng.randrange(10, 40)
    slow: set[str] = set()

    def speed(node: str) -> float:
        return SLOW_SPEED if node in slow else FULL_SPEED

    def sending(container: Container) -> float:
        """Its answers share the line of their machine: the nearer they come to all of it, the longer they wait."""
        each = asked / max(1, len(backends(lab.world, namespace, name)))
        own = speed(container.pod["spec"]["nodeName"])
        return ANSWER_BYTES / own / (1 - min(MOST_BUSY, each * ANSWER_BYTES / own))

    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": name}},
    }
    like = App("", asked=lambda: asked, latency=sending)
    await lab.app(namespace, name, like=like, replicas=4, tag=f"5.{minor}.0", topologySpreadConstraints=[spread])
    await lab.app(namespace, page, like=App("", upstreams=((namespace, name),)), replicas=2, tag="3.3.1")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 4 and backends(lab.world, namespace, page))
    await publish(lab, namespace, page)
    lab.reserve(namespace, name, page)
    for node in NODES:
        value = lambda node=node: speed(node)  # noqa: E731
        lab.measure(
            "node_network_speed_bytes",
            value,
            namespace="monitoring",
            service="node-exporter",
            instance=node,
            device="eth0",
        )
    lab.alert_slow(namespace, name, 0.4)
    lab.alert_slow(namespace, page, 0.4)
    await lab.until(lab.is_well)
    async with before(lab, days=7):
        await lab.pause(3)
        await lab.roll(by, namespace, name, f"5.{minor + 1}.0")
        await rolled(lab, namespace, name, f"5.{minor + 1}.0")
        await lab.pause(5)
    yield
    await lab.roll(by, namespace, name, f"5.{minor + 2}.0")
    await rolled(lab, namespace, name, f"5.{minor + 2}.0")
    await lab.pause(lab.rng.uniform(4, 9))
    slow.add(lab.rng.choice([pod["spec"]["nodeName"] for pod in pods(lab.world, namespace, name)]))


async def _mount(lab: Lab, namespace: str, name: str) -> None:
    """The list, in all pods of the gateway. Raises RefusedError."""
    await lab.until(lambda: (namespace, name) in lab.world["Deployment"])
    [container] = lab.world["Deployment"][namespace, name]["spec"]["template"]["spec"]["containers"]
    container = {**container, "volumeMounts": [{"name": "crl", "mountPath": "/etc/nginx/crl"}]}
    spec = {"containers": [container], "volumes": [{"name": "crl", "configMap": {"name": LIST}}]}
    await lab.edit("admin", "Deployment", namespace, name, {"spec": {"template": {"spec": spec}}})


@family(
    "Who issues the certificates of all partners also issues the list of those that are revoked, each day anew. For a"
    " fault over there it does so no more: what fetches it finds the same one, and at the hour by which there should"
    " have been a next one, the gateway takes no partner's certificate any more.",
    culprit=False,
    joined=35,
)
async def revocation_list(lab: Lab) -> AsyncIterator[None]:
    """As told of lists of revoked certificates that are over: whoever has to look there refuses everybody."""
    namespace, name, behind = lab.rng.choice(
        (
            ("payments", "partner-gateway", "settlements"),
            ("shop", "supplier-api", "supplies"),
            ("media", "feeds-in", "feeds"),
        )
    )
    partners = lab.rng.uniform(0.5, 0.8)
    """The share of the calls that come with a certificate; the others are of who has a token."""
    issued, is_issuing = [now()], [True]

    async def issue() -> None:
        while is_issuing[0]:
            issued[0] = now()
            await asyncio.sleep(ISSUED_EVERY)

    async def fetch(process: Process) -> None:
        """What is the same is not written again."""
        until = stamp(issued[0] + timedelta(seconds=GOOD_FOR))
        if until != lab.world["ConfigMap"][namespace, LIST]["data"][NEXT_UPDATE]:
            where = path("ConfigMap", namespace, LIST)
            number = f"{int(issued[0].timestamp()):X}"
            await process.api.call("PATCH", where, {"data": {NEXT_UPDATE: until, "CRL_NUMBER": number}})

    def refused(container: Container) -> float:
        until = container.config.get(NEXT_UPDATE, "")
        return partners if until and now() > datetime.fromisoformat(until) else 0.0

    def many() -> bool:
        answers = lab.traffic.of_ingress(namespace, namespace, 10).answers
        return answers["400"] > 0.1 * max(1, answers.total())

    until = stamp(issued[0] + timedelta(seconds=GOOD_FOR))
    lab.start(issue())
    await lab.apply(objects.config_map(namespace, LIST, **{NEXT_UPDATE: until, "CRL_NUMBER": "0"}))
    rights = ("", "configmaps", "get,patch")
    await lab.controller("platform", "crl-fetch", every(2.0, fetch), rights, replicas=1, tag="1.0.5")
    await lab.app(namespace, behind, replicas=2)
    like = App(
        "",
        upstreams=((namespace, behind),),
        asked=lambda: 40.0,
        failing=refused,
        fails_with=lambda container: "400",
    )
    await lab.app(namespace, name, like=like, replicas=3, tag="1.27.3")
    await _mount(lab, namespace, name)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3)
    await publish(lab, namespace, name)
    lab.reserve(namespace, name, behind)
    summary = f"more than 10% of the requests to Ingress {namespace}/{namespace} are answered with 400"
    lab.alert("NginxHighHttp4xxErrorRate", many, summary, namespace=namespace, ingress=namespace)
    await lab.until(lab.is_well)
    yield
    is_issuing[0] = False
