"""What hands do: the keys that are told by ``?``, arrows, and times typed into the filters."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.e2e.conftest import Program, Visit, tell
from tests.web import world

INCIDENT = f"/incidents/{world.incident().id}"


@pytest.fixture(scope="module", autouse=True)
async def _recorded(program: Program) -> None:
    await tell(program.database, world.batch())


@pytest.mark.parametrize("path", ["/", INCIDENT, "/changes"])
async def test_the_question_mark_tells_the_keys(visit: Visit, path: str) -> None:
    async with visit(path) as page:
        keys = page.get_by_role("dialog", name="Keys")
        await page.keyboard.press("?")
        await expect(keys).to_be_visible()
        await page.keyboard.press("j")
        await expect(page.locator("tr.current")).to_have_count(0)
        await page.keyboard.press("Escape")
        await expect(keys).to_be_hidden()


async def test_arrows_scroll_until_a_row_is_selected(visit: Visit) -> None:
    async with visit(INCIDENT) as page:
        await page.keyboard.press("ArrowDown")
        await expect(page.locator("tr.current")).to_have_count(0)
        await page.keyboard.press("j")
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("ArrowUp")
        assert "current" in (await page.locator("tr.row").nth(1).get_attribute("class") or "")
        await page.keyboard.press("Enter")
        await expect(page.locator("#drawer")).to_be_visible()
        await page.keyboard.press("ArrowDown")
        assert "current" in (await page.locator("tr.row").nth(1).get_attribute("class") or ""), "the drawer scrolls"


async def _ask(page: Page, time: str) -> None:
    await page.get_by_label("Kind").fill("Deployment")
    await page.get_by_label("From").fill(time)
    await page.get_by_role("button", name="Show").click()


@pytest.mark.parametrize(
    ("typed", "asked"),
    [
        ("2026-11-20 14:02", "2026-11-20T14:02Z"),
        ("2026-11-20", "2026-11-20T00:00Z"),
        (" 2026-11-20T14:02:03.5Z", "2026-11-20T14:02:03.5Z"),
        ("2026-11-20 15:02+01:00", "2026-11-20T15:02+01:00"),
    ],
)
async def test_a_time_without_a_zone_is_utc(visit: Visit, typed: str, asked: str) -> None:
    async with visit("/changes") as page:
        await _ask(page, typed)
        await page.wait_for_url("**from=*")
        assert await page.evaluate("new URL(location.href).searchParams.get('from')") == asked
        await expect(page.locator("tr.row").first).to_be_visible()


async def test_a_time_that_is_none_is_refused_where_it_was_typed(visit: Visit) -> None:
    async with visit("/changes") as page:
        await _ask(page, "yesterday")
        field = page.get_by_label("From")
        assert await field.evaluate("field => field.matches(':invalid') && document.activeElement === field")
        await expect(page.get_by_label("Kind")).to_have_value("Deployment")
        assert page.url.endswith("/changes")
