"""Following changes: what is there, then each as it is recorded, once, also over lost connections; and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import orjson
import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from starlette.types import Message, Scope

from app.core.model import Batch, Change, Gap
from app.store import arrivals, sessions, tokens
from app.store.record import record
from app.store.tokens import Purpose
from app.web.follow import Followers
from app.web.follow_changes import Mark, parse
from app.web.guard import COOKIE
from app.web.problems import Problem
from tests.web import world
from tests.web.conftest import NOW, Site

PATIENCE = 20
CHANGES = "/api/v1/changes"


@pytest.fixture(autouse=True)
def followers(site: Site) -> Followers:
    """Those of a process that does not wait for long."""
    made = Followers(every=timedelta(milliseconds=20), told_every=timedelta(milliseconds=60))
    site.app.state.followers = made
    return made


class Client:
    """Who follows, over ASGI: reads a line when asked to, and nothing that was not asked for where ``slow``."""

    def __init__(
        self,
        site: Site,
        query: str,
        *,
        path: str = CHANGES,
        token: str = "",
        cookie: str = "",
        slow: bool = False,
        gzip: bool = False,
    ) -> None:
        bearer = f"Bearer {token or site.bearer['viewer']}".encode()
        headers = [(b"cookie", cookie.encode())] if cookie else [(b"authorization", bearer)]
        headers += [(b"accept-encoding", b"gzip")] if gzip else []
        self.scope: Scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
            "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
            "headers": headers, "client": ("127.0.0.1", 1), "server": ("foreshock.test", 80), "state": {},
        }  # fmt: skip
        self.status, self.headers = 0, dict[str, str]()
        self.gone, self.asked = asyncio.Event(), asyncio.Event()
        self.sent: asyncio.Queue[bytes] = asyncio.Queue()
        self.slow, self.begun = slow, False
        self.task = asyncio.create_task(site.app(self.scope, self._receive, self._send))

    async def _receive(self) -> Message:
        if not self.begun:
            self.begun = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            return
        if self.slow and self.sent.qsize():
            await self.asked.wait()
        self.sent.put_nowait(message.get("body", b""))

    async def line(self) -> dict[str, Any]:
        """The next line, of whatever sort."""
        while not (body := await asyncio.wait_for(self.sent.get(), PATIENCE)):
            assert not self.task.done(), "it ended"
        found: dict[str, Any] = orjson.loads(body)
        return found

    async def next(self, sort: str) -> dict[str, Any]:
        """The next line of a sort."""
        while sort not in (found := await self.line()):
            pass
        return found

    async def until_fresh(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """The lines of what is followed up to the next one that says how fresh all is, and that."""
        found = []
        while "freshness" not in (line := await self.line()):
            found += [line] if "after" in line else []
        return found, line

    async def leave(self) -> None:
        self.gone.set()
        await asyncio.wait_for(self.task, PATIENCE)


@asynccontextmanager
async def following(site: Site, query: str = "", **more: Any) -> AsyncIterator[Client]:
    client = Client(site, f"follow=1&{query}".rstrip("&"), **more)
    try:
        yield client
    finally:
        await client.leave()


async def tell(site: Site, *changes: Change, gaps: tuple[Gap, ...] = (), cluster: str = world.CLUSTER) -> None:
    async with site.database.write.begin() as conn:
        await record(conn, Batch(cluster, changes=changes, gaps=gaps))


count = iter(range(10_000))


def fresh(**more: Any) -> Change:
    """A change that nobody has told of."""
    n = next(count)
    return world.a_change(f"app-{n}", version=f"new {n}", **{"at": NOW - timedelta(seconds=n), **more})


def ids(lines: list[dict[str, Any]]) -> list[str]:
    return [line["change"]["id"] for line in lines]


async def test_what_is_there_comes_first_and_then_what_is_recorded(site: Site) -> None:
    async with site.client() as client:
        newest = (await client.get(CHANGES, params={"limit": 5})).json()["items"]
    async with following(site, "limit=5") as client:
        first, end = await client.until_fresh()
        assert (client.status, client.headers["content-type"]) == (200, "application/x-ndjson")
        assert "content-length" not in client.headers
        assert [line["change"] for line in first] == newest[::-1]
        assert end["freshness"][0]["cluster"] == world.CLUSTER
        late = fresh(at=NOW - timedelta(days=30))
        await tell(site, late)
        assert (await client.next("change"))["change"]["id"] == late.id
        more = [fresh() for _ in range(3)]
        await tell(site, *more)
        assert [(await client.next("change"))["change"]["id"] for _ in more] == [one.id for one in more]


async def test_filters_narrow_what_is_followed_too(site: Site) -> None:
    async with following(site, "limit=1&namespace=identity&kind=deployment") as client:
        await client.until_fresh()
        wanted = fresh(namespace="identity")
        await tell(site, fresh(), fresh(namespace="identity", kind="ConfigMap", api_group=""), wanted)
        assert ids([await client.next("change")]) == [wanted.id]


@pytest.mark.parametrize("read", [1, 3, 5])
async def test_a_lost_connection_loses_and_repeats_nothing(site: Site, read: int) -> None:
    """Cut off while the list is told, and again and again while what arrived is."""
    async with following(site, "limit=5&derived=shown") as client:
        lines = [await client.line() for _ in range(read)]
    async with following(site, "limit=5&derived=shown") as client:
        whole, _ = await client.until_fresh()
    arrived = [fresh(at=NOW - timedelta(days=1)), *(fresh(at=NOW) for _ in range(6))]
    await tell(site, *arrived[:4])
    await tell(site, *arrived[4:])
    expected = ids(whole) + [one.id for one in arrived]
    while len(lines) < len(expected):
        async with following(site, f"derived=shown&since={lines[-1]['after']}") as client:
            lines += [await client.next("change") for _ in range(2 if len(lines) + 1 < len(expected) else 1)]
    assert ids(lines) == expected
    async with following(site, f"derived=shown&since={lines[-1]['after']}") as client:
        assert (await client.until_fresh())[0] == []


async def test_a_line_of_freshness_is_a_place_to_go_on_from(site: Site) -> None:
    async with following(site, "limit=1&namespace=nowhere") as client:
        _, before = await client.until_fresh()
        await tell(site, fresh())
        while (after := (await client.next("freshness"))["after"]) == before["after"]:
            pass
    async with following(site, f"since={after}") as client:
        assert (await client.until_fresh())[0] == []
    async with following(site, f"since={before['after']}") as client:
        assert len((await client.until_fresh())[0] or [await client.next("change")]) == 1


async def test_two_clusters_are_followed_at_once(site: Site) -> None:
    async with following(site, "limit=1") as client:
        await client.until_fresh()
        one, other = fresh(), fresh(cluster="annex")
        await tell(site, other, cluster="annex")
        await tell(site, one)
        lines = [await client.next("change") for _ in range(2)]
        assert set(ids(lines)) == {one.id, other.id}
    async with following(site, f"since={lines[0]['after']}&cluster=annex") as client:
        assert ids((await client.until_fresh())[0]) == []
    async with site.database.write.begin() as conn:
        await conn.execute(text("DELETE FROM changes c USING clusters WHERE id = c.cluster_id AND name = 'annex'"))


async def test_many_changes_at_once_are_all_told(site: Site) -> None:
    async with following(site, "limit=1&derived=shown") as client:
        await client.until_fresh()
        many = [fresh(at=NOW - timedelta(days=2)) for _ in range(450)]
        await tell(site, *many)
        assert [(await client.next("change"))["change"]["id"] for _ in many] == [one.id for one in many]


async def test_what_becomes_known_as_not_seen_is_told_once(site: Site) -> None:
    async with following(site, "limit=1") as client:
        await client.until_fresh()
        why = f"the watch was cut off ({next(count)})"
        await tell(site, gaps=(Gap(world.CLUSTER, "Pod", NOW, NOW + timedelta(seconds=5), why),))
        assert (await client.next("gap"))["gap"]["why"] == why
        for _ in range(3):
            assert "gap" not in await client.line()


async def test_silence_is_told_from_death(site: Site) -> None:
    async with following(site, "limit=1&namespace=nowhere") as client:
        for _ in range(4):
            await client.next("freshness")


async def test_no_connection_is_held_while_waiting(site: Site) -> None:
    site.app.state.followers = Followers(every=timedelta(seconds=PATIENCE))
    async with following(site, "limit=1") as client:
        await client.until_fresh()
        await asyncio.sleep(0.3)
        assert site.database.read.pool.checkedout() == 0  # type: ignore[attr-defined]
        await asyncio.wait_for(client.leave(), 2)  # who leaves is not waited for


async def test_it_ends_when_its_token_is_revoked(site: Site) -> None:
    token = await site.token(Purpose.API)
    async with following(site, "limit=1", token=token) as client:
        await client.until_fresh()
        async with site.database.write.begin() as conn:
            await tokens.revoke(conn, token, now=NOW)
        problem = (await client.next("problem"))["problem"]
        assert (problem["status"], problem["detail"]) == (401, "this credential is expired or revoked")
        await asyncio.wait_for(client.task, PATIENCE)


async def test_it_ends_when_the_session_is_revoked(site: Site) -> None:
    session = await site.token(Purpose.SESSION)
    async with following(site, "limit=1", cookie=f"{COOKIE}={session}") as client:
        await client.until_fresh()
        async with site.database.write.begin() as conn:
            assert await sessions.end(conn, now=NOW) == 1
        assert (await client.next("problem"))["problem"]["status"] == 401
        await asyncio.wait_for(client.task, PATIENCE)


def test_that_takes_ten_seconds_in_the_field() -> None:
    assert Followers().told_every.total_seconds() == 10


async def test_it_ends_when_the_process_stops(site: Site, followers: Followers) -> None:
    async with following(site, "limit=1") as client:
        await client.until_fresh()
        followers.stopping = lambda: True
        assert (await client.next("problem"))["problem"]["status"] == 503
        await asyncio.wait_for(client.task, PATIENCE)
    assert followers.count == 0


async def test_it_ends_in_words_when_the_database_goes(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    async with following(site, "limit=1") as client:
        _, end = await client.until_fresh()

        async def gone(*_: object, **__: object) -> None:
            raise OperationalError("SELECT", {}, Exception("the connection is closed"))

        with monkeypatch.context() as patched:
            patched.setattr(arrivals, "read_after", gone)
            assert (await client.next("problem"))["problem"]["status"] == 503
    await tell(site, missed := fresh())
    async with following(site, f"since={end['after']}") as client:
        assert ids([await client.next("change")]) == [missed.id]


async def test_who_reads_nothing_is_held_up_and_then_let_go(site: Site, followers: Followers) -> None:
    followers.reads_within = timedelta(milliseconds=300)
    async with following(site, "limit=100", slow=True) as client:
        await asyncio.wait_for(client.task, PATIENCE)
        assert client.sent.qsize() == 1  # nothing is made that is not read
    assert followers.count == 0


async def test_there_are_only_so_many(site: Site, followers: Followers) -> None:
    followers.most = 2
    async with following(site, "limit=1") as one, following(site, "limit=1") as two:
        await one.until_fresh()
        await two.until_fresh()
        async with site.client() as client:
            refused = await client.get(CHANGES, params={"follow": 1})
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "30"
        assert refused.json()["detail"].startswith("2 follow here already")
    async with following(site, "limit=1") as three:
        await three.until_fresh()


async def test_head_does_not_follow(site: Site, followers: Followers) -> None:
    async with site.client() as client:
        headed = await asyncio.wait_for(client.head(CHANGES, params={"follow": 1}), PATIENCE)
    assert (headed.status_code, headed.content, followers.count) == (200, b"", 0)
    assert headed.headers["content-type"] == "application/x-ndjson"


@pytest.mark.parametrize(
    ("query", "status", "field"),
    [
        ("follow=1&after=1.1", 422, "after"),
        ("since=1", 422, "since"),
        ("follow=1&since=x", 422, "since"),
        ("follow=1&since=1", 400, "since"),
        ("follow=1&since=ffffffffff", 400, "since"),
        ("follow=perhaps", 422, "follow"),
        ("follow=1&cluster=nosuch", 404, "cluster"),
        ("follow=1&limit=0", 422, "limit"),
        ("follow=1&from=2020-01-01T00:00:00Z", 422, "from"),
    ],
)
async def test_what_cannot_be_followed_is_refused(site: Site, query: str, status: int, field: str) -> None:
    async with site.client() as client:
        refused = await client.get(f"{CHANGES}?{query}")
    assert (refused.status_code, refused.json()["field"]) == (status, field)


async def test_a_mark_of_another_database_or_of_yesterday_is_refused(site: Site) -> None:
    ahead = Mark({1: arrivals.Place(1 << 40, 1)}).at(NOW)
    async with site.client() as client:
        refused = await client.get(CHANGES, params={"follow": 1, "since": ahead})
    assert refused.status_code == 400
    old = Mark({1: arrivals.Place(1, 1)}).at(NOW - timedelta(hours=25))
    with pytest.raises(Problem, match="more than a day old"):
        parse(old, NOW)


async def test_lines_come_through_compression_one_by_one(site: Site) -> None:
    async with following(site, "limit=1", gzip=True) as client:
        await asyncio.wait_for(client.sent.get(), PATIENCE)
        assert client.headers["content-encoding"] == "gzip"
