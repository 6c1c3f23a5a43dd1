"""What refuses is dated by the first refusal that names it."""

from __future__ import annotations

from typing import Any

import pytest

from app.core.findings import Ranking, Suspect
from app.core.model import Change, Resource, Verb
from tests.core.company import ranked
from tests.core.factories import a_change, a_resource, a_symptom, a_workload, after, an_alert, an_incident

FEED = a_resource("Deployment", "feed", "desk")
LIMITS = Resource("lab", "constraints.gatekeeper.sh", "K8sContainerLimits", None, "must-have-limits")
POLICY = Resource("lab", "kyverno.io", "ClusterPolicy", None, "must-have-limits")
COMPUTE = a_resource("ResourceQuota", "compute", "desk")
DENIED = 'Error creating: admission webhook "x.gatekeeper.sh" denied the request: [must-have-limits] no limits'
EXCEEDED = (
    "Error creating: pods is forbidden: exceeded quota: compute, requested: pods=1, used: pods=4, limited: pods=4"
)


def refused(edit: Change, message: str, *, at: float = 0) -> tuple[Ranking, Suspect]:
    """More pods of a workload are wanted long after an edit, and none is let in."""
    more = a_change(FEED, at=after(-6), path=("spec", "replicas"), old=4, new=10)
    ranking = ranked(
        edit,
        more,
        incident=an_incident(an_alert(after(30), name="KubeDeploymentReplicasMismatch", namespace="desk")),
        symptoms=[a_symptom(FEED, "FailedCreate", at=after(at), message=message, count=12)],
        states=[a_workload(FEED)],
    )
    return ranking, next(one for one in ranking.suspects if one.change.id == edit.id)


def when(suspect: Suspect) -> str:
    return next(one.sentence for one in suspect.evidence if one.rule == "time")


def an_edit(resource: Resource, *, at: float = -100, **of: Any) -> Change:
    said = {"path": ("spec", "enforcementAction"), "old": "dryrun", "new": "deny", **of}
    return a_change(resource, at=after(at), **said)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (an_edit(LIMITS), DENIED),
        (an_edit(POLICY, path=("spec", "validationFailureAction"), old="Audit", new="Enforce"), DENIED),
        (an_edit(COMPUTE, path=("spec", "hard", "pods"), old="20", new="4"), EXCEEDED),
    ],
    ids=["a constraint", "a policy", "a quota"],
)
def test_what_refuses_is_dated_by_its_first_refusal(edit: Change, message: str) -> None:
    ranking, suspect = refused(edit, message)
    assert when(suspect).startswith("It first refused something 1 s before the onset")
    assert any("99 s after this change" in one.sentence for one in suspect.evidence), "as it was written"
    assert ranking.suspects[0] is suspect


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (an_edit(LIMITS), DENIED.replace("must-have", "may-have")),
        (an_edit(LIMITS), "Readiness probe failed: must-have-limits said 503"),
        (an_edit(LIMITS, old="deny", new="dryrun", verb=Verb.DELETE), DENIED),
        (an_edit(LIMITS, path=("metadata", "labels", "team"), old="a", new="b"), DENIED),
        (an_edit(a_resource("ConfigMap", "must-have-limits", "desk"), path=("data", "x")), DENIED),
        (an_edit(LIMITS, path=("spec", "match", "excludedNamespaces"), old=["a"], new=["a", "b"]), DENIED),
    ],
    ids=["another is named", "nothing is refused", "it is gone", "a label", "it refuses nothing", "it refuses less"],
)
def test_what_did_not_refuse_it_is_dated_by_when_it_was_written(edit: Change, message: str) -> None:
    assert "refused" not in when(refused(edit, message)[1])


def test_what_was_refused_before_was_not_refused_by_it() -> None:
    edit = an_edit(LIMITS, at=-2)
    assert not any("refused" in one.sentence for one in refused(edit, DENIED, at=-9)[1].evidence if one.rule == "time")
