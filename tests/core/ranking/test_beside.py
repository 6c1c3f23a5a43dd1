"""Who reads what a new version of another program wrote."""

from __future__ import annotations

import pytest

from app.core.ranking.ways import ways
from app.core.signals.complaints import symptom_signals
from tests.core.factories import a_resource, a_symptom, after

ORDERS = a_resource("Deployment", "orders")
HOME = ("workload", "shop", "orders")
WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"


@pytest.mark.parametrize(
    ("reason", "message", "is_beside"),
    [
        ("Unhealthy", WRONG_TYPE, True),
        ("Unhealthy", "RecordDeserializationException: Error deserializing key/value for partition orders-3", True),
        ("BackOff", "panic: json: cannot unmarshal object into Go struct field Event.id of type int64", True),
        ("FailedScheduling", WRONG_TYPE, False),
        ("Unhealthy", 'relation "orders" does not exist', False),
        ("Unhealthy", "accept4: too many open files", False),
        ("Unhealthy", "dial tcp 10.96.0.12:6379: i/o timeout", False),
        ("Unhealthy", "exit code 1", False),
    ],
)
def test_a_new_version_beside_counts_only_for_what_cannot_be_read(reason: str, message: str, is_beside: bool) -> None:
    told = a_symptom(ORDERS, reason, message=message)
    (signal,) = symptom_signals([told], start=after(-60), end=after(60))
    found = ways(HOME, signal)
    assert (("beside", "shop", "orders") in found) is is_beside
    assert HOME in found
