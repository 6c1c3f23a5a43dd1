"""What was undone before the trouble began."""

from __future__ import annotations

from app.core.findings import Ranking
from app.core.model import Change, Json, Path
from app.core.ranking.undone import LAST, undone
from tests.core.company import ranked
from tests.core.factories import a_change, a_resource, a_state, a_symptom, a_workload, after, an_alert, an_incident

SCALER = a_resource("Deployment", "scaler", "platform")
REPLICAS: Path = ("spec", "replicas")


def scaled(old: Json, new: Json, *, at: float, path: Path = REPLICAS) -> Change:
    return a_change(SCALER, at=after(at), path=path, old=old, new=new)


def test_an_update_stands_until_another_one_gives_every_field_of_it_another_value() -> None:
    down, other, up = scaled(1, 0, at=0), scaled("a", "b", at=5, path=("spec", "x")), scaled(0, 1, at=9)
    assert undone([down, other, up]) == {down.id: up.at}
    further = scaled(0, 2, at=9)
    assert undone([down, other, further]) == {down.id: further.at}
    assert undone([down, other]) == {}
    assert undone([down, scaled(None, None, at=9)]) == {down.id: after(9)}
    assert undone([scaled(None, None, at=0), scaled(None, None, at=9)]) == {}, "what was written is not known"


def test_what_is_undone_and_done_again_stands() -> None:
    changes = [scaled(1, 0, at=0), scaled(0, 1, at=1), scaled(1, 0, at=2)]
    assert undone(changes) == {changes[0].id: changes[1].at, changes[1].id: changes[2].at}


def test_of_what_is_edited_all_the_time_only_the_last_edits_are_looked_at() -> None:
    many = [scaled(1, 0, at=n, path=("spec", str(n))) for n in range(LAST + 1)]
    assert undone([*many, scaled(0, 1, at=50, path=("spec", "0"))]) == {}
    assert undone([*many, scaled(0, 1, at=50, path=("spec", "1"))]) == {many[1].id: after(50)}


def rank_after(up: float) -> Ranking:
    service = a_state(a_resource("Service", "scaler", "platform"), {"spec": {"selector": {"app": "scaler"}}})
    client = a_resource("Deployment", "web")
    return ranked(
        scaled(1, 0, at=-30),
        scaled(0, 1, at=up),
        incident=an_incident(an_alert(after(30), name="HTTPErrors", namespace="shop")),
        symptoms=[a_symptom(client, "Unhealthy", at=after(0), message="Readiness probe failed")],
        states=[a_workload(SCALER), a_workload(client), service],
    )


def evidence(ranking: Ranking) -> dict[str, float]:
    first = next(s for s in ranking.suspects if s.change.at == after(-30))
    return {one.rule: one.weight for one in first.evidence}


def test_a_scale_to_zero_that_was_undone_before_the_onset_leaves_nothing_without_pods() -> None:
    before, then = evidence(rank_after(up=-20)), evidence(rank_after(up=20))
    assert before["undone"] < 0
    assert "empties" not in before
    assert then["empties"] > 0
    assert "undone" not in then
