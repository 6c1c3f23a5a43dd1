"""Who calls more than before, since when: alone, in turn with another, or only because others do."""

from __future__ import annotations

import pytest

from app.core.counted import Calls
from app.core.model import CallCount, Json, Object, ObjectState, Outcome, Progress, Rollout
from app.core.signals.calls import axis, caller_rows, loads
from app.core.signals.loads import load_signals
from app.core.signals.signal import Signal
from tests.core.company import background, first, ranked
from tests.core.factories import a_change, a_resource, a_state, a_workload, after, an_alert, an_incident, calls

AGENT = "system:serviceaccount:monitoring:agent"
RETRYING = "system:serviceaccount:shop:billing"


def risen(counts: list[CallCount], *rollouts: Rollout) -> list[Signal]:
    together = Calls.of(counts)
    slots = axis(together, until=after(60).timestamp())
    assert slots is not None
    return load_signals(together, slots, loads(together, slots), rollouts)


def test_a_caller_that_calls_more_is_named_with_its_share() -> None:
    counts = calls("steady", "get", "pods", rate=4) + calls(AGENT, "list", "services", rate=40, start=-30)
    (signal,) = risen(counts)
    assert signal.users == (AGENT,)
    assert signal.sentence == "agent went from 0 to 40 LIST services/s (100 % of the extra API load)"
    assert abs((signal.low - after(-30)).total_seconds()) <= 5


@pytest.mark.parametrize(("is_down", "told"), [(True, True), (False, False)])
def test_who_brought_the_api_server_down_is_told_once_it_is_down(*, is_down: bool, told: bool) -> None:
    """While it is down nobody is heard; who fell silent alone has only had much to do for a while."""
    others = calls("steady", "get", "pods", rate=10, start=-120, end=0)
    others += calls("steady", "get", "pods", rate=10, start=40 if is_down else 0, end=60)
    surge = [
        *calls(AGENT, "patch", "devices", rate=0.2, start=-120, end=-20),
        *calls(AGENT, "patch", "devices", rate=90, start=-20, end=-10),
        *calls(AGENT, "patch", "devices", rate=12, start=-10, end=0),
        *calls(AGENT, "patch", "devices", rate=0.2, start=40, end=60),
    ]
    assert any(signal.users == (AGENT,) for signal in risen([*others, *surge])) is told


def test_who_merely_tries_again_is_no_load_of_its_own() -> None:
    """The new version takes every seat; another, which is louder, is refused and tries again."""
    first_mover = calls(AGENT, "list", "pods", rate=8, start=-20)
    refused = calls(RETRYING, "list", "widgets", rate=1) + calls(
        RETRYING, "list", "widgets", rate=40, start=-10, code=429
    )
    (signal,) = risen([*first_mover, *refused])
    assert signal.users == (AGENT,)
    assert "(100 % of the extra API load)" in signal.sentence
    (alone,) = risen(refused)
    assert alone.users == (RETRYING,), "who is refused though nobody else began asks too much itself"


def test_who_tries_again_and_is_answered_too_says_how_much_of_it_is_that() -> None:
    partly = calls("steady", "get", "pods", rate=4) + calls(RETRYING, "list", "widgets", rate=6, start=-10, code=503)
    partly += calls(RETRYING, "list", "widgets", rate=4, start=-10)
    found = risen([*calls(AGENT, "list", "pods", rate=8, start=-20), *partly])
    assert found[1].users == (RETRYING,)
    assert "(33 % of the extra API load; 60 % of it is refused and tried again)" in found[1].sentence


def test_the_first_mover_is_suspected_and_not_who_tries_again() -> None:
    tenants, billing = (a_resource("Deployment", name, "shop") for name in ("tenants", "billing"))
    states = [a_workload(one, serviceAccountName=one.name) for one in (tenants, billing)]
    user, other = (f"system:serviceaccount:shop:{one.name}" for one in (tenants, billing))
    env = ("spec", "template", "spec", "containers", (("name", "a"),), "env", (("name", "REGION"),), "value")
    tried_again = calls(other, "list", "pods", rate=40, start=-15, code=429, error="too many requests")
    ranking = ranked(
        a_change(tenants, at=after(-24)),
        a_change(billing, at=after(-28), path=env, old="a", new="b"),
        incident=an_incident(an_alert(after(20), name="KubeAPIErrorBudgetBurn")),
        load=[
            *background(),
            *calls(user, "list", "pods", rate=8, start=-20),
            *calls(other, "list", "pods", rate=1),
            *tried_again,
        ],
        states=states,
    )
    assert first(ranking) == ("Deployment", "tenants")


@pytest.mark.parametrize(
    ("clients", "rate", "said", "share"),
    [
        (30, 1, "30 pods, 3 before, each as often as before", 1.0),
        (3, 40, "3 pods, each 40 times as often", 0.0),
        (6, 2, "6 pods, 3 before, each 2 times as often", 0.5),
    ],
)
def test_more_clients_are_told_from_more_calls_of_each(clients: int, rate: float, said: str, share: float) -> None:
    counts = [one for pod in range(3) for one in calls(AGENT, "list", "pods", rate=1, end=-20, pod=f"agent-7-{pod}")]
    for pod in range(clients):
        counts += calls(AGENT, "list", "pods", rate=rate, start=-20, pod=f"agent-7-{pod}")
    (signal,) = risen(counts)
    assert f"(100 % of the extra API load; {said})" in signal.sentence
    assert float(signal.facts["by_clients"]) == pytest.approx(share, abs=0.01)


def rolled_out(*progress: tuple[float, int, int, int]) -> Rollout:
    """Of the agent, 25 s before noon; each time with how many pods are desired, new and available."""
    told = tuple(Progress(after(seconds), *counts) for seconds, *counts in progress)
    agent = a_resource("DaemonSet", "agent", "monitoring")
    return Rollout(agent, "u1", 2, after(-25), Outcome.RUNNING, progress=told)


@pytest.mark.parametrize(
    ("progress", "rate", "said", "share"),
    [
        (((-24, 4, 0, 4), (-14, 4, 4, 4)), 80, "4 pods, each 20 times as often", 0.0),
        (((-24, 4, 0, 4), (-14, 4, 1, 4)), 80, "4 pods, the new one 77 times as often", 0.0),
        (((-24, 8, 0, 4), (-14, 8, 8, 8)), 8, "8 pods, 4 before, each as often as before", 1.0),
        (((-24, 8, 0, 4), (-14, 8, 1, 4)), 9, "8 pods, 4 before, the new one 5 times as often", 0.85),
    ],
)
def test_where_no_pod_is_named_it_goes_by_when_a_rollout_replaced_them(
    progress: tuple[tuple[float, int, int, int], ...], rate: float, said: str, share: float
) -> None:
    counts = calls(AGENT, "list", "pods", rate=4, end=-10) + calls(AGENT, "list", "pods", rate=rate, start=-10)
    (signal,) = risen(counts, rolled_out(*progress))
    assert f"(100 % of the extra API load; {said}, by when they were replaced)" in signal.sentence
    assert float(signal.facts["by_clients"]) == pytest.approx(share, abs=0.01)


def test_a_rollout_that_came_later_or_has_no_new_pod_yet_is_not_asked() -> None:
    early = calls(AGENT, "list", "pods", rate=4, end=-40) + calls(AGENT, "list", "pods", rate=80, start=-40)
    late = calls(AGENT, "list", "pods", rate=4, end=-10) + calls(AGENT, "list", "pods", rate=80, start=-10)
    for counts, progress in ((early, (-24, 4, 4, 4)), (late, (-24, 4, 0, 4))):
        (signal,) = risen(counts, rolled_out(progress))
        assert signal.sentence.endswith("(100 % of the extra API load)")


def test_pods_that_are_named_say_more_than_when_they_were_replaced() -> None:
    counts = calls(AGENT, "list", "pods", rate=4, end=-10, pod="agent-1")
    counts += calls(AGENT, "list", "pods", rate=80, start=-10, pod="agent-1")
    (signal,) = risen(counts, rolled_out((-24, 4, 4, 4)))
    assert "; one pod, each 20 times as often)" in signal.sentence


@pytest.mark.parametrize(("clients", "rate", "leads"), [(30, 1, "Deployment"), (3, 40, "ConfigMap")])
def test_what_scales_makes_more_clients_and_what_configures_more_calls_of_each(
    clients: int, rate: float, leads: str
) -> None:
    agent, settings = a_resource("Deployment", "agent", "monitoring"), a_resource("ConfigMap", "agent", "monitoring")
    reads: Json = [{"name": "a", "envFrom": [{"configMapRef": {"name": "agent"}}]}]
    counts = [one for pod in range(3) for one in calls(AGENT, "list", "pods", rate=1, end=-20, pod=f"agent-7-{pod}")]
    for pod in range(clients):
        counts += calls(AGENT, "list", "pods", rate=rate, start=-20, pod=f"agent-7-{pod}")
    ranking = ranked(
        a_change(agent, at=after(-22), path=("spec", "replicas"), old=3, new=30),
        a_change(settings, at=after(-23), path=("data", "interval"), old="60s", new="1s"),
        incident=an_incident(an_alert(after(20), name="KubeAPIRequestRateHigh")),
        load=[*background(), *counts],
        states=[a_workload(agent, serviceAccountName="agent", containers=reads)],
    )
    assert first(ranking) == (leads, "agent")


@pytest.mark.parametrize("new", [True, False])
def test_a_rollout_is_put_down_what_its_own_pods_call_more(new: bool) -> None:
    """Each ReplicaSet is a version, and its pods are named after it."""
    agent = a_resource("Deployment", "agent", "monitoring")

    def version(name: str, image: str) -> ObjectState:
        spec: Json = {"replicas": 1, "template": {"spec": {"containers": [{"name": "web", "image": image}]}}}
        return a_state(a_resource("ReplicaSet", name, "monitoring"), {"spec": spec}, owner=agent)

    change = a_change(agent, at=after(-25))
    (diff,) = change.diffs
    old, now = version("agent-5d8c7b9f6b", str(diff.old)), version("agent-7fd4df88c9", str(diff.new))
    calling = (now if new else old).resource.name
    load = [*background(), *calls(AGENT, "list", "pods", rate=1, pod=f"{old.resource.name}-x2x4z")]
    load += calls(AGENT, "list", "pods", rate=40, start=-20, pod=f"{calling}-x2x4z")
    ranking = ranked(
        change,
        incident=an_incident(an_alert(after(20), name="KubeAPIRequestRateHigh")),
        load=load,
        states=[a_workload(agent, serviceAccountName="agent"), old, now],
    )
    (weight,) = (e.weight for s in ranking.suspects if s.change.id == change.id for e in s.evidence if e.rule == "load")
    assert weight > 2.5 if new else weight < 1


def test_pods_that_come_in_the_slots_before_a_rise_are_part_of_it() -> None:
    """Those of one scaling do not begin to call all at once."""
    counts = [one for pod in range(2) for one in calls(AGENT, "list", "pods", rate=2, pod=f"agent-7-{pod}")]
    for pod in range(2, 12):
        counts += calls(AGENT, "list", "pods", rate=0.4, start=-25, end=-20, pod=f"agent-7-{pod}")
        counts += calls(AGENT, "list", "pods", rate=2, start=-20, pod=f"agent-7-{pod}")
    (signal,) = risen([*background(), *counts])
    assert "12 pods, 2 before, each as often as before" in signal.sentence
    assert float(signal.facts["by_clients"]) == 1.0


def test_what_only_reacts_is_one_signal() -> None:
    counts = [
        c
        for user, verb, resource in (
            ("system:kube-scheduler", "create", "pods/binding"),
            ("system:serviceaccount:kube-system:replicaset-controller", "create", "pods"),
            ("system:node:a", "patch", "pods/status"),
        )
        for c in calls(user, verb, resource, rate=20, start=-30)
    ] + calls("steady", "get", "pods", rate=4)
    (signal,) = risen(counts)
    assert len(signal.users) == 3
    assert "own controllers" in signal.sentence


@pytest.mark.parametrize(
    ("first", "second", "since"), [(14.0, 48.0, -50), (3.0, 48.0, -20)], ids=["most in the first", "most in the second"]
)
def test_a_rise_in_two_steps_is_one_since_the_greater(first: float, second: float, since: float) -> None:
    steps = [
        *calls(AGENT, "list", "pods", rate=1.5, end=-50),
        *calls(AGENT, "list", "pods", rate=first, start=-50, end=-20),
    ]
    (signal,) = risen(
        [*calls("steady", "get", "pods", rate=4), *steps, *calls(AGENT, "list", "pods", rate=second, start=-20)]
    )
    assert abs((signal.low - after(since)).total_seconds()) <= 5
    assert signal.rate_after == pytest.approx(second, rel=0.1)


@pytest.mark.parametrize(("rate", "strength"), [(1.0, 0.3), (30.0, 1.0)])
def test_a_call_more_a_second_is_felt_by_no_api_server(rate: float, strength: float) -> None:
    steady = calls("steady", "get", "pods", rate=1)
    (signal,) = risen([*steady, *calls(AGENT, "list", "services", rate=rate, start=-30)])
    assert signal.strength == pytest.approx(strength, abs=0.05)


def test_what_only_reacts_and_is_refused_moves_nothing() -> None:
    user = "system:serviceaccount:kube-system:replicaset-controller"
    before = calls(user, "create", "pods", rate=0.2)
    assert risen([*before, *calls(user, "create", "pods", rate=8, start=0, code=500)]) == []
    assert risen([*before, *calls(user, "create", "pods", rate=8, start=0)]) != []


def writes(user: str, rate: float, start: float = -30) -> list[CallCount]:
    group = "networking.k8s.io"
    gets = calls(user, "get", "ingresses", rate=rate, start=start, group=group)
    return gets + calls(user, "patch", "ingresses/status", rate=rate, start=start, group=group)


A, B, C = (f"system:serviceaccount:edge:{name}" for name in ("inner", "outer", "third"))


def test_two_that_write_one_as_often_as_the_other_do_it_to_each_other() -> None:
    (signal,) = risen(calls("steady", "get", "pods", rate=4) + writes(A, 6) + writes(B, 7))
    assert signal.users == (A, B)
    assert signal.about["user", A] == signal.about["user", B] == 1.0
    assert signal.strength > 0.9
    assert signal.sentence == (
        "inner and outer began at once to write ingresses/status, one as often as the other:"
        " together they went from 0 to 13 PATCH ingresses/status/s"
    )


def of_their_own(user: str) -> list[CallCount]:
    elsewhere = calls(user, "patch", "services/status", rate=6, start=-30, namespace=user)
    return elsewhere + calls(user, "patch", "configmaps", rate=6, start=-30)


@pytest.mark.parametrize(
    "others",
    [writes(B, 20), writes(B, 6, start=0), writes(B, 6) + writes(C, 6), of_their_own(A) + of_their_own(B)],
    ids=["more", "later", "three", "of their own"],
)
def test_others_that_write_more_do_so_by_themselves(others: list[CallCount]) -> None:
    found = risen(calls("steady", "get", "pods", rate=4) + writes(A, 6) + others)
    assert all(len(signal.users) == 1 for signal in found)


def test_what_one_of_them_began_at_another_time_is_no_part_of_it() -> None:
    early = calls(A, "list", "secrets", rate=9, start=-90)
    found = risen(calls("steady", "get", "pods", rate=4) + early + writes(A, 6) + writes(B, 6))
    assert [signal.users for signal in sorted(found, key=lambda one: one.low)] == [(A,), (A, B)]


def test_heat_rows_begin_with_who_grew() -> None:
    counts = calls("loud", "get", "pods", rate=50) + calls(AGENT, "list", "services", rate=10, start=-20)
    together = Calls.of(counts)
    slots = axis(together, until=after(60).timestamp())
    assert slots is not None
    rows = caller_rows(loads(together, slots), slots, onset=after(-20).timestamp())
    assert [row.user for row in rows] == [AGENT, "loud"]
    assert rows[0].before_per_second == 0


MATCHED: Json = [{"apiGroups": ["example.com"], "resources": ["widgets"], "operations": ["UPDATE"]}]


@pytest.mark.parametrize(
    ("kind", "name", "state"),
    [
        ("MutatingWebhookConfiguration", "defaults", {"webhooks": [{"name": "d.example", "rules": MATCHED}]}),
        ("MutatingAdmissionPolicy", "defaults", {"spec": {"matchConstraints": {"resourceRules": MATCHED}}}),
        ("CustomResourceDefinition", "widgets.example.com", {"spec": {"names": {"kind": "Widget"}}}),
    ],
)
def test_who_writes_again_and_again_what_is_altered_is_not_the_cause(kind: str, name: str, state: Object) -> None:
    operator = a_workload(a_resource("Deployment", "operator", "platform"), serviceAccountName="operator")
    account = "system:serviceaccount:platform:operator"
    load = [
        *background(),
        *calls(account, "patch", "widgets", rate=1, end=-20, group="example.com"),
        *calls(account, "patch", "widgets", rate=40, start=-20, group="example.com"),
    ]
    altering = a_resource(kind, name, None)
    ranking = ranked(
        a_change(altering, at=after(-24)),
        incident=an_incident(an_alert(after(30), name="KubeAPIErrorBudgetBurn")),
        load=load,
        states=[a_state(altering, state), operator],
    )
    assert first(ranking) == (kind, name)
    assert ranking.suspects[0].probability > 0.5
