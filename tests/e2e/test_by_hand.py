"""Incidents by hand in a browser, with and without scripts; suspected ones in their fold; many of them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from axe_playwright_python.async_playwright import Axe
from msgspec import structs
from playwright.async_api import Page, ViewportSize, expect

from app.core.findings import Origin
from app.core.roles import Role
from app.store import incidents
from tests.e2e.conftest import DESKTOP, PHONE, Program, Visit, box, tell
from tests.web import world

INCIDENT = world.incident()
SUSPECTED = structs.replace(
    INCIDENT,
    id="5f0a1c22d3e5",
    title="Write fight over annotation owner-signature of 4 ServiceAccounts",
    status="suspected",
    origin=Origin.ITSELF,
    severity="info",
    alerts=(),
)


@pytest.fixture(scope="module", autouse=True)
async def _recorded(program: Program) -> None:
    await tell(program.database, world.batch())
    async with program.database.write.begin() as conn:
        await incidents.save_incident(conn, SUSPECTED)
        for number in range(200):
            one = structs.replace(
                INCIDENT,
                id=f"{number:012x}",
                title=f"Checkout errors high, time {number}",
                status="resolved",
                started_at=INCIDENT.started_at - timedelta(hours=number + 1),
                resolved_at=INCIDENT.started_at - timedelta(hours=number),
            )
            await incidents.save_incident(conn, one)


async def fits(page: Page) -> bool:
    """Whether nothing is wider than the window."""
    return bool(await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "none"])
async def test_it_is_opened_resolved_and_reopened(visit: Visit, scripts: bool) -> None:
    # the browser reports the 422 of a form that is not filled in right
    async with visit("/", role=Role.RESPONDER, java_script_enabled=scripts, forgiven="422") as page:
        await page.get_by_role("link", name="Open an incident").click()
        await page.get_by_label("What is wrong").fill("Checkout is down")
        await page.get_by_label("Since").fill("2026-11-20 14:01")
        await page.get_by_label("Namespaces").fill("payments")
        await page.get_by_label("Workloads").fill("payments/checkout-api payments")
        await page.get_by_label("Nodes").fill("node-7")
        await page.get_by_role("button", name="Open it").click()
        await expect(page.get_by_role("alert")).to_contain_text("Workload “payments”: must be namespace/name")
        await expect(page.get_by_label("What is wrong")).to_have_value("Checkout is down")
        await page.get_by_label("Workloads").fill("payments/checkout-api")
        await page.get_by_role("button", name="Open it").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Checkout is down")
        await expect(page.get_by_text("opened by hand by")).to_be_visible()
        await page.get_by_role("link", name="Correct…").click()
        await expect(page.get_by_label("Workloads")).to_have_value("payments/checkout-api")
        await expect(page.get_by_label("Nodes")).to_have_value("node-7")
        await page.get_by_role("link", name="Cancel").click()
        await page.get_by_role("button", name="Resolve").click()
        await page.get_by_role("button", name="Reopen").click()
        await expect(page.get_by_role("button", name="Resolve")).to_be_visible()


async def test_it_is_corrected(visit: Visit) -> None:
    async with visit("/incidents/new", role=Role.RESPONDER, forgiven="422") as page:
        await page.get_by_label("What is wrong").fill("Told too late")
        await page.get_by_label("It is about the control plane").check()
        await page.get_by_role("button", name="Open it").click()
        await page.get_by_role("link", name="Correct…").click()
        await expect(page.get_by_label("It is about the control plane")).to_be_checked()
        await page.get_by_label("Since").fill("2026-11-20 14:01")
        await page.get_by_label("Namespaces").fill("No!")
        await page.get_by_role("button", name="Correct it").click()
        await expect(page.get_by_role("alert")).to_contain_text("Namespace “No!”: must be the name of a namespace")
        await page.get_by_label("Namespaces").fill("payments")
        await page.get_by_role("button", name="Correct it").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Told too late")
        await expect(page.get_by_text("14:01:00, as a person said")).to_be_visible()


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["wide", "narrow"])
@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "none"])
async def test_it_is_merged(visit: Visit, viewport: ViewportSize, scripts: bool) -> None:
    title = f"A part, {viewport['width']} wide, {'with' if scripts else 'without'} scripts"
    async with visit("/incidents/new", role=Role.RESPONDER, viewport=viewport, java_script_enabled=scripts) as page:
        await page.get_by_label("What is wrong").fill(title)
        await page.get_by_role("button", name="Open it").click()
        await page.locator("#merge summary").click()
        form = await box(page.locator("#merge form"))
        assert form["x"] >= 0
        assert form["x"] + form["width"] <= viewport["width"]
        await page.get_by_label("Make it a part of").select_option(INCIDENT.id)
        await page.get_by_role("button", name="Merge", exact=True).click()
        await expect(page.get_by_role("heading", level=1)).to_have_text(INCIDENT.title)


@pytest.mark.parametrize("scheme", ["dark", "light"])
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["wide", "narrow"])
@pytest.mark.parametrize(
    "path", ["/", "/incidents/new", f"/incidents/{SUSPECTED.id}", f"/incidents/{SUSPECTED.id}/correct"]
)
async def test_the_pages_fit_and_axe_finds_nothing_serious(
    visit: Visit, path: str, viewport: ViewportSize, scheme: str
) -> None:
    options = {"viewport": viewport, "color_scheme": scheme, "bypass_csp": True}
    async with visit(path, role=Role.RESPONDER, **options) as page:
        assert await fits(page)
        found = await Axe().run(page)
    serious = [one for one in found.response["violations"] if one["impact"] in {"serious", "critical"}]
    assert [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in serious] == []


async def test_the_buttons_stand_beside_each_other_and_the_title(visit: Visit) -> None:
    async with visit(f"/incidents/{INCIDENT.id}", role=Role.RESPONDER) as page:
        title, copy, resolve = [
            await box(page.locator(one)) for one in ("#incident h1", "[data-copy-link]", ".standing .button")
        ]
        assert copy["y"] == resolve["y"]
        assert copy["x"] + copy["width"] < resolve["x"]
        assert abs(title["y"] - copy["y"]) < title["height"]


async def test_what_is_suspected_is_in_its_fold_and_not_counted(visit: Visit) -> None:
    async with visit("/") as page:
        await expect(page.get_by_text("100+ in")).to_be_visible()
        link = page.get_by_role("link", name=SUSPECTED.title)
        await expect(link).to_be_hidden()
        await page.locator("#suspected summary").click()
        await link.click()
        await expect(page.get_by_text("suspected by itself, from what was measured")).to_be_visible()
        await expect(page.get_by_role("button", name="Open", exact=True)).to_have_count(0)  # a viewer may not
