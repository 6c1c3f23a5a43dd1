"""Following incidents: what is there, then what becomes of each, once, also over lost connections; never another's."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace as with_
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from app.core.findings import Incident, Ranking
from app.core.findings import Scope as About
from app.core.model import Batch
from app.core.roles import Role, Scope
from app.store import incidents, tokens
from app.store.database import Database
from app.store.record import record
from app.store.tokens import Purpose
from app.web import params
from app.web.follow import Followers
from app.web.routes import create_app
from tests.web import test_follow, world
from tests.web.conftest import NOW, Site, deps
from tests.web.test_follow import Client

INCIDENTS = "/api/v1/incidents"
QUICK = Followers(every=timedelta(milliseconds=20), told_every=timedelta(milliseconds=60))
Line = dict[str, Any]
count = iter(range(10_000))
ranked = iter(NOW + timedelta(seconds=number) for number in range(10_000))


@pytest.fixture
async def site(database: Database) -> Site:
    """A site of its own for each test, which names its cluster: what others opened is not among it."""
    made = Site(create_app(with_(deps(database), scoped=database.scoped)), database)
    made.app.state.followers = with_(QUICK)
    made.bearer["viewer"] = await made.token(Purpose.API)
    return made


@pytest.fixture
async def cluster(site: Site) -> str:
    name = f"shop-{next(count)}"
    async with site.database.write.begin() as conn:
        await record(conn, Batch(name, changes=(world.a_change("one", cluster=name),)))
    return name


@asynccontextmanager
async def following(site: Site, query: str, **more: Any) -> AsyncIterator[Client]:
    async with test_follow.following(site, query, path=INCIDENTS, **more) as client:
        yield client


def incident(cluster: str, **more: Any) -> Incident:
    """One that nobody has told of, each a second after the one before it."""
    n = next(count)
    one = replace(world.incident(), id=f"{n:012x}", cluster=cluster, title=f"Errors {n}", alerts=())
    return replace(one, **{"started_at": world.ALERT_AT + timedelta(seconds=n), **more})


async def save(site: Site, *found: Incident) -> None:
    async with site.database.write.begin() as conn:
        for one in found:
            await incidents.save_incident(conn, one)


async def rank(site: Site, one: Incident, *, share: float = 0.93) -> Ranking:
    """Ranks an incident anew: its first suspect has this share of the chance."""
    whole = world.ranking()
    first = replace(whole.suspects[0], probability=share)
    made = replace(
        whole, incident_id=one.id, ranked_at=next(ranked), suspects=(first, *whole.suspects[1:]), none_of_these=0.01
    )
    async with site.database.write.begin() as conn:
        await incidents.save_ranking(conn, made)
    return made


def told(lines: list[Line]) -> list[tuple[str, str]]:
    return [(line["incident"]["id"], line["incident"]["status"]) for line in lines]


async def settled(client: Client) -> list[Line]:
    """What is told until all that was done before is."""
    found = (await client.until_fresh())[0]
    return found + (await client.until_fresh())[0]


async def test_what_is_there_comes_first_and_then_what_becomes_of_it(site: Site, cluster: str) -> None:
    first, second = incident(cluster), incident(cluster)
    await save(site, first, second, incident(cluster, status="suspected"), incident(cluster, status="merged"))
    async with following(site, f"cluster={cluster}") as client:
        lines, end = await client.until_fresh()
        assert (client.status, client.headers["content-type"]) == (200, "application/x-ndjson")
        assert told(lines) == [(first.id, "open"), (second.id, "open")]
        async with site.client() as other:
            listed = (await other.get(INCIDENTS, params={"cluster": cluster})).json()
        assert [line["incident"] for line in lines] == listed["items"][::-1]
        assert [one["cluster"] for one in end["freshness"]] == [cluster]
        opened = incident(cluster)
        await save(site, opened)
        assert told([await client.next("incident")]) == [(opened.id, "open")]
        await rank(site, opened)
        line = await client.next("incident")
        assert (line["incident"]["id"], line["incident"]["first_suspect"]["name"]) == (opened.id, "checkout-api")
        await save(site, replace(first, status="resolved", resolved_at=NOW))
        assert told([await client.next("incident")]) == [(first.id, "resolved")]
        await save(site, replace(second, status="merged", merged_into=opened.id))
        line = await client.next("incident")
        assert (line["incident"]["id"], line["incident"]["merged_into"]) == (second.id, opened.id)
        await save(site, replace(first, status="open"))
        assert told([await client.next("incident")]) == [(first.id, "open")]


async def test_a_ranking_is_told_that_moved_and_no_other(site: Site, cluster: str) -> None:
    one = incident(cluster)
    await save(site, one)
    await rank(site, one)
    async with following(site, f"cluster={cluster}") as client:
        assert told((await client.until_fresh())[0]) == [(one.id, "open")]
        await rank(site, one, share=0.9304)
        assert await settled(client) == []
        await rank(site, one, share=0.51)
        line = await client.next("incident")
        assert line["incident"]["first_suspect"]["probability"] == 0.51
        await save(site, replace(one, title="Checkout is down"))
        await rank(site, one, share=0.51)
        assert (await client.next("incident"))["incident"]["title"] == "Checkout is down"


@pytest.mark.parametrize("read", [1, 2, 3])
async def test_a_lost_connection_loses_and_repeats_nothing(site: Site, cluster: str, read: int) -> None:
    """Cut off while the list is told; what changed meanwhile is told as it stands, once."""
    there = [incident(cluster) for _ in range(3)]
    await save(site, *there)
    async with following(site, f"cluster={cluster}") as client:
        lines = [await client.next("incident") for _ in range(read)]
    new, over = incident(cluster), replace(there[0], status="resolved", resolved_at=NOW)
    await save(site, new, over)
    async with following(site, f"cluster={cluster}&since={lines[-1]['after']}") as client:
        more, end = await client.until_fresh()
    expected = [(over.id, "resolved"), *((one.id, "open") for one in there[read:]), (new.id, "open")]
    assert told(more) == expected
    for after in (more[-1]["after"], end["after"]):
        async with following(site, f"cluster={cluster}&since={after}") as client:
            assert (await client.until_fresh())[0] == []
    async with following(site, f"cluster={cluster}&since={more[0]['after']}") as client:
        assert told((await client.until_fresh())[0]) == expected[1:]


async def test_the_newest_hundred_are_followed_and_a_limit_is_of_what_is_there(site: Site, cluster: str) -> None:
    many = [incident(cluster) for _ in range(params.WATCHED + 3)]
    await save(site, *many)
    async with following(site, f"cluster={cluster}&limit=2") as client:
        lines, end = await client.until_fresh()
        assert [one for one, _ in told(lines)] == [one.id for one in many[-2:]]
        assert re.fullmatch(params.INCIDENTS_SINCE, end["after"])
        assert len(end["after"]) > 8 * params.WATCHED
        oldest, beyond = many[3], many[2]
        await save(site, *(replace(one, status="resolved", resolved_at=NOW) for one in (beyond, oldest)))
        assert told(await settled(client)) == [(oldest.id, "resolved")]
    async with following(site, f"cluster={cluster}&limit=1000") as client:
        assert len((await client.until_fresh())[0]) == params.WATCHED


async def test_who_is_limited_is_told_of_their_incidents_alone(site: Site, cluster: str) -> None:
    """Of a cluster, of a namespace of it, and of nothing that is there; also where one leaves their reach."""
    async with site.database.write.begin() as conn:
        places = {"whole": [cluster], "part": [f"{cluster}/payments"], "other": ["nowhere/at-all"]}
        for name, reach in places.items():
            site.bearer[name] = await tokens.create(
                conn, Role.VIEWER, purpose=Purpose.API, now=NOW, scope=Scope.parse(reach)
            )
    alert = world.alert()
    own = incident(cluster, alerts=(alert,))
    theirs = incident(cluster, scope=About(namespaces=("identity",)))
    await save(site, own, theirs)
    seen: dict[str, list[tuple[str, str]]] = {}
    for name in places:
        async with following(site, "", token=site.bearer[name]) as client:
            lines, end = await client.until_fresh()
            assert {one["cluster"] for one in end["freshness"]} == ({cluster} if name != "other" else set())
            changed = [replace(theirs, status="resolved", resolved_at=NOW), replace(own, status="resolved")]
            await save(site, *changed)
            seen[name] = told(lines) + told(await settled(client))
            await save(site, own, theirs)
    both = [(own.id, "open"), (theirs.id, "open")]
    assert seen == {
        "whole": [*both, (own.id, "resolved"), (theirs.id, "resolved")],
        "part": [(own.id, "open"), (own.id, "resolved")],
        "other": [],
    }
    async with following(site, "", token=site.bearer["part"]) as client:
        await client.until_fresh()
        await save(site, replace(own, scope=About(namespaces=("payments", "identity")), status="resolved"))
        assert await settled(client) == []


async def test_it_ends_with_its_token_and_with_the_process(site: Site, cluster: str) -> None:
    token = await site.token(Purpose.API)
    async with following(site, f"cluster={cluster}", token=token) as client:
        await client.until_fresh()
        async with site.database.write.begin() as conn:
            await tokens.revoke(conn, token, now=NOW)
        assert (await client.next("problem"))["problem"]["status"] == 401
    async with following(site, f"cluster={cluster}") as client:
        await client.until_fresh()
        site.app.state.followers.stopping = lambda: True
        assert (await client.next("problem"))["problem"]["status"] == 503
    assert site.app.state.followers.count == 0


async def test_all_who_follow_count_together_and_no_connection_is_held(site: Site, cluster: str) -> None:
    site.app.state.followers = Followers(most=2, every=timedelta(seconds=test_follow.PATIENCE))
    async with following(site, f"cluster={cluster}") as one, test_follow.following(site, "limit=1") as other:
        await one.until_fresh()
        await other.until_fresh()
        await asyncio.sleep(0.3)
        assert site.database.read.pool.checkedout() == 0  # type: ignore[attr-defined]
        async with site.client() as client:
            refused = await client.get(INCIDENTS, params={"follow": 1})
            headed = await client.head(INCIDENTS, params={"follow": 1})
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "30")
    assert (headed.status_code, headed.content) == (200, b"")


@pytest.mark.parametrize(
    ("query", "status", "field"),
    [
        ("follow=1&after=1.1", 422, "after"),
        ("follow=1&status=open", 422, "status"),
        ("since=1_", 422, "since"),
        ("follow=1&since=1", 422, "since"),
        ("follow=1&since=1_", 400, "since"),
        ("follow=1&since=ffffffffff_", 400, "since"),
        ("follow=1&since=1_0123", 422, "since"),
        ("follow=1&cluster=nosuch", 404, "cluster"),
        ("follow=1&limit=0", 422, "limit"),
        ("follow=1&namespace=payments", 422, "namespace"),
    ],
)
async def test_what_cannot_be_followed_is_refused(site: Site, query: str, status: int, field: str) -> None:
    async with site.client() as client:
        refused = await client.get(f"{INCIDENTS}?{query}")
    assert (refused.status_code, refused.json()["field"]) == (status, field)
