"""How good the rankings were, in a browser: before anything is said, and after; what is said, by the buttons."""

from __future__ import annotations

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import ViewportSize, expect

from app.core.roles import Role
from tests.e2e.conftest import DESKTOP, PHONE, Program, Visit, tell
from tests.web import world

INCIDENT = f"/incidents/{world.incident().id}"


@pytest.fixture(scope="module", autouse=True)
async def _recorded(program: Program) -> None:
    await tell(program.database, world.batch())


async def test_what_the_buttons_say_is_on_the_page(visit: Visit) -> None:
    async with visit("/accuracy", role=Role.RESPONDER) as page:
        await expect(page.get_by_role("heading", name="Nobody said anything yet")).to_be_visible()
        await page.get_by_role("link", name="See the incidents").click()
        await page.get_by_role("link", name=world.incident().title).click()
        await page.locator("[data-suspect]").first.get_by_role("button", name="This was it").click()
        await expect(page.get_by_text("This was it, says a responder")).to_be_visible()
        await page.get_by_role("link", name="Incidents", exact=True).click()
        await page.get_by_role("link", name="how good the rankings were").click()
        await expect(page.locator(".said .row")).to_have_count(1)
        await page.locator(".said .of a").click()
        await expect(page.get_by_role("heading", level=1)).to_contain_text(world.CULPRIT.resource.name)


@pytest.mark.parametrize("scheme", ["dark", "light"])
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["wide", "narrow"])
async def test_it_fits_and_axe_finds_nothing_serious(visit: Visit, viewport: ViewportSize, scheme: str) -> None:
    async with visit(INCIDENT, role=Role.RESPONDER) as page:
        form = page.locator(".verdict").first
        if await form.get_by_role("button", name="This was it").count():
            await form.get_by_role("button", name="This was it").click()
    async with visit("/accuracy", viewport=viewport, color_scheme=scheme, bypass_csp=True) as page:
        await expect(page.locator(".accuracy svg.interval").first).to_be_visible()
        assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        found = await Axe().run(page)
    serious = [one for one in found.response["violations"] if one["impact"] in {"serious", "critical"}]
    assert [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in serious] == []
