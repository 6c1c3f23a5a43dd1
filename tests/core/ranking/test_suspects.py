"""What a ranking promises whatever the incident: odds that add up, onsets from the data, "none of these"."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from app.core.model import Object, Symptom, Verb
from app.core.ranking.suspects import Gathered, rank
from tests.core.company import background, first, ranked
from tests.core.factories import (
    NOON,
    a_change,
    a_resource,
    a_state,
    a_symptom,
    a_workload,
    after,
    an_alert,
    an_incident,
    calls,
)


def test_without_a_cause_none_of_these_wins() -> None:
    ranking = ranked(incident=an_incident(an_alert(after(40), name="TrafficSurge", namespace="elsewhere")))
    assert ranking.none_of_these > 2 * ranking.suspects[0].probability


def test_traffic_from_people_is_nobodys_change() -> None:
    surge = calls("customer@example", "get", "widgets", rate=80, start=-20)
    ranking = ranked(
        incident=an_incident(an_alert(after(40), name="KubeAPIErrorBudgetBurn")), load=[*background(), *surge]
    )
    assert ranking.none_of_these > ranking.suspects[0].probability


def test_a_change_after_the_onset_is_not_believed() -> None:
    agent = a_resource("DaemonSet", "node-agent", "monitoring")
    user = "system:serviceaccount:monitoring:node-agent"
    late = a_change(agent, at=after(20))
    ranking = ranked(
        late,
        incident=an_incident(an_alert(after(40), name="KubeAPIServerCPUHigh")),
        load=[*background(), *calls(user, "list", "services", rate=40, start=-40)],
        states=[a_workload(agent, serviceAccountName="node-agent")],
    )
    assert ranking.none_of_these > 0.8


def test_what_came_after_the_first_complaint_did_not_begin_it_however_soon() -> None:
    """A policy written 0.8 s after the API server was told of it, where the Event holds but the whole second."""
    web = a_resource("Deployment", "orders", "orders")
    policy = a_resource("NetworkPolicy", "orders-egress", "orders")
    denies: Object = {"spec": {"podSelector": {"matchLabels": {"app": "orders"}}, "policyTypes": ["Egress"]}}
    states = [a_workload(web, labels={"app": "orders"}), a_state(policy, denies)]
    written = a_change(policy, at=after(0.8), verb=Verb.CREATE)

    def score(told: Symptom) -> float:
        ranking = ranked(
            a_change(web, at=after(-20)),
            written,
            incident=an_incident(an_alert(after(40), namespace="orders", deployment="orders")),
            symptoms=[told],
            states=states,
        )
        return next(s.score for s in ranking.suspects if s.change.id == written.id)

    in_that_second = a_symptom(web, "Unhealthy", at=NOON)
    assert score(replace(in_that_second, told_at=after(0.1))) < score(in_that_second) - 1


def test_a_wrong_alert_time_is_survived() -> None:
    agent = a_resource("DaemonSet", "node-agent", "monitoring")
    user = "system:serviceaccount:monitoring:node-agent"
    for wrong in (timedelta(minutes=-1), timedelta(minutes=15)):
        ranking = ranked(
            a_change(agent, at=after(-30)),
            incident=an_incident(an_alert(NOON + wrong, name="KubeAPIServerCPUHigh")),
            load=[*background(), *calls(user, "list", "services", rate=40, start=-25)],
            states=[a_workload(agent, serviceAccountName="node-agent")],
        )
        assert first(ranking) == ("DaemonSet", "node-agent")
        assert abs((ranking.onset.at - after(-25)).total_seconds()) <= 10


def test_probabilities_and_none_of_these_make_one() -> None:
    ranking = ranked(incident=an_incident())
    shown = sum(s.probability for s in ranking.suspects) + ranking.none_of_these
    assert 0 < shown <= 1.0000001
    assert [s.rank for s in ranking.suspects] == list(range(1, len(ranking.suspects) + 1))


def test_what_writes_the_same_field_all_the_time_is_no_crowd_of_rivals() -> None:
    heartbeat = a_resource("ConfigMap", "canary", "monitoring")

    def none_of_these(times: int) -> float:
        beats = [
            a_change(heartbeat, at=after(40 - 150 * n / times), path=("data", "at"), old=str(n), new=str(n + 1))
            for n in range(times)
        ]
        incident = an_incident(an_alert(after(40), name="Slow", namespace="monitoring"))
        return ranked(*beats, incident=incident).none_of_these

    assert none_of_these(300) > 0.9 * none_of_these(1)


def test_what_happens_elsewhere_says_nothing_of_whether_it_was_none_of_these() -> None:
    """As many as came between are weighed of each already: a busy cluster is not a likelier surge from outside."""
    web = a_resource("Deployment", "web", "shop")

    def none_of_these(elsewhere: int) -> float:
        busy = (
            a_change(a_resource("ConfigMap", f"a-{n}", f"team-{n}"), at=after(n - 600), path=("data", f"b-{n}"), new=n)
            for n in range(elsewhere)
        )
        return ranked(
            *busy,
            a_change(web, at=after(-10), old="web:1", new="web:2"),
            incident=an_incident(an_alert(after(40), name="Unready", namespace="shop", deployment="web")),
            symptoms=[a_symptom(web, "Unhealthy", at=after(0), count=9)],
            states=[a_workload(web)],
        ).none_of_these

    quiet, busy = none_of_these(0), none_of_these(200)
    assert busy < 1.2 * quiet


def test_what_one_hand_wrote_in_one_go_is_one_suspect_and_its_likeliest_part_stands_for_it() -> None:
    web = a_resource("Deployment", "web", "orders")
    incident = an_incident(an_alert(after(40), namespace="orders", deployment="web"))
    release = [
        a_change(a_resource("ConfigMap", "mailer", "orders"), at=after(-10), path=("data", "from"), old="a", new="b"),
        a_change(web, at=after(-9.7)),
        a_change(a_resource("Service", "mailer", "orders"), at=after(-9.4), path=("spec", "type"), old="a", new="b"),
    ]
    crash = a_symptom(web, "CrashLoopBackOff", at=after(-4), count=9)
    alone = ranked(release[1], incident=incident, symptoms=[crash])
    ranking = ranked(*release, incident=incident, symptoms=[crash])
    top, *others = ranking.suspects
    assert top.change.id == release[1].id
    assert {one.change_id for one in top.beside} == {release[0].id, release[2].id}
    assert not {one.change.id for one in others} & set(top.ids)
    assert ranking.places[release[0].id] == 1
    assert replace(ranking, none_of_these=0.0).leaders == top.ids
    assert ranking.none_of_these == pytest.approx(alone.none_of_these, abs=0.05), "a release is one rival"


def test_nothing_recorded_is_said() -> None:
    ranking = rank(Gathered(incident=an_incident(), start=after(-120), now=after(60)))
    assert ranking.suspects == ()
    assert ranking.none_of_these == 1.0
    assert len(ranking.not_measured) == 3


def test_the_work_that_every_rollout_makes_is_not_yet_a_workloads_onset() -> None:
    busy = "system:serviceaccount:kube-system:replicaset-controller"
    load = [*background(), *calls(busy, "update", "replicasets/status", rate=30, start=-40)]
    home = a_resource("Deployment", "portal", "web")
    ill = [a_symptom(home, "Unhealthy", at=after(-20), count=30)]
    for labels, start in (({"namespace": "web", "deployment": "portal"}, -20.0), ({}, -40.0)):
        incident = an_incident(an_alert(after(40), name="Slow", **labels))
        ranking = ranked(incident=incident, load=load, symptoms=ill, states=[a_workload(home)])
        assert abs((ranking.onset.at - after(start)).total_seconds()) <= 5


def test_what_turned_bad_elsewhere_does_not_clear_what_came_after_it() -> None:
    portal = a_resource("Deployment", "portal", "web")
    busy = [*background(), *calls("system:serviceaccount:shop:cart", "list", "services", rate=40, start=-20)]
    for named, until in (("web", 40.0), ("shop", -20.0)):
        incident = an_incident(an_alert(after(40), name="Slow", namespace=named))
        ranking = ranked(a_change(portal, at=after(30)), incident=incident, load=busy)
        assert abs((ranking.onset.low - after(-20)).total_seconds()) <= 5
        assert abs((ranking.onset.high - after(until)).total_seconds()) <= 5
        in_time = [s for s in ranking.suspects if all(e.rule != "after onset" for e in s.evidence)]
        assert any(s.change.resource == portal for s in in_time) is (named == "web")


@pytest.mark.parametrize(
    ("about", "resumed", "missed"),
    [({"cronjob": "import"}, False, True), ({"cronjob": "import"}, True, False), ({"deployment": "web"}, False, False)],
)
def test_what_was_suspended_is_missed_by_whom_the_alert_names(
    about: dict[str, str], resumed: bool, missed: bool
) -> None:
    """Nothing turns bad where nothing runs."""
    job = a_resource("CronJob", "import", "usage")
    suspended = a_change(job, at=after(-60), path=("spec", "suspend"), old=False, new=True)
    state = a_state(job, {"spec": {"suspend": not resumed}})
    ranking = ranked(suspended, incident=an_incident(an_alert(after(40), namespace="usage", **about)), states=[state])
    told = [s.evidence for s in ranking.suspects if s.change.id == suspended.id]
    assert any(e.rule == "stops" for evidence in told for e in evidence) is missed
    assert first(ranking) == ("CronJob", "import") or not missed
