"""What pods read as they start does nothing to those that run."""

from __future__ import annotations

from datetime import datetime

import pytest
from msgspec.structs import replace

from app.core.edges.carried import nobody_has, without
from app.core.edges.indexing import topology
from app.core.findings import Suspect
from app.core.model import Change, Json, Object, ObjectState, Resource, Verb
from tests.core.company import first, ranked
from tests.core.factories import a_change, a_resource, a_state, a_symptom, a_workload, after, an_alert, an_incident

HOME, POD = a_resource("Deployment", "api"), a_resource("Pod", "api-5d8c7b9f6b-x2x4z")
SETTINGS = a_resource("ConfigMap", "settings")
CALLS: Json = [{"name": "PRICES", "value": "http://prices"}]
WHOLE: Json = [{"configMapRef": {"name": "settings"}}]
KEY: Json = [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "a"}}}]
VARIABLES: Object = {"containers": [{"name": "app", "env": CALLS, "envFrom": WHOLE}]}
ONE: Object = {"containers": [{"name": "app", "env": KEY}]}


def mounted(**mount: str) -> Object:
    volumes: Json = [{"name": "settings", "projected": {"sources": [{"configMap": {"name": "settings"}}]}}]
    mounts: Json = [{"name": "settings", "mountPath": "/etc/app", **mount}]
    containers: Json = [{"name": "app", "env": CALLS, "volumeMounts": mounts}]
    return {"volumes": volumes, "containers": containers}


def whose(home: Resource, spec: Object) -> ObjectState:
    """A workload whose pods have this spec."""
    return a_state(home, {"spec": {"template": {"metadata": {"labels": {"app": home.name}}, "spec": spec}}})


def edit(*, verb: Verb = Verb.UPDATE) -> Change:
    return a_change(SETTINGS, at=after(-20), path=("data", "timeout"), old="20s", new="1s", verb=verb)


def a_pod(told: datetime) -> ObjectState:
    pod = a_state(POD, {"spec": {"nodeName": "n1"}}, owner=a_resource("ReplicaSet", "api-5d8c7b9f6b"))
    return replace(pod, seen_at=told)


@pytest.mark.parametrize(
    ("spec", "has_it"),
    [
        (VARIABLES, False),
        (ONE, False),
        (mounted(subPath="app.yaml"), False),
        (mounted(), True),
        ({**mounted(), **VARIABLES, "volumes": mounted()["volumes"]}, True),  # whoever mounts it is not told
    ],
)
def test_a_pod_that_runs_gets_what_is_new_in_files_alone(spec: Object, has_it: bool) -> None:
    top = topology([whose(HOME, spec), a_pod(after(-100))])
    absent = without(edit(), top)
    assert absent == (frozenset() if has_it else {("shop", POD.name)})
    assert nobody_has(edit(), absent, top) is not has_it


@pytest.mark.parametrize(("ended", "has_it"), [((-10,), False), ((-30, -10), False), ((-15, -10), True)])
def test_a_container_that_is_started_again_reads_anew(ended: tuple[int, ...], has_it: bool) -> None:
    """What ends it for the first time since is nothing that it has read since."""
    died = [a_symptom(POD, "Error", at=after(seconds)) for seconds in ended]
    top = topology([whose(HOME, VARIABLES), a_pod(after(-100))], complaints=died)
    assert without(edit(), top) == (frozenset() if has_it else {("shop", POD.name)})


def test_a_pod_that_started_since_has_it() -> None:
    top = topology([whose(HOME, VARIABLES), a_pod(after(-10))])
    assert without(edit(), top) == frozenset()
    assert not nobody_has(edit(), frozenset(), top)


def test_what_is_made_was_not_there_before() -> None:
    top = topology([whose(HOME, VARIABLES), a_pod(after(-100))])
    assert without(edit(verb=Verb.CREATE), top) == frozenset()


def test_what_one_reads_as_it_starts_another_may_follow() -> None:
    other = whose(a_resource("Deployment", "web"), mounted())
    top = topology([whose(HOME, VARIABLES), other, a_pod(after(-100))])
    absent = without(edit(), top)
    assert absent == {("shop", POD.name)}
    assert not nobody_has(edit(), absent, top)


def test_of_what_nobody_says_to_read_nothing_is_known() -> None:
    top = topology([a_workload(HOME), a_pod(after(-100))])
    assert not nobody_has(edit(), without(edit(), top), top)


def suspected(spec: Object, *, told: float) -> tuple[tuple[str, str], Suspect]:
    """Who leads, and what is said of an edit of settings, where a pod fails that was last told of then; beside it a
    server that it calls was rolled out."""
    server, pod = a_resource("Deployment", "prices"), a_pod(after(told))
    failing = a_symptom(HOME, "Unhealthy", at=after(-8), message="Readiness probe failed: HTTP status 503", count=20)
    ranking = ranked(
        a_change(server, at=after(-24)),
        edit(),
        incident=an_incident(an_alert(after(20), name="KubePodNotReady", namespace="shop", deployment="api")),
        symptoms=[replace(failing, resource=POD)],
        states=[
            whose(HOME, spec),
            a_state(a_resource("Service", "prices"), {"spec": {"selector": {"app": "prices"}}}),
            a_workload(server),
            pod,
        ],
    )
    return first(ranking), next(one for one in ranking.suspects if one.change.resource == SETTINGS)


def test_settings_that_no_pod_has_yet_are_not_believed() -> None:
    leads, settings = suspected(VARIABLES, told=-100)
    assert leads == ("Deployment", "prices")
    assert "It is read as pods start, and none has started since." in [one.sentence for one in settings.evidence]
    for spec, told in ((mounted(), -100), (VARIABLES, -12)):
        leads, followed = suspected(spec, told=told)
        assert leads == ("ConfigMap", "settings")
        assert followed.score > settings.score + 1.5
