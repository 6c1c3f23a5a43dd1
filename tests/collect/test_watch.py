"""A watch against an API server that answers by a script."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kubernetes.aio.client import ApiClient, Configuration

from app.collect.apiserver import ApiServer
from app.collect.watch import Horizon, Pace, follow
from app.collect.words import Blind, Lost, Reached, Resumed, Saw, Served, Synced, Unreadable, Word
from tests.collect.scripted import SILENCE, Answer, Server, serving
from tests.listening import stop

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
PODS = Served("", "v1", "Pod", "pods")


def an_object(name: str, version: int, **metadata: object) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": name, "resourceVersion": str(version), **metadata}}


def event(kind: str, name: str, version: int) -> bytes:
    return json.dumps({"type": kind, "object": an_object(name, version)}).encode() + b"\n"


def bookmark(version: int, *, all_told: bool = False) -> bytes:
    annotations = {"annotations": {"k8s.io/initial-events-end": "true"}} if all_told else {}
    return json.dumps({"type": "BOOKMARK", "object": an_object("", version, **annotations)}).encode() + b"\n"


def error(code: int, message: str = "because") -> bytes:
    return (
        json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": code, "message": message}}).encode() + b"\n"
    )


@dataclass
class Waits:
    """A pace at which nothing waits, and how long it would have; its clock moves by what was waited."""

    waited: list[float] = field(default_factory=list)

    async def sleep(self, wait: timedelta) -> None:
        self.waited.append(wait.total_seconds())

    def pace(self) -> Pace:
        return Pace(
            clock=lambda: NOON + timedelta(seconds=sum(self.waited)),
            sleep=self.sleep,
            chance=lambda: 0.5,
        )


async def told(
    server: Server,
    count: int,
    *,
    since: str = "",
    pace: Pace | None = None,
    horizon: Horizon | None = None,
    resumed: bool = False,
) -> list[Word]:
    """The first so many words of a watch; that it was resumed is passed over, unless that is asked for."""
    found: list[Word] = []
    lists, pace = asyncio.Semaphore(2), pace or Waits().pace()
    async with aclosing(follow(server.api, PODS, since=since, lists=lists, pace=pace, horizon=horizon)) as watch:
        async for one in watch:
            if resumed or not isinstance(one, Resumed):
                found.append(one)
            if len(found) == count:
                break
    return found


def names(found: Sequence[Word]) -> list[str]:
    """The words in short: what was seen with its name, the others with their version or their type."""
    short = []
    for one in found:
        match one:
            case Saw():
                short.append(f"{one.type} {json.loads(one.object)['metadata']['name']}{' first' if one.first else ''}")
            case Synced() | Reached():
                short.append(f"{type(one).__name__} {one.resource_version}")
            case _:
                short.append(type(one).__name__)
    return short


async def test_what_there_is_comes_first_and_then_what_happens() -> None:
    first = [event("ADDED", "a", 3), event("ADDED", "b", 4), bookmark(9, all_told=True)]
    async with serving(Answer([*first, event("MODIFIED", "a", 10), bookmark(12), SILENCE])) as server:
        found = await told(server, 6)
    assert names(found) == ["Begun", "ADDED a first", "ADDED b first", "Synced 9", "MODIFIED a", "Reached 12"]
    assert server.asked[0]["path"] == "/api/v1/pods"
    assert server.asked[0]["sendInitialEvents"] == "true"
    assert "resourceVersion" not in server.asked[0]


async def test_from_a_known_version_there_is_no_list() -> None:
    async with serving(Answer([event("DELETED", "a", 11), SILENCE])) as server:
        found = await told(server, 1, since="10")
    assert names(found) == ["DELETED a"]
    assert server.asked[0]["resourceVersion"] == "10"
    assert "sendInitialEvents" not in server.asked[0]
    assert server.asked[0]["allowWatchBookmarks"] == "true"


async def test_a_watch_that_ends_goes_on_from_the_last_version_that_was_told() -> None:
    async with serving(
        Answer([event("ADDED", "a", 11)]), Answer([bookmark(17)]), Answer([event("ADDED", "b", 18), SILENCE])
    ) as server:
        assert names(await told(server, 3, since="10")) == ["ADDED a", "Reached 17", "ADDED b"]
    assert [asked["resourceVersion"] for asked in server.asked] == ["10", "11", "17"]


@pytest.mark.parametrize("answer", [Answer([error(410, "too old resource version")]), Answer(status=410)])
async def test_a_history_that_is_gone_is_told_and_all_there_is_follows(answer: Answer) -> None:
    waits = Waits()
    async with serving(answer, Answer([event("ADDED", "a", 50), bookmark(60, all_told=True), SILENCE])) as server:
        found = await told(server, 4, since="10", pace=waits.pace())
    assert names(found) == ["Lost", "Begun", "ADDED a first", "Synced 60"]
    assert isinstance(found[0], Lost)
    assert "the watch cannot go on" in found[0].why
    assert waits.waited == [15.0]
    assert "resourceVersion" not in server.asked[1]


async def test_all_there_is_is_not_asked_for_twice_within_a_minute() -> None:
    waits = Waits()
    again = Answer([bookmark(60, all_told=True), error(410)])
    async with serving(again, again, Answer([bookmark(70, all_told=True), SILENCE])) as server:
        found = await told(server, 8, pace=waits.pace())
    assert names(found) == ["Begun", "Synced 60", "Lost", "Begun", "Synced 60", "Lost", "Begun", "Synced 70"]
    assert waits.waited == [60.0, 60.0]


async def test_a_clock_that_is_set_back_puts_off_no_watch() -> None:
    waits, times = Waits(), iter([NOON, NOON])
    pace = replace(waits.pace(), clock=lambda: next(times, NOON - timedelta(hours=3)))
    gone = Answer([bookmark(60, all_told=True), error(410)])
    async with serving(gone, Answer([bookmark(70, all_told=True), SILENCE])) as server:
        await told(server, 5, pace=pace)
    assert waits.waited == [60.0]


async def test_an_api_server_without_streaming_lists_is_listed_in_pages() -> None:
    def page(version: int, more: str, *objects: dict[str, Any]) -> Answer:
        metadata = {"resourceVersion": str(version), "continue": more}
        return Answer([json.dumps({"metadata": metadata, "items": objects}).encode()])

    async with serving(
        Answer([json.dumps({"message": "sendInitialEvents is forbidden for watch"}).encode()], status=422),
        page(40, "next", an_object("a", 3)),
        page(40, "", an_object("b", 5)),
        Answer([event("DELETED", "a", 41), SILENCE]),
    ) as server:
        found = await told(server, 6)
    assert names(found) == ["Begun", "Begun", "ADDED a first", "ADDED b first", "Synced 40", "DELETED a"]
    assert [asked.get("continue") for asked in server.asked] == [None, None, "next", None]
    assert server.asked[1]["limit"] == "500"
    assert server.asked[3]["resourceVersion"] == "40"


async def test_pages_that_expire_are_listed_anew() -> None:
    listed = json.dumps({"metadata": {"resourceVersion": "40", "continue": "next"}, "items": [an_object("a", 3)]})
    whole = json.dumps({"metadata": {"resourceVersion": "50"}, "items": [an_object("b", 3)]})
    async with serving(
        Answer(status=422), Answer([listed.encode()]), Answer(status=410), Answer([whole.encode()])
    ) as server:
        found = await told(server, 7)
    assert names(found) == ["Begun", "Begun", "ADDED a first", "Lost", "Begun", "ADDED b first", "Synced 50"]


async def test_failures_are_told_and_waited_out_longer_and_longer() -> None:
    waits = Waits()
    async with serving(*[Answer(status=503)] * 8, Answer([event("ADDED", "a", 11), SILENCE])) as server:
        found = await told(server, 9, since="10", pace=waits.pace())
    assert names(found) == ["Blind"] * 8 + ["ADDED a"]
    assert waits.waited == [1.2, 2.4, 4.8, 9.6, 19.2, 38.4, 45.0, 45.0]
    assert isinstance(found[0], Blind)
    assert found[0].why == "503 Service Unavailable"


async def test_what_the_api_server_asks_to_wait_is_waited() -> None:
    waits = Waits()
    busy = Answer(status=429, headers={"Retry-After": "7"})
    async with serving(busy, Answer([bookmark(11), SILENCE])) as server:
        assert names(await told(server, 2, since="10", pace=waits.pace())) == ["Blind", "Reached 11"]
    assert waits.waited == [10.5]


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_what_is_not_allowed_is_asked_for_once_a_minute(status: int) -> None:
    waits = Waits()
    async with serving(*[Answer(status=status)] * 2, Answer([bookmark(11), SILENCE])) as server:
        await told(server, 3, since="10", pace=waits.pace())
    assert waits.waited == [90.0, 90.0]


async def test_watches_that_end_at_once_make_no_storm() -> None:
    waits = Waits()
    async with serving(*[Answer([bookmark(11 + n)]) for n in range(4)]) as server:
        await told(server, 4, since="10", pace=waits.pace())
    assert waits.waited == [1.2, 2.4, 4.8]


async def test_a_watch_that_says_nothing_at_all_is_a_failure() -> None:
    async with serving(Answer(), Answer([b"{}"]), Answer([bookmark(11), SILENCE])) as server:
        assert names(await told(server, 2, since="10")) == ["Blind", "Reached 11"]


@pytest.mark.parametrize("silent", [Answer(), Answer([SILENCE])])
async def test_an_api_server_that_went_back_in_time_is_found_out(silent: Answer) -> None:
    causes = {"causes": [{"reason": "ResourceVersionTooLarge"}]}
    status = {"message": "Too large resource version: 70, current: 9", "details": causes}
    refused = Answer([json.dumps(status).encode()], status=504)
    pace = replace(Waits().pace(), quiet=timedelta(seconds=2))
    async with serving(silent, refused, Answer([bookmark(9, all_told=True), SILENCE])) as server:
        found = await told(server, 3, since="70", pace=pace)
    assert names(found) == ["Lost", "Begun", "Synced 9"]
    assert isinstance(found[0], Lost)
    assert found[0].why == "the API server went back in time: Too large resource version: 70, current: 9"
    assert server.asked[1]["resourceVersionMatch"] == "NotOlderThan"


async def test_a_silent_watch_is_cut_and_goes_on() -> None:
    pace = replace(Waits().pace(), quiet=timedelta(seconds=2))
    async with serving(Answer([event("ADDED", "a", 11), SILENCE]), Answer([event("ADDED", "b", 12)])) as server:
        found = await told(server, 4, since="10", pace=pace, resumed=True)
    assert names(found) == ["Resumed", "ADDED a", "Resumed", "ADDED b"]
    assert [one.get("resourceVersion") for one in server.asked[:2]] == ["10", "11"]


async def test_a_kind_without_bookmarks_is_not_asked_about_while_others_are_told() -> None:
    pace = replace(Waits().pace(), quiet=timedelta(seconds=0.5))
    quiet = [Answer([SILENCE]), Answer([SILENCE]), Answer([event("ADDED", "b", 12)])]
    async with serving(*quiet) as server:
        found = await told(server, 4, since="10", pace=pace, horizon=Horizon("11"), resumed=True)
    assert names(found) == ["Resumed", "Resumed", "Resumed", "ADDED b"]
    assert all(one.get("watch") for one in server.asked[:3])


async def test_who_is_not_reached_is_asked_once_a_turn() -> None:
    connections = list[asyncio.StreamWriter]()

    async def reset(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        writer.transport.abort()

    async with serving() as script, await asyncio.start_server(reset, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        api = ApiServer(ApiClient(Configuration(host=f"http://127.0.0.1:{port}")))
        try:
            found = await told(replace(script, api=api), 4, since="10")
        finally:
            await api.close()
            await stop(server)
    assert names(found) == ["Blind"] * 4
    assert len(connections) == 4


async def test_after_the_api_server_was_lost_nothing_is_taken_for_reached() -> None:
    horizon = Horizon("11")
    pace = replace(Waits().pace(), quiet=timedelta(seconds=0.5))
    async with serving(Answer(status=503), Answer([SILENCE]), Answer([b"{}"])) as server:
        found = await told(server, 2, since="10", pace=pace, horizon=horizon, resumed=True)
        assert names(found) == ["Blind", "Resumed"]
        assert horizon.version == ""


async def test_an_event_that_is_cut_off_is_never_told() -> None:
    line = event("ADDED", "b", 12)
    async with serving(Answer([event("ADDED", "a", 11), line[: len(line) // 2]]), Answer([line, SILENCE])) as server:
        assert names(await told(server, 2, since="10")) == ["ADDED a", "ADDED b"]
    assert server.asked[1]["resourceVersion"] == "11"


async def test_an_event_in_pieces_is_told_whole() -> None:
    line = event("ADDED", "a", 11)
    async with serving(Answer([line[at : at + 1] for at in range(len(line))] + [SILENCE])) as server:
        assert names(await told(server, 1, since="10")) == ["ADDED a"]


@pytest.mark.parametrize(
    "line", [b"<html>\n", b'{"type": 7}\n', b'{"type":"ADDED","object":{"metadata":[]}}\n', b"[" * 100_000 + b"\n"]
)
async def test_a_line_that_is_no_event_stops_nothing(line: bytes) -> None:
    async with serving(Answer([line, event("ADDED", "a", 11), SILENCE])) as server:
        found = await told(server, 2, since="10")
    assert names(found) == ["Unreadable", "ADDED a"]
    assert isinstance(found[0], Unreadable)
    assert found[0].line == line.rstrip(b"\n")


async def test_a_refusal_in_the_midst_is_waited_out_and_nothing_is_listed() -> None:
    waits = Waits()
    refused = Answer([event("ADDED", "a", 11), error(500, "etcdserver: leader changed")])
    async with serving(refused, Answer([event("ADDED", "b", 12), SILENCE])) as server:
        found = await told(server, 3, since="10", pace=waits.pace())
    assert names(found) == ["ADDED a", "Blind", "ADDED b"]
    assert server.asked[1]["resourceVersion"] == "11"


async def test_no_more_kinds_ask_for_everything_at_a_time_than_there_are_turns() -> None:
    lists = asyncio.Semaphore(1)
    async with serving(Answer([event("ADDED", "a", 1), SILENCE]), Answer([bookmark(9, all_told=True)])) as server:
        async with aclosing(follow(server.api, PODS, since="", lists=lists, pace=Waits().pace())) as one:
            assert names([await anext(one), await anext(one)]) == ["Begun", "ADDED a first"]
            assert lists.locked()
        assert not lists.locked()
        async with aclosing(follow(server.api, PODS, since="", lists=lists, pace=Waits().pace())) as other:
            assert names([await anext(other), await anext(other)]) == ["Begun", "Synced 9"]
            assert not lists.locked()
