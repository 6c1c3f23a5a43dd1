"""All kinds of one cluster against an API server that answers by a script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from structlog.testing import capture_logs

from app.collect.cluster import EVERY, LOST, Following
from app.collect.watch import Pace
from app.collect.words import Begun, Blind, Resumed, Served, Word
from tests.collect.scripted import SILENCE, Answer, Server, serving
from tests.collect.test_discovery import ALL, a_group, a_version, groups
from tests.collect.test_watch import bookmark, error, event, names

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
PODS = ("pods", "Pod", ALL)
CRDS = a_group("apiextensions.k8s.io", a_version("v1", ("customresourcedefinitions", "CustomResourceDefinition", ALL)))
RULES = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
CRDS_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def tills(version: str) -> dict[str, object]:
    return a_group("shop.example", a_version(version, ("tills", "Till", ALL)))


@dataclass
class Heard:
    """What was told, and a wait until it is what is hoped for."""

    words: list[tuple[str, str]] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, served: Served | None, told: Word) -> None:
        if not isinstance(told, Begun | Resumed):
            self.words.append((served.path if served else "", names([told])[0]))
        self.news.set()

    async def until(self, hoped: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not hoped():
                self.news.clear()
                await self.news.wait()


async def _sleep(wait: timedelta) -> None:
    """Nothing waits but for the next look."""
    await (asyncio.Event().wait() if wait == EVERY else asyncio.sleep(0))


@asynccontextmanager
async def following(
    server: Server, since: Mapping[tuple[str, str], str] | None = None, *, add: Collection[str] = ()
) -> AsyncIterator[Heard]:
    heard = Heard()
    pace = Pace(clock=lambda: NOON, sleep=_sleep, chance=lambda: 0.5)
    task = asyncio.create_task(Following(server.api, heard.tell, since=since or {}, pace=pace, add=add).run())
    try:
        yield heard
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()


async def test_each_kind_that_is_served_has_a_watch_from_where_it_was() -> None:
    core = a_version("v1", PODS, ("services", "Service", ALL))
    async with (
        serving(
            paths={
                "/api": [groups(a_group("", core))],
                "/apis": [groups()],
                "/api/v1/pods": [Answer([event("ADDED", "a", 11), SILENCE])],
                "/api/v1/services": [Answer([bookmark(9, all_told=True), SILENCE])],
            }
        ) as server,
        following(server, {("", "pods"): "10"}) as heard,
    ):
        await heard.until(lambda: len(heard.words) == 2)
    assert sorted(heard.words) == [("/api/v1/pods", "ADDED a"), ("/api/v1/services", "Synced 9")]
    asked = {one["path"]: one.get("resourceVersion") for one in server.asked if one["path"] != RULES}
    assert asked == {"/api": None, "/apis": None, "/api/v1/pods": "10", "/api/v1/services": None}


async def test_the_log_says_which_kind_has_to_be_asked_for_again_and_why() -> None:
    async with serving(
        paths={
            "/api": [groups(a_group("", a_version("v1", PODS)))],
            "/apis": [groups()],
            "/api/v1/pods": [Answer([error(410, "too old")]), Answer([bookmark(20, all_told=True), SILENCE])],
        }
    ) as server:
        with capture_logs() as logged:
            async with following(server, {("", "pods"): "10"}) as heard:
                await heard.until(lambda: ("/api/v1/pods", "Synced 20") in heard.words)
    [(kind, why)] = [(one["kind"], one["why"]) for one in logged if one["event"] == LOST]
    assert (kind, why) == ("/api/v1/pods", "the watch cannot go on: too old")


async def test_a_new_kind_is_watched_when_its_definition_comes() -> None:
    defined = Answer([bookmark(9, all_told=True), event("ADDED", "tills.shop.example", 10), SILENCE])
    async with (
        serving(
            paths={
                "/api": [groups()] * 2,
                "/apis": [groups(CRDS), groups(CRDS, tills("v1"))],
                CRDS_PATH: [defined],
                "/apis/shop.example/v1/tills": [Answer([event("ADDED", "till", 12), SILENCE])],
            }
        ) as server,
        following(server) as heard,
    ):
        await heard.until(lambda: ("/apis/shop.example/v1/tills", "ADDED till first") in heard.words)
    assert [one["path"] for one in server.asked].count(CRDS_PATH) == 1


async def test_a_kind_that_moves_to_another_version_goes_on_there() -> None:
    moved = Answer([bookmark(9, all_told=True), event("MODIFIED", "tills.shop.example", 10), SILENCE])
    async with (
        serving(
            paths={
                "/api": [groups()] * 2,
                "/apis": [groups(CRDS, tills("v1beta1")), groups(CRDS, tills("v1"))],
                CRDS_PATH: [moved],
                "/apis/shop.example/v1beta1/tills": [Answer([SILENCE])],
                "/apis/shop.example/v1/tills": [Answer([event("ADDED", "till", 12), SILENCE])],
            }
        ) as server,
        following(server, {("shop.example", "tills"): "7"}) as heard,
    ):
        await heard.until(lambda: ("/apis/shop.example/v1/tills", "ADDED till") in heard.words)
    asked = [one["resourceVersion"] for one in server.asked if one["path"] == "/apis/shop.example/v1/tills"]
    assert asked == ["7"]


async def test_a_group_that_does_not_answer_for_now_is_watched_on() -> None:
    changed = Answer([bookmark(9, all_told=True), event("MODIFIED", "pods.example", 10), SILENCE])
    gone = a_group("shop.example", a_version("v1", freshness="Stale"))
    tills_path = "/apis/shop.example/v1/tills"
    async with (
        serving(
            paths={
                "/api": [groups(), groups(a_group("", a_version("v1", PODS)))],
                "/apis": [groups(CRDS, tills("v1")), groups(CRDS, gone)],
                CRDS_PATH: [changed],
                tills_path: [Answer([bookmark(5, all_told=True), SILENCE])],
                "/api/v1/pods": [Answer([event("ADDED", "a", 3), SILENCE])],
            }
        ) as server,
        following(server) as heard,
    ):
        await heard.until(lambda: ("/api/v1/pods", "ADDED a first") in heard.words)
        await heard.until(lambda: (tills_path, "Synced 5") in heard.words)
    assert [one["path"] for one in server.asked].count(tills_path) == 1


async def test_while_nothing_is_known_of_what_is_served_that_is_told() -> None:
    async with (
        serving(
            paths={
                "/api": [Answer(status=503), groups(a_group("", a_version("v1", PODS)))],
                "/apis": [groups()],
                "/api/v1/pods": [Answer([event("ADDED", "a", 3), SILENCE])],
            }
        ) as server,
        following(server) as heard,
    ):
        await heard.until(lambda: len(heard.words) == 2)
    assert heard.words == [("", Blind.__name__), ("/api/v1/pods", "ADDED a first")]


async def test_a_kind_that_is_not_served_is_said_in_the_log_once() -> None:
    changed = Answer([bookmark(9, all_told=True), event("MODIFIED", "tills.shop.example", 10), SILENCE])
    pods = a_group("", a_version("v1", PODS))
    async with serving(
        paths={
            "/api": [groups(), groups(pods)],
            "/apis": [groups(CRDS, tills("v1"))] * 2,
            CRDS_PATH: [changed],
            "/apis/shop.example/v1/tills": [Answer([SILENCE])],
            "/api/v1/pods": [Answer([event("ADDED", "a", 3), SILENCE])],
        }
    ) as server:
        with capture_logs() as logged:
            async with following(server, add=("secret",)) as heard:
                await heard.until(lambda: ("/api/v1/pods", "ADDED a first") in heard.words)
    assert [one["kinds"] for one in logged if one["log_level"] == "warning"] == [("secret",)]


async def test_that_more_is_allowed_than_is_needed_is_said_in_the_log_once() -> None:
    changed = Answer([bookmark(9, all_told=True), event("MODIFIED", "tills.shop.example", 10), SILENCE])
    rule = b'{"verbs":["list","watch","delete"],"apiGroups":[""],"resources":["pods"]}'
    rules = Answer([b'{"status":{"resourceRules":[%s],"incomplete":false}}' % rule], status=201)
    async with serving(
        paths={
            "/api": [groups(), groups(a_group("", a_version("v1", PODS)))],
            "/apis": [groups(CRDS)] * 2,
            RULES: [rules] * 2,
            CRDS_PATH: [changed],
            "/api/v1/pods": [Answer([event("ADDED", "a", 3), SILENCE])],
        }
    ) as server:
        with capture_logs() as logged:
            async with following(server) as heard:
                await heard.until(lambda: ("/api/v1/pods", "ADDED a first") in heard.words)
    said = "more is allowed than is needed: delete pods"
    assert [one["event"] for one in logged if one["log_level"] == "warning"] == [said]
