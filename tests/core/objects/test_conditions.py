"""Custom resources complain by their conditions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from msgspec.structs import replace

from app.core.model import Resource, SymptomSource, Verb
from app.core.objects.conditions import failing
from tests.core.company import background, first, ranked
from tests.core.factories import (
    a_change,
    a_resource,
    a_state,
    a_symptom,
    a_workload,
    after,
    an_alert,
    an_incident,
    calls,
)
from tests.core.learning import an_object, learn, seen

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
GATEWAY_API = "gateway.networking.k8s.io"


def status(**condition: str) -> bytes:
    return orjson.dumps({"conditions": [{"type": "Ready", "status": "False", "reason": "Broken"} | condition]})


def test_a_good_condition_that_is_false_hurts() -> None:
    since = "2026-11-20T11:59:00Z"
    found = failing(status(message="no route", lastTransitionTime=since), NOW)
    assert found == {"Broken": (datetime.fromisoformat(since), "no route")}
    assert failing(status(reason=""), NOW) == {"NotReady": (NOW, "")}


@pytest.mark.parametrize(
    "condition",
    [{"status": "True"}, {"status": "Unknown"}, {"type": "Degraded"}, {"type": "Stalled"}, {"reason": "Progressing"}],
)
def test_what_is_well_or_under_way_does_not(condition: dict[str, str]) -> None:
    assert failing(status(**condition), NOW) == {}


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"7", b"{}", b'{"conditions":{"a":1}}', b'{"conditions":[{"status":true}]}']
)
def test_a_status_of_another_shape_tells_nothing(raw: bytes) -> None:
    assert failing(raw, NOW) == {}


def a_route(version: int, status: str | None) -> Any:
    accepted = {"type": "Accepted", "status": status, "reason": "NotAllowedByListeners", "message": "not here"}
    told = {"parents": [{"conditions": [accepted]}]} if status else {}
    return an_object(
        "HTTPRoute", "web", version=version, api=f"{GATEWAY_API}/v1", spec={"hostnames": ["a"]}, status=told
    )


def test_a_route_complains_until_it_is_accepted_or_gone() -> None:
    learned = learn(
        seen(a_route(1, None), 0, verb=Verb.CREATE),
        seen(a_route(2, "True"), 1),
        seen(a_route(3, "False"), 5),
        seen(a_route(4, "False"), 6),
        seen(a_route(5, "True"), 9),
        seen(a_route(6, "False"), 12),
        seen(a_route(6, "False"), 15, verb=Verb.DELETE),
    )
    told = [symptom for one in learned for symptom in one.symptoms]
    assert [(one.reason, one.source, one.message) for one in told[:1]] == [
        ("NotAllowedByListeners", SymptomSource.CONDITION, "not here")
    ]
    began = sorted({one.at for one in told})
    assert [(at - began[0]).total_seconds() for at in began] == [0, 7]
    ended = {one.at: one.ended_at for one in told if one.ended_at}
    assert [(ended[at] - began[0]).total_seconds() for at in began] == [4, 10]


def test_a_gateway_is_blamed_for_routes_that_it_takes_no_more() -> None:
    gateway = Resource(a_resource().cluster, GATEWAY_API, "Gateway", "edge", "public")
    routes = [Resource(gateway.cluster, GATEWAY_API, "HTTPRoute", team, team) for team in ("a", "b", "c", "d")]
    spec: Any = {"parentRefs": [{"name": "public", "namespace": "edge", "kind": "Gateway"}]}
    ranking = ranked(
        a_change(gateway, at=after(-20), path=("spec", "listeners", "allowedRoutes"), old="All", new="Selector"),
        incident=an_incident(an_alert(after(40), name="ProbeFailed", namespace="a")),
        symptoms=[
            replace(a_symptom(route, "NotAllowedByListeners", at=after(-18), count=1), source=SymptomSource.CONDITION)
            for route in routes
        ],
        states=[a_state(route, {"spec": spec}) for route in routes],
    )
    assert first(ranking) == ("Gateway", "public")
    said = next(one.sentence for one in ranking.suspects[0].evidence if one.rule == "symptoms")
    assert said.startswith("It acts on all 4 that complain: NotAllowedByListeners ×4 on")


def a_namespace(version: int, **conditions: tuple[str, str, str]) -> Any:
    told = [
        {"type": sort, "status": is_so, "reason": reason, "message": message}
        for sort, (is_so, reason, message) in conditions.items()
    ]
    meta = {"deletionTimestamp": "2026-11-20T11:59:00Z"}
    return an_object("Namespace", "review", version=version, namespace=None, meta=meta, status={"conditions": told})


def test_a_namespace_says_what_keeps_it_from_going() -> None:
    remains = {"NamespaceContentRemaining": ("True", "SomeResourcesRemain", "pods. has 3 resource instances")}
    fails = {"NamespaceDeletionDiscoveryFailure": ("True", "DiscoveryFailed", STALE)}
    found = {"NamespaceDeletionDiscoveryFailure": ("False", "ResourcesDiscovered", "")}
    learned = learn(
        seen(a_namespace(1, **remains), 0),
        seen(a_namespace(2, **remains, **fails), 5),
        seen(a_namespace(3, **remains, **found), 9),
    )
    told = [symptom for one in learned for symptom in one.symptoms]
    assert [(one.reason, one.message, one.ended_at is not None) for one in told] == [
        ("DiscoveryFailed", STALE, False),
        ("DiscoveryFailed", STALE, True),
    ]


STALE = (
    "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs:"
    " custom.metrics.k8s.io/v1beta1: stale GroupVersion discovery: custom.metrics.k8s.io/v1beta1"
)


REVIEW = a_resource("Namespace", "review", None)


def kept(reason: str, message: str) -> Any:
    """The namespace is deleted, and says what keeps it from going."""
    told = a_symptom(REVIEW, reason, at=after(-18), message=message, count=1)
    return {
        "incident": an_incident(an_alert(after(40), name="KubeNamespaceTerminating", namespace="review")),
        "symptoms": [replace(told, source=SymptomSource.CONDITION)],
    }


GOES = a_change(REVIEW, at=after(-20), verb=Verb.DELETE)


def test_a_namespace_is_not_to_blame_for_an_api_that_nothing_serves() -> None:
    api = a_resource("APIService", "v1beta1.custom.metrics.k8s.io", None)
    ranking = ranked(a_change(api, at=after(-40), verb=Verb.CREATE), GOES, **kept("DiscoveryFailed", STALE))
    assert first(ranking) == ("APIService", api.name)


def test_a_namespace_is_not_to_blame_for_finalizers_whose_operator_was_removed() -> None:
    operator = a_resource("Deployment", "copies", "platform")
    gone = a_workload(operator, serviceAccountName="copies").state
    watches = calls("system:serviceaccount:platform:copies", "watch", "backups", group="corp.example", rate=1, end=-40)
    told = "Some content in the namespace has finalizers remaining: corp.example/copy in 1 resource instances"
    ranking = ranked(
        a_change(operator, at=after(-40), verb=Verb.DELETE, path=(), old=gone, new=None),
        GOES,
        load=[*background(), *watches],
        **kept("SomeFinalizersRemain", told),
    )
    assert first(ranking) == ("Deployment", "copies")
