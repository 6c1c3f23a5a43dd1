"""Incidents of many families, each a handful of facts among a busy company's changes: who is ranked first, and why."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from app.core.model import Actor, ActorSource, CallCount, Change, Incident, ObjectState, Ranking, Symptom
from app.core.suspects import Gathered, rank
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

TEAMS = ("checkout", "search", "billing", "media")


def noise() -> list[Change]:
    """Two minutes of a company at work: an image or a setting somewhere every four seconds."""
    changes = []
    for i, second in enumerate(range(-118, 58, 4)):
        team = TEAMS[i % 4]
        if i % 3:
            changes.append(
                a_change(
                    a_resource("Deployment", f"{team}-{i % 5}", team), at=after(second), old=f"a:{i}", new=f"a:{i + 1}"
                )
            )
        else:
            changes.append(
                a_change(
                    a_resource("ConfigMap", f"{team}-{i % 5}-config", team),
                    at=after(second),
                    path=("data", "pool_size"),
                    old=str(i),
                    new=str(i + 1),
                )
            )
    return changes


def background() -> list[CallCount]:
    return calls("system:node:a", "get", "pods", rate=4) + calls("kubectl-user", "list", "pods", rate=2)


def ranked(
    *culprit: Change,
    incident: Incident,
    symptoms: list[Symptom] | None = None,
    load: list[CallCount] | None = None,
    states: list[ObjectState] | None = None,
) -> Ranking:
    return rank(
        Gathered(
            incident=incident,
            start=after(-120),
            now=after(60),
            changes=(*noise(), *culprit),
            symptoms=tuple(symptoms or []),
            calls=tuple(load if load is not None else background()),
            states=tuple(states or []),
        )
    )


def first(ranking: Ranking) -> tuple[str, str]:
    top = ranking.suspects[0]
    return top.change.resource.kind, top.change.resource.name


def rules(ranking: Ranking) -> set[str]:
    return {evidence.rule for evidence in ranking.suspects[0].evidence if evidence.weight > 0}


def test_a_quota_that_refuses_pods() -> None:
    quota = a_resource("ResourceQuota", "team-quota", "search")
    cut = a_change(quota, at=after(-30), path=("spec", "hard", "pods"), old="50", new="5")
    web = a_resource("Deployment", "search-web", "search")
    message = 'pods "search-web-5d8f7b9c4-" is forbidden: exceeded quota: team-quota, requested: pods=1, used: pods=5'
    ranking = ranked(
        cut,
        incident=an_incident(an_alert(after(40), name="KubeDeploymentReplicasMismatch", namespace="search")),
        symptoms=[a_symptom(web, "FailedCreate", at=after(-25), message=message)],
        states=[a_workload(web)],
    )
    assert first(ranking) == ("ResourceQuota", "team-quota")
    assert "symptoms" in rules(ranking)


def test_a_network_policy_that_cuts_a_service_off() -> None:
    api = a_resource("Deployment", "ledger", "billing")
    policy = a_resource("NetworkPolicy", "default-deny", "billing")
    cut = a_change(policy, at=after(-20), path=("spec", "ingress"), old=[{"from": []}], new=None)
    ranking = ranked(
        cut,
        incident=an_incident(an_alert(after(30), name="ProbeFailing", namespace="billing")),
        symptoms=[a_symptom(api, "Unhealthy", at=after(-12), message="Readiness probe failed: timeout", count=30)],
        states=[a_workload(api), a_state(policy, {"spec": {"podSelector": {"matchLabels": {"app": "ledger"}}}})],
    )
    assert first(ranking) == ("NetworkPolicy", "default-deny")


def test_a_role_binding_that_was_taken_away() -> None:
    user = "system:serviceaccount:ops:backup"
    binding = a_resource("ClusterRoleBinding", "backup-reader", None)
    removed = a_change(
        binding,
        at=after(-20),
        path=("subjects", (("kind", "ServiceAccount"), ("name", "backup"), ("namespace", "ops"))),
        old={"kind": "ServiceAccount", "name": "backup", "namespace": "ops"},
        new=None,
    )
    denied = calls(user, "list", "persistentvolumes", rate=1, start=-18, code=403, error="forbidden: User cannot list")
    ranking = ranked(
        removed,
        incident=an_incident(an_alert(after(40), name="BackupFailed", namespace="ops")),
        load=[*background(), *denied],
        states=[a_workload(a_resource("Deployment", "backup", "ops"), serviceAccountName="backup")],
    )
    assert first(ranking) == ("ClusterRoleBinding", "backup-reader")
    assert "errors" in rules(ranking)


def test_a_config_map_that_breaks_who_reads_it() -> None:
    web = a_resource("Deployment", "player", "media")
    config = a_resource("ConfigMap", "player-settings", "media")
    edit = a_change(config, at=after(-25), path=("data", "upstream"), old="http://a", new="http//a")
    ranking = ranked(
        edit,
        incident=an_incident(
            an_alert(after(40), name="KubePodCrashLooping", namespace="media", pod="player-7c9d8b7f6-abcde")
        ),
        symptoms=[a_symptom(web, "CrashLoopBackOff", at=after(-15), count=12)],
        states=[a_workload(web, volumes=[{"name": "c", "configMap": {"name": "player-settings"}}])],
    )
    assert first(ranking) == ("ConfigMap", "player-settings")


def test_a_secret_that_is_gone_and_named_in_the_error() -> None:
    web = a_resource("StatefulSet", "store", "checkout")
    secret = a_resource("Secret", "store-tls", "checkout")
    gone = replace(a_change(secret, at=after(-20)), diffs=())
    ranking = ranked(
        gone,
        incident=an_incident(an_alert(after(40), name="KubePodNotReady", namespace="checkout")),
        symptoms=[a_symptom(web, "FailedMount", at=after(-10), message='secret "store-tls" not found', count=9)],
        states=[a_workload(web)],
    )
    assert first(ranking) == ("Secret", "store-tls")


def test_a_daemon_set_that_polls() -> None:
    agent = a_resource("DaemonSet", "node-agent", "monitoring")
    env = ("spec", "template", "spec", "containers", (("name", "agent"),), "env", (("name", "POLL"),), "value")
    push = a_change(agent, at=after(-30), path=env, old="off", new="on")
    user = "system:serviceaccount:monitoring:node-agent"
    ranking = ranked(
        push,
        incident=an_incident(an_alert(after(40), name="KubeAPIServerCPUHigh", job="apiserver")),
        load=[*background(), *calls(user, "list", "services", rate=40, start=-25)],
        states=[a_workload(agent, serviceAccountName="node-agent")],
    )
    assert first(ranking) == ("DaemonSet", "node-agent")
    assert "load" in rules(ranking)
    assert "LIST services" in " ".join(e.sentence for e in ranking.suspects[0].evidence)


def test_a_crd_whose_objects_are_refused() -> None:
    crd = a_resource("CustomResourceDefinition", "widgets.shop.example", None)
    edit = a_change(crd, at=after(-20), path=("spec", "versions"), old=[{"name": "v1"}], new=[{"name": "v2"}])
    refused = calls(
        "system:serviceaccount:shop:widget-operator", "update", "widgets", group="shop.example",
        rate=2, start=-15, code=422, error="Widget is invalid: spec.size: Required value",
    )  # fmt: skip
    ranking = ranked(
        edit,
        incident=an_incident(an_alert(after(40), name="WidgetsNotReconciled", namespace="shop")),
        load=[*background(), *refused],
    )
    assert first(ranking) == ("CustomResourceDefinition", "widgets.shop.example")


def test_a_flow_schema_that_throttles() -> None:
    schema = a_resource("FlowSchema", "everyone", None)
    edit = a_change(schema, at=after(-20), path=("spec", "matchingPrecedence"), old=9000, new=100)
    throttled = [
        c
        for user in ("system:serviceaccount:a:x", "system:serviceaccount:b:y")
        for c in calls(user, "list", "pods", rate=3, start=-15, code=429, error="too many requests")
    ]
    ranking = ranked(
        edit,
        incident=an_incident(an_alert(after(40), name="KubeAPITooManyRequests")),
        load=[*background(), *throttled],
    )
    assert first(ranking) == ("FlowSchema", "everyone")


def test_a_field_that_two_controllers_fight_over() -> None:
    operator = a_resource("Deployment", "label-operator", "platform")
    rollout = a_change(operator, at=after(-30), old="op:1", new="op:2")
    service = a_resource("Service", "gateway", "edge")
    one = Actor("system:serviceaccount:platform:label-operator", ActorSource.AUDIT)
    two = Actor("system:serviceaccount:edge:gateway-operator", ActorSource.AUDIT)
    fight = [
        a_change(
            service,
            at=after(-25 + i),
            path=("metadata", "labels", "tier"),
            old=("gold", "silver")[i % 2],
            new=("silver", "gold")[i % 2],
            actor=(one, two)[i % 2],
        )
        for i in range(60)
    ]
    ranking = ranked(
        rollout,
        *fight,
        incident=an_incident(an_alert(after(40), name="ServiceLatencyHigh", namespace="edge")),
        states=[
            a_workload(operator, serviceAccountName="label-operator"),
            a_workload(a_resource("Deployment", "gateway-operator", "edge"), serviceAccountName="gateway-operator"),
        ],
    )
    assert first(ranking) == ("Deployment", "label-operator")
    assert "write fight" in rules(ranking)
    assert len(ranking.fights) == 1


def test_a_namespace_label_that_forbids_pods() -> None:
    namespace = a_resource("Namespace", "media", None)
    label = a_change(
        namespace,
        at=after(-20),
        path=("metadata", "labels", "pod-security.kubernetes.io/enforce"),
        old=None,
        new="restricted",
    )
    web = a_resource("Deployment", "media-web", "media")
    ranking = ranked(
        label,
        incident=an_incident(an_alert(after(40), name="KubeDeploymentReplicasMismatch", namespace="media")),
        symptoms=[
            a_symptom(web, "FailedCreate", at=after(-10), message='violates PodSecurity "restricted:latest"', count=20)
        ],
        states=[a_workload(web)],
    )
    assert ("Namespace", "media") in [(s.change.resource.kind, s.change.resource.name) for s in ranking.suspects[:3]]


def test_without_a_cause_none_of_these_wins() -> None:
    ranking = ranked(incident=an_incident(an_alert(after(40), name="TrafficSurge", namespace="elsewhere")))
    assert ranking.none_of_these > ranking.suspects[0].probability
    assert ranking.none_of_these > 0.5


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
    assert first(ranking) != ("DaemonSet", "node-agent")


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


def test_nothing_recorded_is_said() -> None:
    ranking = rank(Gathered(incident=an_incident(), start=after(-120), now=after(60)))
    assert ranking.suspects == ()
    assert ranking.none_of_these == 1.0
    assert len(ranking.not_measured) == 3
