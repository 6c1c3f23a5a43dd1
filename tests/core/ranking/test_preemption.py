"""Pods that are preempted: who takes their room, not what was done to them."""

from __future__ import annotations

from msgspec.structs import replace

from app.core.model import Change, FieldDiff, Json, Symptom, SymptomSource, Verb
from app.core.objects.pod_states import PREEMPTED
from tests.core.company import first, ranked
from tests.core.factories import a_change, a_resource, a_state, a_symptom, a_workload, after, an_alert, an_incident

APIS = [a_resource("Deployment", f"search-api-{number}", "search") for number in range(3)]
OWN = a_change(
    APIS[0], at=after(-22), path=("spec", "template", "spec", "terminationGracePeriodSeconds"), old=30, new=5
)
"""A rollout of one of those that are preempted, just before it began."""


def preempted() -> list[Symptom]:
    told = "default-scheduler: preempting to accommodate a higher priority pod"
    found = [a_symptom(api, PREEMPTED, at=after(-20 + i), message=told, count=4) for i, api in enumerate(APIS)]
    return [replace(one, source=SymptomSource.POD) for one in found]


def told(change: Change, *, default: bool = True) -> tuple[str, str]:
    trainer = a_resource("Deployment", "trainer", "ml")
    ranking = ranked(
        OWN,
        change,
        incident=an_incident(an_alert(after(40), name="KubePodNotReady", namespace="search")),
        load=[],
        symptoms=preempted(),
        states=[
            *map(a_workload, APIS),
            a_workload(trainer, replicas=60),
            a_state(a_resource("PriorityClass", "batch", None), {"value": 1_000_000, "globalDefault": default}),
        ],
    )
    return first(ranking)


def test_a_deployment_of_high_priority_that_takes_the_room() -> None:
    made = a_change(a_resource("Deployment", "trainer", "ml"), at=after(-30), verb=Verb.CREATE)
    made = replace(made, diffs=(FieldDiff((), "add", None, {"spec": {"replicas": 60}}),))
    assert told(made) == ("Deployment", "trainer")


def test_what_has_no_priority_takes_the_room_of_nobody() -> None:
    made = a_change(a_resource("Deployment", "trainer", "ml"), at=after(-30), verb=Verb.CREATE)
    many: Json = {"spec": {"replicas": 60, "template": {"spec": {"containers": []}}}}
    urgent: Json = {"spec": {"replicas": 60, "template": {"spec": {"containers": [], "priorityClassName": "batch"}}}}
    assert told(replace(made, diffs=(FieldDiff((), "add", None, many),)), default=False) != ("Deployment", "trainer")
    assert told(replace(made, diffs=(FieldDiff((), "add", None, urgent),)), default=False) == ("Deployment", "trainer")


def test_a_priority_that_is_everybodys_who_names_none() -> None:
    batch = a_resource("PriorityClass", "batch", None)
    assert told(a_change(batch, at=after(-40), path=("globalDefault",), old=False, new=True)) == (
        "PriorityClass",
        "batch",
    )


def test_a_priority_that_a_rollout_gives_its_pods() -> None:
    scanner = a_resource("Deployment", "scanner", "security")
    path = ("spec", "template", "spec", "priorityClassName")
    assert told(a_change(scanner, at=after(-40), path=path, old=None, new="batch")) == ("Deployment", "scanner")
    other = ("spec", "template", "spec", "dnsPolicy")
    assert told(a_change(scanner, at=after(-40), path=other, old=None, new="Default")) != ("Deployment", "scanner")
