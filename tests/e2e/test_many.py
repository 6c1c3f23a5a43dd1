"""Ten thousand changes in two minutes: the server aggregates, the page stays light.

How quick it is: bench/browser.py.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from playwright.async_api import expect
from sqlalchemy import text

from app.store.partitions import ensure
from tests.e2e.conftest import Program, Visit, tell
from tests.web import world

INCIDENT = f"/incidents/{world.incident().id}"


@pytest.fixture(scope="module", autouse=True)
async def _recorded(program: Program) -> None:
    await tell(program.database, world.batch(10_000))


@pytest.mark.parametrize("query", ["", "?rows=all&derived=shown"])
async def test_the_page_does_not_grow_with_the_log(visit: Visit, query: str) -> None:
    async with visit(INCIDENT + query) as page:
        assert await page.evaluate("document.querySelectorAll('*').length") <= 1500
        sent = await page.evaluate("performance.getEntriesByType('navigation')[0].transferSize")
        assert 5_000 < sent < 120_000
        assert await page.locator("tr.row").count() == 100


async def test_more_brings_the_next_hundred_once(visit: Visit) -> None:
    async with visit(f"{INCIDENT}?rows=all") as page:
        for pages in (2, 3):
            await page.locator("tr.more a").click()
            await expect(page.locator("tr.row")).to_have_count(100 * pages)
        changes = await page.locator("tr.row").evaluate_all("rows => rows.map(row => row.dataset.change)")
        assert len(set(changes)) == 300


@pytest.mark.parametrize("path", ["/changes?derived=shown", f"{INCIDENT}?rows=all"])
async def test_who_asks_for_more_goes_on_at_the_first_further_row(visit: Visit, path: str) -> None:
    async with visit(path) as page:
        shown = await page.locator("tr.row").count()
        await page.locator("tr.more a").focus()
        await page.keyboard.press("Enter")
        first = page.locator("tr.row").nth(shown).locator("a")
        await expect(first).to_be_focused()
        await page.keyboard.press("Tab")
        await expect(page.locator("tr.row").nth(shown + 1).locator("a")).to_be_focused()
        await page.locator("tr.more a").dispatch_event("click")  # by who has the focus elsewhere
        await expect(page.locator("tr.row")).to_have_count(shown + 200)
        await expect(page.locator("tr.row").nth(shown + 1).locator("a")).to_be_focused()


async def test_the_brush_follows_the_hand(visit: Visit) -> None:
    async with visit(INCIDENT) as page:
        over = await page.locator("#chart .over").bounding_box()
        assert over is not None
        await page.mouse.move(over["x"] + 100, over["y"] + 120)
        await page.mouse.down()
        widths = []
        for step in range(1, 6):
            await page.mouse.move(over["x"] + 100 + step * 60, over["y"] + 120)
            widths.append(await page.locator("#brush").evaluate("brush => brush.getBoundingClientRect().width"))
        await page.keyboard.press("Escape")
        await page.mouse.up()
        assert widths == pytest.approx([60, 120, 180, 240, 300], abs=1.5)


async def test_a_search_goes_on_by_itself_to_the_oldest_change(program: Program, visit: Visit) -> None:
    older = """
        INSERT INTO changes SELECT made.* FROM changes c, generate_series(1, 45000) g,
          jsonb_populate_record(c, jsonb_build_object('at', c.at - g * interval '1 second', 'version_key', g,
            'summary', CASE WHEN g = 45000 THEN 'a needle' ELSE 'hay' END)) made
        WHERE c.at = (SELECT min(at) FROM changes)"""
    async with program.database.write.begin() as conn:
        first = (await conn.execute(text("SELECT min(at) FROM changes"))).scalar_one()
        await ensure(conn, "changes", [first - timedelta(hours=hours) for hours in range(14)])
        await conn.execute(text(older))
    async with visit("/changes?text=needle&derived=shown") as page:
        await expect(page.locator("tr.row")).to_have_count(1)
        await expect(page.locator("tr.row")).to_contain_text("needle")
        await expect(page.locator("tr.more")).to_have_count(0)
