"""A deletion is told once, and two are never taken for one, however little was recorded of them."""

from __future__ import annotations

from app.core.audit import decode, sightings
from app.core.model import Verb
from tests.core.objects import changes, learn, seen, told


def test_deletions_without_an_uid_are_told_apart() -> None:
    told_twice = [told("Secret", name, n, verb=Verb.DELETE) for n, name in enumerate(("a", "b", "a"))]
    found = changes(learn(*told_twice))
    assert [(one.resource.name, one.verb) for one in found] == [
        ("a", Verb.DELETE),
        ("b", Verb.DELETE),
        ("a", Verb.DELETE),
    ]


def test_an_audit_event_and_a_watch_event_of_one_deletion_meet() -> None:
    meta = {"name": "a", "namespace": "shop", "uid": "u-1", "resourceVersion": "7"}
    secret = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": meta, "data": {"x": "1"}}
    for uid in ("", "u-1"):
        audited = told("ConfigMap", "a", 0, verb=Verb.DELETE, uid=uid)
        watched = seen(secret, 0.2, verb=Verb.DELETE)
        for order in ((audited, watched), (watched, audited)):
            [found] = changes(learn(*order))
            assert found.sources == {"audit", "watch"}


def test_the_uid_stands_in_the_status_at_every_level() -> None:
    line = (
        b'{"stage":"ResponseComplete","verb":"delete","level":"Metadata","auditID":"x","user":{"username":"a"},'
        b'"requestReceivedTimestamp":"2026-11-21T12:00:00Z","stageTimestamp":"2026-11-21T12:00:00Z",'
        b'"objectRef":{"resource":"secrets","namespace":"shop","name":"s","apiVersion":"v1"},'
        b'"responseStatus":{"status":"Success","details":{"name":"s","kind":"secrets","uid":"u-9"},"code":200}}'
    )
    [found] = sightings("c", decode(line))
    assert found.uid == "u-9"
