"""What the ranking must beat: the loudest actor, as well as a person would know who that is."""

from __future__ import annotations

import pytest

from app.core.edges.indexing import topology
from app.core.evaluation.baselines import BASELINES
from app.core.model import CallCount, Json
from app.core.ranking.candidates import candidates
from tests.core.company import background, gathered
from tests.core.factories import a_change, a_resource, a_workload, after, an_alert, an_incident, calls

SYNC, OTHER = (a_resource("Deployment", name, "shop") for name in ("sync", "other"))
SETTINGS = a_resource("ConfigMap", "tuning", "shop")
READS: Json = [{"name": "a", "envFrom": [{"configMapRef": {"name": "tuning"}}]}]
ROBOT = "system:serviceaccount:shop:robot"


def loudest(*load: CallCount, shared: bool = False) -> list[str]:
    """The names of what is changed with the most, the loudest first, of those that call at all."""
    recorded = gathered(
        a_change(SYNC, at=after(-40)),
        a_change(SETTINGS, at=after(-30), path=("data", "workers"), old="2", new="40"),
        a_change(OTHER, at=after(-20), old="r/other:1", new="r/other:2"),
        incident=an_incident(an_alert(after(20), name="KubeAPIErrorBudgetBurn")),
        load=[*background(), *load],
        states=[
            a_workload(SYNC, serviceAccountName="robot", containers=READS),
            a_workload(OTHER, serviceAccountName="robot" if shared else "default"),
        ],
    )
    top = topology(recorded.states)
    score = BASELINES["loudest actor"](recorded)
    found = candidates(recorded.changes, (), (), topology=top, until=recorded.now)
    scored = sorted(((score(one), one.change.resource.name) for one in found), reverse=True)
    return [name for said, name in scored if said >= 1]


def test_the_workload_that_runs_as_the_account_is_the_actor_whatever_it_is_called_with_what_it_reads() -> None:
    assert loudest(*calls(ROBOT, "list", "pods", rate=20)) == ["tuning", "sync"]


@pytest.mark.parametrize(("pod", "named"), [("other-5d8c7b9f6b-x2x4z", ["other"]), ("", ["other", "tuning", "sync"])])
def test_of_workloads_that_share_an_account_the_one_whose_pod_calls(pod: str, named: list[str]) -> None:
    assert loudest(*calls(ROBOT, "list", "pods", rate=20, pod=pod), shared=True)[: len(named)] == named


def test_where_nobody_is_known_to_run_as_an_account_its_name_tells() -> None:
    load = calls("system:serviceaccount:shop:other", "list", "pods", rate=20)
    assert loudest(*load, *calls(ROBOT, "list", "pods", rate=2)) == ["other", "tuning", "sync"]
