"""A browser that is not signed in: the next login link leads it back to the page it asked for."""

from __future__ import annotations

from playwright.async_api import Browser, expect

from tests.e2e.conftest import Program, tell
from tests.web import world

INCIDENT = f"/incidents/{world.incident().id}?from=2026-11-20T14:01:00Z&to=2026-11-20T14:03:00Z"


async def test_signing_in_leads_back_to_the_page_that_was_asked_for(browser: Browser, program: Program) -> None:
    await tell(program.database, world.batch())
    link = (await program.link("/")).removesuffix("&to=/")
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(f"{program.address}{INCIDENT}")
    await expect(page.get_by_role("heading", name="You are not signed in")).to_be_visible()
    await page.goto(link)
    await expect(page.locator("#incident")).to_be_visible()
    assert page.url == f"{program.address}{INCIDENT}"
    assert [one["name"] for one in await context.cookies(f"{program.address}/login")] == ["foreshock_session"]
    await page.goto((await program.link("/")).removesuffix("&to=/"))
    assert page.url == f"{program.address}/", "once"
    await context.close()


async def test_a_page_that_stays_open_is_gone_back_to_when_its_reader_signs_in(
    browser: Browser, program: Program
) -> None:
    await tell(program.database, world.batch())
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(await program.link(INCIDENT))
    await context.clear_cookies()
    await page.locator("a[data-drawer]").first.click()
    await expect(page.get_by_role("heading", name="You are not signed in")).to_be_visible()
    await page.goto((await program.link("/")).removesuffix("&to=/"))
    assert page.url.startswith(f"{program.address}/incidents/{world.incident().id}")
    await context.close()
