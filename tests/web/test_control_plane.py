"""The page of a control plane: its figures as text, its changes as links, and what it says where nothing is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest
from sqlalchemy import event

from app.core.model import Batch, MetricSeries
from app.store.record import record
from tests.web import world
from tests.web.conftest import Site, site

__all__ = ["site"]
PAGE = "/clusters/shop/control-plane"
END = world.END.isoformat().replace("+00:00", "Z")


@pytest.fixture(scope="module", autouse=True)
async def _measured(site: Site) -> None:
    async with site.database.write.begin() as conn:
        await record(conn, Batch(cluster=world.CLUSTER, series=world.metrics()))


@contextmanager
def statements(site: Site) -> Iterator[list[str]]:
    """What is asked of the database within the block."""
    found: list[str] = []

    def note(_conn: Any, _cursor: Any, statement: str, *_: Any) -> None:
        found.append(statement)

    engine = site.database.read.sync_engine
    event.listen(engine, "before_cursor_execute", note)
    yield found
    event.remove(engine, "before_cursor_execute", note)


async def shown(site: Site, **asked: str) -> str:
    async with site.client() as client:
        answer = await client.get(PAGE, params=asked)
    assert answer.status_code == 200, answer.text
    return answer.text


def figures(page: str, title: str) -> dict[str, list[str]]:
    """The rows of a graph's legend."""
    (legend,) = re.findall(rf"<caption[^>]*>{re.escape(title)}.*?</table>", page, re.DOTALL)
    return {
        re.sub(r"<[^>]+>", "", name): re.findall(r"<td[^>]*>(.*?)</td>", rest)
        for name, rest in re.findall(r"<tr><th scope=\"row\"[^>]*>(.*?)</th>(.*?)</tr>", legend, re.DOTALL)
    }


async def test_every_graph_says_its_figures_in_words(site: Site) -> None:
    page = await shown(site, minus="30m")
    assert figures(page, "Requests by verb")["PATCH"] == ["32/s", "29.3/s", "32/s"]
    assert figures(page, "Latency by verb, p99")["GET"][2] == "1 s"
    assert figures(page, "Top callers, from audit")["payments:checkout"][0] == "40/s"
    assert "Nothing recorded in this time: " in page


async def test_of_what_no_buckets_are_stored_the_title_says_that_it_is_the_mean(site: Site) -> None:
    async with site.database.write.begin() as conn:
        series = world.without_buckets("etcd_request_duration_seconds", seconds=0.25)
        await record(conn, Batch(cluster=world.CLUSTER, series=series))
    page = await shown(site, minus="30m")
    assert figures(page, "etcd latency, mean")["none"][0] == "250 ms"
    assert page.count("no buckets are stored: this is the mean") == 1
    assert "etcd latency, p99" not in page
    assert "Latency by verb, p99" in page


async def test_changes_that_may_matter_are_links(site: Site) -> None:
    page = await shown(site, minus="30m")
    assert f'href="/changes/{world.CULPRIT.id}"' in page or "more</title>" in page
    assert 'class="marker"' in page


async def test_what_was_not_scraped_is_hatched(site: Site) -> None:
    page = await shown(site, to=END, minus="1h")
    assert 'class="blind" x="0.0%" width="49' in page


async def test_a_page_asks_few_things_of_the_database(site: Site) -> None:
    with statements(site) as asked:
        await shown(site, minus="30m")
    assert len(asked) <= 6


async def test_where_nothing_was_measured_it_says_when_it_was(site: Site) -> None:
    page = await shown(site, to=(world.END - timedelta(days=3)).isoformat(), minus="1h")
    assert "No metrics in this time" in page
    assert "Show the hour before that" in page


async def test_longer_windows_leave_out_the_callers_and_say_so(site: Site) -> None:
    page = await shown(site, minus="2d")
    assert "callers are shown of at most a day" in page
    assert '<caption class="hidden">Top callers' not in page


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"from": END, "to": END}, "from must be before to"),
        ({"from": END, "minus": "1h"}, "leave one out"),
        ({"minus": "500d"}, "at most 400 days"),
        ({"minus": "soon"}, "minus"),
        ({"shoe": "1"}, "no parameter"),
    ],
)
async def test_what_cannot_be_shown_is_refused_in_words(site: Site, asked: dict[str, str], why: str) -> None:
    async with site.client() as client:
        answer = await client.get(PAGE, params=asked)
    assert answer.status_code == 422
    assert why in answer.text.lower()


async def test_a_cluster_that_is_not_known_is_no_empty_page(site: Site) -> None:
    async with site.client() as client:
        answer = await client.get("/clusters/nowhere/control-plane")
    assert answer.status_code == 404
    assert "There is no cluster &#39;nowhere&#39;: known are shop." in answer.text


async def test_where_only_other_metrics_are_stored_it_says_so(site: Site) -> None:
    cluster, now = "other metrics", world.END
    async with site.database.write.begin() as conn:
        told = MetricSeries("orders_total", (("job", "orders"),), "counter", (now.timestamp() - 60,), (1.0,))
        await record(conn, Batch(cluster, series=(told,)))
    async with site.client() as client:
        page = (await client.get(f"/clusters/{quote(cluster)}/control-plane", params={"to": END, "minus": "1h"})).text
    assert "No metrics of the control plane in this time" in page
    assert f'href="/explore?cluster={quote(cluster)}"' in page.replace("+", "%20")
    assert "Show the hour before that" not in page
