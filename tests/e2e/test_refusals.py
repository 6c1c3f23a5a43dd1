"""What a page says where the server refuses what was clicked: in its words, seen by everybody, and the page stays."""

from __future__ import annotations

from http import HTTPStatus

import pytest
from playwright.async_api import Page, Route, expect

from app.core.roles import Role
from app.store.database import Database
from app.web import templates
from app.web.problems import HEADINGS, Problem
from tests.e2e.conftest import PHONE, Program, Visit, box, tell
from tests.web import world

INCIDENT = f"/incidents/{world.incident().id}"
OURS = r"Failed to load resource|the server responded with a status of"
WORDS = "the database cannot be reached at the moment; nothing is lost, try again shortly"


@pytest.fixture(scope="module", autouse=True)
async def _world(program: Program, database: Database) -> None:
    await tell(database, world.batch())


def refusal(status: int) -> str:
    """The page that the server answers with."""
    title = HTTPStatus(status).phrase
    shown = {"heading": HEADINGS.get(status, title), "title": title, "is_sent": False, "request_id": "0" * 16}
    return bytes(templates.page("error.html", status, problem=Problem(status, WORDS), **shown).body).decode()


async def answered(page: Page, status: int, body: str) -> None:
    """From now on changes are answered so."""

    async def answer(route: Route) -> None:
        await route.fulfill(status=status, body=body, content_type="text/html")

    await page.unroute_all()
    await page.route("**/changes/*", answer)


@pytest.mark.parametrize("status", [403, 409, 429, 503])
async def test_what_is_refused_is_said_in_the_words_of_the_server(visit: Visit, status: int) -> None:
    async with visit(INCIDENT, forgiven=OURS) as page:
        said, title = page.locator("#refused"), await page.locator("h1").inner_text()
        await answered(page, status, refusal(status))
        await page.locator("tr.row a").first.click()
        await expect(said).to_contain_text(WORDS[1:])
        await expect(said).to_contain_text(HEADINGS.get(status, HTTPStatus(status).phrase))
        await expect(page.locator("h1")).to_have_text(title)
        await expect(page.locator("#drawer")).to_be_hidden()
        await page.unroute_all()
        await page.locator("tr.row a").first.click()
        await expect(page.locator("#drawer")).to_be_visible()
        await expect(said).to_be_hidden()


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (502, "<html><body>Bad Gateway</body></html>", "The server answered 502: try again."),
        (429, "", "The server answered 429: try again."),
        (200, "<title>Sign in at the proxy</title>", "What was answered is no change: load this page again."),
    ],
)
async def test_what_stands_in_between_refuses_without_words_of_ours(
    visit: Visit, status: int, body: str, words: str
) -> None:
    async with visit(INCIDENT, forgiven=OURS, viewport=PHONE) as page:
        await answered(page, status, body)
        await page.locator("tr.row a").first.click()
        said = page.locator("#refused")
        await expect(said).to_contain_text(words)
        place = await box(said)
        assert place["x"] >= 0
        assert place["x"] + place["width"] <= PHONE["width"]
        await said.get_by_role("button", name="Close").click()
        await expect(said).to_be_hidden()


async def test_a_page_that_asks_by_itself_is_not_taken_away_when_its_session_ends(visit: Visit) -> None:
    """As one with a rollout that goes on."""
    async with visit("/changes", forgiven=OURS) as page:
        row = page.locator("tr.row").first
        await row.evaluate(
            """one => {
              one.cells[0].insertAdjacentHTML("beforeend",
                "<span class='tag' data-hx-get='/_/changes/0/rollout' data-hx-trigger='every 1s'>rollout</span>");
              htmx.process(one);
            }"""
        )
        await page.locator("#search").fill("half a word")
        await page.context.clear_cookies()
        await expect(page.locator("#unreached")).to_contain_text("Signed out: sign in again to follow")
        await expect(page.locator("#search")).to_have_value("half a word")
        await expect(page.locator("#refused")).to_be_hidden()


async def test_a_form_is_sent_once_however_often_it_is_clicked(visit: Visit) -> None:
    sent = []

    async def count(route: Route) -> None:
        sent.append(route.request.post_data)
        await route.continue_()

    async with visit(INCIDENT, role=Role.RESPONDER) as page:
        await page.route("**/status", count)
        await page.get_by_role("button", name="Resolve").dblclick()
        await expect(page.get_by_role("button", name="Reopen")).to_be_visible()
        assert sent == ["status=resolved"]
        await page.get_by_role("button", name="Reopen").click()
        await expect(page.get_by_role("button", name="Resolve")).to_be_visible()


async def test_a_form_that_waits_for_its_answer_says_so(visit: Visit) -> None:
    async with visit(INCIDENT, role=Role.RESPONDER) as page:
        submit = "form.dispatchEvent(new SubmitEvent('submit', {cancelable: true, bubbles: true}))"
        ours = await page.evaluate(f"{{ const form = document.querySelector('form.standing'); [{submit}, {submit}] }}")
        assert ours == [True, False], "the first is let go, the second is not"
        await expect(page.locator("#refused")).to_contain_text("It is sent already")


async def test_what_was_not_answered_at_the_moment_is_asked_again(visit: Visit) -> None:
    async with visit(INCIDENT, forgiven=OURS) as page:

        async def answer(route: Route) -> None:
            await route.fulfill(status=503, body=refusal(503), content_type="text/html")

        await page.route(lambda address: address.endswith("?kind=Deployment"), answer, times=1)
        await page.goto(page.url.replace(INCIDENT, "/changes?kind=Deployment"))
        await expect(page.locator("h1")).to_have_text("Not at the moment")
        await page.get_by_role("link", name="Try again").click()
        await expect(page.locator("h1")).to_have_text("Changes")
        await expect(page.locator("[name=kind]")).to_have_value("Deployment")
