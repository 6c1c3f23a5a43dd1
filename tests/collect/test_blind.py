"""A watch that ended sees nothing until it has listed its objects again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from app.collect.intake import Intake, decode_watch
from app.core.objects.redact import Redactor

T0 = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)


def an_intake(events: list[tuple[float, int, str]]) -> Intake:
    """An intake that was told these events: (seconds, number of the watch, type)."""
    intake = Intake("c", Redactor(b"a key that only the tests know.."), now=T0)
    for seconds, log, kind in events:
        at = T0 + timedelta(seconds=seconds)
        meta = {"name": "web", "resourceVersion": "7", "creationTimestamp": T0 - timedelta(hours=1)}
        obj: object = {"kind": "Deployment", "apiVersion": "apps/v1", "metadata": meta}
        if kind == "ERROR":
            obj = {"kind": "Status", "message": "too old resource version: 1 (99)", "code": 410}
        line = msgspec.json.encode({"at": at, "type": kind, "object": obj})
        intake.watch_event(decode_watch(line), at, log=log)
    return intake


@pytest.mark.parametrize(
    ("events", "until"),
    [
        ([(0, 0, "ADDED"), (3, 0, "MODIFIED"), (5, 0, "ERROR")], 5),
        ([(0, 0, "ADDED"), (3, 0, "MODIFIED"), (5, 0, "ERROR"), (65, 0, "ADDED"), (65.1, 0, "ADDED")], 65),
        ([(0, 0, "ADDED"), (3, 0, "MODIFIED"), (5, 0, "ERROR"), (9, 1, "ADDED"), (65, 0, "ADDED")], 65),
        ([(0, 0, "ADDED"), (3, 0, "MODIFIED"), (5, 0, "ERROR"), (6, 0, "ERROR"), (65, 0, "ADDED")], 65),
    ],
)
def test_a_gap_lasts_until_the_same_watch_lists_again(events: list[tuple[float, int, str]], until: float) -> None:
    gaps = an_intake(events).take({}).gaps
    assert {gap.from_at for gap in gaps} == {T0 + timedelta(seconds=3)}
    assert max(gap.to_at for gap in gaps) == T0 + timedelta(seconds=until)
    assert gaps[0].why == "watch ended: too old resource version: 1 (99) (410)"
