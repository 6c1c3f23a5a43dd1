"""The explorer and its REST routes: one answer as graph, table, CSV and JSON; what cannot be asked is refused."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from html import escape, unescape
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from app.core.model import Batch, Evaluated, MetricSeries
from app.store.record import record
from app.web.deps import Evaluate, QueryError
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


async def test_a_time_of_another_year_says_which(site: Site) -> None:
    page = await explored(site, {"cluster": "shop", "from": "2025-11-20T14:00:00Z", "to": "2026-11-20T14:00:00Z"})
    assert "<b>20 Nov 2025 14:00:00</b> to <b>20 Nov 14:00:00</b>" in page


@pytest.mark.parametrize("path", ["/explore", "/clusters/shop/control-plane"])
async def test_times_that_nobody_wrote_are_whole_seconds(site: Site, path: str) -> None:
    before, now = site.app.state.deps, world.END + timedelta(microseconds=654_321)
    site.app.state.deps = dataclasses.replace(before, clock=lambda: now)
    try:
        async with site.client() as client:
            page = (await client.get(path, params={"minus": "30m"})).text
            [earlier] = re.findall(r'href="(\S+)">← earlier', page)
            told = (await client.get(unescape(earlier).replace(path, "/explore"))).text
    finally:
        site.app.state.deps = before
    assert re.findall(r'name="(?:from|to)"[^>]* value="(\S+)"', told) == [
        "2026-11-20T13:03:46Z",
        "2026-11-20T13:33:46Z",
    ]


@pytest.mark.parametrize("written", ["2026-11-20T13:03:45.123456Z", "2026-11-20T13:03:45Z"])
async def test_a_time_that_was_written_stays_as_it_was(site: Site, written: str) -> None:
    page = await explored(site, REQUESTS | {"to": written})
    assert re.findall(r'name="to"[^>]* value="(\S+)"', page) == [written]


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


async def test_lines_are_a_table_for_a_terminal(site: Site) -> None:
    async with site.client() as client:
        text = (await client.get("/api/v1/series", params=REQUESTS, headers={"Accept": "text/plain"})).text
    title, *rows = text.splitlines()[1:6]
    assert title == "LINE                              OVER TIME          LAST    HIGHEST AT"
    told = (await rest(site, "series", REQUESTS))["items"]
    assert [row.split()[0] for row in rows] == [one["of"]["verb"] for one in told]
    highest = [f"{max(filter(None, one['values'])):.3g}/s" for one in told]
    assert [row.split()[-2] for row in rows] == highest
    assert "rate by verb, 2026-11-20 13:33:" in text
    assert max(map(len, text.splitlines())) <= 80


async def test_a_quantile_and_the_lines_beyond_most(site: Site) -> None:
    metric = "apiserver_request_duration_seconds"
    asked = {"metric": metric, "measure": "quantile", "quantile": "0.5", "by": "verb", "most": "2"}
    told = await rest(site, "series", ASKED | asked)
    assert [one["others"] for one in told["items"]] == [0, 0, 2]
    assert told["items"][0]["values"][50] == pytest.approx(0.1)
    assert told["unit"] == "s"


async def test_a_quantile_of_what_no_buckets_are_stored_is_called_a_mean(site: Site) -> None:
    async with site.database.write.begin() as conn:
        series = world.without_buckets("scheduler_seconds", seconds=0.25)
        await record(conn, Batch(cluster=world.CLUSTER, series=series))
    page = await explored(site, ASKED | {"metric": "scheduler_seconds", "measure": "quantile"})
    assert "mean of scheduler_seconds" in page
    assert "no buckets are stored: this is the mean" in page
    assert "0.99 quantile of scheduler_seconds" not in page
    asked = ASKED | {"metric": "scheduler_seconds", "measure": "quantile", "format": "csv"}
    async with site.client("viewer") as client:
        answer = await client.get("/explore", params=asked)
    assert json.loads(answer.headers["foreshock-warnings"]) == ["no buckets are stored: this is the mean"]
    assert 'filename="lines-with-warnings.csv"' in answer.headers["content-disposition"]
    nothing = {"metric": "scheduler_seconds", "measure": "quantile", "where": "job=NONE"}
    assert "0.99 quantile of scheduler_seconds where job=NONE: no sample" in await explored(site, ASKED | nothing)


@pytest.mark.parametrize(
    ("asked", "field", "why"),
    [
        ({"where": 'verb=~"LIST|GET"'}, "where", "here it is verb=LIST|GET, without quotes"),
        ({"where": "verb==LIST"}, "where", "is a condition of PromQL: here it is verb=LIST"),
        ({"where": "verrb=LIST"}, "where", "have no label 'verrb' in this time: is verb meant?"),
        ({"where": "tenant=a"}, "where", "they have code, instance, job, resource, subresource, verb"),
        ({"by": "verbb"}, "by", "is verb meant?"),
    ],
)
async def test_a_condition_that_nothing_can_meet_is_refused(
    site: Site, asked: dict[str, str], field: str, why: str
) -> None:
    told = await rest(site, "series", ASKED | {"metric": "apiserver_request_total"} | asked, status=422)
    assert told["field"] == field
    assert why in told["detail"]


@pytest.mark.parametrize("asked", [{"where": "tenant="}, {"where": "tenant!=a"}, {"by": "priority_level"}])
async def test_what_versions_differ_in_is_answered(site: Site, asked: dict[str, str]) -> None:
    told = await rest(site, "series", ASKED | {"metric": "apiserver_request_total"} | asked)
    assert told["items"]


async def test_of_buckets_without_the_last_it_is_said_what_is_missing(site: Site) -> None:
    like = world.metrics()[0]
    counted = tuple(float(10 * place) for place in range(len(like.times)))
    series = [replace(like, name="odd_bucket", labels=(("le", le),), values=counted) for le in ("0.1", "0.2")]
    async with site.database.write.begin() as conn:
        await record(conn, Batch(cluster=world.CLUSTER, series=tuple(series)))
    page = await explored(site, ASKED | {"metric": "odd", "measure": "quantile"})
    assert "Nothing matches in this time" in page
    assert "one line whose buckets have no le=&#34;+Inf&#34;, without which there is no quantile." in page


async def test_the_form_offers_the_metrics_that_are_stored(site: Site) -> None:
    page = await explored(site, {})
    assert "<option>apiserver_request_duration_seconds</option>" in page
    assert "What to look at?" in page


async def test_rest_tells_the_metrics_that_are_stored(site: Site) -> None:
    told = await rest(site, "metrics", {"cluster": "shop"})
    offered = re.findall(r"<option>(.*?)</option>", (await explored(site, {})).partition('<datalist id="metrics">')[2])
    assert [one["name"] for one in told["items"]] == offered
    assert "apiserver_request_duration_seconds" in offered
    assert {"freshness", "gaps"} <= told.keys()
    assert (await rest(site, "metrics", {}, status=422))["field"] == "cluster"
    assert (await rest(site, "metrics", {"cluster": "moon"}, status=404))["field"] == "cluster"


@pytest.mark.parametrize("measure", ["rate", "level", "quantile"])
async def test_a_metric_that_is_not_stored_is_refused_with_the_nearest(site: Site, measure: str) -> None:
    asked = {"cluster": "shop", "metric": "apiserver_request_totl", "measure": measure}
    problem = await rest(site, "series", asked, status=404)
    assert problem["field"] == "metric"
    said = "no metric 'apiserver_request_totl' of shop is stored; the nearest: apiserver_request_total"
    assert problem["detail"].startswith(said)
    async with site.client("viewer") as client:
        page = await client.get("/explore", params=asked)
        for kind in ("csv", "json"):
            assert (await client.get("/explore", params={**asked, "format": kind})).status_code == 404
    assert page.status_code == 404
    assert said.replace("'", "&#39;")[1:] in page.text
    assert "Nothing matches" not in page.text
    several = asked | {"metric": "apiserver_request_totl|apiserver_request_total", "where": "verb=NONE"}
    assert (await rest(site, "series", several))["items"] == []


async def test_where_nothing_matches_it_says_so(site: Site) -> None:
    assert "Nothing matches in this time" in await explored(site, REQUESTS | {"where": "verb=NONE"})


@pytest.mark.parametrize(("asked", "what"), [(REQUESTS, "Metrics"), (CALLS, "Calls")])
async def test_after_the_end_of_what_is_recorded_the_hour_before_that_is_offered(
    site: Site, asked: dict[str, str], what: str
) -> None:
    late = {"from": "2026-11-21T14:00Z", "to": "2026-11-21T15:00Z", "minus": ""}
    page = await explored(site, asked | late)
    assert f"{what} of shop are recorded up to" in page
    told = re.search(r'href="(/explore[^"]*)">Show the hour before that', page)
    assert told
    async with site.client() as client:
        again = await client.get(unescape(told[1]))
    assert "Nothing matches" not in again.text
    assert '<path class="curve' in again.text


async def test_the_hour_before_the_end_of_what_is_recorded_holds_that_end(site: Site) -> None:
    at = world.END.timestamp() + 0.804999
    last = MetricSeries("queue_depth", (("job", "late"),), "gauge", (at,), (7.0,))
    async with site.database.write.begin() as conn:
        await record(conn, Batch(cluster="late", series=(last,)))
    asked = {
        "cluster": "late",
        "metric": "queue_depth",
        "measure": "level",
        "from": "2026-11-21T14:00Z",
        "to": "2026-11-21T15:00Z",
    }
    told = re.search(r'href="(/explore[^"]*)">Show the hour before that', await explored(site, asked))
    assert told
    assert "to=2026-11-20T14%3A03%3A46.000Z" in told[1]
    async with site.client() as client:
        assert ">7</td>" in (await client.get(unescape(told[1]))).text


async def test_of_what_was_never_recorded_it_says_how_that_comes_in(site: Site) -> None:
    async with site.database.write.begin() as conn:
        await record(conn, Batch(cluster="new"))
    page = await explored(site, {"cluster": "new", "of": "calls", "by": "user"})
    assert "No calls of new were ever recorded" in page


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
    ("field", "text", "why"),
    [
        ("metric", "up{job=x}", "is no name of a metric"),
        ("where", "verb", "is no condition"),
        ("most", "0", "Most: must be greater than or equal to 1"),
        ("quantile", "1", "Quantile: must be less than 1"),
        ("from", "noon", "From: must be ISO 8601"),
    ],
)
async def test_who_mistypes_one_field_keeps_the_others(site: Site, field: str, text: str, why: str) -> None:
    page = await explored(site, REQUESTS | {"where": "code=4*", "by": "verb", field: text}, status=422)
    assert why in page
    for kept in ({"metric": REQUESTS["metric"], "where": "code=4*", "by": "verb"} | {field: escape(text)}).values():
        assert f'value="{kept}"' in page


async def test_what_cannot_be_chosen_is_shown_as_chosen(site: Site) -> None:
    page = await explored(site, REQUESTS | {"measure": "odd"}, status=422)
    assert "<option selected>odd</option>" in page
    page = await explored(site, REQUESTS | {"from": "2026-11-21T12:00:00Z"}, status=422)
    assert "From and minus both say where it begins" in page
    assert 'value="2026-11-21T12:00:00' in page
    assert '<option value="30m" selected>' in page or "<option selected>30m</option>" in page


@pytest.mark.parametrize("kind", ["json", "csv"])
async def test_a_program_that_asks_for_figures_is_refused_in_json(site: Site, kind: str) -> None:
    cases = (({"most": "0"}, 422, "most"), ({"where": "verb"}, 422, "where"), ({"cluster": "nowhere"}, 404, "cluster"))
    async with site.client() as client:
        for wrong, status, field in cases:
            asked = REQUESTS | wrong | {"format": kind}
            answer = await client.get("/explore", params=asked)
            assert (answer.status_code, answer.json()["field"]) == (status, field)
            assert answer.headers["content-type"] == "application/problem+json"
            shown = await client.get("/explore", params=asked, headers={"accept": "text/html,*/*;q=0.8"})
            assert (shown.status_code, shown.headers["content-type"]) == (status, "text/html; charset=utf-8")
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=site.app), base_url="http://test") as nobody:
        assert (await nobody.get("/explore", params={"format": kind})).json()["status"] == 401


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


PROMQL = {"cluster": "shop", "of": "promql", "promql": "sum by (code) (up)", "minus": "30m"}


def answering(*lines: MetricSeries, error: QueryError | None = None, warnings: tuple[str, ...] = ()) -> Evaluate:
    async def evaluate(cluster: str, query: str, start: datetime, _end: datetime, _step: timedelta) -> Evaluated:
        assert (cluster, query) == ("shop", "sum by (code) (up)")
        if error is not None:
            raise error
        series = [replace(one, times=tuple(start.timestamp() + at for at in one.times)) for one in lines]
        return Evaluated(series, warnings)

    return evaluate


@contextmanager
def asking(site: Site, evaluate: Evaluate) -> Iterator[None]:
    before = site.app.state.deps
    site.app.state.deps = dataclasses.replace(before, evaluate=evaluate)
    try:
        yield
    finally:
        site.app.state.deps = before


def coded(code: str, *values: float) -> MetricSeries:
    times = tuple(30.0 * number for number in range(len(values)))
    return MetricSeries("", (("code", code), ("job", "apiserver")), "gauge", times, values)


async def test_a_time_is_told_to_the_second(site: Site) -> None:
    """A certificate's end, or when a process started: ten digits."""
    with asking(site, answering(coded("200", *[1795889017.0] * 9))):
        async with site.client("responder") as client:
            rows = (await client.get("/explore", params=PROMQL | {"format": "csv"})).text.split()
            asked = {"cluster": "shop", "query": PROMQL["promql"], "minus": "30m"}
            (item,) = (await client.get("/api/v1/promql", params=asked)).json()["items"]
    assert {row.partition(",")[2] for row in rows[1:]} == {"", "1795889017"}
    assert {*item["values"]} == {None, 1795889017.0}


async def test_a_query_in_promql_is_a_graph_with_changes_csv_and_rest(site: Site) -> None:
    with asking(site, answering(coded("200", 1.0, 2.0), coded("500", 3.0, float("inf"), 5.0))):
        async with site.client("responder") as client:
            page = (await client.get("/explore", params=PROMQL)).text
            rows = (await client.get("/explore", params=PROMQL | {"format": "csv"})).text.splitlines()
            asked = {"cluster": "shop", "query": PROMQL["promql"], "minus": "30m"}
            told = (await client.get("/api/v1/promql", params=asked)).json()
    assert "sum by (code) (up)" in page
    assert page.count('<path class="curve') == 5, "two lines, a point that stands alone, and their legend"
    assert 'class="marker"' in page
    assert rows[0] == "time,500,200", "what is the same of all is not said"
    assert [one["of"] for one in told["items"]] == [{"code": "500"}, {"code": "200"}]
    assert [one["values"][:3] for one in told["items"]] == [[3.0, None, 5.0], [1.0, 2.0, None]]
    assert told["gaps"] is not None


@pytest.mark.parametrize("lines", [(coded("200", 1.0),), ()])
async def test_what_prometheus_warns_of_is_said_beside_its_answer(site: Site, lines: tuple[MetricSeries, ...]) -> None:
    warned, asked = "no answer from <store-1>", {"cluster": "shop", "query": PROMQL["promql"], "minus": "30m"}
    with asking(site, answering(*lines, warnings=(warned,))):
        async with site.client("responder") as client:
            page = (await client.get("/explore", params=PROMQL)).text
            told = (await client.get("/explore", params=PROMQL | {"format": "json"})).json()
            answer = (await client.get("/api/v1/promql", params=asked)).json()
            text = (await client.get("/api/v1/promql", params=asked, headers={"Accept": "text/plain"})).text
    assert "Prometheus warns of this answer" in page
    assert escape(warned) in page
    assert told["warnings"] == answer["warnings"] == [warned]
    assert f"\nPrometheus warns: {warned}\n" in text
    assert ("nothing was measured of it then" in text) is (not lines)
    with asking(site, answering(*lines)):
        async with site.client("responder") as client:
            assert "warns of" not in (await client.get("/explore", params=PROMQL)).text
            assert (await client.get("/api/v1/promql", params=asked)).json()["warnings"] == []


async def test_a_csv_has_what_prometheus_warns_of_beside_its_figures(site: Site) -> None:
    told: list[httpx2.Response] = []
    for warnings in ((), ("no answer from “store-1”\r\nX-Other: 1", "a second one")):
        with asking(site, answering(coded("200", 1.0), warnings=warnings)):
            async with site.client("responder") as client:
                told.append(await client.get("/explore", params=PROMQL | {"format": "csv"}))
    well, warned = told
    assert well.text == warned.text, "figures alone, for whatever reads them"
    names = [one.headers["content-disposition"].partition("filename=")[2] for one in told]
    assert names == ['"lines.csv"', '"lines-with-warnings.csv"']
    assert json.loads(warned.headers["foreshock-warnings"]) == [
        "no answer from ?store-1?\r\nX-Other: 1",
        "a second one",
    ]
    assert "foreshock-warnings" not in well.headers
    assert "x-other" not in warned.headers


async def test_a_query_is_for_responders_and_what_prometheus_says_of_it_is_told(site: Site) -> None:
    asked = {"cluster": "shop", "query": PROMQL["promql"], "minus": "30m"}
    many = [coded(str(code), 1.0) for code in range(101)]
    cases = (
        ("viewer", answering(), 403, "responder"),
        ("responder", answering(error=QueryError("parse error at char 4", refused=True)), 422, "parse error at char 4"),
        ("responder", answering(error=QueryError("p did not answer", refused=False)), 503, "p did not answer"),
        ("responder", answering(*many), 422, "101 lines"),
    )
    for role, evaluate, status, said in cases:
        with asking(site, evaluate):
            async with site.client(role) as client:
                answer = await client.get("/api/v1/promql", params=asked)
                page = await client.get("/explore", params=PROMQL)
        assert (answer.status_code, page.status_code) == (status, status)
        assert said in answer.json()["detail"]
        assert said.lower() in page.text.lower()
        assert f'value="{escape(PROMQL["promql"])}"' in page.text, "the form keeps what was asked"


async def test_a_prometheus_that_does_not_answer_keeps_no_connection_from_others(site: Site) -> None:
    """Each question is waited for for ten seconds, and all who read share eight connections."""
    held: list[str] = []

    async def evaluate(*_: object) -> Evaluated:
        held.append(site.app.state.deps.read.pool.status())
        raise QueryError("p did not answer within 10 s", refused=False)

    with asking(site, evaluate):
        async with site.client("responder") as client:
            await client.get("/explore", params=PROMQL)
            await client.get("/api/v1/promql", params={"cluster": "shop", "query": PROMQL["promql"], "minus": "30m"})
    assert len(held) == 2
    assert all("Current Checked out connections: 0" in one for one in held), held


async def test_promql_that_is_filled_in_counts_without_being_chosen(site: Site) -> None:
    asked = {name: value for name, value in PROMQL.items() if name != "of"}
    with asking(site, answering(coded("200", 1.0, 2.0))):
        async with site.client("responder") as client:
            page = (await client.get("/explore", params=asked)).raise_for_status().text
    assert '<option value="promql" selected>' in page
    assert "What to look at?" not in page
