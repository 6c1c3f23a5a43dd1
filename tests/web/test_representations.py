"""Each list as JSON, as a table and as lines; tags, and 304 for what a client has."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx2
import orjson
import pytest
from sqlalchemy import update

from app.core.model import Batch
from app.core.record import NO_MORE
from app.store import tables
from app.store.record import record
from app.web import numbered
from app.web.accept import JSON, NDJSON, TEXT
from app.web.etags import basis, met, tag
from tests.web import world
from tests.web.conftest import NOW, Site

ID = world.incident().id
WINDOW = "from=2026-11-20T14:00:00Z&to=2026-11-20T14:04:00Z"
LISTS = {
    "changes?limit=5": "5 changes, 2026-11-20 14:",
    "changes?derived=shown&limit=1000": "131 changes, 2026-11-20 14:",
    "objects/shop/apps/Deployment/payments/checkout-api": "1 change, 2026-11-20 14:02:",
    f"rollouts?{WINDOW}": "17 rollouts, 2026-11-20 14:",
    "incidents": "1 incident, 2026-11-20 14:",
    f"incidents/{ID}/suspects": "3 suspects",
    "calls?cluster=shop": "",
    "calls?cluster=shop&by=code&minus=60s": "",
    "calls/rates?cluster=shop&by=user,code": "3 lines",
    "metrics?cluster=shop": "no metrics",
    "series?cluster=shop&metric=up": "no lines",
    f"annotations?limit=5&{WINDOW}": "8 marks, 2026-11-20 14:",
    "gaps": "1 gap, 2026-11-20 14:01:58 UTC",
    "clusters": "1 cluster",
}
"""With how their tables begin."""


async def got(site: Site, path: str, accept: str = "", **headers: str) -> httpx2.Response:
    async with site.client() as client:
        return await client.get(f"/api/v1/{path}", headers={"Accept": accept, **headers})


@pytest.mark.parametrize("path", LISTS)
async def test_a_list_is_a_table_that_fits_a_terminal(site: Site, path: str) -> None:
    as_json, as_text = await got(site, path), await got(site, path, TEXT)
    assert as_text.headers["content-type"] == "text/plain; charset=utf-8"
    lines = as_text.text.splitlines()
    assert lines[0].startswith(LISTS[path])
    assert max(len(line) for line in lines) <= 80
    found = as_json.json()
    assert len(lines) >= len(found["items"]) + 2
    assert any(line.startswith("recorded up to 2026-11-20 14:0") for line in lines)
    if found["gaps"] and path != "gaps":
        last = found["gaps"][-1]
        assert lines[-1].startswith(f"not seen 11-20 {last['from_at'][11:19]} to ")
        assert lines[-1].endswith(f": {last['why']}")
    if found.get("next"):
        assert f"there is more: after={found['next']}" in lines


async def test_a_table_says_what_the_list_says(site: Site) -> None:
    changes = (await got(site, "changes?limit=3", TEXT)).text.splitlines()
    assert changes[1] == "TIME     NAMESPACE        CHANGE                                WHO"
    first = (await got(site, "changes?limit=3")).json()["items"][0]
    assert changes[2].startswith(first["at"][11:19])
    suspects = (await got(site, f"incidents/{ID}/suspects", TEXT)).text
    assert "1  93% " in suspects
    assert "\n       image of checkout-api: v1.41.0 → v1.42.0\n" in suspects
    assert "\n     + " in suspects
    assert "\n     ? " in suspects
    assert "4% that it was none of these\n" in suspects
    incidents = (await got(site, "incidents", TEXT)).text
    assert ID in incidents
    assert "93% checkout-api" in incidents
    calls = (await got(site, "calls?cluster=shop&minus=60s", TEXT)).text
    assert "patch serviceaccounts payments:checkout  " in calls
    assert "    40.0      0.0      4.0      2.0\n" in calls


async def test_marks_are_text_without_their_markup(site: Site) -> None:
    marked = await got(site, f"annotations?limit=1000&{WINDOW}", TEXT)
    lines = marked.text.splitlines()
    assert lines[1] == "TIME     UNTIL    OF       WHERE            WHAT"
    told = {line[18:26].strip(): line for line in lines[2:] if line[2] == ":"}
    assert told.keys() == {"change", "incident", "gap"}
    assert told["incident"].endswith(" incident shop payments    Checkout errors high, open")
    gaps = [line for line in lines if " gap " in line]
    assert gaps[1].endswith("gap      shop             not seen: every kind, the record of…")
    assert gaps[0].endswith("gap      shop             not seen: Pod, the watch of pods wa…")
    assert "<" not in marked.text
    assert "&" not in marked.text


async def test_one_change_is_a_text_with_its_fields_and_what_it_began(site: Site) -> None:
    lines = (await got(site, f"changes/{world.CULPRIT.id}", TEXT)).text.splitlines()
    assert lines[:4] == [
        "image of checkout-api: v1.41.0 → v1.42.0",
        "Deployment payments/checkout-api in shop, 2026-11-20 14:02:27 UTC",
        "by argocd (system:serviceaccount:argocd:argocd-application-controller), with",
        "  argocd-application-controller in pod argocd-0, known from audit log",
    ]
    field = lines.index("spec.template.spec.containers[app].image")
    assert lines[field + 1 : field + 3] == [
        "- registry.example/checkout-api:v1.41.0",
        "+ registry.example/checkout-api:v1.42.0",
    ]
    begun = lines.index("what controllers wrote because of it, of which the first 20 are told:")
    assert lines[begun + 1].startswith("20 changes, 2026-11-20 14:02:")
    assert max(map(len, lines)) <= 80
    assert "not seen 11-20 14:01:58 to 14:02:03: the watch of pods was behind" in lines
    assert lines[-1].endswith(f": {NO_MORE}")


async def test_an_empty_table_says_so(site: Site) -> None:
    empty = (await got(site, "changes?actor=nobody", TEXT)).text.splitlines()
    assert empty[0] == "no changes"
    assert empty[1].startswith("recorded up to")


@pytest.mark.parametrize("path", [*LISTS, "what-changed?minus=30m"])
async def test_a_list_is_a_line_for_each_item_and_then_the_rest(site: Site, path: str) -> None:
    as_json, as_lines = await got(site, path, JSON), await got(site, path, NDJSON)
    assert as_lines.headers["content-type"] == NDJSON
    *items, rest = map(orjson.loads, as_lines.text.splitlines())
    found = as_json.json()
    assert items == found.pop("items")
    assert rest == found
    assert {"freshness", "gaps"} <= rest.keys()


@pytest.mark.parametrize(
    ("path", "accept", "there_is"),
    [
        ("changes", "text/html", "application/json or text/plain or application/x-ndjson"),
        ("changes?follow=1", "text/plain", "application/x-ndjson"),
        ("what-changed", "image/png, text/plain;q=0", "text/plain or application/json or application/x-ndjson"),
        (f"incidents/{ID}", "image/png", "application/json or text/plain"),
        (f"changes/{world.CULPRIT.id}", "application/x-ndjson", "application/json or text/plain"),
    ],
)
async def test_what_there_is_not_is_refused_in_words(site: Site, path: str, accept: str, there_is: str) -> None:
    answer = await got(site, path, f"{accept}, application/json;q=0" if "json" not in there_is[:16] else accept)
    assert answer.status_code == 406
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"] == f"Accept asks for none of what there is of this: {there_is}"


@pytest.mark.parametrize(
    ("path", "accept", "kind"),
    [
        ("what-changed", "", TEXT),
        ("what-changed", "*/*", TEXT),
        ("what-changed", JSON, JSON),
        ("what-changed?format=json", TEXT, JSON),
        ("what-changed?format=text", JSON, TEXT),
        ("changes", "*/*", JSON),
        ("changes", "text/plain;q=0.5, application/json;q=0.4", TEXT),
    ],
)
async def test_what_is_asked_for_in_the_address_comes_first(site: Site, path: str, accept: str, kind: str) -> None:
    assert (await got(site, path, accept)).headers["content-type"].partition(";")[0] == kind


@pytest.mark.parametrize("accept", [JSON, TEXT, NDJSON])
@pytest.mark.parametrize("path", ["changes", "what-changed", "rollouts", f"incidents/{ID}/suspects", "clusters"])
async def test_what_a_client_has_is_not_sent_again(site: Site, path: str, accept: str) -> None:
    first = await got(site, path, accept)
    tag = first.headers["etag"]
    assert tag.startswith('W/"')
    assert "Accept" in first.headers["vary"]
    again = await got(site, path, accept, **{"If-None-Match": f'"another", {tag}'})
    assert (again.status_code, again.content) == (304, b"")
    for name in ("etag", "cache-control"):
        assert again.headers[name] == first.headers[name]
    assert "Accept" in again.headers["vary"]
    other = await got(site, path, accept, **{"If-None-Match": 'W/"another"'})
    assert (other.status_code, other.content) == (200, first.content)
    async with site.client() as client:
        headed = await client.head(f"/api/v1/{path}", headers={"Accept": accept, "If-None-Match": tag})
        whole = await client.head(f"/api/v1/{path}", headers={"Accept": accept})
    assert (headed.status_code, whole.status_code) == (304, 200)
    for answer in (whole, first):
        del answer.headers[numbered.HEADER]
    assert whole.headers == first.headers


async def test_each_representation_has_a_tag_of_its_own(site: Site) -> None:
    assert len({(await got(site, "changes", kind)).headers["etag"] for kind in (JSON, TEXT, NDJSON)}) == 3
    assert "etag" not in (await got(site, "changes/0")).headers


async def test_one_more_change_changes_the_tag_of_what_shows_it(site: Site) -> None:
    paths = ("changes", "what-changed", "changes?namespace=identity", "incidents")
    before = {path: (await got(site, path)).headers["etag"] for path in paths}
    async with site.database.write.begin() as conn:
        more = world.a_change("mailer", namespace="growth", at=NOW - timedelta(seconds=61), version="one more")
        await record(conn, Batch(world.CLUSTER, changes=(more,)))
    after = {path: (await got(site, path)).headers["etag"] for path in paths}
    assert {path for path in paths if before[path] != after[path]} == {"changes", "what-changed"}


async def test_how_fresh_an_answer_is_counts_by_the_minute(site: Site) -> None:
    async def recorded_up_to(seconds: int) -> str:
        async with site.database.write.begin() as conn:
            await conn.execute(update(tables.recorded).values(to_at=NOW + timedelta(minutes=10, seconds=seconds)))
        return str((await got(site, "changes")).headers["etag"])

    start = -NOW.second
    assert await recorded_up_to(start) == await recorded_up_to(start + 59) != await recorded_up_to(start + 60)


def test_a_tag_is_made_of_all_but_the_seconds_of_what_moves_by_itself() -> None:
    def tagged(**said: Any) -> str:
        fresh = [{"cluster": "shop", "at": "2026-11-20T14:03:45.100000Z", "sources": {}}]
        gap = {"cluster": "shop", "from_at": "2026-11-20T14:01:00Z", "to_at": "2026-11-20T14:03:45Z", "why": "behind"}
        whole = {"freshness": fresh, "gaps": [gap], "items": [{"at": "2026-11-20T14:00:01Z"}], "next": None}
        return tag(JSON, basis({**whole, **said}))

    def lasting(until: str) -> list[dict[str, str]]:
        return [{"cluster": "shop", "from_at": "2026-11-20T14:01:00Z", "to_at": until, "why": "behind"}]

    assert tagged(gaps=lasting("2026-11-20T14:03:59.5Z")) == tagged()
    assert tagged(gaps=lasting("2026-11-20T14:04:00Z")) != tagged()
    assert tagged(items=[{"at": "2026-11-20T14:00:02Z"}]) != tagged()
    assert tagged(next="1.1") != tagged()
    assert tagged(to="2026-11-20T14:03:45Z") == tagged(to="2026-11-20T14:03:46Z") != tagged()


@pytest.mark.parametrize(
    ("sent", "expected"),
    [('W/"a"', True), ('"a"', True), ('"b", W/"a"', True), ("*", True), ('"b"', False), ("", False), ("a", False)],
)
def test_tags_are_compared_weakly(sent: str, expected: bool) -> None:
    assert met(sent, 'W/"a"') is expected
