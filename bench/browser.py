"""The incident page in a real Chromium, with ten thousand changes in its window: time to the next frame, size."""

from __future__ import annotations

import shutil
import statistics
from datetime import UTC, datetime, timedelta

from playwright.async_api import Page, ViewportSize, async_playwright

from app.commands.demo import replay
from app.core.roles import Role
from app.store import tokens
from app.store.database import Database
from app.store.tokens import Purpose
from bench.gates import Gate
from bench.pages import fill
from tests.serving import CHROMIUM, FLAGS, served

CHANGES = 10_000
ROUNDS = 31
DESKTOP: ViewportSize = {"width": 1440, "height": 900}

_FRAME = "new Promise(done => requestAnimationFrame(() => setTimeout(done)))"
_DRAW = f"""async rounds => {{
    const times = [];
    for (let round = 0; round < rounds; round++) {{
        const chart = document.querySelector("#chart");
        const [html, beside] = [chart.outerHTML, chart.nextSibling];
        const parent = chart.parentNode;
        chart.remove();
        await {_FRAME};
        const began = performance.now();
        const made = document.createRange().createContextualFragment(html);
        parent.insertBefore(made, beside);
        await {_FRAME};
        times.push(performance.now() - began);
    }}
    return times;
}}"""
_BRUSH = f"""async ([left, top, rounds]) => {{
    const times = [];
    for (let round = 0; round < rounds; round++) {{
        const began = performance.now();
        document.querySelector("#chart").dispatchEvent(new PointerEvent("pointermove",
            {{bubbles: true, clientX: left + 120 + round * 20, clientY: top + 120}}));
        await {_FRAME};
        times.push(performance.now() - began);
    }}
    return times;
}}"""
_MARKS = """[...document.querySelectorAll("#chart .plot path")].reduce(
    (sum, path) => sum + (path.getAttribute("d").match(/[Mm]/g) || []).length, 0)"""


def _p95(times: list[float]) -> float:
    return statistics.quantiles(times, n=20)[-1]


async def _zoom(page: Page) -> tuple[float, float]:
    """Milliseconds to the frame after the new window is there: since the brush was let go, and since the answer."""
    box = await page.locator("#chart .over").bounding_box()
    assert box is not None
    y = box["y"] + 120
    await page.mouse.move(box["x"] + box["width"] * 0.2, y)
    await page.mouse.down()
    await page.mouse.move(box["x"] + box["width"] * 0.9, y, steps=3)
    await page.evaluate(
        f"""window.zoomed = new Promise(done => {{
            const incident = document.querySelector("#incident");
            let began;
            document.addEventListener("pointerup", () => {{ began = performance.now(); }},
                {{capture: true, once: true}});
            const watch = new MutationObserver(async () => {{
                if (incident.isConnected) return;
                watch.disconnect();
                await {_FRAME};
                const now = performance.now();
                const answers = performance.getEntriesByType("resource").filter(one => one.initiatorType === "fetch");
                done([now - began, now - answers.at(-1).responseEnd]);
            }});
            watch.observe(document.body, {{childList: true, subtree: true}});
        }}); undefined"""
    )
    await page.mouse.up()
    whole, drawn = await page.evaluate("window.zoomed")
    return float(whole), float(drawn)


async def browser(database: Database, dsn: str) -> list[Gate]:
    """Draw the chart, brush over it and zoom in."""
    now = datetime.now(UTC)
    incident = await replay(database.write, now=now)
    async with database.write.begin() as conn:
        token = await tokens.create(conn, Role.VIEWER, purpose=Purpose.LOGIN, now=now)
    executable = next(filter(None, map(shutil.which, CHROMIUM)), CHROMIUM[0])
    with served(dsn) as address:
        async with async_playwright() as playwright:
            chromium = await playwright.chromium.launch(executable_path=executable, args=list(FLAGS))
            page = await chromium.new_page(viewport=DESKTOP)
            await page.goto(f"{address}/login?token={token}&to=/incidents/{incident}")
            await page.get_by_role("button", name="Sign in").click()
            await page.wait_for_load_state("load")
            window = await page.evaluate("(({from, to}) => [from, to])(document.querySelector('#incident').dataset)")
            start, end = map(datetime.fromisoformat, window)
            await fill(database, int(CHANGES / 0.3), start=start, end=end - timedelta(seconds=1))
            await page.reload(wait_until="load")
            marks = await page.evaluate(_MARKS)
            drawn = await page.evaluate(_DRAW, ROUNDS)
            elements = await page.evaluate("document.querySelectorAll('*').length")
            sent = await page.evaluate(
                "performance.getEntriesByType('navigation').concat(performance.getEntriesByType('resource'))"
                ".reduce((sum, one) => sum + one.transferSize, 0) / 1000"
            )
            box = await page.locator("#chart .over").bounding_box()
            assert box is not None
            await page.mouse.move(box["x"] + 100, box["y"] + 120)
            await page.mouse.down()
            brushed = await page.evaluate(_BRUSH, [box["x"], box["y"], ROUNDS])
            await page.keyboard.press("Escape")
            await page.mouse.up()
            zoomed = []
            for _ in range(15):
                zoomed.append(await _zoom(page))
                await page.goto(f"{address}/incidents/{incident}", wait_until="load")
            await chromium.close()
    print(f"      zoom, all of it, median: {statistics.median(whole for whole, _ in zoomed):.0f} ms")
    return [
        Gate(
            f"chart of {CHANGES:,} changes to the next frame, median, {marks} marks",
            statistics.median(drawn),
            "ms",
            at_most=50,
        ),
        Gate("brush to the next frame, p95", _p95(brushed), "ms", at_most=50),
        Gate("zoom, from the answer to the frame, median", statistics.median(d for _, d in zoomed), "ms", at_most=100),
        Gate("incident page with everything, compressed", sent, "kB", at_most=200),
        Gate("incident page, elements", elements, "", at_most=1500),
    ]
