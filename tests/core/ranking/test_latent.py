"""What pods start with waits for the next rollout, which is then only the occasion."""

from __future__ import annotations

import pytest

from app.core.findings import Ranking, Suspect
from app.core.model import Change, Json, Outcome, Path, Resource, Rollout
from tests.core.company import ranked
from tests.core.factories import a_change, a_resource, a_symptom, a_workload, after, an_alert, an_incident

SYNC = a_resource("Deployment", "sync", "platform")
ACCOUNT = a_resource("ServiceAccount", "sync", "platform")
STRATEGY: Path = ("spec", "strategy", "type")
LATENT = [
    (ACCOUNT, ("automountServiceAccountToken",), None, False),
    (SYNC, STRATEGY, "RollingUpdate", "Recreate"),
]


def rolled_out(*changes: Change, at: float = -12) -> Ranking:
    """A harmless rollout of a workload, the like of which there were many, whose pods crash."""
    release = a_change(SYNC, at=after(at), old="sync:1.0.0", new="sync:1.0.1")
    rollout = Rollout(SYNC, "uid", 2, after(at), Outcome.RUNNING, change_id=release.id)
    return ranked(
        *changes,
        release,
        incident=an_incident(an_alert(after(10), name="Lacking", namespace="platform", deployment="sync")),
        symptoms=[a_symptom(SYNC, "CrashLoopBackOff", at=after(at + 2), count=4)],
        states=[a_workload(SYNC, serviceAccountName="sync")],
        rollouts=[rollout],
    )


def written(resource: Resource, path: Path, old: Json, new: Json, *, at: float) -> Change:
    return a_change(resource, at=after(at), path=path, old=old, new=new)


def of(ranking: Ranking, change: Change) -> Suspect:
    return next(one for one in ranking.suspects if one.change.id == change.id)


def time(suspect: Suspect) -> tuple[float, str]:
    (found,) = [evidence for evidence in suspect.evidence if evidence.rule == "time"]
    return found.weight, found.sentence


@pytest.mark.parametrize(("resource", "path", "old", "new"), LATENT)
def test_what_waited_for_a_rollout_is_dated_by_it(resource: Resource, path: Path, old: Json, new: Json) -> None:
    waits = written(resource, path, old, new, at=-60)
    ranking = rolled_out(waits)
    assert time(of(ranking, waits))[1].startswith("The first pods started with it 2 s before the onset")
    assert ranking.suspects[0].change.id == waits.id


def test_what_waits_still_did_nothing() -> None:
    waits = written(SYNC, STRATEGY, "RollingUpdate", "Recreate", at=-11.5)
    found = [one for one in rolled_out(waits).suspects if one.change.id == waits.id]
    assert all(one.rank > 1 and "first pods" not in time(one)[1] for one in found)


def test_what_acts_at_once_does_not_wait() -> None:
    image = a_change(SYNC, at=after(-60), old="sync:0.9.0", new="sync:1.0.0")
    assert time(of(rolled_out(image), image))[1].startswith("50 s before the onset")
