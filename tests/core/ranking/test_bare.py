"""Without an audit log: pods that nobody owns are put down to the one program that may make pods there."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.core.edges.indexing import topology
from app.core.model import ObjectState, Resource
from app.core.ranking.bare import made_bare
from app.core.ranking.permitted import pod_makers
from app.core.ranking.suspects import Gathered, rank
from tests.core.company import noise
from tests.core.factories import a_change, a_resource, a_state, a_symptom, a_workload, after, an_alert, an_incident
from tests.core.ranking.test_permitted import USER, may

RUNNER = USER.format("runner")
HERE = may("runner", "", "pods", "create", namespace="builds")


def a_pod(number: int, *, at: float, owner: Resource | None = None) -> ObjectState:
    pod = a_state(a_resource("Pod", f"build-{number:06x}", "builds"), {"spec": {}}, owner=owner)
    return replace(pod, seen_at=after(at))


@pytest.mark.parametrize(
    ("states", "makers"),
    [
        (HERE, {"builds": {RUNNER}}),
        (may("runner", "", "pods", "*"), {"": {RUNNER}}),
        (may("runner", "", "pods", "get"), {}),
        (may("gitops", "*", "*", "*"), {}),
        (HERE[1:], {"builds": set()}),
    ],
    ids=["here", "everywhere", "only reads", "anything", "nothing runs as it"],
)
def test_roles_say_who_makes_pods(states: list[ObjectState], makers: dict[str, set[str]]) -> None:
    assert pod_makers(topology(states)) == makers


def test_pods_without_an_owner_are_counted_when_they_came() -> None:
    owner = a_resource("ReplicaSet", "web-5d8c7b9f6b", "builds")
    pods = [a_pod(0, at=-100), a_pod(1, at=-20), a_pod(2, at=-19), a_pod(3, at=-10), a_pod(4, at=-5, owner=owner)]
    made = made_bare(pods, {"builds": frozenset({RUNNER})})
    counted = [(one.key.user, one.key.resource, one.slot - after(-100).timestamp(), one.count) for one in made]
    assert counted == [(RUNNER, "pods", second, count) for second, count in ((0, 0), (80, 1), (80, 1), (90, 1))]


@pytest.mark.parametrize(
    "makers",
    [{}, {"builds": frozenset({RUNNER, "other"})}, {"shop": frozenset({RUNNER})}],
    ids=["nobody", "two", "elsewhere"],
)
def test_where_nobody_or_several_may_nothing_is_known(makers: dict[str, frozenset[str]]) -> None:
    assert not made_bare([a_pod(1, at=-20)], makers)


@pytest.mark.parametrize("is_alone", [True, False])
def test_who_finds_no_room_leads_to_what_the_maker_was_told(is_alone: bool) -> None:
    told = a_change(
        a_resource("ConfigMap", "runner", "runner"), at=after(-30), path=("data", "concurrent"), old="3", new="80"
    )
    others = [] if is_alone else may("spawner", "", "pods", "create", namespace="builds")
    pods = [a_pod(0, at=-110), *(a_pod(number, at=-28 + number / 4) for number in range(1, 50))]
    message = "0/6 nodes are available: 6 Insufficient memory."
    store = a_resource("StatefulSet", "store", "storage")
    ranking = rank(
        Gathered(
            incident=an_incident(an_alert(after(20), name="KubePodPending", namespace="storage")),
            start=after(-120),
            now=after(60),
            changes=(*noise(), told),
            symptoms=tuple(
                a_symptom(one, "Unschedulable", message=message) for one in (*(p.resource for p in pods), store)
            ),
            states=(*HERE, *others, *pods, a_workload(store)),
        )
    )
    suspect = next(one for one in ranking.suspects if one.change == told)
    made_them = any("It wants room for 49 more pods" in one.sentence for one in suspect.evidence)
    assert (made_them, suspect.probability > 0.5) == (is_alone, is_alone)
