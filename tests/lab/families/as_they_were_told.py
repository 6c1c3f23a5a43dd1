"""What apps are given and told: memory, replicas, requests, a file; too little of it, too much, or mistyped."""

from __future__ import annotations

import asyncio
import json
import tomllib
from collections.abc import AsyncIterator, Callable
from typing import Any

import yaml

from tests.lab import objects
from tests.lab.alerts import pending, restarts
from tests.lab.api import Json, now, stamp
from tests.lab.apps import App, Container, Problem, mebibytes
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import NODES, Lab
from tests.lab.network import backends
from tests.lab.scenario import family

BASE_MI, READING_SECONDS = 110, 2.5
"""What a process has before it reads its data, and how long that takes."""


def _limit(container: Container) -> str:
    return str(container.spec["resources"]["limits"]["memory"])


@family(
    "A release of an app comes with more data, all of which it reads into memory. That is more than its limit lets it"
    " have: each of its containers is ended as it has nearly read it, is started anew, and is ended again.",
    joined=79,
)
async def larger_than_before(lab: Lab) -> AsyncIterator[None]:
    """As everybody has seen whose limit was once measured and never again."""
    namespace, name, called, front = lab.rng.choice(
        (
            ("search", "spelling", "word-store", "results-page"),
            ("shop", "tax-quotes", "region-store", "basket-page"),
            ("payments", "fraud-scores", "model-store", "pay-page"),
            ("media", "voice-search", "voice-models", "player-page"),
        )
    )
    needs, minor, is_at_start = lab.rng.randrange(300, 460), lab.rng.randrange(3, 60), lab.rng.random() < 0.5
    old, new, by = f"2.{minor}.2", f"2.{minor + 1}.0", lab.rng.choice(("ci", "argocd", "flux"))

    def wants(container: Container) -> float:
        """In MiB."""
        read = min(1.0, container.seconds / READING_SECONDS)
        return BASE_MI + (read * (needs - BASE_MI) if container.tag == new else 20)

    def check(container: Container) -> Problem | None:
        """Either it reads before it answers anybody, or for the first who asks."""
        if wants(container) > mebibytes(_limit(container)):
            return Problem("oom", f"needs {needs}Mi, may have {_limit(container)}", at_once=is_at_start)
        if is_at_start and container.seconds < READING_SECONDS:
            return Problem("unready", "probe failed: dial tcp :8080: connect: connection refused", at_once=True)
        return None

    like = App("", upstreams=((namespace, called),), check=check)

    def most() -> float | None:
        there = [one.container for one in lab.kubelets.running() if one.app is like]
        return max((min(wants(one), mebibytes(_limit(one))) * 2**20 for one in there), default=None)

    await lab.app(namespace, called, replicas=2, tag="1.3.0")
    await lab.until(lambda: backends(lab.world, namespace, called))
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", WORKERS="4"))
    await lab.app(namespace, name, like=like, replicas=3, tag=old, config=name)
    await rolled(lab, namespace, name, old)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="5.0.6")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    told = {"namespace": namespace, "service": name, "container": name}
    lab.measure("container_memory_working_set_bytes", most, **told)
    crashes = lambda: restarts(lab.world, namespace, name) > 2  # noqa: E731
    summary = f"containers of {namespace}/{name} are restarted again and again"
    lab.alert("KubePodCrashLooping", crashes, summary, 3, namespace=namespace, deployment=name)
    lab.alert_lacking(namespace, name, seconds=12)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 6))
        await lab.roll("ci", namespace, front, "5.0.7")

    await lab.edit("bob", "ConfigMap", namespace, name, {"data": {"WORKERS": lab.rng.choice(("3", "6"))}})
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.roll("ci", namespace, called, "1.3.1")
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.roll(by, namespace, name, new, culprit=True)
    lab.start(afterwards())


EACH_STANDS = 25.0
"""Requests a second that one process of the app stands."""


@family(
    "To save money a team takes away replicas of its apps, by what they use in the forenoon. For one of them what is"
    " left is too few as the peak of the day comes: it turns away who is too much.",
    joined=79,
)
async def fewer_for_less(lab: Lab) -> AsyncIterator[None]:
    """As it goes after each look at the cloud's bill."""
    namespace, name, front, *others = lab.rng.choice(
        (
            ("shop", "basket-api", "basket-page", "wish-api", "return-api"),
            ("media", "stream-tickets", "watch-page", "rating-api", "share-api"),
            ("payments", "quotes", "quote-page", "receipt-api", "contact-api"),
        )
    )
    by, peak = lab.rng.choice(("alice", "bob", "carol", "argocd")), lab.rng.uniform(165, 190)
    asked, left = [lab.rng.uniform(60, 72)], lab.rng.choice((3, 4))

    def turned_away(_: Container) -> float:
        there = len(backends(lab.world, namespace, name))
        return max(0.0, 1 - EACH_STANDS * there / asked[0])

    async def day() -> None:
        while asked[0] < peak:
            await asyncio.sleep(1)
            asked[0] = min(peak, asked[0] + lab.rng.uniform(6, 11))

    like = App("", asked=lambda: asked[0], capacity=3 * EACH_STANDS, failing=turned_away, fails_with=lambda _: "503")
    await lab.app(namespace, name, like=like, replicas=8, tag="3.1.0")
    for one in others:
        await lab.app(namespace, one, replicas=4, tag="2.0.1")
    await rolled(lab, namespace, name, "3.1.0")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 8)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="7.2.0")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.roll("ci", namespace, lab.rng.choice(others), "2.0.2")
    await lab.pause(lab.rng.uniform(3, 7))
    first, last = lab.rng.sample(others, 2)
    await lab.edit(by, "Deployment", namespace, first, {"spec": {"replicas": 2}})
    await lab.pause(lab.rng.uniform(1, 3))
    await lab.culprit(by, "update", "Deployment", namespace, name, {"spec": {"replicas": left}})
    await lab.pause(lab.rng.uniform(1, 3))
    await lab.edit(by, "Deployment", namespace, last, {"spec": {"replicas": 2}})
    await lab.pause(lab.rng.uniform(6, 12))
    await lab.roll("ci", namespace, front, "7.2.1")
    await lab.pause(lab.rng.uniform(2, 6))
    lab.start(day())


def _chart(there: Json, chart: str, resources: Json) -> Json:
    """What Helm writes of a Deployment as its chart has a new version."""
    template = there["spec"]["template"]
    label = {"helm.sh/chart": chart}
    container = {**template["spec"]["containers"][0], "resources": resources}
    inner = {"metadata": {"labels": label}, "spec": {"containers": [container]}}
    return {"metadata": {"labels": label}, "spec": {"template": inner}}


@family(
    "An app is installed by a chart, whose new version has it request many times as much as before. The nodes are"
    " well used by others, none has so much left, and the first of the new pods finds no place.",
    joined=79,
)
async def asks_for_more(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had looked at what is new in the app, and not at the values of its chart."""
    namespace, name, chart, others = lab.rng.choice(
        (
            ("search", "vector-store", "qdrant", "embeddings"),
            ("media", "object-index", "opensearch", "renderings"),
            ("shop", "offer-store", "redis-cluster", "price-models"),
        )
    )
    what, kept, before, after = lab.rng.choice(
        (("cpu", "12", "500m", "4"), ("cpu", "11", "1", "6"), ("memory", "54Gi", "1Gi", "12Gi"))
    )
    by, major = lab.rng.choice(("ci", "argocd", "flux")), lab.rng.randrange(2, 20)

    def resources(figure: str) -> Json:
        requests = {"cpu": "100m", "memory": "64Mi", what: figure}
        return {"requests": requests, "limits": {"memory": figure if what == "memory" else "4Gi"}}

    await lab.apply(objects.config_map(namespace, others, LOG_LEVEL="info", BATCH_SIZE="32"))
    await lab.app(namespace, others, replicas=len(NODES), tag="4.0.0", config=others)
    await lab.roll("admin", namespace, others, "4.0.1", resources=resources(kept))
    await rolled(lab, namespace, others, "4.0.1")
    await lab.app(namespace, name, like=App("", serves=False), replicas=4, tag="1.9.4")
    there = lab.world["Deployment"][namespace, name]
    body = _chart(there, f"{chart}-{major}.4.1", resources(before))
    await lab.edit("admin", "Deployment", namespace, name, body)
    await lab.until(lambda: lab.world["Deployment"][namespace, name]["status"].get("observedGeneration", 0) > 1)
    await rolled(lab, namespace, name, "1.9.4")
    no_node = lambda: pending(lab.world, namespace)  # noqa: E731
    lab.alert("KubePodNotScheduled", no_node, f"a pod in {namespace} has no node", 10, namespace=namespace)
    lab.alert_stuck(namespace, name)
    lab.alert_lacking(namespace, name, seconds=10)
    await lab.until(lab.is_well)
    yield
    await lab.edit("bob", "ConfigMap", namespace, others, {"data": {"BATCH_SIZE": "64"}})
    await lab.pause(lab.rng.uniform(5, 10))
    there = lab.world["Deployment"][namespace, name]
    body = _chart(there, f"{chart}-{major + 1}.0.0", resources(after))
    await lab.culprit(by, "update", "Deployment", namespace, name, body)
    await lab.pause(lab.rng.uniform(2, 5))
    await lab.edit("carol", "Deployment", namespace, others, {"metadata": {"annotations": {"on-call": namespace}}})


RATES = '{\n  "free_above": 49,\n  "carriers": ["post", "parcel"],\n  "express": %s\n}\n'
FEES = '[card]\npercent = 1.4\nretry_after = "30s"\n\n[transfer]\nlimit = %s\n'
SLOTS = "slots:\n- name: before\n  seconds: 15\n- name: between\n  seconds: %s\n"
READ_SECONDS = 3.0
"""So long after its start a process has read its file; it does not read it again."""


@family(
    "A value in an app's ConfigMap is changed by hand and mistyped, so that the file is none of its kind any more. What"
    " runs has read the old one; whoever is started from then on does not get past reading it, and crashes.",
    joined=79,
)
async def typed_in_haste(lab: Lab) -> AsyncIterator[None]:
    """A comma for a point, a quote that is not closed, a tab."""
    choices: tuple[tuple[str, str, str, str, str, str, str, Callable[[str], Any]], ...] = (
        ("shop", "shipping", "basket-page", "rates.json", RATES, "9.90", "8,90", json.loads),
        ("payments", "fees", "pay-page", "fees.toml", FEES, '"5000 EUR"', '"7500 EUR', tomllib.loads),
        ("media", "ad-breaks", "player-page", "slots.yaml", SLOTS, "20", "30\n\t# for the finals", yaml.safe_load),
    )
    namespace, name, front, file, text, good, bad, parse = lab.rng.choice(choices)
    by, is_restarted = lab.rng.choice(("alice", "bob", "carol")), lab.rng.random() < 0.5
    minor = lab.rng.randrange(2, 40)
    tag, patched = f"6.{minor}.0", f"6.{minor + 1}.0"

    def check(container: Container) -> Problem | None:
        if container.seconds < READ_SECONDS:
            try:
                parse(container.config[file])
            except (ValueError, yaml.YAMLError) as error:
                return Problem("crash", f"cannot read /etc/config/{file}: {error}", at_once=True)
        return None

    await lab.apply(objects.config_map(namespace, name, **{file: text % good, "LOG_LEVEL": "info"}))
    await lab.app(namespace, name, like=App("", check=check), replicas=4, tag=tag, config=name)
    await rolled(lab, namespace, name, tag)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="8.3.1")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    crashes = lambda: restarts(lab.world, namespace, name) > 3  # noqa: E731
    summary = f"containers of {namespace}/{name} are restarted again and again"
    lab.alert("KubePodCrashLooping", crashes, summary, 3, namespace=namespace, deployment=name)
    lab.alert_lacking(namespace, name, seconds=10)
    lab.alert_stuck(namespace, name)
    await lab.until(lab.is_well)
    await lab.pause(READ_SECONDS)
    yield
    await lab.roll("ci", namespace, front, "8.3.2")
    await lab.pause(lab.rng.uniform(3, 7))
    await lab.culprit(by, "update", "ConfigMap", namespace, name, {"data": {file: text % bad}})
    if is_restarted:
        await lab.pause(lab.rng.uniform(1, 4))
        again = {"kubectl.kubernetes.io/restartedAt": f"{stamp(now())[:19]}Z"}
        restart = {"spec": {"template": {"metadata": {"annotations": again}}}}
        await lab.culprit(by, "update", "Deployment", namespace, name, restart)
    else:
        await lab.pause(lab.rng.uniform(6, 14))
        await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, patched)
