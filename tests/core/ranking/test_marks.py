"""A label or an annotation does nothing by itself; what a program then does to the object follows from it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.core.counted import Calls
from app.core.edges.indexing import topology
from app.core.model import Actor, ActorSource, Change, Verb
from app.core.ranking.steering import set_off
from tests.core.company import first, ranked
from tests.core.factories import a_change, a_resource, a_symptom, a_workload, after, an_alert, an_incident, calls
from tests.core.ranking.test_steering import ARGO, early

KEEL = Actor("system:serviceaccount:platform:keel", ActorSource.AUDIT)
CACHE, OPERATOR = a_resource("Deployment", "cache"), a_resource("Deployment", "cache-operator", "platform")
STATES = [
    a_workload(a_resource("Deployment", "keel", "platform"), serviceAccountName="keel"),
    a_workload(a_resource("Deployment", "argocd-application-controller", "argocd"), serviceAccountName=ARGO.name[28:]),
    a_workload(OPERATOR, serviceAccountName="cache-operator"),
    a_workload(CACHE),
]
OPERATES = Actor("system:serviceaccount:platform:cache-operator", ActorSource.AUDIT)


def labelled(*, at: float = -20, actor: Actor = OPERATES) -> Change:
    path = ("metadata", "labels", "app.kubernetes.io/instance")
    return a_change(CACHE, at=after(at), path=path, old=None, new="data-services", actor=actor)


def gone(*, at: float = -18) -> Change:
    return a_change(CACHE, at=after(at), path=(), old={}, new=None, actor=ARGO, verb=Verb.DELETE)


@pytest.mark.parametrize(
    ("mark", "deleted", "follows"),
    [
        (labelled(), gone(), True),
        (labelled(), gone(at=290), False),
        (labelled(actor=ARGO), gone(), False),
        (a_change(CACHE, at=after(-20)), gone(), False),
    ],
    ids=["as theirs", "much later", "its own label", "no label"],
)
def test_what_a_program_deletes_was_marked_for_it(mark: Change, deleted: Change, follows: bool) -> None:
    assert set_off([early(), mark, deleted], topology(STATES)) == ({deleted.id: mark} if follows else {})


def test_an_operator_that_hands_labels_on_is_behind_what_is_pruned() -> None:
    rollout = a_change(OPERATOR, at=after(-22))
    found = set_off([early(), rollout, labelled(), gone()], topology(STATES))
    assert [found[one.id] for one in (labelled(), gone())] == [rollout, labelled()]
    ranking = ranked(
        rollout,
        labelled(),
        gone(),
        incident=an_incident(an_alert(after(20), name="KubePodNotReady", namespace="shop", deployment="cache")),
        symptoms=[a_symptom(CACHE, "Unhealthy", at=after(-17), count=20)],
        states=STATES,
    )
    assert first(ranking) == ("Deployment", "cache-operator")


@pytest.mark.parametrize(("key", "follows"), [("keel.sh/policy", True), ("corp.example/note", False)])
def test_a_fight_follows_from_what_told_one_of_its_writers(key: str, follows: bool) -> None:
    web = a_resource("Deployment", "web")
    told = a_change(web, at=after(-32), path=("metadata", "annotations", key), old=None, new="all")
    blows = [
        replace(
            a_change(web, at=after(-30 + number), old=f"web:{1 + number % 2}", new=f"web:{2 - number % 2}"),
            actor=(KEEL, ARGO)[number % 2],
        )
        for number in range(24)
    ]
    found = set_off([early(), told, *blows[:1]], topology(STATES))
    assert found == ({blows[0].id: told} if follows else {})
    ranking = ranked(
        told,
        *blows,
        incident=an_incident(
            an_alert(after(20), name="KubeDeploymentRolloutStuck", namespace="shop", deployment="web")
        ),
        symptoms=[a_symptom(web, "Unhealthy", at=after(-27), count=20)],
        states=[*STATES, a_workload(web)],
    )
    suspect = next(one for one in ranking.suspects if one.change == told)
    assert (suspect.probability > 0.9) is follows


@pytest.mark.parametrize(("actor", "follows"), [(ARGO, False), (OPERATES, True)], ids=["applies", "acts"])
def test_what_applies_manifests_does_not_act_on_others_rollouts(actor: Actor, follows: bool) -> None:
    other = a_change(a_resource("Deployment", "preview"), at=after(-5), path=(), old={}, new=None, verb=Verb.DELETE)
    then = a_change(CACHE, at=after(0), path=("spec", "replicas"), old=2, new=3, actor=actor)
    reads = Calls.of(calls(actor.name, "list", "deployments", rate=1, group="apps"))
    assert set_off([early(), other, then], topology(STATES, reads)) == ({then.id: other} if follows else {})
