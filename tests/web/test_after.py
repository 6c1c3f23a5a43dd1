"""Before and after a change, on its page: from what was recorded, drawn at the right place, silent otherwise."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from app.core.aftermath import SOON, Measured, moved, users_of
from app.core.model import SLOT_SECONDS, Batch, CallCount, CallKey, MetricSeries
from app.store import series
from app.store.record import record
from app.web.change_views import after
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
    assert (line.name, line.labels) == ("workqueue_depth", (("name", "deployment"),))
    assert all(start.timestamp() <= time <= end.timestamp() for time in line.times)
    assert nothing == Measured(None, (), ())
    (stored,) = whole.series
    assert stored == depth()


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
        measured = await series.read_around(
            conn, world.CLUSTER, users_of(world.CULPRIT, None), start=AT - SOON, end=AT + SOON
        )
    shown = after(world.CULPRIT, measured)
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


def test_a_line_of_a_single_moment_cannot_have_moved() -> None:
    assert moved(AT, Measured((BEGIN, BEGIN), counts(ARGOCD, 1, 1)[:1], ())) == ()
    assert after(world.CULPRIT, Measured(None, (), ())).looked == ()
