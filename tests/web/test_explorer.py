"""The explorer and its REST routes: one answer as graph, table, CSV and JSON; what cannot be asked is refused."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from app.core.model import Batch
from app.store.record import record
from tests.web import world
from tests.web.conftest import Site, site

__all__ = ["site"]
REQUESTS = {"cluster": "shop", "metric": "apiserver_request_total", "by": "verb", "minus": "30m"}
ASKED = {"cluster": "shop", "minus": "30m"}
CALLS = {"cluster": "shop", "of": "calls", "by": "user,code", "minus": "30m"}


@pytest.fixture(scope="module", autouse=True)
async def _measured(site: Site) -> None:
    async with site.database.write.begin() as conn:
        await record(conn, Batch(cluster=world.CLUSTER, series=world.metrics()))


async def explored(site: Site, asked: dict[str, str], *, status: int = 200) -> str:
    async with site.client() as client:
        answer = await client.get("/explore", params=asked)
    assert answer.status_code == status, answer.text
    return answer.text


async def rest(site: Site, path: str, asked: dict[str, str], *, status: int = 200) -> dict[str, Any]:
    async with site.client() as client:
        answer = await client.get(f"/api/v1/{path}", params=asked)
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_question_is_answered_as_a_graph_with_its_figures_and_changes(site: Site) -> None:
    page = await explored(site, REQUESTS)
    assert "rate of apiserver_request_total by verb" in page
    assert page.count('<path class="curve') == 8, "four lines and their legend"
    assert 'class="marker"' in page
    assert "32/s" in page


async def test_csv_rest_and_the_page_tell_the_same(site: Site) -> None:
    told = await rest(site, "series", REQUESTS)
    rows = list(csv.reader(io.StringIO(await explored(site, REQUESTS | {"format": "csv"}))))
    assert rows[0] == ["time", "PATCH", "POST", "LIST", "GET"]
    columns = [[float(cell) if cell else None for cell in column] for column in list(zip(*rows[1:], strict=True))[1:]]
    assert columns == [one["values"] for one in told["items"]]
    assert told["items"][0]["of"] == {"verb": "PATCH"}
    assert (told["unit"], told["measure"]) == ("/s", "rate")
    assert len(told["items"][0]["values"]) <= 110


async def test_call_rates_are_told_apart_by_whatever_is_asked(site: Site) -> None:
    told = await rest(site, "calls/rates", ASKED | {"by": "user,code", "where": "verb=patch"})
    found = {(one["of"]["user"], one["of"]["code"]): max(filter(None, one["values"])) for one in told["items"]}
    user = "system:serviceaccount:payments:checkout"
    assert found.keys() == {(user, "200"), (user, "409")}
    assert found[user, "200"] == pytest.approx(9 * found[user, "409"], rel=1e-4)
    assert "payments:checkout 409" in await explored(site, CALLS)
    slow = await rest(site, "calls/rates", ASKED | {"by": "verb", "measure": "mean"})
    assert max(filter(None, slow["items"][0]["values"])) == pytest.approx(0.002, rel=0.01)


async def test_a_quantile_and_the_lines_beyond_most(site: Site) -> None:
    metric = "apiserver_request_duration_seconds"
    asked = {"metric": metric, "measure": "quantile", "quantile": "0.5", "by": "verb", "most": "2"}
    told = await rest(site, "series", ASKED | asked)
    assert [one["others"] for one in told["items"]] == [0, 0, 2]
    assert told["items"][0]["values"][50] == pytest.approx(0.1)
    assert told["unit"] == "s"


async def test_the_form_offers_the_metrics_that_are_stored(site: Site) -> None:
    page = await explored(site, {})
    assert "<option>apiserver_request_duration_seconds</option>" in page
    assert "What to look at?" in page


async def test_where_nothing_matches_it_says_so(site: Site) -> None:
    assert "Nothing matches in this time" in await explored(site, REQUESTS | {"where": "verb=NONE"})


async def test_a_name_that_a_spreadsheet_would_run_is_text(site: Site) -> None:
    key = world.metrics()[0]
    labels = tuple((name, "=1+1" if name == "verb" else value) for name, value in key.labels)
    async with site.database.write.begin() as conn:
        await record(conn, Batch(world.CLUSTER, series=(type(key)("odd_total", labels, "", key.times, key.values),)))
    asked = {"cluster": "shop", "metric": "odd_total", "by": "verb", "minus": "30m", "format": "csv"}
    assert (await explored(site, asked)).splitlines()[0] == "time,'=1+1"


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"where": "verb"}, "is no condition"),
        ({"most": "101"}, "less than or equal to 100"),
        ({"quantile": "1"}, "less than 1"),
        ({"metric": "a b"}, "metric"),
        ({"measure": "odd"}, "measure"),
        ({"minus": "500d"}, "400 days"),
        ({"cluster": "nowhere"}, "no cluster"),
        ({"of": "calls", "by": "shoe"}, "calls have no"),
        ({"of": "calls", "measure": "quantile"}, "must be rate or mean"),
        ({"of": "calls", "minus": "2d"}, "at most a day"),
        ({"metric": "", "format": "csv"}, "ask for a metric"),
    ],
)
async def test_what_cannot_be_asked_is_refused_in_words(site: Site, asked: dict[str, str], why: str) -> None:
    page = await explored(site, REQUESTS | asked, status=404 if "nowhere" in asked.values() else 422)
    assert why in page.lower()


@pytest.mark.parametrize(
    ("path", "asked", "field"),
    [
        ("series", {"cluster": "shop"}, "metric"),
        ("series", {"cluster": "shop", "metric": "up", "where": "x"}, "where"),
        ("series", {"cluster": "shop", "metric": "up", "shoe": "1"}, "shoe"),
        ("calls/rates", {"cluster": "shop", "by": "shoe"}, "by"),
        ("calls/rates", {"cluster": "shop", "measure": "level"}, "measure"),
        ("calls/rates", {"cluster": "shop", "minus": "2d"}, "from"),
    ],
)
async def test_rest_names_the_parameter_to_blame(site: Site, path: str, asked: dict[str, str], field: str) -> None:
    assert (await rest(site, path, asked, status=422))["field"] == field
