"""Where no change stands out the page says so first, and offers no undoing at a glance."""

from __future__ import annotations

from datetime import timedelta

import pytest
from axe_playwright_python.async_playwright import Axe
from msgspec.structs import replace
from playwright.async_api import ViewportSize, expect

from app.core.findings import Onset, Ranking, Suspect
from app.core.phrases import duration
from app.store import incidents
from tests.e2e.conftest import DESKTOP, PHONE, Program, Visit, box, tell
from tests.web import world

UNCERTAIN = replace(world.incident(title="Nothing stands out"), id="aa0000000001")
NOTHING = replace(world.incident(title="No change at all"), id="aa0000000002")
UNMEASURED = Onset(
    world.ALERT_AT,
    world.ALERT_AT - timedelta(minutes=20),
    world.ALERT_AT,
    "the alert's start, as nothing measured turned bad",
)


def _uncertain() -> Ranking:
    ranking = world.ranking()
    first, *others = ranking.suspects
    more = [
        Suspect(rank, 0.01, 0.1, change, others[1].evidence, t_minus=world.ALERT_AT - change.at)
        for rank, change in enumerate(world.surrounding_changes()[10:14], 4)
    ]
    doubtful = replace(first, probability=0.18, t_minus=world.ALERT_AT - first.change.at)
    return replace(
        ranking,
        incident_id=UNCERTAIN.id,
        onset=UNMEASURED,
        suspects=(doubtful, *others, *more),
        none_of_these=0.72,
    )


@pytest.fixture(scope="module", autouse=True)
async def _recorded(program: Program) -> None:
    await tell(program.database, world.batch())
    async with program.database.write.begin() as conn:
        for incident, ranking in (
            (UNCERTAIN, _uncertain()),
            (NOTHING, replace(world.ranking(), incident_id=NOTHING.id, suspects=(), none_of_these=1.0)),
        ):
            await incidents.save_incident(conn, incident)
            await incidents.save_ranking(conn, ranking)


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["wide", "narrow"])
async def test_none_of_these_is_read_first_when_it_is_likeliest(visit: Visit, viewport: ViewportSize) -> None:
    async with visit(f"/incidents/{UNCERTAIN.id}", viewport=viewport) as page:
        none, first = page.locator(".suspect.none"), page.locator("[data-suspect]").first
        await expect(none).to_have_count(1)
        await expect(none).to_contain_text("72 %")
        await expect(none).to_contain_text("All changes together have 28 %")
        assert (await box(none))["y"] + (await box(none))["height"] < (await box(first))["y"]
        amber = await page.locator(".brand path").evaluate("path => getComputedStyle(path).stroke")
        assert await first.evaluate("card => getComputedStyle(card).borderTopColor") != amber
        await expect(first.locator(".command")).to_be_hidden()
        await expect(first.get_by_role("button", name="Copy revert")).to_have_count(0)
        await first.get_by_text("How to undo it").click()
        await expect(first.locator(".command")).to_be_visible()


async def test_a_likely_suspect_comes_before_none_of_these(visit: Visit) -> None:
    async with visit(f"/incidents/{world.incident().id}") as page:
        none, first = page.locator(".suspect.none"), page.locator("[data-suspect]").first
        assert (await box(first))["y"] < (await box(none))["y"]
        await expect(first.locator(".command")).to_be_visible()
        amber = await page.locator(".brand path").evaluate("path => getComputedStyle(path).stroke")
        assert await first.evaluate("card => getComputedStyle(card).borderTopColor") == amber


async def test_an_onset_that_was_not_measured_is_a_span(visit: Visit) -> None:
    async with visit(f"/incidents/{UNCERTAIN.id}") as page:
        await expect(page.locator(".facts")).to_contain_text("onset between 13:43:14 and 14:03:14")
        await expect(page.locator("[data-suspect] .by").first).to_contain_text("46 s before the onset")


async def test_a_less_likely_suspect_says_how_long_before_and_opens(visit: Visit) -> None:
    async with visit(f"/incidents/{UNCERTAIN.id}") as page:
        await page.locator("#others > summary").click()
        fourth = page.locator("#others > ol > li").first
        change = world.surrounding_changes()[10]
        await expect(fourth.locator("summary")).to_contain_text(
            f"{duration((world.ALERT_AT - change.at).total_seconds())} before · {change.resource.kind}"
        )
        await expect(fourth.locator(".evidence")).to_be_hidden()
        await fourth.locator("summary").click()
        await expect(fourth.locator(".evidence .against")).to_contain_text("It is in another namespace.")


async def test_no_change_at_all_is_said_once(visit: Visit) -> None:
    async with visit(f"/incidents/{NOTHING.id}") as page:
        await expect(page.locator(".suspect")).to_have_count(1)
        await expect(page.locator(".suspect.none")).to_contain_text("No change was seen before the onset")
        await expect(page.locator(".suspects .empty")).to_have_count(0)


async def test_the_list_is_amber_only_where_one_change_is_likelier_than_all_else(visit: Visit) -> None:
    async with visit("/") as page:
        colour = "one => getComputedStyle(one).color"
        sure = await page.locator(f"#incident-{world.incident().id} .chance").evaluate(colour)
        doubtful = await page.locator(f"#incident-{UNCERTAIN.id} .chance").evaluate(colour)
        muted = await page.locator(f"#incident-{UNCERTAIN.id} .time").evaluate(colour)
        assert doubtful == muted != sure


@pytest.mark.parametrize("scheme", ["dark", "light"])
async def test_axe_finds_nothing_serious(visit: Visit, scheme: str) -> None:
    async with visit(f"/incidents/{UNCERTAIN.id}", color_scheme=scheme, bypass_csp=True) as page:
        await page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        await expect(page.locator("#others a").first).to_be_visible()
        found = await Axe().run(page)
    assert [one["id"] for one in found.response["violations"] if one["impact"] in {"serious", "critical"}] == []
