"""The audit log, in a browser: it fits, axe finds nothing serious, and hands narrow it down and page through it."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import ViewportSize, expect

from app.core.roles import Role
from app.store import audit
from app.store.audit import Action
from app.web.audit_log import PAGE
from tests.e2e.conftest import DESKTOP, PHONE, Program, Visit
from tests.web import world

LONG = "-".join(["x" * 60] * 3)


@pytest.fixture(scope="module", autouse=True)
async def _noted(program: Program) -> None:
    async with program.database.write.begin() as conn:
        for number in range(PAGE + 20):
            action = list(Action)[number % len(Action)]
            at, times = world.END + timedelta(minutes=number), 1 if number % 7 else 1204
            who, address = ("alice", "2001:db8:1234:5678:9abc:def0:1234:5678") if number % 2 else (LONG, "192.0.2.7")
            await audit.note(conn, action, LONG if number % 3 else "", by=who, address=address, now=at, times=times)


@pytest.mark.parametrize("scheme", ["dark", "light"])
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["wide", "narrow"])
async def test_it_fits_and_axe_finds_nothing_serious(visit: Visit, viewport: ViewportSize, scheme: str) -> None:
    async with visit("/audit", role=Role.ADMIN, viewport=viewport, color_scheme=scheme, bypass_csp=True) as page:
        await expect(page.locator(".audit .row").first).to_be_visible()
        assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        times = await page.locator(".audit td.time time").evaluate_all("all => all.map(one => one.offsetHeight)")
        assert max(times) < 24, "beside an IPv6 address, too, a time stands in one line"
        found = await Axe().run(page)
    serious = [one for one in found.response["violations"] if one["impact"] in {"serious", "critical"}]
    assert [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in serious] == []


async def test_an_admin_comes_from_the_clusters_narrows_it_down_and_goes_on(visit: Visit) -> None:
    async with visit("/clusters", role=Role.ADMIN) as page:
        await page.get_by_role("link", name="Audit log").click()
        rows = page.locator(".audit .row")
        await expect(rows).to_have_count(PAGE)
        await page.get_by_role("link", name="Older").click()
        await expect(rows.first).to_be_visible()
        assert await rows.count() < PAGE
        await page.get_by_label("Action").select_option("denied")
        await page.get_by_role("button", name="Show").click()
        await expect(page).to_have_url(re.compile(r"/audit\?action=denied$"))
        assert set(await page.locator(".audit td.did").all_inner_texts()) <= {"denied", "denied 1,204 times"}
        await page.get_by_label("From").fill("2027-01-01")
        await page.get_by_role("button", name="Show").click()
        await expect(page.get_by_text("Nothing matches")).to_be_visible()


async def test_who_may_not_is_told_so_and_is_not_led_there(visit: Visit) -> None:
    async with visit("/clusters") as page:
        await expect(page.get_by_role("link", name="Audit log")).to_have_count(0)
    async with visit("/audit", forgiven="403") as page:
        await expect(page.get_by_text("this takes the role admin", exact=False)).to_be_visible()
