"""An open page stays current: news arrives, and what the reader has before them is not pulled away."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from msgspec.structs import replace
from playwright.async_api import Page, Response, expect

from app.core.findings import Incident, Ranking
from app.core.model import SLOT_SECONDS, Batch, CallCount, CallKey
from app.store import incidents
from app.store.database import Database
from app.store.partitions import ensure
from app.store.record import record
from tests.e2e.conftest import Program, Visit, serving
from tests.web import world

SLOWEST = 60_000
"""Milliseconds within which a worker's turn, a ranking and a page's question must have come, on a slow machine."""
SECOND = timedelta(seconds=1)
ACCOUNT = "system:serviceaccount:payments:checkout"


def incident_at(start: datetime, *, status: str = "open", title: str = "Checkout errors high") -> Incident:
    """The made-up incident with its alert at ``start``."""
    alert = replace(world.alert(), at=start)
    return replace(world.incident(title=title), started_at=start, alerts=(alert,), status=status)


def ranking_at(start: datetime, *, order: tuple[int, ...] = (0, 1, 2), after: timedelta = SECOND) -> Ranking:
    """The made-up ranking, moved in time with the alert, its suspects in another order."""
    made, moved = world.ranking(), start - world.ALERT_AT
    suspects = []
    for rank, number in enumerate(order, start=1):
        suspect = made.suspects[number]
        suspects.append(replace(suspect, rank=rank, change=replace(suspect.change, at=suspect.change.at + moved)))
    onset = replace(made.onset, **{name: getattr(made.onset, name) + moved for name in ("at", "low", "high")})
    return replace(
        made,
        ranked_at=start + after,
        onset=onset,
        suspects=tuple(suspects),
        window=(world.START + moved, world.END + moved),
        sparks=tuple(replace(spark, start=spark.start + moved.total_seconds()) for spark in made.sparks),
        fights=(),
        callers=(),
    )


async def save(database: Database, *saved: Incident | Ranking) -> None:
    async with database.write.begin() as conn:
        for one in saved:
            if isinstance(one, Ranking):
                await ensure(conn, "rankings", [one.ranked_at])
                await incidents.save_ranking(conn, one)
            else:
                await incidents.save_incident(conn, one)


def recorded(start: datetime) -> Batch:
    """The world around an alert at ``start``, with the account that the culprit's pods use and what it asked."""
    moved = start - world.ALERT_AT
    batch = world.batch(12)
    state = replace(batch.objects[0], seen_at=batch.objects[0].seen_at + moved)
    deployment: Any = state.state
    deployment["spec"]["template"]["spec"]["serviceAccountName"] = "checkout"
    onset = int((world.ONSET_AT + moved).timestamp()) // SLOT_SECONDS * SLOT_SECONDS
    loud = CallKey(ACCOUNT, "", "checkout", "patch", "", "serviceaccounts", "payments", 200)
    steady = CallKey("system:kube-scheduler", "", "kube-scheduler", "create", "", "pods/binding", "", 201)
    calls = [CallCount(steady, slot, 20, 20_000) for slot in range(onset - 300, onset + 90, SLOT_SECONDS)]
    calls += [
        CallCount(loud, slot, 1 if slot < onset else 200, 1000) for slot in range(onset - 300, onset + 90, SLOT_SECONDS)
    ]
    return replace(
        batch,
        changes=tuple(replace(change, at=change.at + moved) for change in batch.changes if not change.begun_by),
        objects=(state,),
        rollouts=(),
        symptoms=(),
        gaps=(),
        calls=tuple(calls),
    )


@pytest.fixture(autouse=True)
async def _empty(database: Database) -> AsyncIterator[None]:
    """Each test has the one incident to itself, in a cluster that is known."""
    async with database.write.begin() as conn:
        await record(conn, Batch(world.CLUSTER, changes=(world.a_change("old", at=world.START - timedelta(days=2)),)))
    yield
    async with database.write.begin() as conn:
        for table in ("incidents", "rankings", "changes", "call_minutes"):
            await conn.exec_driver_sql(f"DELETE FROM {table}")


async def ask(page: Page) -> Response:
    """What the page asks every 15 seconds, now: it does so when the browser is online again."""
    async with page.expect_response(lambda response: "/_/incidents" in response.url) as found:
        await page.evaluate("dispatchEvent(new Event('online'))")
    response = await found.value
    if response.ok:  # the page leaves the words of a refusal unread
        await response.finished()
    return response


def path(incident: Incident) -> str:
    return f"/incidents/{incident.id}"


async def test_a_new_ranking_by_the_worker_arrives_while_somebody_reads(program: Program, visit: Visit) -> None:
    start = datetime.now(UTC) - timedelta(minutes=3) + timedelta(seconds=12)  # due for its second ranking in 12 s
    incident, first = incident_at(start), ranking_at(start, order=(1, 2, 0))
    async with program.database.write.begin() as conn:
        await record(conn, recorded(start))
    await save(program.database, incident, first)
    culprit = first.suspects[2].change.id
    async with visit(f"{path(incident)}?rows=all") as page:
        await expect(page.locator("#ranked")).not_to_contain_text("moved")
        await page.locator(f"#suspect-{culprit} summary").first.click()
        await page.keyboard.press("j")
        await page.keyboard.press("j")
        chosen = await page.locator("tr.row.current").get_attribute("id")
        await page.locator("tr.row.current a").click()
        drawer = page.locator("#drawer")
        await expect(drawer.locator("#change")).to_be_visible()
        await drawer.evaluate("drawer => { drawer.scrollTop = 40; drawer.dataset.mine = 'yes'; }")
        scrolled = await page.evaluate("[scrollY, drawer.scrollTop]")
        # The worker ranks from what was recorded; nobody tells the page to ask.
        await expect(page.locator("#ranked")).to_contain_text("moved since this page was opened", timeout=SLOWEST)
        moved = page.locator(f"#suspect-{culprit}")
        await expect(moved.locator(".medal")).to_have_text("1")
        await expect(moved.locator(".was")).to_have_text("was #3")
        assert await moved.locator("details").get_attribute("open") is not None
        assert await page.locator("tr.row.current").get_attribute("id") == chosen
        assert await drawer.get_attribute("data-mine") == "yes"
        await expect(drawer).to_be_visible()
        assert await page.evaluate("document.activeElement.id") == "drawer"
        assert await page.evaluate("[scrollY, drawer.scrollTop]") == scrolled
        await expect(page.locator("#said")).to_contain_text("ranked")


async def test_reasons_that_are_read_stay_when_their_suspect_falls_behind(program: Program, visit: Visit) -> None:
    incident = incident_at(world.ALERT_AT)
    more = world.surrounding_changes()[-4:]
    first = ranking_at(world.ALERT_AT)
    suspects = [*first.suspects, *(replace(first.suspects[2], rank=4 + n, change=c) for n, c in enumerate(more))]
    first = replace(first, suspects=tuple(suspects))
    await save(program.database, incident, first)
    third, fallen = suspects[2], [0, 1, 3, 4, 5, 6, 2]
    later = replace(
        first,
        ranked_at=first.ranked_at + timedelta(minutes=3),
        suspects=tuple(replace(suspects[number], rank=rank) for rank, number in enumerate(fallen, start=1)),
    )
    async with visit(path(incident)) as page:
        card = page.locator(f"#suspect-{third.change.id}")
        await card.locator("summary").first.click()
        await card.locator("summary").first.focus()
        await save(program.database, later)
        assert (await ask(page)).status == 200
        await expect(card.locator(".medal")).to_have_text("7")
        await expect(card.locator(".was")).to_have_text("was #3")
        await expect(card.locator(".evidence")).to_be_visible()
        assert (
            await page.evaluate("document.activeElement.closest('[data-suspect]')?.id") == f"suspect-{third.change.id}"
        )
        await page.locator("#others > summary").click()
        listed = page.locator("#others > ol > li")
        assert await listed.evaluate_all("all => all.map(one => one.value)") == [4, 5, 6]
        await expect(listed.first).to_contain_text("was #5")
        assert (await ask(page)).status == 204


async def test_the_brushed_time_and_further_rows_stay(program: Program, visit: Visit) -> None:
    async with program.database.write.begin() as conn:
        await record(conn, replace(world.batch(260), objects=()))
    incident, first = incident_at(world.ALERT_AT), ranking_at(world.ALERT_AT)
    await save(program.database, incident, first)
    brushed = "from=2026-11-20T14:01:40.000Z&to=2026-11-20T14:03:46.000Z"
    async with visit(f"{path(incident)}?{brushed}&rows=all") as page:
        await page.locator("tr.more a").click()
        await expect(page.locator("tr.row")).to_have_count(200)
        await page.evaluate("scrollTo(0, 3000)")
        row = page.locator("tr.row").nth(140)
        before = (await row.get_attribute("id"), await row.evaluate("row => row.getBoundingClientRect().top"))
        await save(program.database, replace(first, ranked_at=first.ranked_at + timedelta(minutes=3)))
        assert (await ask(page)).status == 200
        await expect(page.locator("#ranked")).to_contain_text("14:06:15")
        assert (await row.get_attribute("id"), await row.evaluate("row => row.getBoundingClientRect().top")) == before
        await expect(page.locator("tr.row")).to_have_count(200)
        assert await page.locator("#incident").get_attribute("data-from") == "2026-11-20T14:01:40.000Z"
        await page.locator("tr.more a").click()
        await expect(page.locator("tr.row")).to_have_count(261)


async def test_a_hand_that_brushes_is_not_disturbed(program: Program, visit: Visit) -> None:
    incident, first = incident_at(world.ALERT_AT), ranking_at(world.ALERT_AT)
    await save(program.database, incident, first)
    async with visit(path(incident)) as page:
        over = await page.locator("#chart .over").bounding_box()
        assert over is not None
        await page.mouse.move(over["x"] + 200, over["y"] + 100)
        await page.mouse.down()
        await page.mouse.move(over["x"] + 400, over["y"] + 100, steps=3)
        await save(program.database, replace(first, ranked_at=first.ranked_at + timedelta(minutes=3)))
        assert (await ask(page)).status == 200
        width = await page.locator("#brush").evaluate("brush => brush.getBoundingClientRect().width")
        assert abs(width - 200) < 6
        await page.keyboard.press("Escape")
        await page.mouse.up()
        assert (await ask(page)).status == 200  # it asks again for what it did not show
        await expect(page.locator("#ranked")).to_contain_text("14:06:15")


async def test_a_resolved_incident_stops_asking(program: Program, visit: Visit) -> None:
    incident, first = incident_at(world.ALERT_AT), ranking_at(world.ALERT_AT)
    await save(program.database, incident, first)
    async with visit(path(incident)) as page:
        await expect(page.locator("#news")).to_have_count(1)
        resolved = replace(incident, status="resolved", resolved_at=world.END, ranked_at=first.ranked_at)
        await save(program.database, resolved)
        assert (await ask(page)).status == 200
        await expect(page.locator(".facts")).to_contain_text("resolved")
        await expect(page.locator("#news")).to_have_count(0)


async def test_a_new_incident_appears_in_the_list(program: Program, visit: Visit) -> None:
    async with visit("/") as page:
        await expect(page.get_by_role("heading", name="No incidents")).to_be_visible()
        incident = incident_at(world.ALERT_AT)
        await save(program.database, incident)
        assert (await ask(page)).status == 200
        await expect(page.locator("tr.row")).to_contain_text("not ranked yet")
        await page.keyboard.press("j")
        other = replace(incident_at(world.ALERT_AT + SECOND, title="Another one"), id="0" * 12)
        await save(program.database, ranking_at(world.ALERT_AT), other)
        assert (await ask(page)).status == 200
        await expect(page.locator("tr.row")).to_have_count(2)
        await expect(page.locator("tr.row.current")).to_contain_text("checkout-api")
        assert (await ask(page)).status == 204


async def test_a_reader_who_is_signed_out_keeps_the_page_and_is_told(program: Program, visit: Visit) -> None:
    incident, first = incident_at(world.ALERT_AT), ranking_at(world.ALERT_AT)
    await save(program.database, incident, first)
    async with visit(path(incident), forgiven="401") as page:
        await page.context.clear_cookies()
        await save(program.database, replace(first, ranked_at=first.ranked_at + timedelta(minutes=3)))
        assert (await ask(page)).status == 401
        await expect(page.locator("#unreached")).to_contain_text("Signed out")
        await expect(page.locator("h1")).to_have_text(incident.title)
        await expect(page.locator("#ranked")).to_contain_text("14:03:15")


async def test_a_server_that_is_away_is_said_until_it_is_back(dsn: str, program: Program, visit: Visit) -> None:
    incident, first = incident_at(world.ALERT_AT), ranking_at(world.ALERT_AT)
    await save(program.database, incident, first)
    with ExitStack() as running:
        other = running.enter_context(serving(dsn, program.database))
        async with visit(path(incident), at=other, forgiven="ERR_CONNECTION_REFUSED|Failed to fetch") as page:
            assert (await ask(page)).status == 204
            words = page.locator("#unreached")
            await expect(words).to_be_hidden()
            reached = datetime.now(UTC)
            running.close()
            await page.evaluate("dispatchEvent(new Event('online'))")
            await expect(words).to_be_visible(timeout=SLOWEST)
            said = re.fullmatch(
                r"Not reached since (\d\d:\d\d:\d\d); what you see is from then\.", await words.inner_text()
            )
            assert said
            assert said[1] <= f"{reached:%H:%M:%S}" or f"{reached:%H:%M}" == "00:00"
            await expect(page.locator("h1")).to_have_text(incident.title)
            await save(program.database, replace(first, ranked_at=first.ranked_at + timedelta(minutes=3)))
            running.enter_context(serving(dsn, program.database, urlsplit(other.address).port or 0))
            # Nobody tells the page that it is back.
            await expect(words).to_be_hidden(timeout=SLOWEST)
            await expect(page.locator("#ranked")).to_contain_text("14:06:15")
