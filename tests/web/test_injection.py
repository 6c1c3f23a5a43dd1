"""No text becomes a part of a statement: a hostile one finds no more than one that matches nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from secrets import token_hex
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from fastapi import FastAPI
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from app.correlate import ByHand
from app.store.metadata import metadata
from app.web.deps import Deps
from app.web.routes import create_app
from tests.web import world
from tests.web.conftest import HOST, UNLIMITED, Site, deps

NOTHING = "zqxjkv"
"""What matches nothing, and no pattern."""
CORPUS = (
    "'",
    "''",
    '"',
    "\\",
    "\\'",
    "' OR '1'='1",
    "' OR 1=1 --",
    "') OR ('1'='1",
    '" OR "1"="1',
    "1 OR 1=1",
    "'; DROP TABLE changes; --",
    "'); DELETE FROM incidents; COMMIT; --",
    "' UNION SELECT digest FROM tokens --",
    "1; SELECT pg_sleep(9) --",
    "'||(SELECT pg_sleep(9))||'",
    "$$; DROP TABLE words; $$",
    "$1",
    ":cluster",
    "%(cluster)s",
    "%s",
    "{0}",
    "' /*",
    "E'\\x27 OR true --",
    "\u02bc OR 1=1 --",
    "\uff07 OR 1=1 --",
    "{shop,payments}",
    "sho_",
    "s%p",
    "checkout_api",
    "check%api",
    "(shop|payments)",
    "s.*",
    "shop\x00",
)
"""What ends a literal, is bound by another name, waits, formats, and is a wildcard or a pattern somewhere."""
PLACES = {
    "cluster": world.CLUSTER,
    "api_group": "apps",
    "kind": "Deployment",
    "namespace": "payments",
    "name": "checkout-api",
    "change_id": world.CULPRIT.id,
    "incident_id": world.incident().id,
    "metric": "up",
    "query": "up",
    "object": "deploy/checkout-api",
    "from": "2026-11-20T14:00:00Z",
}
"""What is asked for beside the text."""
PAGES = (
    "/",
    "/changes",
    "/incidents",
    "/incidents/new",
    f"/incidents/{PLACES['incident_id']}",
    f"/incidents/{PLACES['incident_id']}/correct",
    f"/changes/{PLACES['change_id']}",
    "/objects/shop/apps/Deployment/payments/checkout-api",
    "/clusters",
    "/clusters/shop/control-plane",
    "/explore?of=calls&cluster=shop",
    "/audit",
    "/slack",
    "/login",
)
FILLED = {"cluster": world.CLUSTER, "title": "Checkout is down", "name": "Calls"}
"""What stands in a field that must not be empty, beside the one with the text."""
UNANSWERED = {"/api/v1/promql": 503, "/explore": 503}
"""There is no Prometheus to ask, whatever is asked of it."""
TRIED = "hostile texts in parameters and fields: none that found more, none that was a 500"
_ROWS = re.compile(r"<(?:tr|li|article|option|path)\b")


@dataclass(frozen=True, slots=True)
class Field:
    """Where a text is put: a parameter of REST, or a field of a form; ``beside`` are the others."""

    method: str
    path: str
    name: str
    beside: dict[str, str] = field(default_factory=dict)
    is_form: bool = False

    def __str__(self) -> str:
        return f"{self.method} {self.path} {self.name}"

    def request(self, said: str) -> tuple[str, dict[str, Any]]:
        """The address, and what else of a request has the text."""
        path, given = self.path, self.beside | {self.name: said}
        for part in re.findall(r"{(\w+)}", path):
            path = path.replace(f"{{{part}}}", quote(given.pop(part), safe=""))
        if "once" in self.beside and self.name != "once":
            given["once"] = token_hex(16)
        if self.method == "GET":
            return path, {"params": given}
        return path, {"data" if self.is_form else "json": given}


def parameters() -> list[Field]:
    """Each text that REST is asked with in an address."""
    nowhere = create_async_engine("postgresql+psycopg://nobody@127.0.0.1:1/none")
    app = create_app(Deps(read=nowhere, write=nowhere, public_url=HOST, clock=lambda: world.END))
    described = app.openapi()
    found = []
    for path, methods in described["paths"].items():
        told = methods.get("get", {}).get("parameters", [])
        for one in told:
            if _is_text(one["schema"]):
                needed = {other["name"] for other in told if other["required"]} - {one["name"]}
                found.append(Field("GET", path, one["name"], {name: PLACES[name] for name in needed}))
    return found


def _is_text(schema: dict[str, Any]) -> bool:
    return any(one.get("type") == "string" and not one.keys() & {"format", "const", "enum"} for one in _either(schema))


def _either(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return list(schema.get("anyOf", [schema]))


class Forms(HTMLParser):
    """The forms of a page: method, address, and each field with what stands in it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.page = page
        self.forms: list[tuple[str, str, dict[str, str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        if tag == "form":
            self.forms.append(((told.get("method") or "get").upper(), told.get("action") or self.page, {}))
        elif tag in ("input", "select", "textarea", "button") and self.forms and (name := told.get("name")):
            self.forms[-1][2].setdefault(name, told.get("value") or "")


async def fields(client: httpx2.AsyncClient) -> list[Field]:
    """Each field of each form of the pages."""
    found: dict[str, Field] = {}
    for page in PAGES:
        parser = Forms(page)
        parser.feed((await client.get(page)).text)
        for method, address, named in parser.forms:
            named |= {name: filled for name, filled in FILLED.items() if named.get(name) == ""}
            for name in named:
                one = Field(method, address.partition("?")[0], name, named, is_form=True)
                found.setdefault(str(one), one)
    return list(found.values())


@pytest.fixture(scope="module")
def open_site(site: Site) -> Site:
    """The same, where incidents are taken by hand."""
    app: FastAPI = create_app(replace(deps(site.database), by_hand=ByHand(site.database.write)), limits=UNLIMITED)
    return Site(app, site.database, site.bearer)


async def rows(site: Site) -> dict[str, int]:
    """How many each table has: all are there."""
    names = sorted(metadata.tables)
    counts = " UNION ALL ".join(f"SELECT '{name}', count(*) FROM {name}" for name in names)
    async with site.database.read.connect() as conn:
        return {row[0]: row[1] for row in await conn.execute(text(counts))}


def _found(answer: httpx2.Response) -> int:
    """How many things an answer tells of."""
    if "json" in answer.headers.get("content-type", ""):
        items = answer.json().get("items", [1])
        return len(items)
    return len(_ROWS.findall(answer.text)) or len(answer.text.splitlines())


async def _asked(client: httpx2.AsyncClient, one: Field, said: str) -> httpx2.Response:
    path, given = one.request(said)
    answer = await client.request(one.method, path, **given, headers={"Sec-Fetch-Site": "same-origin"})
    assert answer.status_code < 500 or UNANSWERED.get(one.path) == answer.status_code, (str(one), said, answer.text)
    return answer


def test_every_route_with_a_text_is_asked() -> None:
    paths = {one.path for one in parameters()}
    assert {"/api/v1/changes", "/api/v1/calls", "/api/v1/diff", "/api/v1/incidents/{incident_id}"} <= paths
    assert len(parameters()) >= 60


@pytest.mark.parametrize("one", parameters(), ids=str)
async def test_a_hostile_text_finds_what_one_that_matches_nothing_finds(
    open_site: Site, one: Field, record_property: Callable[[str, object], None]
) -> None:
    async with open_site.client("admin") as client:
        nothing = await _asked(client, one, NOTHING)
        for said in CORPUS:
            answer = await _asked(client, one, said)
            if answer.status_code == 200:
                most = _found(nothing) if nothing.status_code == 200 else 0
                assert _found(answer) == most, said
    record_property(TRIED, len(CORPUS))


async def test_a_hostile_text_in_a_form_does_no_more_than_any(
    open_site: Site, record_property: Callable[[str, object], None]
) -> None:
    """Of what is looked for, as much is found; of what is written, no more rows are, and none are gone."""
    async with open_site.client("admin") as client:
        told = await fields(client)
        named = set(map(str, told))
        assert {"POST /incidents title", "GET /changes text", "POST /views name", "POST /login token"} <= named
        for one in told:
            before = await rows(open_site)
            nothing = await _asked(client, one, NOTHING)
            after = await rows(open_site)
            most = {name: count - before[name] for name, count in after.items()}
            for said in CORPUS:
                answer = await _asked(client, one, said)
                if one.method == "GET" and answer.status_code == nothing.status_code == 200:
                    assert _found(answer) == _found(nothing), (str(one), said)
                elif one.method == "GET":
                    assert answer.status_code in (nothing.status_code, 404, 422), (str(one), said)
                before, after = after, await rows(open_site)
                written = {name: count - before[name] for name, count in after.items()}
                assert all(0 <= count <= most[name] for name, count in written.items()), (str(one), said, written)
        record_property(TRIED, len(told) * len(CORPUS))


async def test_after_all_that_every_table_is_as_it_was(open_site: Site) -> None:
    """Whatever was asked: what was recorded is there, and nobody has another role."""
    async with open_site.client() as client:
        found = (await client.get("/api/v1/changes", params={"derived": "shown", "limit": 1000})).json()["items"]
        incident = await client.get(f"/api/v1/incidents/{PLACES['incident_id']}")
    assert len(found) == len({change.key for change in world.batch().changes})
    assert incident.status_code == 200
