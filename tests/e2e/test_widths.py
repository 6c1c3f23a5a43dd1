"""Every width: nothing is cut off, however long its name; the drawing's words and shapes can be read; paper."""

from __future__ import annotations

import pytest
from msgspec import structs
from playwright.async_api import ViewportSize, expect

from app.core.findings import Scope
from app.core.model import Batch, Change, FieldDiff, version_key
from app.core.roles import Role
from app.store import incidents
from app.store.record import record
from app.web.filters import object_path
from tests.e2e.conftest import DESKTOP, PHONE, Program, Visit, box, tell
from tests.web import world

INCIDENT = f"/incidents/{world.incident().id}"
LONG_ID = "aa0000000003"
NAME = "-".join(("x" * 62, "y" * 63, "z" * 63, "w" * 62))
CLUSTER = "c" * 253
FILE = "".join(f"line {number} of the file\n" for number in range(400))


def _long() -> Change:
    culprit = world.CULPRIT
    resource = structs.replace(culprit.resource, cluster=CLUSTER, name=NAME, namespace="n" * 63, kind="K" * 63)
    return structs.replace(
        culprit,
        resource=resource,
        key=version_key(CLUSTER, culprit.uid, culprit.resource_version),
        actor=structs.replace(culprit.actor, name=f"system:serviceaccount:{'s' * 63}:{'a' * 189}", pod="p" * 253),
        summary=f"image of {NAME}: {'v' * 120} → {'w' * 120}",
        diffs=(
            FieldDiff((*culprit.diffs[0].path[:-1], "image"), "replace", "r" * 300, "q" * 300),
            FieldDiff(("data", "config.yaml"), "replace", FILE, FILE.replace("line 300", "line three hundred")),
        ),
    )


@pytest.fixture(scope="module", autouse=True)
async def _recorded(program: Program) -> None:
    await tell(program.database, world.batch())
    change = _long()
    first = structs.replace(world.ranking().suspects[0], change=change)
    async with program.database.write.begin() as conn:
        await record(conn, Batch(CLUSTER, changes=(change,)))
        await incidents.save_incident(
            conn,
            structs.replace(
                world.incident(title="A" * 253),
                id=LONG_ID,
                cluster=CLUSTER,
                scope=Scope(namespaces=("n" * 63, "m" * 63)),
            ),
        )
        await incidents.save_ranking(conn, structs.replace(world.ranking(), incident_id=LONG_ID, suspects=(first,)))


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["wide", "narrow"])
@pytest.mark.parametrize(
    "path",
    [
        "/",
        f"/incidents/{LONG_ID}",
        f"/incidents/{LONG_ID}?change={_long().id}",
        f"/changes?cluster={CLUSTER}",
        f"/changes/{_long().id}",
        object_path(_long().resource),
        "/slack",
    ],
    ids=["incidents", "incident", "drawer", "changes", "change", "object", "slack"],
)
async def test_the_longest_names_stay_in_the_page(visit: Visit, path: str, viewport: ViewportSize) -> None:
    async with visit(path, viewport=viewport) as page:
        if "change=" in path:
            await page.locator("#drawer ins").first.wait_for()
        assert await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
        outside = """width => [...document.querySelectorAll("main h1, main p, main li, main h3, .drawer *")]
            .filter(one => one.getBoundingClientRect().right > width + 1).map(one => one.outerHTML.slice(0, 80))"""
        assert await page.evaluate(outside, viewport["width"]) == []


CUT = """all => all.flatMap(one => [one, ...one.querySelectorAll("*")])
    .filter(one => one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflowX !== "visible")
    .map(one => one.textContent)"""


@pytest.mark.parametrize("path", ["/changes", INCIDENT])
async def test_no_kind_is_cut_where_nobody_can_point_at_it(visit: Visit, path: str) -> None:
    """A title shows to who has a mouse."""
    async with visit(path, viewport=PHONE) as page:
        kinds = page.locator(".rows td.kind")
        assert await kinds.count() > 5
        assert await kinds.evaluate_all(CUT) == []


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["wide", "narrow"])
@pytest.mark.parametrize("incident_id", [world.incident().id, LONG_ID], ids=["usual", "long"])
async def test_no_small_line_of_the_drawing_is_cut(visit: Visit, viewport: ViewportSize, incident_id: str) -> None:
    async with visit(f"/incidents/{incident_id}", viewport=viewport) as page:
        lines = page.locator("#chart .lane .label small")
        assert await lines.count() > 1
        assert await lines.evaluate_all(CUT) == []
        out = "all => all.filter(one => one.scrollWidth > one.parentElement.clientWidth).map(one => one.textContent)"
        assert await lines.evaluate_all(out) == [], "none is wider than its label"


@pytest.mark.parametrize("width", [360, 390, 660, 1204])
@pytest.mark.parametrize("path", ["/explore", "/changes", "/audit"])
async def test_the_times_between_which_is_asked_are_whole(visit: Visit, path: str, width: int) -> None:
    asked = f"{path}?from=2026-11-20T13:00:00Z&to=2026-11-20T14:00:00Z"
    async with visit(asked, role=Role.ADMIN, viewport={"width": width, "height": 900}) as page:
        for name in ("from", "to"):
            field = page.locator(f".filters [name={name}]")
            assert "T1" in await field.input_value()
            assert await field.evaluate("one => one.scrollWidth <= one.clientWidth"), name


async def test_a_long_diff_shows_what_differs_and_can_be_closed_from_its_end(visit: Visit) -> None:
    async with visit(f"/incidents/{LONG_ID}?change={_long().id}") as page:
        drawer = page.locator("#drawer")
        await expect(drawer.locator("ins").last).to_have_text("line three hundred of the file")
        assert await drawer.locator(".hunk").last.locator("pre > *").count() == 8
        await drawer.evaluate("drawer => drawer.scrollTo(0, drawer.scrollHeight)")
        close = await box(drawer.locator("[data-close]"))
        assert 0 <= close["y"] <= 40
        await drawer.locator("[data-close]").click()
        await expect(drawer).to_be_hidden()


@pytest.mark.parametrize("width", [390, 660, 720, 900, 1024, 1440])
async def test_the_top_holds_all_that_is_in_it(visit: Visit, width: int) -> None:
    async with visit(INCIDENT, viewport={"width": width, "height": 900}) as page:
        assert await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
        search, out = await box(page.locator(".search")), await box(page.get_by_role("button", name="Sign out"))
        assert out["x"] + out["width"] <= width
        assert search["width"] > 120


@pytest.mark.parametrize("path", [INCIDENT, f"{INCIDENT}?from=2026-11-20T14:02:00.5Z&to=2026-11-20T14:03:00.5Z"])
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["wide", "narrow"])
async def test_the_words_over_the_drawing_are_whole(visit: Visit, path: str, viewport: ViewportSize) -> None:
    async with visit(path, viewport=viewport) as page:
        over = await box(page.locator("#chart .over"))
        words = page.locator("#chart text.tick:visible, #chart .flag text")
        assert await words.count() >= 4
        for one in await words.all():
            drawn = await box(one)
            assert over["x"] <= drawn["x"] + 1, await one.text_content()
            assert drawn["x"] + drawn["width"] <= over["x"] + over["width"] + 1, await one.text_content()
        for flag in await page.locator("#chart svg.flag").all():
            back, text = await box(flag.locator("rect")), await box(flag.locator("text"))
            room = (text["x"] - back["x"], back["x"] + back["width"] - text["x"] - text["width"])
            assert min(room) >= 1
            assert abs(room[0] - room[1]) <= 2, "the words stand in the middle"


@pytest.mark.parametrize("width", [390, 660, 720, 900, 1024, 1200, 1440])
@pytest.mark.parametrize(
    ("path", "cell"),
    [(INCIDENT, "td.change"), ("/changes", "td.change"), ("/", "td.what")],
    ids=["incident", "changes", "incidents"],
)
async def test_what_changed_can_be_read_at_every_width(visit: Visit, path: str, cell: str, width: int) -> None:
    """720 is a window of 1440 that is zoomed to 200 %."""
    async with visit(path, viewport={"width": width, "height": 900}) as page:
        assert (await box(page.locator(cell).first))["width"] >= 90


async def test_the_time_to_the_onset_is_whole(visit: Visit) -> None:
    async with visit(INCIDENT) as page:
        cell = page.locator("td.t").first
        await cell.evaluate("cell => { cell.textContent = 'T−23 h 59 min'; cell.style.display = 'table-cell' }")
        assert await cell.evaluate("cell => cell.scrollWidth - cell.clientWidth") <= 0


async def test_a_narrow_drawing_names_its_lanes_and_keeps_its_shapes(visit: Visit) -> None:
    async with visit(INCIDENT, viewport=PHONE) as page:
        for name in ("Problems", "Write fight", "Access & network"):
            title = page.locator(".lane .label b", has_text=name)
            assert await title.evaluate("one => one.scrollWidth <= one.clientWidth + 1"), name
        drawn = "one => [getComputedStyle(one).stroke, getComputedStyle(one).fill]"
        stroke, fill = await page.locator("path.diamond").first.evaluate(drawn)
        assert stroke == fill, "a diamond that is squeezed to a needle is filled out"


async def test_a_fight_is_drawn_only_in_a_time_that_holds_it(visit: Visit) -> None:
    within = "from=2026-11-20T14:02:20Z&to=2026-11-20T14:03:00Z"
    before = "from=2026-11-20T13:00:00Z&to=2026-11-20T13:01:00Z"
    async with visit(f"{INCIDENT}?{within}") as page:
        await expect(page.locator(".lane.braid path")).to_have_count(2)
    async with visit(f"{INCIDENT}?{before}") as page:
        await expect(page.locator("#chart .lane").first).to_be_visible()
        await expect(page.locator(".lane.braid")).to_have_count(0)


async def test_on_paper_there_is_the_answer_and_nothing_to_click(visit: Visit) -> None:
    async with visit(INCIDENT, color_scheme="dark") as page:
        await page.emulate_media(media="print")
        await expect(page.locator(".top")).to_be_hidden()
        await expect(page.locator(".suspect.first .button").first).to_be_hidden()
        await expect(page.locator(".suspect.first .command")).to_be_visible()
        ink = await page.locator("h1").evaluate("one => getComputedStyle(one).color")
        assert sum(map(int, ink[4:-1].split(","))) < 200, "dark on white, whatever the screen's theme"


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["wide", "narrow"])
@pytest.mark.parametrize("path", [f"/changes?cluster={CLUSTER}", f"/incidents/{LONG_ID}"], ids=["changes", "incident"])
async def test_of_a_long_name_both_ends_are_seen_and_all_is_there(
    visit: Visit, path: str, viewport: ViewportSize
) -> None:
    async with visit(path, viewport=viewport) as page:
        links = page.locator(f"a[href='/changes/{_long().id}']:has(.middle)")
        assert await links.count() >= 1
        for number in range(await links.count()):
            link = links.nth(number)
            assert await link.text_content() == NAME, "for who has it read"
            copied = await link.evaluate(
                "one => { getSelection().selectAllChildren(one); return String(getSelection()); }"
            )
            assert copied == NAME
            whole = await link.evaluate("one => (one.title || one.parentElement.title).split(' ')[0]")
            assert whole == NAME, "for who points at it"
            shown, rest = await box(link), await box(link.locator(".middle"))
            assert rest["width"] < 20, "an ellipsis"
            ends = """one => {
                const range = new Range();
                range.selectNodeContents(one.lastChild);
                return range.getBoundingClientRect().right;
            }"""
            assert await link.evaluate(ends) <= shown["x"] + shown["width"] + 1
            await page.keyboard.press("Tab")
            await link.focus()
            assert await link.evaluate("one => getComputedStyle(one.querySelector('.middle')).fontSize") != "0px"
            await link.blur()


@pytest.mark.parametrize(
    ("selector", "whole"), [("td.kind", "K" * 63), ("td.who", "a" * 189)], ids=["the kind", "who did it"]
)
async def test_of_a_name_that_has_one_line_both_ends_are_seen_and_all_is_there(
    visit: Visit, selector: str, whole: str
) -> None:
    async with visit(f"/changes?cluster={CLUSTER}") as page:
        cell = page.locator(selector).first
        assert await cell.text_content() == whole
        copied = await cell.evaluate("one => { getSelection().selectAllChildren(one); return String(getSelection()); }")
        assert copied == whole
        assert whole in (await cell.get_attribute("title") or "")
        assert await cell.get_attribute("aria-label") == whole, "for who has it read"
        room, begin, end = await box(cell), await box(cell.locator(".begin")), await box(cell.locator(".end"))
        assert begin["width"] > end["width"] > 20
        assert end["x"] + end["width"] <= room["x"] + room["width"]


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["wide", "narrow"])
@pytest.mark.parametrize(
    ("path", "selector"),
    [(f"/?cluster={CLUSTER}", f"a[href='/incidents/{LONG_ID}']"), (f"/incidents/{LONG_ID}", "h1")],
    ids=["listed", "heading"],
)
async def test_of_a_long_title_both_ends_are_seen(
    visit: Visit, path: str, selector: str, viewport: ViewportSize
) -> None:
    async with visit(path, viewport=viewport) as page:
        title = page.locator(selector).first
        assert await title.text_content() == "A" * 253
        assert await title.get_attribute("title") == "A" * 253
        assert (await box(title.locator(".middle")))["width"] < 30
        assert await title.evaluate("one => one.scrollHeight <= one.clientHeight || one.tagName === 'A'"), "not cut off"


@pytest.mark.parametrize("width", [660, 900])
async def test_a_title_has_the_width_of_a_narrow_window_to_itself(visit: Visit, width: int) -> None:
    async with visit(INCIDENT, viewport={"width": width, "height": 900}) as page:
        assert (await box(page.locator("h1")))["width"] > width * 0.9


@pytest.mark.parametrize(("width", "most"), [(1440, 140), (1024, 200), (700, 400)])
async def test_a_long_name_is_cut_off_nowhere_else_and_leaves_room(visit: Visit, width: int, most: int) -> None:
    async with visit(f"/changes?cluster={CLUSTER}", viewport={"width": width, "height": 900}) as page:
        for cell in ("what", "change"):
            cut = "one => one.scrollWidth > one.clientWidth"
            assert not await page.locator(f"td.{cell}").first.evaluate(cut)
        row = page.locator("tr.row").first
        assert (await box(row))["height"] < most
