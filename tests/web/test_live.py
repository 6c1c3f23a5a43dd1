"""What an open page asks for: 204 while it is current, the part whole when it is not, refusals in words."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from msgspec.structs import replace

from app import correlate
from app.core.findings import Also, Incident, Ranking
from app.store import incidents
from app.store.partitions import ensure
from app.web import live
from tests.web import world
from tests.web.conftest import NOW, Site
from tests.web.test_escapes import Markup
from tests.web.test_pages import statements

INCIDENT = f"/incidents/{world.incident().id}"
NEWS = f"/_{INCIDENT}/news"
RANKED = replace(world.incident(), ranked_at=world.ranking().ranked_at)
LATER = timedelta(minutes=7)


def parsed(source: str) -> Markup:
    found = Markup()
    found.feed(source)
    return found


def asks(source: str) -> str | None:
    """The address that a page will ask for news, None when it does not."""
    found = [attributes for _, attributes in parsed(source).elements if attributes.get("id") == "news"]
    return found[0]["data-hx-get"] if found else None


@pytest.fixture(autouse=True)
async def _as_it_was(site: Site) -> AsyncIterator[None]:
    yield
    async with site.database.write.begin() as conn:
        await conn.exec_driver_sql("DELETE FROM rankings")
        await conn.exec_driver_sql("UPDATE incidents SET ranked_at = NULL")  # else a newer ranking stays
    await save(site, world.incident(), world.ranking())


async def save(site: Site, incident: Incident, ranking: Ranking) -> None:
    async with site.database.write.begin() as conn:
        await ensure(conn, "rankings", [ranking.ranked_at])
        await incidents.save_incident(conn, incident)
        await incidents.save_ranking(conn, ranking)


def reordered(*order: int) -> Ranking:
    """The ranking seven minutes later, with its suspects in another order."""
    made = world.ranking()
    suspects = [replace(made.suspects[number], rank=rank) for rank, number in enumerate(order, start=1)]
    return replace(made, suspects=tuple(suspects), ranked_at=made.ranked_at + LATER)


async def get(site: Site, path: str, *, status: int = 200, role: str | None = "viewer") -> str:
    async with site.client(role) as client:
        answer = await client.get(path)
    assert answer.status_code == status, answer.text[:500]
    return answer.text


@pytest.mark.parametrize("page", ["/", INCIDENT, f"{INCIDENT}?rows=all&from=2026-11-20T14:02:00Z", "/?cluster=shop"])
async def test_while_nothing_is_new_the_answer_is_empty_and_takes_one_statement(site: Site, page: str) -> None:
    asked = asks(await get(site, page))
    assert asked is not None
    with statements() as seen:
        assert await get(site, asked, status=204) == ""
    assert [statement for statement in seen if "FROM tokens" not in statement] == seen[1:]
    assert len(seen) == 2
    for whole in ("payload", "alerts", "scope", "title"):
        assert whole not in seen[1], "nothing new is told without reading the incident"


async def test_a_new_ranking_comes_as_the_one_part_with_what_moved(site: Site) -> None:
    asked = asks(await get(site, f"{INCIDENT}?rows=all&from=2026-11-20T14:02:00.000Z"))
    assert asked is not None
    await save(site, world.incident(), reordered(2, 1, 0))
    with statements() as seen:
        source = await get(site, asked)
    assert len(seen) - 1 <= 4
    assert source.lstrip().startswith('<article id="incident"')
    assert "<!doctype" not in source
    assert "<title" not in source
    found = " ".join(parsed(source).text.split())
    assert "2 moved since this page was opened" in found
    assert "was #3" in found
    assert "was #1" in found
    assert "was #2" not in found
    then, now = (dict(parse_qsl(urlsplit(address or "").query)) for address in (asked, asks(source)))
    assert then.pop("since") != now.pop("since")
    assert then == now  # the same window, and moves are told from the same beginning
    assert "at first" not in found, "where it stood when the page was opened is nearer"
    await get(site, asks(source) or "", status=204)


async def test_without_news_nothing_has_moved(site: Site) -> None:
    assert "moved since" not in await get(site, INCIDENT)


async def test_a_page_opened_later_says_what_moved_since_the_first_ranking(site: Site) -> None:
    await save(site, world.incident(), reordered(2, 1, 0))
    with statements() as seen:
        source = await get(site, INCIDENT)
    assert len(seen) - 1 <= 4
    found = " ".join(parsed(source).text.split())
    assert found.index("3rd at first") < found.index("1st at first")
    assert "2nd at first" not in found
    assert "moved since" not in found
    await save(site, replace(world.incident(), status="resolved"), reordered(2, 1, 0))
    found = parsed(await get(site, asks(source) or "")).text
    assert "3rd at first" in found, "it stays when the open page gets news"


async def test_a_suspect_that_the_first_ranking_did_not_have_is_new_since() -> None:
    made, later = world.ranking(), reordered(2, 1, 0)
    first, second, third = (one.change.id for one in made.suspects)
    assert live.since_first(later, made) == {third: "3rd at first", first: "1st at first"}
    only = replace(made, suspects=made.suspects[:2])
    assert live.since_first(made, only) == {third: "new since the first ranking"}
    assert live.since_first(made, replace(made, suspects=())) == {}
    assert live.since_first(made, None) == {}
    assert live.since_first(None, made) == {}
    also = Also(second, made.suspects[1].change.at, made.suspects[1].change.resource)
    stands_for_it = replace(made, suspects=(replace(made.suspects[0], rank=2, beside=(also,)),))
    assert live.since_first(stands_for_it, made) == {first: "1st at first"}, "the best place of what it stands for"


async def test_a_suspect_that_was_not_there_is_new(site: Site) -> None:
    made = world.ranking()
    only = replace(made, suspects=made.suspects[:2])
    assert live.moved(made, live.order(only)) == {made.suspects[2].change.id: "new"}
    assert live.moved(made, live.order(made)) == {}
    assert live.moved(made, ()) == {}
    first, second, third = made.suspects
    also = Also(first.change.id, first.change.at, first.change.resource)
    swapped = replace(made, suspects=(replace(second, rank=1, beside=(also,)), replace(third, rank=2)))
    assert live.moved(swapped, live.order(only)) == {third.change.id: "new"}, "another part of the same leads"
    assert live.moved(None, live.order(made)) == {}


async def test_a_suspect_whose_reasons_are_read_keeps_its_card(site: Site) -> None:
    more = [
        replace(world.ranking().suspects[2], rank=4 + number, change=change)
        for number, change in enumerate(world.surrounding_changes()[-3:])
    ]
    ranking = reordered(0, 1, 2)
    await save(site, world.incident(), replace(ranking, suspects=(*ranking.suspects, *more)))
    kept = more[1].change.id
    query = urlencode({"since": live.version(RANKED, NOW), "kept": kept})
    cards = [a["id"] for _, a in parsed(await get(site, f"{NEWS}?{query}")).elements if "data-suspect" in a]
    assert len(cards) == 4
    assert cards[-1] == f"suspect-{kept}"


@pytest.mark.parametrize(
    ("incident", "over"),
    [
        (RANKED, False),
        (replace(RANKED, started_at=NOW - timedelta(days=30)), False),
        (replace(RANKED, status="resolved", started_at=NOW - live.LAST_RANKING_AFTER), False),
        (replace(RANKED, status="resolved", started_at=NOW - live.LAST_RANKING_AFTER - timedelta(seconds=1)), True),
        (replace(RANKED, status="suspected", started_at=NOW - timedelta(days=30)), False),
        (replace(RANKED, status="suspected", started_at=NOW - timedelta(days=30), resolved_at=NOW), True),
    ],
)
async def test_it_asks_until_nothing_will_come(site: Site, incident: Incident, over: bool) -> None:
    await save(site, incident, world.ranking())
    source = await get(site, INCIDENT)
    assert (asks(source) is None) is over
    before = live.version(incident, incident.started_at)
    answer = await get(site, f"{NEWS}?since={before}", status=200 if over else 204)
    assert (asks(answer) is None) is True  # over: the part comes once more, without the question


async def test_an_open_page_is_told_that_what_was_suspected_is_over(site: Site) -> None:
    suspected = replace(RANKED, status="suspected", started_at=NOW - timedelta(minutes=1))
    await save(site, suspected, world.ranking())
    asked = asks(await get(site, INCIDENT))
    assert asked is not None
    await get(site, asked, status=204)
    await save(site, replace(suspected, resolved_at=NOW), world.ranking())
    source = await get(site, asked)
    assert "suspected, over at" in source
    await get(site, asks(source) or "", status=204)


def test_the_last_ranking_is_when_correlation_makes_it() -> None:
    assert correlate.RERANK_AFTER[-1] == live.LAST_RANKING_AFTER


def test_a_version_tells_a_ranking_and_a_status_apart() -> None:
    assert RANKED.ranked_at is not None
    states: list[dict[str, Any]] = [
        {},
        {"ranked_at": None},
        {"ranked_at": RANKED.ranked_at + timedelta(microseconds=1)},
        {"status": "resolved"},
        {"status": "resolved", "started_at": NOW - timedelta(days=1)},
        {"status": "suspected"},
        {"status": "suspected", "resolved_at": NOW},
        {"status": "suspected", "started_at": NOW - timedelta(days=1), "resolved_at": NOW},
    ]
    versions = [live.version(replace(RANKED, **state), NOW) for state in states]
    assert len(set(versions)) == len(states)
    assert live.list_version([RANKED], NOW) != live.list_version([RANKED, RANKED], NOW)


async def test_a_list_with_a_new_incident_comes_whole(site: Site) -> None:
    asked = asks(await get(site, "/")) or ""
    other = replace(world.incident(title="Another one"), id="0" * 12)
    async with site.database.write.begin() as conn:
        await incidents.save_incident(conn, other)
    source = await get(site, asked)
    assert source.lstrip().startswith('<div id="incidents"')
    assert "Another one" in source
    async with site.database.write.begin() as conn:
        await conn.exec_driver_sql("DELETE FROM incidents WHERE id = '000000000000'")
    await get(site, asked, status=204)


async def test_a_list_beside_which_another_is_suspected_or_over_comes_whole(site: Site) -> None:
    asked = asks(await get(site, "/")) or ""
    suspected = replace(world.incident(title="Slower than ever"), id="0" * 12, status="suspected")
    for state, told in (({}, "1 suspected"), ({"resolved_at": NOW}, "over at")):
        async with site.database.write.begin() as conn:
            await incidents.save_incident(conn, replace(suspected, **state))
        source = await get(site, asked)
        assert told in source
        assert "Slower than ever" in source
        asked = asks(source) or ""
        await get(site, asked, status=204)
    async with site.database.write.begin() as conn:
        await conn.exec_driver_sql("DELETE FROM incidents WHERE id = '000000000000'")


async def test_an_older_page_of_the_list_does_not_ask(site: Site) -> None:
    assert asks(await get(site, "/?after=1000000000000.5f0a1c22d3e4")) is None


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/_/incidents/unknown/news?since=0.open", 404),
        (NEWS, 422),
        (f"{NEWS}?since=", 422),
        (f"{NEWS}?since=yesterday", 422),
        (f"{NEWS}?since=0.closed", 422),
        (f"{NEWS}?since=0.open&opened=x", 422),
        (f"{NEWS}?since=0.open&kept={'f' * 27}", 422),
        (f"{NEWS}?since=0.open&shown=-1", 422),
        (f"{NEWS}?since=0.open&nonsense=1", 422),
        (f"{NEWS}?since=0.open&from=2026-11-20T14:02:40Z&to=2026-11-20T14:02:20Z", 422),
        ("/_/incidents", 422),
        ("/_/incidents?since=xyz", 422),
    ],
)
async def test_what_cannot_be_asked_is_refused(site: Site, path: str, status: int) -> None:
    await get(site, path, status=status)


@pytest.mark.parametrize("path", [f"{NEWS}?since=0.open", f"/_/incidents?since={'0' * 16}"])
async def test_a_stranger_gets_no_news(site: Site, path: str) -> None:
    source = await get(site, path, status=401, role=None)
    assert "Checkout" not in source
    for role in ("viewer", "responder", "admin"):
        assert "Checkout" in await get(site, path, role=role)


async def test_many_rows_are_asked_for_and_no_more_than_a_thousand(site: Site) -> None:
    source = await get(site, f"{NEWS}?since=0.open&rows=all&derived=shown&shown=999999999999")
    rows = [a for tag, a in parsed(source).elements if tag == "tr" and "data-change" in a]
    assert 100 < len(rows) <= 1000
