"""The pages: what they show, that they work without scripts, how they say no, and what they cost."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from html import unescape
from http import HTTPStatus
from urllib.parse import urlencode

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from app.core.changes.hunks import Hunk, Line
from app.core.model import Change
from app.store import search
from app.web import templates
from app.web.filters import is_moving
from tests.web import world
from tests.web.conftest import Site
from tests.web.test_escapes import Markup

INCIDENT = f"/incidents/{world.incident().id}"
CHANGE = f"/changes/{world.CULPRIT.id}"
OBJECT = "/objects/shop/apps/Deployment/payments/checkout-api"
PAGES = ("/", INCIDENT, "/changes", CHANGE, OBJECT)


@contextmanager
def statements() -> Iterator[list[str]]:
    """Every statement that reaches the database meanwhile."""
    seen: list[str] = []

    def note(_conn: object, _cursor: object, statement: str, *_rest: object) -> None:
        if not statement.startswith(("SELECT pg_catalog", "select current_schema", "show ", "BEGIN", "COMMIT")):
            seen.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(Engine, "before_cursor_execute", note)


async def page(site: Site, path: str, *, status: int = 200) -> tuple[str, Markup]:
    async with site.client() as client:
        answer = await client.get(path)
    assert answer.status_code == status, answer.text[:800]
    parsed = Markup()
    parsed.feed(answer.text)
    return answer.text, parsed


def hrefs(found: Markup) -> list[str]:
    return [attributes.get("href") or "" for tag, attributes in found.elements if tag == "a"]


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_costs_few_queries_beside_the_credential(site: Site, path: str) -> None:
    await page(site, path)
    with statements() as seen:
        await page(site, path)
    assert any("FROM tokens" in statement for statement in seen)
    assert len(seen) - 1 <= {CHANGE: 7, "/": 3}.get(path, 4), seen


async def test_every_card_says_what_its_place_hangs_on(site: Site) -> None:
    source, found = await page(site, INCIDENT)
    text = " ".join(found.text.split())
    assert "Without the evidence “load” it would be behind “none of these”." in text
    third = world.ranking().suspects[2].change.resource.name
    assert f"Without the evidence “time” it would be behind {third}." in text
    assert source.count("Without the evidence") == 2


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_is_small(site: Site, path: str) -> None:
    source, found = await page(site, path)
    assert len(found.elements) <= 1500
    assert len(gzip.compress(source.encode(), 5)) < 60_000


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_is_a_document_with_one_heading_and_a_title(site: Site, path: str) -> None:
    source, found = await page(site, path)
    tags = [tag for tag, _ in found.elements]
    assert tags.count("h1") == 1
    assert tags.count("main") == 1
    assert re.search(r"<title>\S.* · Foreshock</title>", source)
    ids = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
    assert len(ids) == len(set(ids))


async def test_what_the_alerts_say_stands_beside_it_with_what_to_do(site: Site) -> None:
    _, found = await page(site, INCIDENT)
    said = " ".join(found.text.split())
    assert "What the alert says (1) CheckoutErrorsHigh critical 14:03:14" in said
    for words in ("5xx of checkout are at 12 %", "Look at the errors by path first.", "namespace=payments"):
        assert words in said
    (runbook,) = (one for tag, one in found.elements if tag == "a" and "wiki.example" in (one["href"] or ""))
    assert runbook["rel"] == "noopener noreferrer nofollow"


async def test_the_incident_answers_the_question_at_once(site: Site) -> None:
    _, found = await page(site, INCIDENT)
    said = " ".join(found.text.split())
    for words in (
        "Checkout errors high",
        "critical",
        "± 2 s",
        "found in PATCH serviceaccounts",
        "v1.41.0",
        "v1.42.0",
        "93 %",
        "None of these",
        "4 %",
        "Write fight",
        "41 PATCH serviceaccounts/s",
        "Not measured",
        "the watch of pods was behind",
        "argocd-application-controller",
        "audit log",
    ):
        assert words in said, words


async def test_a_suspect_names_the_same_edits_of_other_objects(site: Site) -> None:
    text, found = await page(site, INCIDENT)
    also = world.ranking().suspects[1].also
    assert "The same edit of 2 more, in one go" in text
    assert {f"/changes/{one.change_id}" for one in also} <= set(hrefs(found))


def test_of_thousands_that_one_edit_was_made_of_the_first_are_named() -> None:
    one = world.ranking().suspects[1].also[0]
    macros = templates.environment().get_template("_macros.html").module
    shown = str(macros.in_one_go("also", "The same edit of", [one] * 5_109))  # type: ignore[attr-defined]
    assert "The same edit of 5,109 more, in one go" in shown
    assert shown.count("<a ") == 50
    assert "and 5,059 more" in shown


async def test_a_suspect_names_what_was_written_with_it(site: Site) -> None:
    text, found = await page(site, INCIDENT)
    beside = world.ranking().suspects[2].beside
    assert "Written with 2 more, in one go" in text
    assert {f"/changes/{one.change_id}" for one in beside} <= set(hrefs(found))


async def test_the_incident_can_be_looked_at_from_nearer(site: Site) -> None:
    near = urlencode({"from": "2026-11-20T14:02:20Z", "to": "2026-11-20T14:02:40Z"})
    _, found = await page(site, f"{INCIDENT}?{near}&rows=all")
    shown = {href.removeprefix("/changes/") for href in hrefs(found) if re.match(r"/changes/[0-9a-f]{28}$", href)}
    inside = {c.id for c in world.surrounding_changes() if "14:02:20" <= f"{c.at:%H:%M:%S}" < "14:02:40"}
    assert inside <= shown


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", lambda c: True),
        ("kind=ConfigMap", lambda c: c.resource.kind == "ConfigMap"),
        (
            "actor=alice%40shop.example&verb=delete",
            lambda c: (c.actor.name, c.verb) == ("alice@shop.example", "delete"),
        ),
        ("text=gateway&kind=&namespace=", lambda c: "gateway" in c.resource.name),
        ("from=2026-11-20T14:02:00Z&to=2026-11-20T14:02:30Z", lambda c: "14:02:00" <= f"{c.at:%H:%M:%S}" < "14:02:30"),
    ],
)
async def test_changes_are_filtered_by_the_address_alone(
    site: Site, query: str, expected: Callable[[Change], bool]
) -> None:
    _, found = await page(site, f"/changes?{query}")
    shown = {href.removeprefix("/changes/") for href in hrefs(found) if re.match(r"/changes/[0-9a-f]{28}$", href)}
    everyday = [*world.surrounding_changes(), world.CULPRIT]
    assert shown == {change.id for change in everyday if expected(change)}


async def test_the_filter_form_keeps_what_was_asked(site: Site) -> None:
    _, found = await page(site, "/changes?kind=ConfigMap&text=time&namespace=growth")
    fields = {a.get("name"): a.get("value") for tag, a in found.elements if tag == "input"}
    assert fields["namespace"] == "growth"
    assert any(a.get("value") == "time" for tag, a in found.elements if tag == "input" and a.get("name") == "text")


async def test_errors_say_what_a_person_can_do(site: Site) -> None:
    for path, heading in (("/nothing", "Not found"), ("/changes?verb=patch", "This request cannot be answered")):
        source, found = await page(site, path, status=404 if path == "/nothing" else 422)
        assert f"<h1>{heading}</h1>" in source
        assert {"/", "/changes"} <= set(hrefs(found))
    async with site.client() as client:
        answer = await client.get("/api/v1/changes?verb=patch")
    assert answer.json()["title"] == HTTPStatus(422).phrase, "programs get HTTP's own words"


async def test_no_change_is_said_in_words(site: Site) -> None:
    _, found = await page(site, "/changes?namespace=nowhere")
    assert not [href for href in hrefs(found) if re.match(r"/changes/[0-9a-f]{28}$", href)]
    assert re.search(r"[Nn]o change", found.text)


async def test_a_namespace_that_was_never_seen_is_said_beside_the_filters(site: Site) -> None:
    text, _ = await page(site, "/changes?namespace=payment&cluster=shop")
    assert "No change matches: no namespace &#39;payment&#39; is recorded in shop; the nearest: payments." in text


async def test_a_change_shows_its_diff_and_what_it_began(site: Site) -> None:
    source, found = await page(site, CHANGE)
    assert "<del>registry.example/checkout-api:v1.41.0</del>" in source
    assert "<ins>registry.example/checkout-api:v1.42.0</ins>" in source
    assert "rollout 40 %" in found.text
    assert "and 28 more" in found.text


@pytest.mark.parametrize(("fields", "folded"), [(40, ""), (41, "1 more field"), (3_000, "2,960 more fields")])
def test_of_thousands_of_fields_the_first_stand_open_and_the_rest_is_folded(fields: int, folded: str) -> None:
    """What stands below them, as how to undo it, is within reach."""
    some = [Hunk(f"spec.field{number}", (Line("+", "integer"),), number) for number in range(fields)]
    shown = templates.environment().get_template("_hunks.html").render(hunks=some)
    assert shown.count('class="hunk"') == fields
    assert re.findall("<summary>(.*)</summary>", shown) == [folded] * bool(folded)
    assert shown.partition("<details")[0].count('class="hunk"') == 40
    assert ">1 more line<" in shown


async def test_a_change_shows_how_far_its_rollout_is_and_asks_on_while_it_runs(site: Site) -> None:
    asked = f"/_/changes/{world.CULPRIT.id}/rollout"
    for path in ("/changes", INCIDENT, CHANGE, asked):
        source, found = await page(site, path)
        assert "rollout 40 %" in found.text, path
        assert source.count(f'data-hx-get="{asked}"') == 1, path
    (running,) = world.rollouts_of([world.CULPRIT])
    moments = (world.END, running.started_at + timedelta(hours=2))
    assert [is_moving(running, now) for now in moments] == [True, False]
    source, found = await page(site, "/changes")
    assert {"rollout done", "rollout failed at 0 %"} <= set(re.findall(r"rollout (?:done|failed at \d+ %)", found.text))
    for unknown in ("f" * 28, "0" * 12 + "f" * 16, "0" * 28, "none"):
        await page(site, f"/_/changes/{unknown}/rollout", status=404)


async def test_an_object_shows_its_versions_and_their_difference(site: Site) -> None:
    source, found = await page(site, OBJECT)
    assert "<ins>registry.example/checkout-api:v1.42.0</ins>" in source
    checked = [a for tag, a in found.elements if tag == "input" and "checked" in a]
    assert [a["name"] for a in checked][:1] == ["new"] or {a["name"] for a in checked} == {"old", "new"}
    await page(site, f"{OBJECT}?new={world.CULPRIT.id}&old={world.CULPRIT.id}")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nothing", 404),
        ("/incidents/unknown", 404),
        ("/changes/unknown", 404),
        ("/changes/" + "f" * 28, 404),
        ("/objects/shop/apps/Deployment/payments/unknown", 404),
        (f"{OBJECT}?new={'f' * 28}", 404),
        ("/changes?from=yesterday", 422),
        ("/changes?nonsense=1", 422),
        ("/changes?verb=patch", 422),
        ("/changes?after=x", 400),
        (f"{INCIDENT}?from=2026-11-20T14:02:40Z&to=2026-11-20T14:02:20Z", 422),
        (f"{INCIDENT}?from=2020-11-20T14:02:40Z&to=2026-11-20T14:02:20Z", 422),
        (f"{INCIDENT}?rows=some", 422),
    ],
)
async def test_errors_are_pages_in_words(site: Site, path: str, status: int) -> None:
    source, found = await page(site, path, status=status)
    assert source.startswith("<!doctype html>")
    assert len(found.text.split()) > 8
    assert "Traceback" not in source


async def test_a_stranger_is_told_how_to_get_in(site: Site) -> None:
    async with site.client(None) as stranger:
        answer = await stranger.get(INCIDENT)
    assert answer.status_code == 401
    assert "Checkout" not in answer.text
    assert 'href="/login"' in answer.text


async def test_a_search_looks_at_so_much_and_says_where_it_goes_on(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "AT_FIRST", 3)
    monkeypatch.setattr(search, "FURTHER", 30)
    async with site.client() as client:
        whole = await client.get("/changes?derived=shown&cluster=shop")
        page = (await client.get("/changes?text=nowhere&derived=shown&cluster=shop")).text
        pages = 0
        while more := re.search(r'data-hx-get="([^"]+)" data-hx-trigger="revealed"', page):
            assert "searched back to" in page
            page, pages = (await client.get(unescape(more[1]))).text, pages + 1
    assert "searched back" not in whole.text
    assert 2 <= pages <= 10
    assert "nothing older matches" in page


async def test_what_changed_reads_what_it_shows_and_counts_the_rest(site: Site) -> None:
    async with site.client() as client:
        with statements() as seen:
            answer = await client.get("/api/v1/what-changed", params={"at": world.END.isoformat(), "minus": "10m"})
    assert "91 changes, the newest 16" in answer.text
    assert len(seen) <= 4
    (rows,) = [statement for statement in seen if "changes.summary" in statement]
    assert "LIMIT" in rows
    assert answer.text.count("\n") == 20


async def test_a_page_says_up_to_when_each_source_tells(site: Site) -> None:
    async with site.client() as client:
        text = (await client.get("/changes")).text
    label = text[text.index('<span class="fresh"') :].partition("</span>")[0]
    assert "recorded to <time" in label
    assert 'title="audit log to 2026-11-20T14:03:' in label
    assert ", watch to 2026-11-20T14:03:" in label


async def test_the_list_is_found_where_its_incidents_are(site: Site) -> None:
    async with site.client() as client:
        answer = await client.get("/incidents")
    assert (answer.status_code, answer.headers["location"]) == (301, "/")
