"""Incidents of many families, each a handful of facts among a busy company's changes: who is ranked first, and why."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.core.model import Actor, ActorSource, Json, Verb
from tests.core.company import background, first, ranked, rules
from tests.core.factories import (
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
    accounts: Json = {"kind": "Group", "group": {"name": "system:serviceaccounts"}}
    throttled = [
        c
        for user in ("system:serviceaccount:a:x", "system:serviceaccount:b:y")
        for c in calls(user, "list", "pods", rate=3, start=-15, code=429, error="too many requests")
    ]
    ranking = ranked(
        edit,
        incident=an_incident(an_alert(after(40), name="KubeAPITooManyRequests")),
        load=[*background(), *throttled],
        states=[a_state(schema, {"spec": {"matchingPrecedence": 100, "rules": [{"subjects": [accounts]}]}})],
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


def test_limits_that_refuse_pods_without_naming_themselves() -> None:
    limits = a_resource("LimitRange", "defaults", "search")
    web = a_resource("Deployment", "search-web", "search")
    message = 'pods "search-web-x" is forbidden: maximum cpu usage per Container is 10m, but limit is 500m'
    ranking = ranked(
        a_change(
            limits, at=after(-20), path=("spec", "limits"), old=[{"max": {"cpu": "2"}}], new=[{"max": {"cpu": "10m"}}]
        ),
        incident=an_incident(an_alert(after(40), name="KubeDeploymentReplicasMismatch", namespace="search")),
        symptoms=[a_symptom(web, "FailedCreate", at=after(-15), message=message, count=20)],
        states=[a_workload(web)],
    )
    assert first(ranking) == ("LimitRange", "defaults")


def test_a_taint_that_leaves_pods_pending() -> None:
    node = a_resource("Node", "node-7", None)
    webs = [a_resource("Deployment", f"web-{n}", team) for n, team in enumerate(("shop", "media", "search"))]
    message = "0/20 nodes are available: 20 node(s) had untolerated taint {dedicated: gpu}"
    ranking = ranked(
        a_change(
            node, at=after(-20), path=("spec", "taints"), old=None, new=[{"key": "dedicated", "effect": "NoSchedule"}]
        ),
        incident=an_incident(an_alert(after(40), name="KubePodsPending")),
        symptoms=[a_symptom(web, "FailedScheduling", at=after(-12), message=message, count=8) for web in webs],
        states=[a_workload(web) for web in webs],
    )
    assert first(ranking) == ("Node", "node-7")


def test_a_service_whose_selector_selects_nothing() -> None:
    service = a_resource("Service", "ledger", "billing")
    edit = a_change(service, at=after(-20), path=("spec", "selector", "app"), old="ledger", new="ledgr")
    ranking = ranked(
        edit,
        incident=an_incident(an_alert(after(30), name="TargetDown", namespace="billing", service="ledger")),
        states=[
            a_workload(a_resource("Deployment", "ledger", "billing")),
            a_state(service, {"spec": {"selector": {"app": "ledgr"}}}),
        ],
    )
    assert first(ranking) == ("Service", "ledger")


def test_a_person_who_scales_to_zero() -> None:
    web = a_resource("Deployment", "checkout-web", "checkout")
    ranking = ranked(
        a_change(
            web,
            at=after(-20),
            path=("spec", "replicas"),
            old=5,
            new=0,
            actor=Actor("dave@corp.example", ActorSource.AUDIT),
        ),
        incident=an_incident(an_alert(after(30), name="ProbeFailing", namespace="checkout", service="checkout-web")),
        states=[a_workload(web)],
    )
    assert first(ranking) == ("Deployment", "checkout-web")


def test_an_aggregated_api_that_answers_no_more() -> None:
    api = a_resource("APIService", "v1beta1.metrics.k8s.io", None)
    hpa = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
    fine = calls(hpa, "list", "pods", group="metrics.k8s.io", rate=2, end=-15)
    broken = calls(
        hpa, "list", "pods", group="metrics.k8s.io", rate=2, start=-15, code=503, error="service unavailable"
    )
    ranking = ranked(
        a_change(api, at=after(-18), path=("spec", "service", "name"), old="metrics-server", new="metrics"),
        incident=an_incident(an_alert(after(40), name="KubeAggregatedAPIErrors")),
        load=[*background(), *fine, *broken],
    )
    assert first(ranking) == ("APIService", "v1beta1.metrics.k8s.io")


def test_a_config_of_an_agent_that_begins_to_poll() -> None:
    agent = a_resource("DaemonSet", "node-agent", "monitoring")
    config = a_resource("ConfigMap", "node-agent-settings", "monitoring")
    user = "system:serviceaccount:monitoring:node-agent"
    ranking = ranked(
        a_change(config, at=after(-30), path=("data", "interval"), old="60s", new="1s"),
        incident=an_incident(an_alert(after(40), name="KubeAPIServerLatency")),
        load=[*background(), *calls(user, "list", "endpoints", rate=40, start=-25)],
        states=[
            a_workload(
                agent,
                serviceAccountName="node-agent",
                volumes=[{"name": "c", "configMap": {"name": "node-agent-settings"}}],
            )
        ],
    )
    assert first(ranking) == ("ConfigMap", "node-agent-settings")


@pytest.mark.parametrize("reason", ["OOMKilled", "ImagePullBackOff", "CreateContainerConfigError"])
def test_a_rollout_whose_pods_do_not_run(reason: str) -> None:
    web = a_resource("Deployment", "media-web", "media")
    ranking = ranked(
        a_change(web, at=after(-25), old="m:1", new="m:2"),
        incident=an_incident(an_alert(after(40), name="KubePodNotReady", namespace="media")),
        symptoms=[a_symptom(web, reason, at=after(-15), count=8)],
        states=[a_workload(web)],
    )
    assert first(ranking) == ("Deployment", "media-web")


def test_a_config_map_that_was_deleted() -> None:
    web = a_resource("Deployment", "player", "media")
    config = a_resource("ConfigMap", "player-settings", "media")
    gone = replace(
        a_change(config, at=after(-25), path=(), old={"data": {"a": "1"}}, new=None, verb=Verb.DELETE),
        sources=frozenset({"audit"}),
    )
    ranking = ranked(
        gone,
        incident=an_incident(an_alert(after(40), name="KubePodNotReady", namespace="media")),
        symptoms=[a_symptom(web, "FailedMount", at=after(-15), message='configmap "player-settings" not found')],
        states=[a_workload(web)],
    )
    assert first(ranking) == ("ConfigMap", "player-settings")
