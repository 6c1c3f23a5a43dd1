"""A browser that is not signed in: the next login link leads it back to the page it asked for."""

from __future__ import annotations

import re

from playwright.async_api import Browser, async_playwright, expect

from app.core.roles import Role
from tests.e2e.conftest import Program, sign_in, tell
from tests.programs import found
from tests.serving import CHROMIUM, FLAGS
from tests.web import world

INCIDENT = f"/incidents/{world.incident().id}?from=2026-11-20T14:01:00Z&to=2026-11-20T14:03:00Z"


async def test_signing_in_leads_back_to_the_page_that_was_asked_for(browser: Browser, program: Program) -> None:
    await tell(program.database, world.batch())
    link = (await program.link("/")).removesuffix("&to=/")
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(f"{program.address}{INCIDENT}")
    await expect(page.get_by_role("heading", name="You are not signed in")).to_be_visible()
    await sign_in(page, link)
    await expect(page.locator("#incident")).to_be_visible()
    assert page.url == f"{program.address}{INCIDENT}"
    assert [one["name"] for one in await context.cookies(f"{program.address}/login")] == ["foreshock_session"]
    await sign_in(page, (await program.link("/")).removesuffix("&to=/"))
    assert page.url == f"{program.address}/", "once"
    await context.close()


async def test_a_page_that_stays_open_is_gone_back_to_when_its_reader_signs_in(
    browser: Browser, program: Program
) -> None:
    await tell(program.database, world.batch())
    context = await browser.new_context()
    page = await context.new_page()
    await sign_in(page, await program.link(INCIDENT))
    await context.clear_cookies()
    await page.locator("a[data-drawer]").first.click()
    await expect(page.get_by_role("heading", name="You are not signed in")).to_be_visible()
    await sign_in(page, (await program.link("/")).removesuffix("&to=/"))
    assert page.url.startswith(f"{program.address}/incidents/{world.incident().id}")
    await context.close()


async def test_a_form_works_over_plain_http_by_a_name(program: Program) -> None:
    """Such a page is not trustworthy to a browser: it sends Origin alone, and no Sec-Fetch-Site."""
    await tell(program.database, world.batch())
    named = program.address.replace("127.0.0.1", "foreshock.internal")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=found(*CHROMIUM, package="chromium"),
            args=[*FLAGS, "--host-resolver-rules=MAP foreshock.internal 127.0.0.1"],
        )
        page = await browser.new_page()
        link = await program.link(f"/incidents/{world.incident().id}", Role.RESPONDER)
        await sign_in(page, link.replace(program.address, named))
        await page.get_by_role("button", name="Resolve", exact=True).click()
        await expect(page.get_by_role("button", name="Reopen", exact=True)).to_be_visible()
        await page.get_by_role("button", name="Sign out").click()
        await expect(page).to_have_url(re.compile(r"/login"))
        await browser.close()
