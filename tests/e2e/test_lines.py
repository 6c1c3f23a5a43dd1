"""Where a line has no room it goes on below its words, not below what stands before them; nothing is cut."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec import structs
from playwright.async_api import Locator, ViewportSize

from app.core.model import Batch
from app.core.roles import Role
from app.store import incidents
from app.store.record import record
from tests.e2e.conftest import DESKTOP, PHONE, Program, Visit, box, tell
from tests.web import world

LONG = "horizontal-pod-autoscaler-of-" * 4
OTHER = "aa0000000004"
LINES = """one => {
    const range = new Range();
    range.selectNodeContents(one);
    const lines = [];
    for (const part of [...range.getClientRects()].sort((a, b) => a.bottom - b.bottom || a.left - b.left)) {
        const last = lines.at(-1);
        if (!last || part.top > last.bottom - 4) lines.push({ left: part.left, bottom: part.bottom });
        else last.left = Math.min(last.left, part.left);
    }
    return lines.map(line => line.left);
}"""
"""Where the lines of what is in an element begin."""


@pytest.fixture(scope="module", autouse=True)
async def _recorded(program: Program) -> None:
    """An incident after which something of a long name was unwell, and one that something of a long name preceded."""
    await tell(program.database, world.batch())
    hurt, named = world.symptoms()[0], structs.replace(world.CULPRIT.resource, name=LONG)
    last = world.CULPRIT_AT + timedelta(minutes=9, seconds=59)
    late = structs.replace(hurt, at=last, fingerprint="long", workload=named)
    first = world.ranking().suspects[0]
    long = structs.replace(first, change=structs.replace(first.change, resource=named))
    ranking = structs.replace(world.ranking(), incident_id=OTHER, suspects=(long,))
    async with program.database.write.begin() as conn:
        await record(conn, Batch(world.CLUSTER, symptoms=(late,)))
        await incidents.save_incident(conn, structs.replace(world.incident(), id=OTHER))
        await incidents.save_ranking(conn, ranking)


async def hangs(line: Locator, first: Locator) -> None:
    """Several lines, all of which but the first begin at one place, behind what ``first`` is."""
    begin, *others = await line.evaluate(LINES)
    assert others, "it has a second line"
    assert max(others) - min(others) <= 1
    end = await first.evaluate("one => one.getBoundingClientRect().right")
    assert begin < end <= min(others) <= end + 8


async def test_what_preceded_an_incident_goes_on_below_its_name(visit: Visit) -> None:
    async with visit("/", viewport=PHONE) as page:
        cell = page.locator(f"#incident-{OTHER} .preceded")
        await hangs(cell, cell.locator(".chance"))


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["wide", "narrow"])
async def test_what_came_soon_after_a_change_goes_on_below_its_words(visit: Visit, viewport: ViewportSize) -> None:
    async with visit(f"/changes/{world.CULPRIT.id}", viewport=viewport) as page:
        line = page.locator(".began li", has_text=LONG)
        await hangs(line, line.locator("time"))
        words = page.locator(".began li:has(> time) b")
        assert len(set(await words.evaluate_all("all => all.map(one => one.getBoundingClientRect().x)"))) == 1


@pytest.mark.parametrize("width", [390, 800, 1440])
async def test_who_fights_whom_is_said_in_the_width_of_the_waves(visit: Visit, width: int) -> None:
    """In the column of the labels it had six lines."""
    async with visit(f"/incidents/{world.incident().id}", viewport={"width": width, "height": 900}) as page:
        lane = page.locator(".lane.braid")
        said = lane.locator("small")
        assert await said.text_content() == (
            "owner-signature of checkout: checkout-api (server) ⇄ checkout-worker (worker)"
        )
        assert len(await said.evaluate(LINES)) <= 2
        waves, words = await box(lane.locator("svg")), await box(said)
        assert words["y"] + words["height"] <= waves["y"] + 1, "over them"
        assert abs(words["x"] - waves["x"]) <= 1
        plot = await box(page.locator(".lane.line svg").first)
        assert (waves["x"], waves["width"]) == (plot["x"], plot["width"]), "at the same times as all others"


PLACEHOLDERS = """all => all.filter(one => one.placeholder && one.offsetParent).map(one => {
    const style = getComputedStyle(one);
    const pen = document.createElement("canvas").getContext("2d");
    pen.font = style.font;
    const arrow = one.hasAttribute("list") ? 20 : 0;
    const room = one.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) - arrow;
    return [one.placeholder, pen.measureText(one.placeholder).width <= room];
})"""
"""What stands in empty fields, and whether it is whole."""


@pytest.mark.parametrize("path", ["/explore", "/changes", "/audit", "/incidents/new"])
async def test_what_stands_in_an_empty_field_is_whole(visit: Visit, path: str) -> None:
    async with visit(path, role=Role.ADMIN) as page:
        for width in (360, 390, 660, 761, 800, 1024, 1440):
            await page.set_viewport_size({"width": width, "height": 900})
            found = await page.locator("main input, #search").evaluate_all(PLACEHOLDERS)
            assert found
            assert [text for text, whole in found if not whole] == [], width
