"""Pods that a program makes by itself are put down to what it was last told, or rolled out with."""

from __future__ import annotations

import pytest

from app.core.counted import Calls
from app.core.edges.indexing import topology
from app.core.model import CallCount, Change, Json
from app.core.ranking.candidates import candidates
from app.core.ranking.making import with_pods_made
from tests.core.company import background, first, ranked
from tests.core.factories import a_change, a_resource, a_symptom, a_workload, after, an_alert, an_incident, calls

RUNNER, LIMIT = a_resource("Deployment", "runner", "builds"), a_resource("ConfigMap", "runner", "builds")
USER = "system:serviceaccount:builds:runner"
READS: Json = [{"name": "runner", "envFrom": [{"configMapRef": {"name": "runner"}}]}]
STATES = [a_workload(RUNNER, serviceAccountName="runner", containers=READS)]
TOLD = a_change(LIMIT, at=after(-30), path=("data", "concurrent"), old="3", new="80")
REBUILT = a_change(RUNNER, at=after(-80))


def created(user: str = USER, *, rate: float, start: float, **more: object) -> list[CallCount]:
    return calls(user, "create", "pods", rate=rate, start=start, namespace="builds", **more)  # type: ignore[arg-type]


def added(*changes: Change, load: list[CallCount]) -> dict[str, int]:
    found = candidates(changes, (), (), topology=topology(STATES), until=after(60))
    before = {one.change.id: one.added for one in found}
    made = with_pods_made(found, Calls.of([*background(), *load]))
    return {one.change.resource.kind: one.added - before[one.change.id] for one in made}


def test_what_was_told_it_last_has_made_what_it_makes_more_than_before() -> None:
    found = added(REBUILT, TOLD, load=[*created(rate=0.2, start=-120), *created(rate=2, start=-28)])
    assert found["Deployment"] <= 1
    assert found["ConfigMap"] == pytest.approx(2 * 88, rel=0.1)


@pytest.mark.parametrize(
    "load",
    [
        created(rate=2, start=-120),
        created("system:serviceaccount:kube-system:replicaset-controller", rate=2, start=-28),
        created("system:serviceaccount:builds:other", rate=2, start=-28),
        created(rate=2, start=-28, code=403),
    ],
    ids=["as before", "a controller of Kubernetes", "another program", "refused"],
)
def test_nobody_else_makes_its_pods(load: list[CallCount]) -> None:
    assert added(TOLD, load=load)["ConfigMap"] <= 2


def test_of_what_was_there_before_the_record_nothing_is_known() -> None:
    first_seen = a_change(LIMIT, at=after(-121), path=("data", "concurrent"), old="3", new="80")
    assert added(first_seen, load=created(rate=2, start=-118)) == {"ConfigMap": 0}


def test_who_finds_no_room_leads_to_the_limit_of_what_builds() -> None:
    message = "0/6 nodes are available: 6 Insufficient memory."
    pods = [a_resource("Pod", f"build-{number:06x}", "builds") for number in range(9)]
    store = a_resource("StatefulSet", "store", "storage")
    ranking = ranked(
        TOLD,
        incident=an_incident(an_alert(after(20), name="KubePodPending", namespace="storage")),
        load=[*background(), *created(rate=2, start=-28)],
        symptoms=[a_symptom(one, "Unschedulable", message=message) for one in (*pods, store)],
        states=STATES,
    )
    assert first(ranking) == ("ConfigMap", "runner")
    assert any("It wants room for" in e.sentence for e in ranking.suspects[0].evidence)
