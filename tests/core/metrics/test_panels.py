"""The control-plane page shows what somebody who runs large clusters would look at."""

from __future__ import annotations

import pytest

from app.core.metrics.callers import CallsQuery
from app.core.metrics.measures import SeriesQuery
from app.core.metrics.panels import PANELS


@pytest.mark.parametrize(
    ("key", "name", "by"),
    [
        ("requests", "apiserver_request_total", ("verb",)),
        ("codes", "apiserver_request_total", ("code",)),
        ("latency", "apiserver_request_duration_seconds_bucket", ("verb",)),
        ("inflight", "apiserver_current_inflight_requests", ("request_kind",)),
        ("executing", "apiserver_flowcontrol_current_executing_requests", ("priority_level",)),
        ("rejected", "apiserver_flowcontrol_rejected_requests_total", ("priority_level", "reason")),
        ("gone", "apiserver_request_total", ("verb", "resource")),
        ("ended", "apiserver_terminated_watchers_total", ("resource",)),
        ("lists", "apiserver_request_total", ("resource",)),
        ("etcd", "etcd_request_duration_seconds_bucket", ("operation",)),
        ("size", "etcd_mvcc_db_total_size_in_bytes", ()),
        ("depth", "workqueue_depth", ("name",)),
        ("adds", "workqueue_adds_total", ("name",)),
        ("retries", "workqueue_retries_total", ("name",)),
        ("reconcile", "controller_runtime_reconcile_time_seconds_bucket", ("controller",)),
        ("pending", "scheduler_pending_pods", ("queue",)),
        ("scheduling", "scheduler_scheduling_attempt_duration_seconds_bucket", ("result",)),
        ("restarts", "process_start_time_seconds", ("job", "instance")),
        ("memory", "process_resident_memory_bytes", ("job", "instance")),
        ("nodes", "apiserver_storage_objects", ()),
        ("pods", "apiserver_storage_objects", ()),
        ("churn", "apiserver_request_total", ("verb",)),
    ],
)
def test_what_matters_has_a_panel(key: str, name: str, by: tuple[str, ...]) -> None:
    query = PANELS[key].query
    assert isinstance(query, SeriesQuery)
    assert name in query.names
    assert query.by == by


def test_the_loudest_callers_have_one_of_the_audit_log() -> None:
    query = PANELS["callers"].query
    assert isinstance(query, CallsQuery)
    assert query.by == ("user",)
