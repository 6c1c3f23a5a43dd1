"""What an API server dropped of its audit events: each increase of its counter is a gap, once, since the last look."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from app.collect.drops import Count, Drops, lost, read
from app.collect.scrape import UnreadableError
from app.collect.spool import Spool
from app.store import gaps
from tests.collect.test_follow import follower, spool
from tests.collect.test_importer import T0, Lab, lab

__all__ = ["lab", "spool"]
STARTED = (T0 - timedelta(days=1)).timestamp()


def metrics(started: float = STARTED, **dropped: int) -> bytes:
    lines = [
        "# HELP apiserver_audit_error_total [ALPHA] Counter of audit events that failed to be audited properly.",
        "# TYPE apiserver_audit_error_total counter",
        *(f'apiserver_audit_error_total{{plugin="{plugin}"}} {count}' for plugin, count in dropped.items()),
        "# TYPE apiserver_audit_event_total counter",
        "apiserver_audit_event_total 100",
        "# TYPE process_start_time_seconds gauge",
        f"process_start_time_seconds {started!r}",
        "this is no metric at all {",
    ]
    return "\n".join(lines).encode()


def minute(number: float) -> datetime:
    return T0 + timedelta(minutes=number)


def test_what_is_dropped_on_the_way_to_the_webhook_counts_and_what_a_log_file_lost_does_not() -> None:
    assert read(metrics(), T0) == Count(STARTED, 0, T0)
    assert read(metrics(webhook=400, buffered=7, log=9), T0) == Count(STARTED, 407, T0)


@pytest.mark.parametrize(
    ("known", "now", "count", "since"),
    [
        ([], Count(10.0, 400, minute(5)), 0, minute(5)),
        ([Count(10.0, 400, minute(1))], Count(10.0, 400, minute(2)), 0, minute(1)),
        ([Count(10.0, 400, minute(1))], Count(10.0, 750, minute(2)), 350, minute(1)),
        ([Count(10.0, 400, minute(1))], Count(minute(1.5).timestamp(), 0, minute(2)), 0, minute(1)),
        ([Count(10.0, 400, minute(1))], Count(minute(1.5).timestamp(), 8, minute(2)), 8, minute(1)),
        ([Count(10.0, 400, minute(1))], Count(20.0, 90, minute(2)), 0, minute(1)),
        ([Count(20.0, 1, minute(0)), Count(10.0, 400, minute(1))], Count(20.0, 5, minute(2)), 4, minute(0)),
    ],
    ids=["first", "none", "some", "restarted", "restarted, then some", "another server", "each by itself"],
)
def test_an_increase_since_the_last_look_at_the_same_api_server_is_lost(
    known: list[Count], now: Count, count: int, since: datetime
) -> None:
    assert lost(known, now) == (count, since)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (metrics() + b'\napiserver_audit_error_total{plugin="webhook"', "not Prometheus' text"),
        (metrics() + b"\napiserver_audit_error_total five", "not Prometheus' text"),
        (metrics() + b'\napiserver_audit_error_total{plugin="\xff"} 5', "not Prometheus' text"),
        (metrics() + b"\napiserver_audit_error_total NaN", "apiserver_audit_error_total counts nan"),
        (metrics() + b"\napiserver_audit_error_total +Inf", "apiserver_audit_error_total counts inf"),
        (metrics(float("nan")), "process_start_time_seconds is nan"),
        (metrics(1e30), r"process_start_time_seconds is 1e\+30"),
        (metrics(-1.0), "process_start_time_seconds is -1"),
    ],
)
async def test_what_is_no_count_is_refused_in_words(text: bytes, why: str, spool: Spool) -> None:
    with pytest.raises(UnreadableError, match=why):
        await Drops(spool, is_told=lambda: True).take(text, "https://127.0.0.1:6443", T0)


async def told(spool: Spool, *said: bytes, after: float = 0) -> None:
    """A minute between two of them, the first ``after`` minutes."""
    drops = Drops(spool, is_told=lambda: True)
    for number, text in enumerate(said):
        await drops.take(text, "https://127.0.0.1:6443", minute(after + number))


async def test_an_increase_is_a_gap_with_its_count_also_over_a_restart_of_ours(lab: Lab, spool: Spool) -> None:
    await told(spool, metrics(webhook=5), metrics(webhook=5), metrics(webhook=405), after=1)
    await told(spool, metrics(webhook=1_405), after=14)
    one = follower(lab, spool)
    while spool.size:
        await one.round()
    async with lab.database.read.connect() as conn:
        found = await gaps.read_window(conn, lab.cluster, T0, T0 + timedelta(hours=1))
    assert [(one.from_at, one.to_at) for one in found] == [(minute(2), minute(3)), (minute(3), minute(14))]
    assert ["dropped 400 events" in found[0].why, "dropped 1,000 events" in found[1].why] == [True, True]


async def test_what_cannot_be_kept_is_told_by_a_later_look(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    await told(spool, metrics())
    with monkeypatch.context() as patched:
        patched.setattr(spool, "most_bytes", 0)
        await told(spool, metrics(webhook=3), after=1)
    assert not spool.size
    await told(spool, metrics(webhook=3), after=2)
    assert spool.size


def test_nothing_is_wanted_where_no_webhook_comes(spool: Spool) -> None:
    assert Drops(spool, is_told=lambda: True).is_wanted
    assert not Drops(spool, is_told=lambda: False).is_wanted
