"""What is said to have preceded an incident: the first suspect in the list, or none of these; what was made with it."""

from __future__ import annotations

import gzip
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import text

from app.core.findings import Evidence, Ranking
from app.core.model import Verb
from app.store import incidents
from tests.web import world
from tests.web.conftest import Site
from tests.web.test_escapes import Markup

RANKED = world.ranking().ranked_at


def doubtful(*, none: float, first: float, after: timedelta) -> Ranking:
    suspect, *others = world.ranking().suspects
    suspects = (replace(suspect, probability=first), *(replace(one, probability=0.01) for one in others))
    return replace(world.ranking(), suspects=suspects, none_of_these=none, ranked_at=RANKED + after)


async def shown(site: Site, ranking: Ranking) -> tuple[str, list[dict[str, Any]]]:
    """The list as a page and each telling of it by REST, after a ranking."""
    async with site.database.write.begin() as conn:
        await incidents.save_ranking(conn, ranking)
    async with site.client() as client:
        page = (await client.get("/")).text
        listed = (await client.get("/api/v1/incidents")).json()["items"]
        one = (await client.get(f"/api/v1/incidents/{world.incident().id}")).json()["incident"]
    return page[page.index('class="preceded"') :].partition("</td>")[0], [*listed, one]


async def test_none_of_these_leads_where_it_is_likelier(site: Site) -> None:
    cell, told = await shown(site, doubtful(none=0.6, first=0.2, after=timedelta(minutes=1)))
    assert cell.index("60") < cell.index("none of these") < cell.index("checkout-api") < cell.index("20")
    for one in told:
        assert one["none_of_these"] == pytest.approx(0.6)
        assert one["first_suspect"] == {"kind": "Deployment", "name": "checkout-api", "probability": 0.2}


async def test_a_suspect_leads_where_it_is_likelier(site: Site) -> None:
    cell, told = await shown(site, doubtful(none=0.3, first=0.5, after=timedelta(minutes=2)))
    assert "none of these" not in cell
    assert cell.index("50") < cell.index("checkout-api")
    assert [one["none_of_these"] for one in told] == [0.3, 0.3]


async def test_without_a_suspect_there_is_none(site: Site) -> None:
    cell, told = await shown(site, replace(world.ranking(), suspects=(), ranked_at=RANKED + timedelta(minutes=3)))
    assert "no suspect" in cell
    assert [(one["first_suspect"], one["none_of_these"]) for one in told] == [(None, None)] * 2


async def test_a_ranking_that_is_forgotten_is_not_said_to_come(site: Site) -> None:
    """Retention takes whole weeks of rankings; their incidents go a week later, and later still while they are open."""
    async with site.database.write.begin() as conn:
        await conn.execute(text("DELETE FROM rankings"))
    async with site.client() as client:
        page, listed = [(await client.get(path)).text for path in (f"/incidents/{world.incident().id}", "/")]
        rest = f"/api/v1/incidents/{world.incident().id}"
        suspects = (await client.get(f"{rest}/suspects")).json()
        tables = [
            (await client.get(path, headers={"Accept": "text/plain"})).text for path in (rest, f"{rest}/suspects")
        ]
        ranked_at = (await client.get(rest)).json()["incident"]["ranked_at"]
    told = f"its ranking, of {datetime.fromisoformat(ranked_at):%Y-%m-%d %H:%M:%S} UTC, is older than what is kept"
    assert f"I{told[1:]}." in page
    assert "its ranking is no longer kept" in listed
    for one in (page, listed):
        assert "anked yet" not in one
        assert "no suspect" not in one
    assert (suspects["items"], suspects["none_of_these"], suspects["ranked_at"]) == ([], None, ranked_at)
    assert all(told in table for table in tables)


async def test_of_what_was_suspected_the_page_says_that_it_is_over(site: Site) -> None:
    quiet = replace(world.incident(), id="0000000000ab", status="suspected", resolved_at=world.END, alerts=())
    async with site.database.write.begin() as conn:
        await incidents.save_incident(conn, quiet)
    async with site.client() as client:
        assert f"<span>suspected, over at <b>{world.END:%-d %b}" in (await client.get(f"/incidents/{quiet.id}")).text


async def test_what_was_made_in_one_go_with_a_suspect_is_named_once(site: Site) -> None:
    ranking = world.ranking()
    first, second, *others = ranking.suspects
    made = replace(second, change=replace(second.change, verb=Verb.CREATE))
    async with site.database.write.begin() as conn:
        later = replace(ranking, suspects=(first, made, *others), ranked_at=RANKED + timedelta(minutes=5))
        await incidents.save_ranking(conn, later)
    async with site.client() as client:
        page = (await client.get(f"/incidents/{world.incident().id}")).text
    assert "Made with 2 more, in one go" in page
    told = page[page.index('class="also"') :].partition("</details>")[0]
    assert told.count(second.also[0].resource.kind) == 2


async def test_what_stands_behind_the_third_says_when_and_why_it_is_suspected(site: Site) -> None:
    ranking = world.ranking()
    why = (
        Evidence("time", 0.4, "It came close before."),
        Evidence("scope", -0.8, "It is elsewhere."),
        Evidence("queue", 0.0, "Not measured: its queue.", measured=False),
    )
    more = [
        replace(ranking.suspects[2], rank=rank, change=change, evidence=why, t_minus=timedelta(seconds=rank), beside=())
        for rank, change in enumerate(world.surrounding_changes()[40:57], start=4)
    ]
    async with site.database.write.begin() as conn:
        later = replace(ranking, suspects=(*ranking.suspects, *more), ranked_at=RANKED + timedelta(minutes=6))
        await incidents.save_ranking(conn, later)
    async with site.client() as client:
        page = (await client.get(f"/incidents/{world.incident().id}")).text
    others = page[page.index('id="others"') :].partition("</ol>")[0]
    assert "17 less likely" in others
    told = others.split("<li value=")[1:]
    assert len(told) == 17
    for rank, (one, suspect) in enumerate(zip(told, more, strict=True), start=4):
        assert one.startswith(f'"{rank}"')
        assert f"{rank} s before" in one
        assert suspect.change.resource.name in one
        assert all(reason.sentence in one for reason in why)
    found = Markup()
    found.feed(page)
    assert len(found.elements) <= 1500
    assert len(gzip.compress(page.encode(), 5)) < 60_000
