"""What is left of an evaluation without what is told apart in a rise of calls: made-up incidents that turn on it."""

from __future__ import annotations

from app.commands.evaluate_ablation import Ablated, ablation
from app.commands.evaluate_cases import Answer, Case
from app.core.model import Change, Json, ObjectState
from app.core.ranking.suspects import Gathered, rank
from app.core.signals.loads import Apart
from tests.core.company import background, gathered
from tests.core.factories import a_change, a_resource, a_state, a_workload, after, an_alert, an_incident, calls

AGENT = "system:serviceaccount:monitoring:agent"
BUSY = an_incident(an_alert(after(20), name="KubeAPIRequestRateHigh"))


def left(at: Gathered, right: Change) -> dict[str, Ablated]:
    ranking = rank(at)
    case = Case("made up", at, at, ranking, ranking)
    return ablation([(case, Answer(has_culprit=True, right=frozenset({right.id})))])


def turns_on(found: dict[str, Ablated]) -> set[str]:
    """Without which of what is told apart the culprit leads no more; without metrics, of which there are none here,
    nothing is left out."""
    return {name for name in ("metrics", *(f"load: {part}" for part in Apart)) if found[name].accuracy.ac1 == 0}


def test_without_who_began_the_loudest_leads_who_only_tries_again() -> None:
    tenants, billing = (a_resource("Deployment", name, "shop") for name in ("tenants", "billing"))
    user, other = (f"system:serviceaccount:shop:{one.name}" for one in (tenants, billing))
    env = ("spec", "template", "spec", "containers", (("name", "a"),), "env", (("name", "REGION"),), "value")
    culprit = a_change(tenants, at=after(-24))
    tried_again = calls(other, "list", "pods", rate=40, start=-15, code=429, error="too many requests")
    found = left(
        gathered(
            culprit,
            a_change(billing, at=after(-28), path=env, old="a", new="b"),
            incident=an_incident(an_alert(after(20), name="KubeAPIErrorBudgetBurn")),
            load=[
                *background(),
                *calls(user, "list", "pods", rate=8, start=-20),
                *calls(other, "list", "pods", rate=1),
                *tried_again,
            ],
            states=[a_workload(one, serviceAccountName=one.name) for one in (tenants, billing)],
        ),
        culprit,
    )
    assert turns_on(found) == {"load: first mover"}


def test_without_its_versions_a_rollout_is_put_down_what_the_pods_before_it_call() -> None:
    """A setting that they read anew has the old pods call more; the new ones, which do not read it, call as before."""
    agent, settings = a_resource("Deployment", "agent", "monitoring"), a_resource("ConfigMap", "agent", "monitoring")
    rollout = a_change(agent, at=after(-22))
    culprit = a_change(settings, at=after(-90), path=("data", "interval"), old="60s", new="1s")
    (diff,) = rollout.diffs

    def version(name: str, image: str) -> ObjectState:
        spec: Json = {"replicas": 1, "template": {"spec": {"containers": [{"name": "web", "image": image}]}}}
        return a_state(a_resource("ReplicaSet", name, "monitoring"), {"spec": spec}, owner=agent)

    old, new = version("agent-5d8c7b9f6b", str(diff.old)), version("agent-7fd4df88c9", str(diff.new))
    reads: Json = [{"name": "web", "envFrom": [{"configMapRef": {"name": "agent"}}]}]
    load = calls(AGENT, "list", "pods", rate=1, pod="agent-5d8c7b9f6b-x2x4z")
    load += calls(AGENT, "list", "pods", rate=40, start=-20, pod="agent-5d8c7b9f6b-x2x4z")
    found = left(
        gathered(
            culprit,
            rollout,
            incident=BUSY,
            load=[*background(), *load],
            states=[a_workload(agent, serviceAccountName="agent", containers=reads), old, new],
        ),
        culprit,
    )
    assert turns_on(found) == {"load: actor version"}


def test_without_more_clients_a_setting_leads_though_each_client_calls_as_often_as_before() -> None:
    agent, settings = a_resource("Deployment", "agent", "monitoring"), a_resource("ConfigMap", "agent", "monitoring")
    reads: Json = [{"name": "a", "envFrom": [{"configMapRef": {"name": "agent"}}]}]
    culprit = a_change(agent, at=after(-22), path=("spec", "replicas"), old=3, new=30)
    load = [one for pod in range(3) for one in calls(AGENT, "list", "pods", rate=1, end=-20, pod=f"agent-7-{pod}")]
    load += [one for pod in range(30) for one in calls(AGENT, "list", "pods", rate=1, start=-20, pod=f"agent-7-{pod}")]
    found = left(
        gathered(
            culprit,
            a_change(settings, at=after(-23), path=("data", "interval"), old="60s", new="1s"),
            incident=BUSY,
            load=[*background(), *load],
            states=[a_workload(agent, serviceAccountName="agent", containers=reads)],
        ),
        culprit,
    )
    assert turns_on(found) == {"load: more clients"}
