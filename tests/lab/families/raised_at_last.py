"""Raised at last: what an app asks of a node, and the share of those for whom a feature is switched on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import partial

from tests.lab import objects
from tests.lab.alerts import pending
from tests.lab.api import Json
from tests.lab.apps import App
from tests.lab.families.by_annotation import rolled
from tests.lab.families.more_than_was_meant import Lately
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.scenario import family

# -- requests

ASKED: tuple[tuple[Json, Json], ...] = (
    ({"cpu": "500m", "memory": "512Mi"}, {"cpu": "6", "memory": "512Mi"}),
    ({"cpu": "1", "memory": "1Gi"}, {"cpu": "5", "memory": "1Gi"}),
    ({"cpu": "500m", "memory": "1Gi"}, {"cpu": "500m", "memory": "24Gi"}),
    ({"cpu": "300m", "memory": "2Gi"}, {"cpu": "4500m", "memory": "20Gi"}),
)
TAKEN = {"cpu": "11", "memory": "46Gi"}
"""What of each node is asked for already."""


@family(
    "The requests of an app are raised, so that it has at last what it needs by the report. No node has so much left"
    " beside what runs there: the first new pods of its rollout wait for one, and the rollout with them.",
    joined=93,
)
async def room_for_none(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had reckoned with what the cluster has, and not with what one machine has left."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "bundle-offers", "bundle-page", "bundle-mails"),
            ("payments", "limits-engine", "engine-page", "engine-report"),
            ("media", "storyboards", "storyboard-page", "storyboard-sync"),
            ("search", "embeddings", "similar-page", "similar-feed"),
        )
    )
    (before, after), minor = lab.rng.choice(ASKED), lab.rng.randrange(2, 30)
    by, with_release = lab.rng.choice(("argocd", "flux", "ci", *TEAMS)), lab.rng.random() < 0.3
    old, new = f"4.{minor}.2", f"4.{minor + 1}.0" if with_release else f"4.{minor}.2"
    budget = lab.rng.choice(({"maxSurge": 1, "maxUnavailable": 1}, {"maxSurge": "25%", "maxUnavailable": "25%"}))
    image = "registry.corp.example/platform/feature-store"
    lab.apps[image] = App(image, serves=False)
    store = objects.deployment("platform", "feature-store", f"{image}:0.49.0", kind="DaemonSet", memory="46Gi")
    store["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] = TAKEN
    await lab.apply(store)
    await rolled(lab, "platform", "feature-store", "0.49.0")

    def sized(told: Json) -> Json:
        return {"requests": told, "limits": {"memory": told["memory"]}}

    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", BATCH="20"))
    await lab.app(namespace, name, like=App("", asked=lambda: 21.0), replicas=4, tag=old, config=name)
    await lab.until(lambda: (namespace, name) in lab.world["Deployment"])
    await lab.roll("admin", namespace, name, old, resources=sized(before))
    strategy = {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": budget}}}
    await lab.edit("admin", "Deployment", namespace, name, strategy)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.0.7", config=other)
    await rolled(lab, namespace, name, old)
    await rolled(lab, namespace, other, "1.0.7")
    await set_before(lab, namespace, front, name)
    summary = f"a pod in {namespace} has had no node for a while"
    lab.alert("KubePodNotScheduled", lambda: pending(lab.world, namespace), summary, 8, namespace=namespace)
    lab.alert_stuck(namespace, name)
    lab.alert_lacking(namespace, name, seconds=12)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(2, 7))
        await change_page(lab, namespace, front)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.0.8")
    await lab.pause(lab.rng.uniform(5, 11))
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, {"data": {"BATCH": "35"}})
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.roll(by, namespace, name, new, culprit=True, resources=sized(after))
    lab.start(afterwards())


# -- a feature

FEW = 2
"""Of a hundred, who have a feature at first."""
ASKED_ALL = 24.0


def _flags(shares: dict[str, int]) -> Json:
    """As flagd reads them: of a hundred users so many have each feature."""
    flags = {
        name: {
            "state": "ENABLED",
            "variants": {"on": True, "off": False},
            "defaultVariant": "on" if share == 100 else "off",
            **({"targeting": {"fractional": [["on", share], ["off", 100 - share]]}} if 0 < share < 100 else {}),
        }
        for name, share in shares.items()
    }
    return {"data": {"flags.json": json.dumps({"flags": flags}, indent=2)}}


def _share(data: Json, flag: str) -> float:
    """Of all users, who have a feature by the flags as they are written."""
    told = json.loads(data["flags.json"])["flags"][flag]
    if "targeting" in told:
        return float(told["targeting"]["fractional"][0][1]) / 100
    return 1.0 if told["defaultVariant"] == "on" else 0.0


@family(
    "A feature that two of a hundred had is switched on for everybody by its flag. It fails for whoever has something"
    " that nobody of the two had: a share of all requests ends with an error.",
    joined=93,
)
async def from_few_to_all(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose last release was of the day before yesterday."""
    namespace, name, front, flag, others = lab.rng.choice(
        (
            ("shop", "basket-api", "basket-view", "bundle-discounts", ("new-wishlist", "express-slots")),
            ("payments", "checkout-api", "checkout-view", "split-payment", ("saved-ibans", "receipt-pdf")),
            ("media", "player-api", "player-view", "adaptive-subtitles", ("watch-party", "mini-player")),
            ("search", "results-api", "results-list", "semantic-ranking", ("recent-searches", "map-view")),
        )
    )
    by, minor, share = lab.rng.choice((*TEAMS, "flux")), lab.rng.randrange(2, 30), lab.rng.uniform(0.15, 0.5)
    first, held = lab.rng.choice((FEW, 0)), f"{namespace}-flags"
    shares = {flag: first, others[0]: 100, others[1]: 10}
    keeper = "feature-flags"

    def has_it() -> float:
        return _share(lab.world["ConfigMap"][namespace, held]["data"], flag)

    is_on = Lately(lab, lambda: has_it() == 1.0)

    def part() -> float:
        """Of all requests, that come to the feature."""
        return 1.0 if is_on() else first / 100

    def evaluated(variant: str) -> float:
        return ASKED_ALL * (part() if variant == "on" else 1 - part())

    made = {"kind": "ConfigMap", "metadata": {"namespace": namespace, "name": held}}
    await lab.apply({**made, **_flags(shares)})
    await lab.app(namespace, keeper, like=App("", serves=False), replicas=2, tag="v0.12.9", config=held)
    await rolled(lab, namespace, keeper, "v0.12.9")
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", BATCH="20"))
    like = App("", upstreams=((namespace, keeper),), asked=lambda: ASKED_ALL, failing=lambda _: share * part())
    await lab.app(namespace, name, like=like, replicas=3, tag=f"11.{minor}.0", config=name)
    await rolled(lab, namespace, name, f"11.{minor}.0")
    await set_before(lab, namespace, front, name)
    lab.reserve(namespace, keeper)
    told = {"namespace": namespace, "service": name, "feature_flag_key": flag}
    for variant in ("on", "off"):
        counted = lab.adding_up(partial(evaluated, variant))
        lab.measure("feature_flag_evaluation_success_total", counted, "counter", **told, variant=variant)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await change_page(lab, namespace, front)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"11.{minor}.1")
    await lab.pause(lab.rng.uniform(6, 12))
    if lab.rng.random() < 0.6:
        shares[others[1]] = 25
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, held, _flags(shares))
        await lab.pause(lab.rng.uniform(4, 9))
    shares[flag] = 100
    await lab.culprit(by, "update", "ConfigMap", namespace, held, _flags(shares))
    lab.start(afterwards())
