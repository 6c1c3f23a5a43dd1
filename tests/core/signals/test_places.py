"""What only the pods on some nodes suffer from is not put down to what all of them have in common."""

from __future__ import annotations

import pytest

from app.core.model import Object, ObjectState, Resource, Verb
from tests.core.company import ranked
from tests.core.factories import a_change, a_resource, a_state, a_symptom, a_workload, after, an_alert, an_incident

NAMES = ("login", "portal")
POLICY = a_resource("NetworkPolicy", "login-egress")
NODES = 9
"""Three in each of three zones; each workload has a pod on every node."""


def a_node(number: int) -> ObjectState:
    labels: Object = {"topology.kubernetes.io/zone": f"z{number % 3}", "kubernetes.io/hostname": f"n{number}"}
    return a_state(a_resource("Node", f"n{number}", None), {"metadata": {"labels": labels}})


def a_pod(name: str, number: int, *, canary: bool) -> Resource:
    """``canary``: the pods in zone z0 are of a revision of their own."""
    revision = "5c9f8b7d6f" if canary and number % 3 == 0 else "6d4f7c9b8f"
    return a_resource("Pod", f"{name}-{revision}-x2k4{'bcdfghjkl'[number]}")


def cluster(*, canary: bool) -> list[ObjectState]:
    chosen: Object = {"spec": {"podSelector": {"matchLabels": {"app": "login"}}}}
    return [
        *map(a_node, range(NODES)),
        *(a_workload(a_resource("Deployment", name), labels={"app": name}) for name in NAMES),
        *(
            a_state(a_pod(name, number, canary=canary), {"spec": {"nodeName": f"n{number}"}})
            for name in NAMES
            for number in range(NODES)
        ),
        a_state(POLICY, chosen),
    ]


def told(hurt: tuple[int, ...], *, canary: bool = False) -> tuple[str, float]:
    """The sentence about the symptoms, and what it weighs, for a policy that all pods of one workload are under."""
    written = a_change(POLICY, at=after(-20), verb=Verb.CREATE)
    ranking = ranked(
        written,
        incident=an_incident(an_alert(after(30), deployment="login", namespace="shop")),
        symptoms=[
            a_symptom(a_pod(name, number, canary=canary), "Unready", at=after(-5)) for name in NAMES for number in hurt
        ],
        states=cluster(canary=canary),
    )
    (mine,) = (suspect for suspect in ranking.suspects if suspect.change.id == written.id)
    (evidence,) = (e for e in mine.evidence if e.rule == "symptoms")
    return evidence.sentence, evidence.weight


@pytest.mark.parametrize("hurt", [(0, 3, 6), (1, 4, 7)])
def test_pods_that_complain_in_one_zone_alone_speak_against_what_all_have_in_common(hurt: tuple[int, ...]) -> None:
    sentence, weight = told(hurt)
    assert f"only in zone z{hurt[0]}, while 12 pods of the same elsewhere are well" in sentence
    _, everywhere = told(tuple(range(NODES)))
    assert weight < everywhere / 2


@pytest.mark.parametrize("hurt", [(0, 1, 2), (0,), tuple(range(NODES))])
def test_others_say_nothing_of_the_place(hurt: tuple[int, ...]) -> None:
    assert "only in" not in told(hurt)[0]


def test_a_revision_that_runs_in_one_zone_alone_is_not_the_zones_fault() -> None:
    assert "only in" not in told((0, 3, 6), canary=True)[0]
