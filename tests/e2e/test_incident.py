"""The incident page as a person uses it: the answer at a glance, the brush, the keys, the drawer, the theme."""

from __future__ import annotations

import pytest
from playwright.async_api import FloatRect, Page, expect

from tests.e2e.conftest import PHONE, Program, Visit, box, tell
from tests.web import world

INCIDENT = f"/incidents/{world.incident().id}"
SUSPECT = f"/changes/{world.CULPRIT.id}"


@pytest.fixture(scope="module", autouse=True)
async def _recorded(program: Program) -> None:
    await tell(program.database, world.batch())


async def place(page: Page, selector: str) -> FloatRect:
    return await box(page.locator(selector).first)


async def test_the_answer_is_read_without_a_scroll(visit: Visit) -> None:
    async with visit(INCIDENT) as page:
        first = page.locator(".suspect.first")
        await expect(first).to_contain_text("checkout-api")
        await expect(first).to_contain_text("93 %")
        await expect(first).to_contain_text("before the onset")
        guilty = await place(page, ".suspect.first")
        assert guilty["y"] + guilty["height"] <= 900
        none = await place(page, ".suspect.none")
        assert none["y"] + none["height"] <= 900
        assert 380 <= guilty["width"] <= 400


async def test_everything_stands_on_one_axis(visit: Visit) -> None:
    async with visit(INCIDENT) as page:
        plots = [await box(plot) for plot in await page.locator("#chart svg.plot").all()]
        assert len(plots) >= 10
        assert len({(round(plot["x"]), round(plot["width"])) for plot in plots}) == 1
        over = await place(page, "#chart .over")
        assert abs(over["x"] - plots[0]["x"]) <= 1
        marks = {key: (await place(page, f"line.moment.{key}"))["x"] for key in ("suspect", "onset", "alert")}
        assert marks["suspect"] < marks["onset"] < marks["alert"]
        axis = await page.evaluate("[+new Date(incident.dataset.from), +new Date(incident.dataset.to)]")
        share = (world.CULPRIT_AT.timestamp() * 1000 - axis[0]) / (axis[1] - axis[0])
        assert abs(marks["suspect"] - (over["x"] + share * over["width"])) < 3
        bar = await place(page, "path.bar.suspect:not(.cut)")
        assert abs(bar["x"] - marks["suspect"]) < 8


async def test_the_page_is_light(visit: Visit) -> None:
    async with visit(INCIDENT) as page:
        assert await page.evaluate("document.querySelectorAll('*').length") <= 1500
        sizes = await page.evaluate(
            "[...performance.getEntriesByType('resource'), ...performance.getEntriesByType('navigation')]"
            ".reduce((sum, entry) => sum + entry.transferSize, 0)"
        )
        assert 10_000 < sizes < 200_000


async def test_a_row_and_its_mark_light_up_together(visit: Visit) -> None:
    async with visit(INCIDENT) as page:
        await page.locator("tr.row").nth(3).hover()
        x = float(await page.locator("tr.row").nth(3).get_attribute("data-x") or "nan")
        assert await page.locator("#cursor").get_attribute("x1") == f"{x / 10:g}%"
        await page.evaluate("scrollTo(0, 0)")
        bar = await place(page, "path.bar.suspect:not(.cut)")
        await page.mouse.move(bar["x"] + 4, bar["y"] + bar["height"] / 2)
        await expect(page.locator("#tip")).to_contain_text("checkout-api")
        await expect(page.locator(".suspect.lit")).to_contain_text("checkout-api")


async def test_the_brush_asks_the_server_for_the_window(visit: Visit) -> None:
    async with visit(INCIDENT) as page:
        before = await page.locator("#incident").get_attribute("data-from")
        over = await place(page, "#chart .over")
        y = over["y"] + 120
        await page.mouse.move(over["x"] + over["width"] * 0.3, y)
        await page.mouse.down()
        await page.mouse.move(over["x"] + over["width"] * 0.5, y, steps=4)
        drawn = await place(page, "#brush")
        assert abs(drawn["width"] - over["width"] * 0.2) < 6
        await page.mouse.up()
        await page.wait_for_url("**from=*")
        await expect(page.locator("#incident")).not_to_have_attribute("data-from", before or "")
        axis = await page.evaluate("[+new Date(incident.dataset.from), +new Date(incident.dataset.to)]")
        assert 5_000 < axis[1] - axis[0] < 60_000
        shared = page.url
        await page.go_back()
        await expect(page.locator("#incident")).to_have_attribute("data-from", before or "")
        await page.goto(shared)
        assert await page.evaluate("[+new Date(incident.dataset.from), +new Date(incident.dataset.to)]") == axis


async def test_the_keys(visit: Visit) -> None:
    async with visit(INCIDENT) as page:
        await page.keyboard.press("j")
        await page.keyboard.press("j")
        await page.keyboard.press("k")
        assert "current" in (await page.locator("tr.row").first.get_attribute("class") or "")
        await page.keyboard.press("Enter")
        await expect(page.locator("#drawer")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.locator("#drawer")).to_be_hidden()
        await page.keyboard.press("]")
        await page.keyboard.press("]")
        await expect(page.locator(".suspect.current .medal")).to_have_text("2")
        await page.keyboard.press("[")
        await expect(page.locator(".suspect.current .medal")).to_have_text("1")
        await page.keyboard.press("/")
        await expect(page.locator("#search")).to_be_focused()
        await page.keyboard.type("tj")
        await expect(page.locator("#search")).to_have_value("tj")


async def test_the_drawer_shows_the_diff_and_is_part_of_the_address(visit: Visit) -> None:
    async with visit(INCIDENT, permissions=["clipboard-read", "clipboard-write"]) as page:
        await page.locator(".suspect.first h3 a").click()
        drawer = page.locator("#drawer")
        await expect(drawer.locator("ins").first).to_have_text("registry.example/checkout-api:v1.42.0")
        await expect(drawer.locator("del").first).to_have_text("registry.example/checkout-api:v1.41.0")
        assert world.CULPRIT.id in page.url
        await drawer.get_by_role("button", name="Copy as Markdown").click()
        copied = await page.evaluate("navigator.clipboard.readText()")
        assert "+registry.example/checkout-api:v1.42.0" in copied
        await page.reload()
        await expect(drawer.locator("ins").first).to_be_visible()
        await drawer.locator("[data-close]").click()
        await expect(drawer).to_be_hidden()
        assert world.CULPRIT.id not in page.url


async def test_the_theme_is_kept(visit: Visit) -> None:
    async with visit(INCIDENT) as page:
        background = "getComputedStyle(document.body).backgroundColor"
        dark = await page.evaluate(background)
        await page.keyboard.press("t")
        light = await page.evaluate(background)
        assert sum(map(int, light[4:-1].split(","))) > 600
        assert sum(map(int, dark[4:-1].split(","))) < 200
        await page.reload()
        assert await page.evaluate(background) == light
        await page.keyboard.press("t")
        assert await page.evaluate(background) == dark


async def test_without_scripts_everything_can_be_reached(visit: Visit) -> None:
    async with visit(INCIDENT, java_script_enabled=False) as page:
        await page.get_by_role("link", name="Zoom in").click()
        await expect(page.locator(".range time").first).to_be_visible()
        assert "from=" in page.url
        await page.locator(".suspect.first h3 a").click()
        assert page.url.endswith(SUSPECT)
        await page.get_by_role("link", name="History").first.click()
        await expect(page.locator("ins").first).to_be_visible()
        await page.goto(page.url.split("/objects")[0] + "/changes?kind=ConfigMap")
        assert set(await page.locator("td.kind").all_inner_texts()) == {"ConfigMap"}


@pytest.mark.parametrize(
    "path", ["/", INCIDENT, "/changes", SUSPECT, "/objects/shop/apps/Deployment/payments/checkout-api"]
)
async def test_a_phone_shows_every_page_in_its_width(visit: Visit, path: str) -> None:
    async with visit(path, viewport=PHONE) as page:
        width = await page.evaluate("document.documentElement.scrollWidth")
        assert width <= PHONE["width"]
        await expect(page.locator("h1").first).to_be_visible()


async def test_signing_out(visit: Visit) -> None:
    async with visit("/") as page:
        await page.get_by_role("button", name="Sign out").click()
        await page.wait_for_url("**/login")
        await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
