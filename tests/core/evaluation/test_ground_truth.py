"""Which changes a benchmark's ground truth makes right."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from app.core.evaluation.ground_truth import GroundTruth, RawGroundTruth
from app.core.model import Change, ObjectState, Resource, Verb

ALERT = datetime(2026, 11, 21, 12, tzinfo=UTC)
GROUPS = {"Deployment": "apps", "ReplicaSet": "apps"}


def resource(text: str) -> Resource:
    """As "Deployment shop/web"."""
    kind, _, where = text.partition(" ")
    namespace, slash, name = where.rpartition("/")
    return Resource("c", GROUPS.get(kind, ""), kind, namespace if slash else None, name)


def owned(one: str, owner: str) -> ObjectState:
    by = resource(owner)
    return ObjectState(resource(one), "", "1", ALERT, {}, owner_kind=by.kind, owner_name=by.name)


STATES = [
    owned("ReplicaSet shop/web-5d4f", "Deployment shop/web"),
    owned("Pod shop/web-5d4f-x", "ReplicaSet shop/web-5d4f"),
    owned("Pod shop/load-web-1", "Deployment shop/load"),
    owned("Pod shop/loop", "Pod shop/loop"),
]
ROOT = {"root_cause": True, "namespace": "shop"}


def right(truth: dict[str, Any], changed: str, **when: Any) -> bool:
    change = Change(resource(changed), ALERT - timedelta(minutes=5), Verb.UPDATE, 1)
    change = msgspec.structs.replace(change, **when)
    found = GroundTruth.of(msgspec.convert(truth, RawGroundTruth)).right([change], STATES, before=ALERT)
    return found == {change.id}


@pytest.mark.parametrize(
    ("group", "changed", "is_right"),
    [
        ({"kind": "ConfigMap", "filter": [r"flags\b"]}, "ConfigMap shop/flags", True),
        ({"kind": "ConfigMap", "filter": [r"flags\b"]}, "ConfigMap shop/old-flags", False),
        ({"kind": "ConfigMap", "filter": ["x", "flags"]}, "ConfigMap shop/flags", True),
        ({"kind": "ConfigMap", "filter": ["flags"]}, "ConfigMap other/flags", False),
        ({"kind": "ConfigMap", "filter": ["flags"], "namespace": None}, "ConfigMap other/flags", True),
        ({"kind": "ConfigMap", "filter": ["flags"]}, "Secret shop/flags", False),
        ({"kind": "ConfigMap", "name": "flags"}, "ConfigMap shop/flags", True),
        ({"kind": "ConfigMap", "name": "flags"}, "ConfigMap shop/flags-2", False),
        ({"kind": "ConfigMap", "filter": ["flags"], "root_cause": False}, "ConfigMap shop/flags", False),
        ({"kind": "HttpChaos", "filter": [".*ad"]}, "HTTPChaos shop/http-ad", True),
        ({"kind": "Namespace", "name": "shop"}, "Namespace shop", True),
        ({"kind": "Pod", "filter": ["web-.*"]}, "Deployment shop/web", True),
        ({"kind": "Pod", "filter": ["web-.*"]}, "Deployment shop/load", False),
        ({"kind": "Deployment", "filter": [r"web\b"]}, "Pod shop/web-5d4f-x", True),
        ({"kind": "Deployment", "filter": ["web-.*"]}, "Deployment shop/web", True),
        ({"kind": "Deployment", "filter": ["web-.*"]}, "Deployment shop/load", False),
        ({"kind": "Pod", "filter": ["loop"]}, "Pod shop/loop", True),
    ],
)
def test_a_change_is_right_by_its_object_those_that_own_it_and_those_it_owns(
    group: dict[str, Any], changed: str, *, is_right: bool
) -> None:
    other = {"kind": "Service", "filter": ["none"], "root_cause": True}
    assert right({"groups": [other, ROOT | group]}, changed) is is_right
    assert right({"spec": {"groups": [other, ROOT | group]}}, changed) is is_right


def test_the_second_version_names_objects() -> None:
    truth = {"spec": {"entities": [{"kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}}]}}
    assert right(truth, "Deployment shop/web")
    assert not right(truth, "Deployment shop/web-2")


@pytest.mark.parametrize(
    ("when", "is_right"),
    [
        ({"at": ALERT}, True),
        ({"at": ALERT + timedelta(seconds=1)}, False),
        ({"at": ALERT + timedelta(minutes=4), "since": ALERT - timedelta(minutes=1)}, True),
        ({"at": ALERT + timedelta(minutes=4), "since": ALERT + timedelta(minutes=1)}, False),
    ],
)
def test_what_came_after_the_alert_is_not_right(when: dict[str, Any], *, is_right: bool) -> None:
    assert (
        right({"groups": [ROOT | {"kind": "ConfigMap", "filter": ["flags"]}]}, "ConfigMap shop/flags", **when)
        is is_right
    )


def test_the_alerts_that_are_expected_are_named() -> None:
    cause = ROOT | {"kind": "Pod", "name": "a"}
    first = {"groups": [cause], "alerts": [{"id": "Slow", "group_id": "a"}, {"id": "Slow", "group_id": "b"}]}
    second = {"spec": {"groups": [cause], "alerts": [{"name": "Failing", "labels": {}}]}}
    found = [
        GroundTruth.of(msgspec.convert(one, RawGroundTruth)).alerts for one in (first, second, {"groups": [cause]})
    ]
    assert found == [{"Slow"}, {"Failing"}, frozenset()]
