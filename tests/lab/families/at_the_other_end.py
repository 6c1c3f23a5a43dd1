"""What the other end does not take: an old version of its API, and all that a cache has kept from it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json
from tests.lab.apps import App
from tests.lab.families.by_annotation import rolled
from tests.lab.families.more_than_was_meant import Lately
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.manifests import images
from tests.lab.network import backends
from tests.lab.scenario import family

# -- an old version of an API

OFF = {"release": "404", "env": "410", "config": "410"}
"""How an old version may be switched off, and what who asks for it is answered then."""


@family(
    "The old version of an internal API is switched off, by its next release or by a setting, as all are said to have"
    " moved. One app still calls it: what it needs from there fails.",
    joined=91,
)
async def still_calls_the_old(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had announced it three times, and forgot who had built the thing that nobody looks after."""
    home, api, namespace, name, front, moved = lab.rng.choice(
        (
            ("payments", "accounts-api", "shop", "loyalty", "loyalty-page", "refunds"),
            ("shop", "products-api", "search", "feed-builder", "deals-page", "wish-lists"),
            ("media", "images-api", "shop", "lookbook", "lookbook-page", "albums"),
            ("search", "query-api", "media", "title-finder", "finder-page", "similar"),
        )
    )
    how, minor, share = lab.rng.choice(sorted(OFF)), lab.rng.randrange(4, 30), lab.rng.uniform(0.3, 0.85)
    by = lab.rng.choice({"release": ("ci", "argocd"), "env": ("ci", "flux")}.get(how, ("flux", *TEAMS)))
    old, new = f"4.{minor}.2", "5.0.0" if how == "release" else f"4.{minor}.2"
    asks_old, asks_new = lab.rng.uniform(5, 9), 24.0

    def is_off() -> bool:
        there = backends(lab.world, home, api)
        if how == "config":
            return str(lab.world["ConfigMap"][home, api]["data"]["LEGACY_V1_ENABLED"]) == "false"
        if how == "release":
            return bool(there) and all(images(one)[0].endswith(":5.0.0") for one in there)
        listed = [one["spec"]["containers"][0].get("env", ()) for one in there]
        return bool(listed) and all({"name": "API_V1_ENABLED", "value": "false"} in one for one in listed)

    off = Lately(lab, is_off)
    await lab.apply(objects.config_map(home, api, LOG_LEVEL="info", LEGACY_V1_ENABLED="true"))
    like = App(
        "",
        asked=lambda: asks_old + asks_new,
        failing=lambda _: asks_old / (asks_old + asks_new) if off() else 0.0,
        fails_with=lambda _: OFF[how],
    )
    env = [{"name": "API_V1_ENABLED", "value": "true"}] if how == "env" else []
    await lab.app(home, api, like=like, replicas=3, tag=old, config=api, env=env)
    await rolled(lab, home, api, old)
    for where, who, version in ((home, moved, "v2"), (namespace, name, "v1")):
        url = f"http://{api}.{home}.svc.cluster.local/api/{version}"
        env = [{"name": f"{api.upper().replace('-', '_')}_URL", "value": url}]
        fails = lambda _, version=version: share if version == "v1" and off() else 0.0  # noqa: E731
        like = App("", asked=lambda: 17.0, failing=fails, fails_with=lambda _: "502")
        await lab.apply(objects.config_map(where, who, LOG_LEVEL="info", BATCH="20"))
        await lab.app(where, who, like=like, replicas=2, tag="1.12.0", config=who, env=env)
        await rolled(lab, where, who, "1.12.0")
    await set_before(lab, namespace, front, name)
    lab.reserve(home, api, moved)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, name, {"data": {"BATCH": "30"}})

    yield
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(3, 7))
    await lab.roll(lab.rng.choice(("ci", "argocd")), home, moved, "1.12.1")
    await lab.pause(lab.rng.uniform(5, 11))
    if how == "config":
        await lab.culprit(by, "update", "ConfigMap", home, api, {"data": {"LEGACY_V1_ENABLED": "false"}})
    elif how == "env":
        await lab.roll(by, home, api, new, culprit=True, env=[{"name": "API_V1_ENABLED", "value": "false"}])
    else:
        await lab.roll(by, home, api, new, culprit=True)
    lab.start(afterwards())


# -- a cache

STANDS, ASKED = 45.0, 60.0
"""Queries a second that the database answers in its usual time, and those of all requests together."""


@dataclass
class _Database:
    """One that answers later the longer more is asked of it than it stands."""

    lab: Lab
    asked: Callable[[], float]
    behind: float = 0.0
    """Queries that wait."""

    async def run(self) -> None:
        while True:
            self.behind = min(300.0, max(0.0, self.behind + (self.asked() - STANDS) / 2))
            await asyncio.sleep(0.5)

    def waits(self) -> float:
        """Seconds for a query that is asked now: an app has no more than three for it."""
        return min(3.0, self.behind / STANDS)

    def given_up(self) -> float:
        """The share of queries that are not answered in the time that an app has for them."""
        return max(0.0, (self.waits() - 1.5) / 2)

    def active(self) -> float:
        """Connections with a query."""
        return min(100.0, 3 + self.behind / 3)


@family(
    "The cache of an app is switched off while somebody looks for a fault in it, or what is in it is kept for seconds"
    " in place of minutes. Nearly all that it is asked comes to its database now, which does not keep up.",
    joined=91,
)
async def all_of_it_to_the_database(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose database had not had so many queries since the day on which it was bought."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "price-list", "price-page", "price-alerts"),
            ("payments", "exchange-desk", "exchange-page", "exchange-mails"),
            ("media", "top-lists", "top-page", "top-feed"),
            ("search", "category-tree", "category-page", "category-feed"),
        )
    )
    by_roll, by = lab.rng.random() < 0.4, lab.rng.choice(("ci", "flux", *TEAMS))
    key, before, after = lab.rng.choice(
        (
            ("CACHE_ENABLED", "true", "false"),
            ("CACHE_TTL", "15m", "5s"),
            ("CACHE_TYPE", "redis", "none"),
            ("CACHE_TTL_SECONDS", "600", "3"),
        )
    )
    hits, minor, place = (0.92, 0.06), lab.rng.randrange(2, 30), f"{name}-db"  # with the cache, and without

    def told() -> str:
        """What its pods go by."""
        if not by_roll:
            return str(lab.world["ConfigMap"][namespace, name]["data"][key])
        there = [one["spec"]["containers"][0] for one in pods(lab.world, namespace, name)]
        values = {one["value"] for each in there for one in each["env"] if one["name"] == key}
        return after if values == {after} else before

    off = Lately(lab, lambda: told() == after)

    def part(result: str) -> float:
        """Of what it looks up, that is there, or is not."""
        return hits[off()] if result == "hit" else 1 - hits[off()]

    database = _Database(lab, lambda: ASKED * part("miss") + 6)
    lab.start(database.run())
    await lab.app(namespace, place, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="16.9")
    await rolled(lab, namespace, place, "16.9")
    settings = {"LOG_LEVEL": "info", "PAGE_SIZE": "50", **({} if by_roll else {key: before})}
    await lab.apply(objects.config_map(namespace, name, **settings))
    env: list[Json] = [{"name": key, "value": before}] if by_roll else []
    like = App(
        "",
        upstreams=((namespace, place),),
        asked=lambda: ASKED,
        latency=lambda _: part("miss") * database.waits(),
        failing=lambda _: part("miss") * database.given_up(),
    )
    await lab.app(namespace, name, like=like, replicas=3, tag=f"8.{minor}.1", config=name, env=env)
    await rolled(lab, namespace, name, f"8.{minor}.1")
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    like = App(
        "",
        upstreams=((namespace, place),),
        asked=lambda: 6.0,
        latency=lambda _: database.waits(),
        failing=lambda _: database.given_up(),
    )
    await lab.app(namespace, other, like=like, replicas=2, tag="2.4.0", config=other)
    await rolled(lab, namespace, other, "2.4.0")
    await set_before(lab, namespace, front, name)
    of_app = {"namespace": namespace, "service": name, "cache": name}
    for result in ("hit", "miss"):
        counted = lab.adding_up(lambda result=result: ASKED * part(result))  # type: ignore[misc]
        lab.measure("cache_gets_total", counted, "counter", **of_app, result=result)
    lab.measure("pg_stat_activity_count", database.active, namespace=namespace, service=place, state="active")
    for one in (name, other):
        lab.alert_slow(namespace, one)
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await change_page(lab, namespace, front)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "2.4.1")
    await lab.pause(lab.rng.uniform(4, 8))
    await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, front, {"data": {"PAGE_SIZE": "45"}})
    await lab.pause(lab.rng.uniform(4, 8))
    if by_roll:
        switched = [{"name": key, "value": after}]
        await lab.roll(by, namespace, name, f"8.{minor}.1", culprit=True, env=switched)
    else:
        await lab.culprit(by, "update", "ConfigMap", namespace, name, {"data": {key: after}})
    lab.start(afterwards())
