"""What lies in a spool: a body that is streamed behind its head is the record that one in memory makes."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from app.collect import told

AT = datetime(2026, 11, 21, 12, tzinfo=UTC)
TIMES = [AT, AT + timedelta(microseconds=123_456), AT.replace(year=2514), AT.astimezone(timezone(timedelta(hours=2)))]


@pytest.mark.parametrize("at", TIMES, ids=str)
@pytest.mark.parametrize("body", [b"", b"x", b"x" * 300, b"x" * 70_000], ids=len)
def test_a_head_and_a_body_are_a_record(at: datetime, body: bytes) -> None:
    head = told.head_of(at, len(body))
    assert told.decode(head + body) == told.AuditBody(at, body)
    assert len(head) == len(told.head_of(at, 0))


def test_records_come_back_as_what_they_were() -> None:
    for one in (told.AuditBody(AT, b'{"items": []}'), told.AuditLost(AT, "too large")):
        assert told.decode(told.encode(one)) == one
