"""A Service that sends to where no pod behind it says to listen fails its clients, whichever of the two was edited."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from msgspec.structs import replace

from app.core.edges.indexing import topology
from app.core.edges.ports import missed
from app.core.model import Change, FieldDiff, ObjectState
from tests.core.company import ranked, rules
from tests.core.edges.test_any_shape import ANYTHING
from tests.core.factories import a_change, a_resource, a_state, after, an_alert, an_incident

APP, SERVICE = a_resource("Deployment", "web"), a_resource("Service", "web")
SENDS = ("spec", "ports", "port=80", "targetPort")
PORT = ("spec", "template", "spec", "containers", "name=web", "ports", "containerPort=8080", "containerPort")
BY_PROBE: dict[str, Any] = {"readinessProbe": {"httpGet": {"port": 8080}}}
BY_NUMBER: dict[str, Any] = {"ports": [{"containerPort": 8080}]}
BY_NAME: dict[str, Any] = {"ports": [{"containerPort": 8080, "name": "http"}]}
MISSED = "No container behind Service web says to listen at {}"


def the_app(container: dict[str, Any], name: str = "web") -> ObjectState:
    metadata: Any = {"labels": {"app": "web"}}
    spec: Any = {
        "replicas": 2,
        "template": {"metadata": metadata, "spec": {"containers": [{"name": "web"} | container]}},
    }
    return a_state(a_resource("Deployment", name), {"spec": spec})


def the_service(target: Any) -> ObjectState:
    port: Any = {"port": 80} if target is None else {"port": 80, "targetPort": target}
    return a_state(SERVICE, {"spec": {"selector": {"app": "web"}, "ports": [port]}})


def sent(old: Any, new: Any) -> Change:
    return a_change(SERVICE, at=after(-15), path=SENDS, old=old, new=new)


@pytest.mark.parametrize(
    ("container", "old", "new", "says"),
    [
        (BY_PROBE, 8080, 8081, MISSED.format(8081)),
        (BY_NUMBER, 8080, 8081, MISSED.format(8081)),
        (BY_NAME, "http", "htpp", MISSED.format("htpp")),
        (BY_NAME, "http", 8080, ""),  # the same port by number
        (BY_NUMBER | {"livenessProbe": {"tcpSocket": {"port": 8081}}}, 8080, 8081, ""),
        ({}, 8080, 8081, ""),  # it does not say where it listens
        (BY_NUMBER, 9000, 8081, ""),  # nor did it say so of the port before
    ],
)
def test_a_service_that_sends_elsewhere(container: dict[str, Any], old: Any, new: Any, says: str) -> None:
    assert missed(sent(old, new), topology([the_app(container), the_service(new)])) == says


def test_a_service_of_which_some_pods_listen_there_fails_not_all() -> None:
    there = [the_app(BY_NUMBER), the_app({"ports": [{"containerPort": 8081}]}, "web-next"), the_service(8081)]
    assert missed(sent(8080, 8081), topology(there)) == ""


@pytest.mark.parametrize("target", [8080, "http"])
def test_an_app_that_listens_elsewhere_than_its_service_sends(target: Any) -> None:
    elsewhere = the_app({"ports": [{"containerPort": 9090, "name": "web"}]})
    whole = FieldDiff(PORT[:-1], "remove", {"containerPort": 8080, "name": "http"}, None)
    change = replace(a_change(APP, at=after(-15)), diffs=(whole,))
    assert missed(change, topology([elsewhere, the_service(target)])) == MISSED.format(target)
    assert missed(change, topology([elsewhere, the_service(9090)])) == ""
    assert missed(change, topology([elsewhere])) == ""


def test_a_service_that_names_no_target_sends_to_its_own_port() -> None:
    change = a_change(APP, at=after(-15), path=PORT, old=80, new=8080)
    assert missed(change, topology([the_app(BY_NUMBER), the_service(None)])) == MISSED.format(80)


def test_an_edit_of_something_else_misses_nothing() -> None:
    assert missed(a_change(APP, at=after(-15)), topology([the_app(BY_NUMBER), the_service(8081)])) == ""


@given(ANYTHING, ANYTHING)
def test_what_an_edit_holds_may_be_anything(old: Any, new: Any) -> None:
    top = topology([the_app(BY_NUMBER), the_service(8081)])
    edits = [sent(old, new), *(a_change(APP, path=path, old=old, new=new) for path in (PORT, PORT[:-1]))]
    assert {missed(edit, top) for edit in edits} <= {"", MISSED.format(new), MISSED.format(8081)}


def test_it_is_evidence_by_itself() -> None:
    ranking = ranked(
        sent(8080, 8081),
        incident=an_incident(an_alert(after(30), name="HighErrorRate", namespace="media", service="player")),
        states=[the_app(BY_NUMBER), the_service(8081)],
    )
    assert "empties" in rules(ranking)
