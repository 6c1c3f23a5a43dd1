"""Before and after a change, as it is drawn: in the drawer and on the change's page, wide and narrow."""

from __future__ import annotations

from datetime import timedelta

import pytest
from axe_playwright_python.async_playwright import Axe
from msgspec.structs import replace
from playwright.async_api import ViewportSize, expect

from app.core.model import SLOT_SECONDS, Batch, CallCount, CallKey, MetricSeries
from app.store.record import record
from tests.e2e.conftest import DESKTOP, PHONE, Program, Visit, box, tell
from tests.web import world

INCIDENT = f"/incidents/{world.incident().id}"
CHANGE = f"/changes/{world.CULPRIT.id}"
AT = world.CULPRIT_AT.timestamp()
BEGIN = (int(AT) - 120) // 60 * 60
END = BEGIN + 300


@pytest.fixture(scope="module", autouse=True)
async def _recorded(program: Program) -> None:
    """The argocd controller asks for more right after the change; the queue grows with it.

    It is recorded since an hour before: of the first hour of a record minutes are drawn once that is packed."""
    key = CallKey(world.ARGOCD, "", "argocd", "patch", "apps", "deployments", "payments", 200)
    calls = tuple(CallCount(key, slot, 1 if slot < AT else 205, 1000) for slot in range(BEGIN, END + 1, SLOT_SECONDS))
    times = (BEGIN - 3600.0, *(float(second) for second in range(BEGIN, END + 1, SLOT_SECONDS)))
    depth = MetricSeries("workqueue_depth", (), "gauge", times, tuple(2.0 if time < AT else 90.0 for time in times))
    await tell(program.database, replace(world.batch(), calls=calls, series=(depth,)))
    async with program.database.write.begin() as conn:
        await record(conn, Batch(world.CLUSTER, changes=(world.a_change("early", at=world.START - timedelta(days=1)),)))


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["wide", "narrow"])
@pytest.mark.parametrize("where", ["drawer", "page"])
async def test_the_mark_stands_where_the_change_was_and_the_lines_rise_there(
    visit: Visit, where: str, viewport: ViewportSize
) -> None:
    async with visit(INCIDENT if where == "drawer" else CHANGE, viewport=viewport) as page:
        if where == "drawer":
            await page.locator(".suspect.first h3 a").click()
        drawn = page.locator("#drawer .after" if where == "drawer" else "main .after")
        await expect(drawn.locator(".lane")).to_have_count(2)
        await expect(drawn).to_contain_text("0.2/s → 41/s at once")
        await expect(drawn.get_by_role("img", name="Queue depth: 2 → 90, at once")).to_be_visible()
        mark = await box(drawn.locator("line.moment"))
        plots = [await box(plot) for plot in await drawn.locator("svg.plot").all()]
        over = await box(drawn.locator("> .over"))
        assert all(abs(plot["x"] - over["x"]) <= 1 and abs(plot["width"] - over["width"]) <= 1 for plot in plots)
        ticks = [await box(tick) for tick in await drawn.locator("text.tick:visible").all()]
        assert ticks
        assert all(
            over["x"] <= tick["x"] and tick["x"] + tick["width"] <= over["x"] + over["width"] + 1 for tick in ticks
        )
        share = (AT - BEGIN) / (END - SLOT_SECONDS - BEGIN)  # the outer slots of the calls are not drawn
        assert abs((mark["x"] - over["x"]) / over["width"] - share) < 0.02
        for lane in await drawn.locator("path.line").all():
            rises = await lane.evaluate(
                """path => {
                    const points = [...path.getAttribute("d").matchAll(/([\\d.]+) ([\\d.]+)/g)];
                    const low = Math.max(...points.map(point => +point[2]));
                    return [...points].filter(point => +point[2] < low - 10)[0][1] / 1000;
                }"""
            )
            assert abs(rises - share) < 0.05
        labels = [await box(label) for label in await drawn.locator(".label").all()]
        right = (await box(page.locator("#drawer" if where == "drawer" else "main")))["x"] + viewport["width"]
        assert all(label["width"] > 100 and label["x"] + label["width"] <= right for label in labels)
        assert await page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]


@pytest.mark.parametrize("scheme", ["dark", "light"])
async def test_it_can_be_read_by_everybody(visit: Visit, scheme: str) -> None:
    async with visit(INCIDENT, color_scheme=scheme, bypass_csp=True) as page:
        await page.locator(".suspect.first h3 a").click()
        await expect(page.locator("#drawer .after .lane")).to_have_count(2)
        found = await Axe().run(page)
    serious = [one for one in found.response["violations"] if one["impact"] in {"serious", "critical"}]
    assert [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in serious] == []


async def test_a_change_without_a_record_around_it_says_so(visit: Visit) -> None:
    early = world.a_change("early", at=world.START - timedelta(days=1))
    async with visit(f"/changes/{early.id}") as page:
        await expect(page.locator("main")).to_contain_text(
            "Neither calls nor metrics were recorded around this change."
        )
        await expect(page.locator(".after")).to_have_count(0)


async def test_it_is_drawn_without_scripts(visit: Visit) -> None:
    async with visit(CHANGE, java_script_enabled=False) as page:
        await expect(page.locator("main .after path.line")).to_have_count(2)
