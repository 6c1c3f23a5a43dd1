"""Who is refused, and comes again without end, is not who began: what refuses is, and what made it so."""

from __future__ import annotations

from datetime import datetime

import pytest
from msgspec.structs import replace

from app.core.findings import Ranking
from app.core.model import Actor, ActorSource, Change, FieldDiff, Json, ObjectState, Outcome, Rollout
from tests.core.company import background, ranked
from tests.core.factories import a_change, a_resource, a_state, a_workload, after, an_alert, an_incident, calls

KEEPER, WRITER = a_resource("Deployment", "keeper", "platform"), a_resource("Deployment", "writer", "platform")
USER = "system:serviceaccount:platform:writer"
SAYS = 'ConfigMap "*" is invalid: data: Forbidden: field is immutable when `immutable` is set'
OLD, NEW = "writer-5d8c7b9f6b", "writer-7fd4df88c9"


def closed(number: int, at: datetime) -> Change:
    """The keeper makes a ConfigMap immutable."""
    change = a_change(a_resource("ConfigMap", f"limits-{number}", "tenants"), at=at, path=("immutable",), new=True)
    return replace(change, actor=Actor("system:serviceaccount:platform:keeper", ActorSource.AUDIT))


def version(name: str, image: Json) -> ObjectState:
    spec: Json = {"replicas": 1, "template": {"spec": {"containers": [{"name": "web", "image": image}]}}}
    return a_state(a_resource("ReplicaSet", name, "platform"), {"spec": spec}, owner=WRITER)


def story(says: str = SAYS, *, old_fails: bool = True) -> tuple[Ranking, Change, Change]:
    """Both are rolled out; then the keeper closes what the writer writes, and that tries again without end."""
    first = a_change(KEEPER, at=after(-34))
    second = replace(a_change(WRITER, at=after(-32)), actor=Actor("bob@corp.example", ActorSource.AUDIT))
    (diff,) = second.diffs
    assert isinstance(diff, FieldDiff)
    writes = calls(USER, "patch", "configmaps", rate=2, end=-30, namespace="tenants", pod=f"{OLD}-x2x4z")
    for name, start, end in ((OLD, -30, -25), (NEW, -30, 60)):
        fails = old_fails or name == NEW
        code, error = (422, says) if fails else (200, "")
        writes += calls(
            USER,
            "patch",
            "configmaps",
            rate=25 if fails else 2,
            start=start,
            end=end,
            code=code,
            error=error,
            namespace="tenants",
            pod=f"{name}-x2x4z",
        )
    ranking = ranked(
        first,
        second,
        *(closed(number, after(-31)) for number in range(6)),
        incident=an_incident(an_alert(after(20), name="KubeAPIRequestRateHigh", job="apiserver")),
        load=[*background(), *writes],
        states=[
            a_workload(KEEPER, serviceAccountName="keeper"),
            a_workload(WRITER, serviceAccountName="writer"),
            version(OLD, diff.old),
            version(NEW, diff.new),
        ],
        rollouts=[Rollout(WRITER, "u", 2, after(-32), Outcome.COMPLETE, after(-24), change_id=second.id)],
    )
    return ranking, first, second


def test_who_closed_what_others_write_leads_before_who_is_refused() -> None:
    ranking, first, second = story()
    assert ranking.suspects[0].change is first
    load = next(one for one in ranking.suspects[0].evidence if one.rule == "load")
    assert "pods that have it in them" not in load.sentence, "these pods are of the other"
    assert next(one.rank for one in ranking.suspects if one.change is second) > 1


def errors_of(change: Change, ranking: Ranking) -> tuple[float, str]:
    (suspect,) = (one for one in ranking.suspects if one.change is change)
    return next((one.weight, one.sentence) for one in suspect.evidence if one.rule == "errors")


@pytest.mark.parametrize("old_fails", [True, False])
def test_what_fails_for_old_pods_too_is_not_for_their_new_version(*, old_fails: bool) -> None:
    """For as long as they are there: new ones fail for longer."""
    ranking, _, second = story("spec.size: Unsupported value", old_fails=old_fails)
    weight, sentence = errors_of(second, ranking)
    assert weight < 1 if old_fails else weight > 2
    assert ("50 % of these complaints are of pods that do not have it in them" in sentence) is old_fails
