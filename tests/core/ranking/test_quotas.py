"""Pods that a quota refuses lack what others have taken of it."""

from __future__ import annotations

import pytest

from app.core.findings import Ranking
from app.core.model import Outcome, Rollout
from tests.core.company import first, ranked
from tests.core.factories import a_change, a_resource, a_symptom, a_workload, after, an_alert, an_incident

MINE, OTHER = a_resource("Deployment", "marks", "media"), a_resource("Deployment", "thumbs", "media")
SETTING = a_resource("ConfigMap", "marks-config", "media")
REFUSED = 'pods "marks-1" is forbidden: exceeded quota: compute, requested: cpu=1, used: cpu=8, limited: cpu=8'


def told(message: str, namespace: str = "media") -> Ranking:
    """Of a release whose new pods cannot be made, with an edit of what they would read a moment before."""
    scaled = a_change(
        a_resource("Deployment", "thumbs", namespace), at=after(-20), path=("spec", "replicas"), old=2, new=6
    )
    release = a_change(MINE, at=after(-1))
    return ranked(
        scaled,
        a_change(SETTING, at=after(-5), path=("data", "LOG_LEVEL"), old="info", new="debug"),
        release,
        incident=an_incident(an_alert(name="KubeDeploymentRolloutStuck", namespace="media", deployment="marks")),
        symptoms=[a_symptom(MINE, "FailedCreate", at=after(0), message=message, count=13)],
        states=[
            a_workload(MINE, containers=[{"name": "marks", "envFrom": [{"configMapRef": {"name": "marks-config"}}]}]),
            a_workload(OTHER),
        ],
        rollouts=[Rollout(MINE, "uid", 2, after(-1), Outcome.RUNNING, change_id=release.id)],
    )


def test_who_adds_pods_takes_of_the_quota_that_others_lack() -> None:
    found = told(REFUSED)
    assert first(found) == ("Deployment", "thumbs")
    said = [one.sentence for one in found.suspects[0].evidence]
    assert any("take of what the quota leaves to namespace media" in one for one in said)
    assert not any("by a few" in one for one in said)


@pytest.mark.parametrize(("message", "namespace"), [(REFUSED, "shop"), ("admission webhook denied it", "media")])
def test_a_quota_is_of_its_namespace_and_tells_of_nothing_else(message: str, namespace: str) -> None:
    found = told(message, namespace)
    said = [one.sentence for suspect in found.suspects for one in suspect.evidence]
    assert not any("quota leaves" in one for one in said)


def test_what_pods_would_start_with_only_came_as_they_were_to_be_made() -> None:
    (setting,) = [one for one in told(REFUSED).suspects if one.change.resource == SETTING]
    assert any("hardly leads to what is complained of" in one.sentence for one in setting.evidence)
