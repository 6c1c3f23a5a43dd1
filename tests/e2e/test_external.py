"""A change that Kubernetes does not see, in a browser: its lane, its row, its drawer with a link out, its history."""

from __future__ import annotations

from datetime import timedelta

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import ViewportSize, expect

from app.core.changes.external import External, change_of, field
from app.core.model import Change
from app.store import external
from tests.e2e.conftest import DESKTOP, PHONE, Program, Visit, tell
from tests.web import world

URL = "https://app.launchdarkly.com/default/production/features/new-checkout"
TOLD = External(
    "launchdarkly",
    "feature flag",
    "acme/new-checkout",
    namespace="payments",
    workload="checkout-api",
    at=world.CULPRIT_AT + timedelta(seconds=2),
    actor="alice@shop.example",
    summary="new-checkout is on for everybody",
    url=URL,
    fields=(field("environments.production.rollout", 0, 100), field("environments.production.on", None, True)),
)


@pytest.fixture(scope="module", autouse=True)
async def told(program: Program) -> Change:
    await tell(program.database, world.batch())
    change = change_of(TOLD, world.CLUSTER, request="1", now=world.END)
    async with program.database.write.begin() as conn:
        await external.tell(conn, [change], digest=None, now=world.END)
    return change


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["wide", "narrow"])
async def test_it_stands_on_the_timeline_and_its_drawer_leads_out(
    visit: Visit, viewport: ViewportSize, told: Change
) -> None:
    async with visit(f"/incidents/{world.incident().id}?rows=all", viewport=viewport) as page:
        lane = page.locator(".external", has_text="External").first
        await expect(lane).to_be_attached()
        await expect(lane).to_contain_text("feature flag")
        row = page.locator(f"#row-{told.id}")
        await expect(row).to_contain_text("new-checkout is on for everybody")
        await row.get_by_role("link").first.click()
        drawer = page.locator("#drawer")
        await expect(drawer).to_be_visible()
        await expect(drawer).to_contain_text("feature flag in launchdarkly · payments")
        await expect(drawer).to_contain_text("as told by launchdarkly")
        await expect(drawer).to_contain_text("checkout-api in payments")
        await expect(drawer).to_contain_text("environments.production.rollout")
        await expect(drawer).to_contain_text("undo it where it was made, in launchdarkly")
        await expect(drawer).not_to_contain_text("kubectl")
        link = drawer.get_by_role("link", name=URL)
        await expect(link).to_have_attribute("href", URL)
        await expect(link).to_have_attribute("rel", "noopener noreferrer nofollow")
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("scheme", ["dark", "light"])
async def test_its_page_and_history_are_accessible(visit: Visit, told: Change, scheme: str) -> None:
    history = f"/objects/{world.CLUSTER}/external%3Alaunchdarkly/feature%20flag/payments/acme%2Fnew-checkout"
    async with visit(f"/changes/{told.id}", color_scheme=scheme) as page:
        found = await Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        await page.get_by_role("link", name="History").click()
        await expect(page).to_have_url(f"{page.url.split('/objects')[0]}{history}")
        await expect(page.get_by_role("heading", name="acme/new-checkout")).to_be_visible()
        await expect(page.locator("table.versions")).to_contain_text("new-checkout is on for everybody")
        found = await Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
