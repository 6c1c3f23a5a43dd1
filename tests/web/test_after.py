"""Before and after a change, on its page: from what was recorded, drawn at the right place, silent otherwise."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta

import numpy as np
import pytest
from msgspec.structs import replace

from app.core.counted import NO_CALLS, Calls
from app.core.edges.touched import NOBODY, touched
from app.core.metrics.turning import SOON
from app.core.model import SLOT_SECONDS, Batch, CallCount, CallKey, MetricSeries, Object, ObjectState, Resource
from app.core.screen.aftermath import Measured, moved
from app.store import series
from app.store.record import record
from app.web import aftermath, pages
from app.web.change_views import after
from tests.samples import plain
from tests.web import world
from tests.web.conftest import Site
from tests.web.test_escapes import Markup
from tests.web.test_pages import CHANGE, statements

AT = world.CULPRIT_AT
ARGOCD = CallKey(world.ARGOCD, "argocd-0", "argocd", "patch", "apps", "deployments", "payments", 200)
OTHER = CallKey("alice@shop.example", "", "kubectl", "get", "", "pods", "", 200)
BEGIN = int((AT - timedelta(minutes=4)).timestamp()) // SLOT_SECONDS * SLOT_SECONDS
TURN = int((AT + timedelta(seconds=30)).timestamp()) // SLOT_SECONDS * SLOT_SECONDS
END = BEGIN + 480


def slots() -> Iterator[int]:
    yield from range(BEGIN, END, SLOT_SECONDS)


def counts(key: CallKey, before: int, after_turn: int) -> tuple[CallCount, ...]:
    return tuple(
        CallCount(key, slot, count, 1000) for slot in slots() if (count := before if slot < TURN else after_turn)
    )


def depth() -> MetricSeries:
    times = tuple(float(second) for second in range(BEGIN, END, 10))
    return MetricSeries(
        "workqueue_depth", (("name", "deployment"),), "gauge", times, tuple(2.0 if t < TURN else 90.0 for t in times)
    )


@pytest.fixture(scope="module", autouse=True)
async def _measured(site: Site) -> None:
    unseen = MetricSeries("node_load1", (), "gauge", depth().times, depth().values)
    async with site.database.write.begin() as conn:
        told = (*counts(ARGOCD, 1, 205), *counts(OTHER, 50, 500))
        await record(conn, Batch(world.CLUSTER, calls=told, series=(depth(), unseen)))


async def test_what_is_read_is_of_the_users_and_the_time_asked_for(site: Site) -> None:
    start, end = AT - timedelta(minutes=2), AT + timedelta(minutes=2)
    async with site.database.read.connect() as conn:
        with statements() as seen:
            found = await series.read_around(conn, world.CLUSTER, [world.ARGOCD, "nobody"], start=start, end=end)
        nothing = await series.read_around(conn, "elsewhere", [world.ARGOCD], start=start, end=end)
        whole = await series.read_around(conn, world.CLUSTER, [world.ARGOCD], start=AT - SOON, end=AT + SOON)
    assert len(seen) == 1
    assert {call.key.user for call in found.calls} == {world.ARGOCD}
    inside = [slot for slot in slots() if start.timestamp() <= slot < end.timestamp()]
    assert [call.slot for call in found.calls] == inside
    assert found.slots == (inside[0], inside[-1])
    assert sum(call.count for call in whole.calls) == sum(call.count for call in counts(ARGOCD, 1, 205))
    (line,) = found.series
    assert (line.name, line.labels) == ("workqueue_depth", ())
    assert all(start.timestamp() <= time <= end.timestamp() for time in line.times)
    assert nothing == Measured(None, NO_CALLS, ())
    (stored,) = whole.series
    assert (stored.times, stored.values) == (depth().times, depth().values)


async def test_the_page_draws_what_moved_with_the_changes_mark(site: Site) -> None:
    async with site.client() as client:
        source = (await client.get(CHANGE)).text
    found = Markup()
    found.feed(source)
    section = source.split('class="axis after"')[1].split("<h2>")[0]
    labels = re.findall(r'class="plot"[^>]*role="img" aria-label="([^"]+)"', section)
    assert [re.sub(r"2[5-9] s later", "soon", label) for label in labels] == [
        "PATCH deployments by argocd-application-controller: 0.2/s → 41/s, soon",
        "Queue depth: 2 → 90, soon",
    ]
    async with site.database.read.connect() as conn:
        who = touched(world.CULPRIT, [])
        measured = await series.read_around(conn, world.CLUSTER, who.users, start=AT - SOON, end=AT + SOON)
    shown = after(world.CULPRIT, measured, who)
    ends = [datetime.fromtimestamp(END - back, AT.tzinfo) for back in (10, 2 * SLOT_SECONDS)]
    begins = datetime.fromtimestamp(BEGIN, AT.tzinfo)
    share = (AT - begins) / (max(ends) - begins)
    assert shown.x == pytest.approx(1000 * share, abs=1)
    assert f'class="moment suspect" x1="{shown.x / 10}%"' in section
    assert [row.harm for row in shown.rows] == [False, True]
    assert "<style" not in section
    assert " style=" not in section


async def test_a_change_after_which_nothing_moved_says_so_in_one_sentence(site: Site) -> None:
    quiet = world.a_change("quiet", at=AT - timedelta(minutes=25), version="quiet")
    still = world.a_change("still", at=AT + timedelta(minutes=2), version="still")
    async with site.database.write.begin() as conn:
        await record(conn, Batch(world.CLUSTER, changes=(quiet, still)))
    async with site.client() as client:
        unmeasured, unmoved = [(await client.get(f"/changes/{one.id}")).text for one in (quiet, still)]
    assert "Neither calls nor metrics were recorded around this change." in unmeasured
    assert "Nothing moved that we looked at (calls, metrics)." in unmoved
    for source in (unmeasured, unmoved):
        assert 'class="axis after"' not in source


async def test_where_a_namespace_has_more_than_is_looked_among_the_page_says_so(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd = [
        ObjectState(Resource(world.CLUSTER, "apps", "Deployment", "crowd", f"app-{n}"), f"u-{n}", "1", AT, {})
        for n in range(3)
    ]
    change = world.a_change("app-0", at=AT + timedelta(minutes=3), version="crowd")
    change = replace(change, resource=crowd[0].resource)
    async with site.database.write.begin() as conn:
        await record(conn, Batch(world.CLUSTER, changes=(change,), objects=tuple(crowd)))
    said = "There are more than 1 workloads and Services in this namespace: only among 1 of them"
    async with site.client() as client:
        whole = (await client.get(f"/changes/{change.id}")).text
        monkeypatch.setattr(aftermath, "MOST_BESIDE", 1)
        monkeypatch.setattr(pages, "MOST_BESIDE", 1)
        cut = (await client.get(f"/changes/{change.id}")).text
    assert "There are more than" not in whole
    assert said in cut


def served(namespace: str, code: str, *, before: float, later: float) -> MetricSeries:
    times = tuple(float(second) for second in range(BEGIN, END, 10))
    values = tuple(np.cumsum([before if time <= TURN else later for time in times]).tolist())
    labels = (("code", code), ("namespace", namespace), ("pod", "orders-6f7c9d4b8-x7k2p"))
    return MetricSeries("http_requests_total", labels, "counter", times, values)


async def test_the_requests_of_the_workload_that_a_change_acts_on_come_first(site: Site) -> None:
    cluster = "of-apps"
    workload = Resource(cluster, "apps", "Deployment", "shop", "orders")
    reads: Object = {"containers": [{"envFrom": [{"configMapRef": {"name": "settings"}}]}]}
    state = ObjectState(workload, "u", "1", AT, {"spec": {"template": {"spec": reads, "metadata": {}}}})
    change = world.a_change("settings", at=AT, kind="ConfigMap", api_group="", namespace="shop", cluster=cluster)
    told = [served(namespace, "200", before=100, later=60) for namespace in ("shop", "another")]
    told += [served(namespace, "503", before=0, later=40) for namespace in ("shop", "another")]
    async with site.database.write.begin() as conn:
        await record(conn, Batch(cluster, changes=(change,), objects=(state,), series=(*told, depth())))
    async with site.client() as client:
        source = (await client.get(f"/changes/{change.id}")).text
    labels = re.findall(r'class="plot"[^>]*role="img" aria-label="([^"]+)"', source)
    assert [re.sub(r"[23][0-9] s later", "soon", label) for label in labels] == [
        "Requests failed by orders: 0 % → 40 %, soon",
        "Queue depth: 2 → 90, soon",
    ]
    async with site.database.read.connect() as conn:
        with statements() as seen:
            found = await series.read_around(conn, cluster, [], near=["shop"], start=AT - SOON, end=AT + SOON)
        others = await series.read_around(conn, cluster, [], start=AT - SOON, end=AT + SOON)
    assert len(seen) == 1
    namespaces = {dict(one.labels).get("namespace") for one in found.series if one.name == "http_requests_total"}
    assert namespaces == {"shop"}, "who asks about a namespace reads no other"
    assert {one.name for one in others.series} == {"workqueue_depth"}


def scraped() -> tuple[MetricSeries, ...]:
    """The API server's counters over two hours of the clock: many parts, one of them reset, one that comes late."""
    noise = np.random.default_rng(7)
    times = tuple(float(second) for second in range(BEGIN, END, 10))
    found = []
    for number, (verb, code, resource) in enumerate(
        (v, c, r) for v in ("GET", "PATCH", "WATCH") for c in ("200", "409", "500") for r in ("pods", "nodes", "leases")
    ):
        burst = [(60 if t >= TURN and verb == "PATCH" else 3) + int(noise.integers(0, 3)) for t in times]
        made = np.array(burst, dtype=float) * (1 if code == "200" else 0.5)
        took = [0.02 if verb == "GET" else 0.9 if t >= TURN else 0.3 for t in times]
        first = 12 if number == 11 else 0
        for name, each in (
            ("apiserver_request_total", made),
            ("apiserver_request_duration_seconds_count", made),
            ("apiserver_request_duration_seconds_sum", made * took),
        ):
            values = np.cumsum(each)
            if number == 9:
                values[20:] -= values[19]
            labels: tuple[tuple[str, str], ...] = (("code", code), ("resource", resource), ("verb", verb))
            if name != "apiserver_request_total":
                labels = labels[1:]
                if code != "200":
                    continue
            told = tuple(values.tolist())
            found.append(MetricSeries(name, labels, "counter", times[first:], told[first:]))
    for queue in ("deployment", "node"):
        told = tuple(float(noise.integers(1, 4) + (40 if t >= TURN else 0)) for t in times)
        found.append(MetricSeries("workqueue_depth", (("name", queue),), "gauge", times, told))
    return tuple(found)


async def test_adding_series_up_changes_nothing_that_is_drawn(site: Site) -> None:
    told = scraped()
    cluster = "added-up"
    start, end = AT - SOON, AT + SOON
    async with site.database.write.begin() as conn:
        # the same hour told twice, the second time further: what overlaps counts once
        early = tuple(replace(one, times=one.times[:9], values=one.values[:9]) for one in told)
        await record(conn, Batch(cluster, series=early))
        await record(conn, Batch(cluster, series=told))
    async with site.database.read.connect() as conn:
        one_by_one = tuple(await series.read(conn, cluster, start, end))
        added = await series.read_around(conn, cluster, [], start=start, end=end)
    assert len({one.times[0] // 3600 for one in told} | {one.times[-1] // 3600 for one in told}) == 2
    assert sorted(plain(one_by_one), key=repr) == sorted(told, key=repr)
    assert len(added.series) < len(told) / 2
    expected, found = moved(AT, Measured(None, NO_CALLS, one_by_one)), moved(AT, added)
    assert {one.line.title for one in expected} == {"Requests", "Server errors", "Queue depth", "Latency"}
    assert [(one.line.title, one.at) for one in found] == [(one.line.title, one.at) for one in expected]
    for one, other in zip(found, expected, strict=True):
        assert (one.before, one.after) == pytest.approx((other.before, other.after))
        assert [v or 0 for v in one.line.values] == pytest.approx([v or 0 for v in other.line.values])
        assert [v is None for v in one.line.values] == [v is None for v in other.line.values]


def test_a_line_of_a_single_moment_cannot_have_moved() -> None:
    assert moved(AT, Measured((BEGIN, BEGIN), Calls.of(counts(ARGOCD, 1, 1)[:1]), ())) == ()
    assert after(world.CULPRIT, Measured(None, NO_CALLS, ()), NOBODY).looked == ()
