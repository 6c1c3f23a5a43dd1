"""An object's history in a browser: choose two versions far down the list and see what differs, wide and narrow."""

from __future__ import annotations

from datetime import timedelta

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Locator, Page, ViewportSize, expect

from app.core.model import Batch, Object, ObjectState, Verb
from app.core.objects.diff import diff
from app.store.record import record
from tests.e2e.conftest import DESKTOP, PHONE, Program, Visit, tell
from tests.web import world

MANY = 130
PATH = "/objects/shop/apps/Deployment/growth/restless"


@pytest.fixture(scope="module", autouse=True)
async def _recorded(program: Program) -> None:
    states: list[Object] = [{"spec": {"replicas": number}} for number in range(MANY)]
    made = [
        world.a_change(
            "restless",
            at=world.START - timedelta(hours=5) + timedelta(minutes=number),
            namespace="growth",
            verb=Verb.UPDATE if number else Verb.CREATE,
            diffs=diff(states[number - 1] if number else None, states[number]),
            summary=f"replicas of restless: {number - 1} → {number}",
            version=f"{number}",
        )
        for number in range(MANY)
    ]
    last = ObjectState(made[-1].resource, made[-1].uid, f"{MANY - 1}", made[-1].at, states[-1])
    await tell(program.database, world.batch())
    async with program.database.write.begin() as conn:
        await record(conn, Batch(world.CLUSTER, changes=tuple(made), objects=(last,)))


async def in_view(page: Page, what: Locator) -> bool:
    box = await what.bounding_box()
    height = await page.evaluate("innerHeight")
    return box is not None and box["y"] >= 0 and box["y"] + min(box["height"], 40) <= height


async def choose(page: Page, *, old: int, new: int) -> None:
    """Chooses by place in the list, from the top; a choice opens nothing."""
    await page.locator("input[name=old]").nth(old).check()
    await page.locator("input[name=new]").nth(new).check()
    await page.wait_for_load_state("networkidle")
    await expect(page.locator("#drawer")).to_be_hidden()


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["wide", "narrow"])
async def test_two_versions_far_down_are_compared_from_where_they_are(visit: Visit, viewport: ViewportSize) -> None:
    async with visit(PATH, viewport=viewport) as page:
        await choose(page, old=90, new=88)
        compare = page.get_by_role("button", name="Compare")
        assert await page.evaluate("scrollY") > 500
        assert await in_view(page, compare), "it stays above the list"
        await compare.click()
        difference = page.get_by_role("region", name="What is different")
        await expect(difference.locator("del")).to_have_text(f"{MANY - 1 - 90}")
        await expect(difference.locator("ins")).to_have_text(f"{MANY - 1 - 88}")
        assert await in_view(page, difference)
        await page.reload()
        await expect(difference.locator("ins")).to_have_text(f"{MANY - 1 - 88}")


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["wide", "narrow"])
async def test_older_versions_and_back(visit: Visit, viewport: ViewportSize) -> None:
    async with visit(PATH, viewport=viewport) as page:
        await expect(page.locator(".versions .row")).to_have_count(100)
        await page.get_by_role("link", name="Older").click()
        await expect(page.locator(".versions .row")).to_have_count(MANY - 100)
        await choose(page, old=20, new=10)
        await page.get_by_role("button", name="Compare").click()
        await expect(page.locator(".difference ins")).to_have_text(f"{MANY - 1 - 100 - 10}")
        await expect(page.locator(".versions .row")).to_have_count(MANY - 100)
        await expect(page.get_by_role("link", name="Older")).to_have_count(0)
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await page.get_by_role("link", name="Newest").click()
        await expect(page.locator(".difference ins")).to_have_text(f"{MANY - 1}")


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["wide", "narrow"])
@pytest.mark.parametrize("scheme", ["dark", "light"])
async def test_axe_finds_nothing_serious(visit: Visit, scheme: str, viewport: ViewportSize) -> None:
    async with visit(PATH, color_scheme=scheme, viewport=viewport, bypass_csp=True) as page:
        found = await Axe().run(page)
    serious = [one for one in found.response["violations"] if one["impact"] in {"serious", "critical"}]
    assert [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in serious] == []


@pytest.mark.parametrize("path", ["/", "/login", "/nothing"])
async def test_the_chosen_theme_holds_on_every_page(visit: Visit, path: str) -> None:
    async with visit("/login", color_scheme="light", forgiven="404") as page:
        await page.evaluate("localStorage.setItem('theme', 'dark')")
        await page.evaluate("path => { location.href = path }", path)
        await page.wait_for_url(f"**{path}")
        await expect(page.locator("h1")).to_be_visible()
        assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(13, 16, 20)"
