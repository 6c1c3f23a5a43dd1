"""How many pods a workload has: more of the same make nobody ill, fewer have more to do each."""

from __future__ import annotations

import pytest

from app.core.edges.mechanism import UNLIKELY, plausible
from app.core.edges.served import FAILS
from tests.core.company import first, ranked, rules
from tests.core.factories import a_change, a_resource, a_symptom, a_workload, after, an_alert, an_incident


def test_another_pod_of_the_same_sort_makes_nobody_ill() -> None:
    web = a_resource("Deployment", "player", "media")
    ranking = ranked(
        a_change(web, at=after(-11), path=("spec", "replicas"), old=3, new=5),
        a_change(a_resource("ConfigMap", "player-config", "media"), at=after(-14), path=("data", "url"), new="http//x"),
        incident=an_incident(an_alert(after(30), name="KubePodNotReady", namespace="media", deployment="player")),
        symptoms=[a_symptom(web, "Unhealthy", at=after(-10), count=17)],
        states=[a_workload(web)],
    )
    assert first(ranking) == ("ConfigMap", "player-config")


@pytest.mark.parametrize(("old", "new"), [(9, 2), (9, None)], ids=["fewer", "none said, which is one"])
def test_fewer_pods_have_more_to_do_each(old: int, new: int | None) -> None:
    web, recommender = a_resource("Deployment", "player", "media"), a_resource("Deployment", "recommender", "media")
    ranking = ranked(
        a_change(web, at=after(-60), path=("spec", "replicas"), old=old, new=new),
        a_change(recommender, at=after(-12)),
        incident=an_incident(an_alert(after(30), name="KubePodNotReady", namespace="media")),
        symptoms=[a_symptom(web, "Unhealthy", at=after(-10), message="Readiness probe failed: timeout", count=17)],
        states=[a_workload(web), a_workload(recommender)],
    )
    assert first(ranking) == ("Deployment", "player")
    assert "symptoms" in rules(ranking)
    assert ranking.suspects[0].probability > 0.4


@pytest.mark.parametrize("bound", ["maxReplicas", "maxReplicaCount"], ids=["Kubernetes'", "KEDA's"])
@pytest.mark.parametrize(("old", "new", "likely"), [(20, 24, UNLIKELY), (24, 20, 1.0)], ids=["more", "fewer"])
def test_that_there_may_be_more_pods_makes_no_request_fail(bound: str, old: int, new: int, likely: float) -> None:
    change = a_change(a_resource("ScaledObject", "feeds", "media"), path=("spec", bound), old=old, new=new)
    assert plausible(change, FAILS, refused="") == likely
    scaled = a_change(a_resource("Deployment", "feeds", "media"), path=("spec", "replicas"), old=old, new=new)
    assert plausible(scaled, FAILS, refused="") == 1.0, "more pods ask more of what they call"
