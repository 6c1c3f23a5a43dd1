"""Keys of calls are told once between the process that reads and the one that learns."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.collect import counting, logs
from app.collect.inputs import find_inputs
from app.collect.intake import Tally
from app.collect.learner import Learner
from app.core.changes import audit
from app.core.changes.tracker import Tracker
from app.core.objects.redact import Redactor

NOW = datetime(2026, 11, 16, 9, tzinfo=UTC)
KEY = b"k" * 32


def line(number: int) -> str:
    """The event of that number: one of seven callers writes, every third time."""
    at = f"2026-11-16T08:00:{number % 60:02d}.000000Z"
    return json.dumps(
        {
            "stage": "ResponseComplete",
            "verb": "patch" if number % 3 == 0 else "get",
            "auditID": str(number),
            "requestReceivedTimestamp": at,
            "stageTimestamp": at,
            "requestURI": "/api/v1/namespaces/shop/pods/web",
            "user": {"username": f"caller-{number % 7}"},
            "objectRef": {"resource": "pods", "namespace": "shop", "name": "web"},
            "responseStatus": {"code": 200},
        }
    )


@pytest.mark.parametrize("held", [1, 3, 1000])
def test_calls_and_requests_find_their_keys_however_few_are_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    monkeypatch.setattr(counting, "HELD", held)
    monkeypatch.setattr(logs, "LINES", 5)
    log = tmp_path / "audit.jsonl"
    log.write_text("".join(f"{line(number)}\n" for number in range(60)))
    learner = Learner("lab", Tracker("lab", Redactor(KEY), lambda *_: None), Tally())
    for piece in logs.pieces(logs.Job("lab", KEY, NOW, [logs.Log(one, 0, 0) for one in find_inputs([str(log)])])):
        learner.add(piece)
        learner.count(piece)
    batch = learner.take(())
    counted: Counter[tuple[str, str]] = Counter()
    for call in batch.calls:
        counted[call.key.user, call.key.verb] += call.count
    expected = Counter((f"caller-{number % 7}", "patch" if number % 3 == 0 else "get") for number in range(60))
    assert counted == expected
    assert Counter(request.key.user for request in batch.requests) == Counter(
        f"caller-{number % 7}" for number in range(0, 60, 3)
    )


VARIATIONS: list[dict[str, object]] = [
    {},
    {"user": {"username": "another"}},
    {"user": {"username": "caller-1", "extra": {"authentication.kubernetes.io/pod-name": ["web-1"]}}},
    {"userAgent": "kubectl/v1.34.0 (linux/amd64)"},
    {"verb": "get"},
    {"verb": "list", "requestURI": "/api/v1/pods"},
    {"verb": "list", "requestURI": "/api/v1/pods?resourceVersion=0"},
    {"verb": "list", "requestURI": "/api/v1/pods?resourceVersion=&limit=500"},
    {"verb": "list", "requestURI": "/api/v1/pods?limit=500&resourceVersion=77"},
    {"verb": "list", "requestURI": "/api/v1/pods?limit=500&continue=abc"},
    {"objectRef": None, "requestURI": "/healthz"},
    {"objectRef": {"resource": "pods", "namespace": "shop", "name": "web", "subresource": "status"}},
    {"objectRef": {"resource": "pods", "namespace": "shop", "name": "web", "apiGroup": "metrics.k8s.io"}},
    {"objectRef": {"resource": "pods", "namespace": "till", "name": "web"}},
    {"responseStatus": {"code": 409, "message": "the object has been modified"}},
    {"responseStatus": {"code": 409, "message": "it exists already"}},
    {"stage": "Panic"},
    {
        "annotations": {
            "apiserver.latency.k8s.io/total": "2s",
            "apiserver.latency.k8s.io/mutating-webhook": "1.9s",
        }
    },
]


@pytest.mark.parametrize("in_turn", [1, -1])
def test_calls_that_differ_in_anything_that_is_counted_by_are_told_apart(in_turn: int) -> None:
    redactor = Redactor(KEY)
    events = [audit.decode(json.dumps(json.loads(line(1)) | {"verb": "patch"} | more).encode()) for more in VARIATIONS]
    counted = counting.Counting(redactor)
    for event in [*events, *events][::in_turn]:
        counted.add(event)
    _, keys, counts = counted.take()
    expected = Counter(audit.call_key(event, redactor) for event in [*events, *events])
    assert {keys[one.key]: one.count for one in counts} == expected
    assert len(expected) == len(VARIATIONS) - 1  # an empty resourceVersion asks what none asks
