"""Graphs in a browser: they fit every width, one cursor reads them all, dragging over one shows that time."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.async_api import ViewportSize, expect

from app.core.model import Batch
from app.store.record import record
from tests.e2e.conftest import DESKTOP, PHONE, Program, Visit, box, tell
from tests.web import world

WINDOW = "to=2026-11-20T14:03:45Z&minus=30m"
PLANE = f"/clusters/shop/control-plane?{WINDOW}"
EXPLORE = f"/explore?cluster=shop&metric=apiserver_request_total&by=verb&{WINDOW}"


@pytest.fixture(scope="module", autouse=True)
async def _recorded(program: Program) -> None:
    await tell(program.database, world.batch())
    async with program.database.write.begin() as conn:
        await record(conn, Batch(cluster=world.CLUSTER, series=world.metrics()))


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["wide", "narrow"])
@pytest.mark.parametrize("path", [PLANE, EXPLORE, "/explore"], ids=["control plane", "explorer", "form"])
async def test_graphs_and_forms_stay_in_the_page(visit: Visit, path: str, viewport: ViewportSize) -> None:
    async with visit(path, viewport=viewport) as page:
        assert await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0


async def test_one_cursor_reads_every_graph_at_one_moment(visit: Visit) -> None:
    async with visit(PLANE) as page:
        frames = page.locator("[data-graph]")
        value = page.get_by_role("row", name="PATCH").first.locator("[data-value]")
        await expect(value).to_have_text("32/s")
        place = await box(frames.first)
        await page.mouse.move(place["x"] + place["width"] * 0.4, place["y"] + 30)
        await expect(value).to_have_text("16/s")  # one of two API servers was not scraped then
        lines = await page.locator("[data-graph] .cursor").evaluate_all("all => all.map(one => one.getAttribute('x1'))")
        assert len(lines) == await frames.count() > 2
        assert len(set(lines)) == 1
        await page.mouse.move(5, 5)
        await expect(value).to_have_text("32/s")


async def test_dragging_over_a_graph_shows_that_time(visit: Visit) -> None:
    async with visit(EXPLORE) as page:
        place = await box(page.locator("[data-graph]"))
        await page.mouse.move(place["x"] + place["width"] / 2, place["y"] + 50)
        await page.mouse.down()
        await page.mouse.move(place["x"] + place["width"] * 0.75, place["y"] + 50)
        async with page.expect_navigation():
            await page.mouse.up()
        asked = parse_qs(urlsplit(page.url).query)
        assert asked["from"][0].startswith("2026-11-20T13:48")
        assert asked["to"][0].startswith("2026-11-20T13:56")
        assert await page.get_by_label("To", exact=True).input_value() == asked["to"][0].replace(".000Z", "Z")
        assert "minus" not in asked
        await expect(page.locator("[data-graph]")).to_have_count(1)


async def test_a_mark_opens_its_change_beside_the_graphs(visit: Visit) -> None:
    async with visit(PLANE) as page:
        await page.locator(".marks a").first.focus()
        await page.keyboard.press("Enter")
        await expect(page.locator("#drawer #change-title")).to_be_visible()


async def test_a_line_lights_up_with_its_row_of_the_legend(visit: Visit) -> None:
    lit = "all => all.flatMap((one, number) => one.matches('.lit') ? [number] : [])"
    async with visit(EXPLORE) as page:
        lines, rows = page.locator(".plot .curve:not(.dots)"), page.locator(".legend tbody tr")
        assert await rows.count() == await lines.count() > 1
        await rows.nth(1).hover()
        assert [await one.evaluate_all(lit) for one in (lines, rows)] == [[1], [1]]
        assert float(await lines.nth(0).evaluate("one => getComputedStyle(one).opacity")) < 0.5
        place = await box(page.locator("[data-graph]"))
        middle = "one => { const points = pointsOf(one).flat(); return points[Math.floor(points.length / 2)]; }"
        x, y = await lines.nth(0).evaluate(middle)
        await page.mouse.move(place["x"] + x * place["width"] / 1000, place["y"] + y)
        assert [await one.evaluate_all(lit) for one in (lines, rows)] == [[0], [0]]
        await page.mouse.move(5, 5)
        assert [await one.evaluate_all(lit) for one in (lines, rows)] == [[], []]


@pytest.mark.parametrize("path", [PLANE, EXPLORE], ids=["many", "alone"])
async def test_on_a_phone_what_a_legend_says_is_whole(visit: Visit, path: str) -> None:
    """A name has as many lines as it takes, beside its stroke, and each value has room."""
    told = """all => all.map(row => {
        const [name, value] = row.querySelectorAll("th, td");
        name.lastChild.data = "apiserver_request_total_" + "of_a_long_name_".repeat(4);
        const text = new Range();
        text.selectNodeContents(name.lastChild);
        const [words, stroke] = [text.getBoundingClientRect(), name.querySelector("svg").getBoundingClientRect()];
        const parts = [...row.querySelectorAll("th, td")];
        return {
            cut: parts.filter(one => one.scrollWidth > one.clientWidth).map(one => one.textContent),
            covered: words.left < stroke.right || words.right > value.getBoundingClientRect().left,
            share: name.getBoundingClientRect().width / row.getBoundingClientRect().width,
        };
    })"""
    async with visit(path, viewport=PHONE) as page:
        rows = await page.locator(".legend tbody tr").evaluate_all(told)
    assert len(rows) >= 4
    assert [row for row in rows if row["cut"] or row["covered"] or row["share"] > 0.4] == []


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["wide", "narrow"])
@pytest.mark.parametrize("to", ["14:03:45", "14:01:10", "14:03:20"])
async def test_no_time_below_a_graph_is_cut_off(visit: Visit, viewport: ViewportSize, to: str) -> None:
    outside = """all => all.filter((one) => {
        const [text, axis] = [one.getBoundingClientRect(), one.closest("svg").getBoundingClientRect()];
        return text.width && (text.left < axis.left || text.right > axis.right);
    }).map((one) => one.textContent)"""
    for minus in ("30m", "4m"):
        path = f"/clusters/shop/control-plane?to=2026-11-20T{to}Z&minus={minus}"
        async with visit(path, viewport=viewport) as page:
            assert await page.locator("text.tick:visible").count() > 2
            assert await page.locator("text.tick").evaluate_all(outside) == []


@pytest.mark.parametrize("width", [1280, 1440, 1920])
async def test_no_graph_stands_alone_below_others(visit: Visit, width: int) -> None:
    """Of a group of any number the rows are as wide as the page, and there are at most three in each."""
    rows = """group => {
        const found = new Map();
        for (const one of group.children) {
            const { top, left, right } = one.getBoundingClientRect();
            found.set(top, [...(found.get(top) ?? []), [left, right]]);
        }
        const { left, right } = group.getBoundingClientRect();
        return [...found.values()].map(row => [row.length, row[0][0] - left, right - row.at(-1)[1]]);
    }"""
    fill = """([group, count]) => {
        const one = group.firstElementChild;
        group.replaceChildren(...Array.from({ length: count }, () => one.cloneNode(true)));
    }"""
    async with visit(PLANE, viewport={"width": width, "height": 900}) as page:
        group = page.locator(".multiples").first
        for count, expected in {2: [2], 3: [3], 4: [2, 2], 5: [3, 2], 6: [3, 3], 7: [3, 2, 2], 8: [3, 3, 2]}.items():
            await page.evaluate(fill, [await group.element_handle(), count])
            found = await group.evaluate(rows)
            assert [row[0] for row in found] == expected
            assert all(abs(left) <= 1 and abs(right) <= 1 for _, left, right in found), count
