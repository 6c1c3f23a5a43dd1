"""What complaints say of their own cause, what is new, what began anew: what that leaves of a suspicion."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from app.core.edges.access import lost_access
from app.core.edges.causes import AWAY, NODES_MADE, NODES_TAKEN, VOLUMES, cause_of
from app.core.edges.indexing import topology
from app.core.edges.mechanism import UNLIKELY, plausible
from app.core.edges.reach import reach
from app.core.model import Change, FieldDiff, Json, Object, Outcome, Rollout, Symptom, Verb
from app.core.signals.complaints import symptom_signals
from app.core.signals.newborn import is_newborn, newborn
from tests.core.company import first, ranked
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

PULL = 'Failed to pull image "registry.corp.example/shop/web:2": '
EXPIRED = (
    'failed calling webhook "policy.corp.example": failed to call webhook: Post "https://policy.platform.svc:443/": '
    "tls: failed to verify certificate: x509: certificate has expired or is not yet valid"
)
UNSERVED = 'failed to wait for caches to sync: no matches for kind "Topic" in version "messaging.corp.example/v2"'
UNPARSED = (
    "Configuration error. error=Invalid value (at line 12, column 13)",
    '[emerg] 1#1: unknown directive "server_nam" in /etc/nginx/nginx.conf:31',
    "Error loading config (--config.file=/etc/prometheus/prometheus.yml): yaml: line 40: did not find expected key",
    "Corefile:12 - Error during parsing: Unknown plugin",
)
WEB = a_resource("Deployment", "web-front")
HOOK = a_resource("ValidatingWebhookConfiguration", "guard", None)
SHIM = (
    "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to create containerd task: failed to start "
    "shim: start failed: : fork/exec /usr/bin/containerd-shim-runc-v2: too many open files: unknown"
)
LOOKUP = (
    "Readiness probe failed: HTTP probe failed with statuscode: 503 (lookup {}.shop.svc on 10.96.0.10:53: no such host)"
)


def image(old: str = "registry.corp.example/web:1", new: str = "registry.corp.example/web:2") -> Change:
    place = ("spec", "template", "spec", "containers", (("name", "web"),), "image")
    return a_change(WEB, at=after(-10), path=place, old=old, new=new)


def request(cpu: str) -> Change:
    place = ("spec", "template", "spec", "containers", (("name", "web"),), "resources", "requests", "cpu")
    return a_change(WEB, at=after(-10), path=place, old="100m", new=cpu)


def kind(name: str, *path: str, verb: Verb = Verb.UPDATE, new: Json = "x") -> Change:
    return replace(a_change(a_resource(name, "thing"), at=after(-10), path=path or ("spec", "x"), new=new), verb=verb)


@pytest.mark.parametrize(
    ("text", "change", "leads"),
    [
        (EXPIRED, image(), False),
        (EXPIRED, kind("ValidatingWebhookConfiguration", "webhooks", "rules"), False),
        (EXPIRED, kind("ValidatingWebhookConfiguration", "webhooks", "clientConfig", "caBundle"), True),
        (EXPIRED, kind("Secret"), True),
        *((text, image(), True) for text in UNPARSED),
        (UNPARSED[0], kind("ConfigMap", "data", "agent.toml", new="[sink]"), True),
        (UNPARSED[0], request("150m"), False),
        (UNSERVED, image(), True),
        (UNSERVED, kind("Topic"), False),
        (UNSERVED, kind("CustomResourceDefinition"), True),
        (PULL + "dial tcp 10.0.9.4:443: connect: connection refused", image(), False),
        (PULL + "toomanyrequests: You have reached your pull rate limit", image(), False),
        (PULL + "dial tcp 10.0.9.4:443: i/o timeout", image(new="mirror.corp.example/web:2"), True),
        (PULL + "manifest unknown", image(), True),
        (PULL + "manifest unknown", kind("PodDisruptionBudget"), False),
        (PULL + "unexpected status: 401 Unauthorized", kind("Secret"), True),
        (PULL + "unexpected status: 401 Unauthorized", image(), False),
        (PULL + "unexpected status: 401 Unauthorized", image(new="registry.corp.example/shop/web:1"), True),
        (PULL + "unexpected status: 401 Unauthorized", image(new="registry.corp.example/web@sha256:0af"), False),
        (PULL + "unexpected status: 401 Unauthorized", a_change(a_resource("ConfigMap", "registry")), True),
        (PULL + "unexpected status: 401 Unauthorized", kind("RoleBinding"), False),
        ("0/6 nodes are available: pod has unbound immediate PersistentVolumeClaims", kind("StorageClass"), True),
        ("2 node(s) didn't match PersistentVolume's node affinity", kind("StorageClass"), True),
        ("2 node(s) didn't match PersistentVolume's node affinity", kind("ConfigMap"), False),
        ("2 node(s) had volume node affinity conflict", kind("Node"), True),
        ("0/6 nodes are available: pod has unbound immediate PersistentVolumeClaims", kind("Service"), False),
        ('Error: configmap "web-front" not found', kind("ConfigMap"), True),
        ('Error: configmap "web-front" not found', image(), False),
        (LOOKUP.format("cart"), kind("Service"), True),
        (LOOKUP.format("cart"), a_change(a_resource("ConfigMap", "coredns", "kube-system"), at=after(-9)), True),
        (LOOKUP.format("cart"), image(), False),
        ("Error: Cannot find module 'sharp'", image(), True),
        ("Error: Cannot find module 'sharp'", kind("ConfigMap", "data", "NODE_PATH"), True),
        ("Error: Cannot find module 'sharp'", kind("ConfigMap", "data", "TRACING_URL"), False),
        ("BlackHoleCluster - 52.18.4.11:443", a_change(a_resource("ConfigMap", "istio", "istio-system")), True),
        ("BlackHoleCluster - 52.18.4.11:443", image(), False),
        ("nf_conntrack: table full, dropping packet", kind("DaemonSet"), True),
        ("nf_conntrack: table full, dropping packet", kind("Secret"), False),
        ('"GET /me HTTP/1.1" 401 -', image(), True),
        ("POST http://ledger.shop.svc/: 401 Unauthorized", image(), False),
        (SHIM, kind("DaemonSet"), True),
        ('plugin type="aws-cni" failed (add): failed to setup network for sandbox "2585"', kind("EC2NodeClass"), True),
        (SHIM, image(), False),
        ("delivery acknowledgement on channel 1 timed out", image(), True),
        ("delivery acknowledgement on channel 1 timed out", kind("RabbitmqCluster"), False),
    ],
)
def test_what_a_message_says_rules_changes_out(text: str, change: Change, leads: bool) -> None:
    cause = cause_of([text])
    assert cause is not None
    assert cause.leads(change) is leads


@pytest.mark.parametrize("texts", [["exit code 1"], [""], [EXPIRED, "exit code 1"], []])
def test_messages_that_say_nothing_or_differ_have_no_cause(texts: list[str]) -> None:
    assert cause_of(texts) is None


def test_that_a_claim_is_unbound_at_first_says_less_than_what_is_said_then() -> None:
    unbound, away = "pod has unbound immediate PersistentVolumeClaims", "2 node(s) had volume node affinity conflict"
    assert cause_of([unbound]) is VOLUMES
    assert cause_of([unbound, away]) is AWAY


def test_names_that_nobody_gets_resolved_lead_to_the_name_server_and_not_to_who_is_named() -> None:
    corefile = a_change(
        a_resource("ConfigMap", "coredns", "kube-system"), at=after(-12), path=("data", "Corefile"), old="a", new="b"
    )
    named = a_change(
        a_resource("Deployment", "checkout"),
        at=after(-11),
        path=("spec", "template", "spec", "containers", (("name", "c"),), "image"),
        new="checkout:2",
    )
    clients = {"cart": "checkout", "query": "indexer", "front": "cart"}
    states = [a_workload(a_resource("Deployment", name)) for name in (*clients, "checkout")]
    states.append(a_workload(a_resource("Deployment", "coredns", "kube-system")))
    ranking = ranked(
        corefile,
        named,
        incident=an_incident(an_alert(after(30), name="KubeDeploymentReplicasMismatch", deployment="cart")),
        symptoms=[
            a_symptom(a_resource("Deployment", name), "Unhealthy", at=after(-9), message=LOOKUP.format(called))
            for name, called in clients.items()
        ],
        states=states,
    )
    assert first(ranking) == ("ConfigMap", "coredns")


def a_rollout(at: float, *, took: float = 3) -> Rollout:
    return Rollout(WEB, "uid", 2, after(at), Outcome.COMPLETE, change_id=image().id, ended_at=after(at + took))


def complaints(*told: Symptom, **more: Any) -> list[tuple[float, bool]]:
    found = symptom_signals(told, start=after(-7200), end=after(60), **more)
    return [(signal.strength, signal.low <= after(-60)) for signal in found]


def test_a_complaint_that_rested_begins_anew() -> None:
    old = a_symptom(WEB, "Unhealthy", at=after(-7195), count=4, message="503")
    new = a_symptom(WEB, "Unhealthy", at=after(0), count=6, message="503")
    assert complaints(old)[0][1] is True
    ((strength, early),) = complaints(old, new)
    assert (strength, early) == (complaints(new)[0][0], False)


def test_a_complaint_that_goes_on_began_when_it_began() -> None:
    steady = [a_symptom(WEB, "Unhealthy", at=after(at), count=6, message="503") for at in range(-3600, 60, 60)]
    ((_, early),) = complaints(*steady)
    assert early


def test_what_was_made_is_new_until_it_was_well() -> None:
    made = replace(image(), verb=Verb.CREATE, at=after(-100))
    home = ("workload", "shop", "web-front")
    assert is_newborn(home, after(0), newborn([made], []))
    assert not is_newborn(home, after(0), newborn([made], [a_rollout(-100)]))
    assert is_newborn(home, after(-99), newborn([made], [a_rollout(-100)]))
    assert newborn([image()], [a_rollout(-100)]) == {}


def test_new_autoscalers_that_nobody_measures_for_are_not_what_went_wrong() -> None:
    scalers = [a_resource("HorizontalPodAutoscaler", f"{team}-hpa", team) for team in ("shop", "media", "search")]
    made = [replace(a_change(one, at=after(-60)), verb=Verb.CREATE) for one in scalers]
    told = [a_symptom(one, "FailedGetResourceMetric", at=after(-59), count=20, message="no metrics") for one in scalers]
    crash = a_symptom(WEB, "CrashLoopBackOff", at=after(-8))
    ranking = ranked(
        *made,
        image(),
        incident=an_incident(an_alert(after(30), name="KubeDeploymentReplicasMismatch", deployment="web-front")),
        symptoms=[*told, crash],
        states=[a_workload(WEB)],
    )
    assert ranking.onset.at > after(-12)
    assert first(ranking) == ("Deployment", "web-front")


def test_what_its_pods_got_over_once_is_not_the_rollouts_doing() -> None:
    def probability(took: float) -> float:
        ranking = ranked(
            image(),
            incident=an_incident(an_alert(after(30), name="KubePodPending", deployment="web-front")),
            symptoms=[a_symptom(WEB, "FailedAttachVolume", at=after(0), message="timed out waiting")],
            states=[a_workload(WEB)],
            rollouts=[replace(a_rollout(-10, took=took), outcome=Outcome.COMPLETE)],
        )
        return next(s.probability for s in ranking.suspects if s.change.resource == WEB)

    assert probability(3) < probability(30) / 3


@pytest.mark.parametrize("order", [1, -1])
def test_pods_wait_for_the_node_that_the_autoscaler_does_not_make(order: int) -> None:
    told = [
        a_symptom(WEB, "FailedScheduling", at=after(0), message="0/6 nodes are available: 6 Insufficient cpu."),
        a_symptom(WEB, "NotTriggerScaleUp", at=after(2), message="1 max node group size reached"),
        a_symptom(WEB, "Pending", at=after(1)),
    ]
    found = symptom_signals(told[::order], start=after(-7200), end=after(60))
    assert {signal.cause for signal in found} == {NODES_MADE}


def test_what_asks_for_no_more_than_before_takes_no_room() -> None:
    assert plausible(image(), "FailedScheduling", refused="") == UNLIKELY
    assert plausible(request("2"), "FailedScheduling", refused="") == 1
    assert plausible(image(), "CrashLoopBackOff", refused="") == 1


CLAIMS: Json = [{"metadata": {"name": "data"}, "spec": {"resources": {}}}]


def stateful(claims: Json) -> Object:
    return {"spec": {"volumeClaimTemplates": claims, "template": {"metadata": {"labels": {}}, "spec": {}}}}


def test_the_default_storage_class_is_read_by_whoever_names_none() -> None:
    standard = a_resource("StorageClass", "standard", None)
    key = ("metadata", "annotations", "storageclass.kubernetes.io/is-default-class")
    lost = a_change(standard, at=after(-9), path=key, old="true", new="false")
    vectors, index = a_resource("StatefulSet", "vectors"), a_resource("StatefulSet", "index")
    named: Json = [{"spec": {"storageClassName": "fast"}}]
    top = topology([a_state(vectors, stateful(CLAIMS)), a_state(index, stateful(named))])
    assert reach(lost, top)[("workload", "shop", "vectors")] == 1
    assert ("workload", "shop", "index") not in reach(lost, top)
    fast = a_change(a_resource("StorageClass", "fast", None), at=after(-9), path=("parameters", "type"), new="io2")
    assert reach(fast, top)[("workload", "shop", "index")] == 1
    assert ("workload", "shop", "vectors") not in reach(fast, top)


@pytest.mark.parametrize(("types", "felt"), [(None, True), (["Ingress"], True), (["Egress"], False)])
def test_who_calls_the_pods_that_a_network_policy_closes_feels_it(types: Json, felt: bool) -> None:
    ledger, client = a_resource("Deployment", "ledger"), a_resource("Deployment", "checkout")
    env: Json = [{"name": "LEDGER_URL", "value": "http://ledger.shop.svc:80"}]
    spec: Object = {"podSelector": {"matchLabels": {"app": "ledger"}}, "ingress": []}
    policy = a_resource("NetworkPolicy", "ledger-only")
    made = replace(
        a_change(policy, at=after(-9), verb=Verb.CREATE),
        diffs=(FieldDiff((), "add", None, {"spec": spec | ({"policyTypes": types} if types else {})}),),
    )
    service = a_resource("Service", "ledger")
    top = topology(
        [
            a_workload(ledger),
            a_workload(client, containers=[{"name": "c", "env": env}]),
            a_state(service, {"spec": {"selector": {"app": "ledger"}}}),
        ]
    )
    near = reach(made, top).get(("calls", "shop", "checkout"), 9)
    assert (near < 1) is felt


def test_a_secret_that_nobody_says_to_read_is_read_by_nobody_when_it_is_made() -> None:
    secret = a_resource("Secret", "web-front-tls")
    top = topology([a_workload(WEB)])
    home = ("workload", "shop", "web-front")
    assert home in reach(a_change(secret, at=after(-9), verb=Verb.UPDATE), top)
    assert home not in reach(a_change(secret, at=after(-9), verb=Verb.CREATE), top)


def test_what_was_made_and_was_well_is_not_what_ails_it() -> None:
    made = replace(image(), verb=Verb.CREATE, at=after(-60), diffs=(FieldDiff((), "add", None, {"spec": {}}),))

    def probability(complains_at: float) -> float:
        ranking = ranked(
            made,
            incident=an_incident(an_alert(after(60), name="KubePodNotReady", namespace="shop", deployment="web-front")),
            symptoms=[a_symptom(WEB, "Unhealthy", at=after(complains_at), count=9, message="timeout")],
            states=[a_workload(WEB)],
            rollouts=[replace(a_rollout(-60), change_id=made.id)],
        )
        return next((s.probability for s in ranking.suspects if s.change.id == made.id), 0.0)

    assert probability(0) < probability(-58) / 3


def test_a_complaint_says_whom_its_workload_calls() -> None:
    ledger, client = a_resource("Deployment", "ledger"), a_resource("Deployment", "checkout")
    states = [
        a_workload(ledger),
        a_workload(client),
        a_state(a_resource("Service", "ledger"), {"spec": {"selector": {"app": "ledger"}}}),
    ]
    told = "Readiness probe failed: HTTP probe failed with statuscode: 503 (dial tcp {}: i/o timeout)"
    for said, known in (("ledger.shop:80", True), ("ledger.shop.svc.cluster.local:80", True), ("10.0.0.1:80", False)):
        complaint = a_symptom(client, "Unhealthy", message=told.format(said))
        assert (("shop", "checkout") in topology(states, complaints=[complaint]).upstream) is known


def test_rights_that_are_given_ail_nobody() -> None:
    role = a_resource("Role", "reader")
    rules: Json = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    given = replace(a_change(role, verb=Verb.CREATE), diffs=(FieldDiff((), "add", None, {"rules": rules}),))
    taken = replace(a_change(role, verb=Verb.DELETE), diffs=(FieldDiff((), "remove", {"rules": rules}, None),))
    assert plausible(given, "CrashLoopBackOff", refused="") == UNLIKELY
    assert plausible(taken, "CrashLoopBackOff", refused="") == 1.0


def test_names_in_a_rule_take_rights_away() -> None:
    role = a_resource("Role", "leaders")
    rule: Object = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]}
    named = rule | {"resourceNames": ["operator"]}
    narrowed = a_change(role, path=("rules", 0, "resourceNames"), old=None, new=["operator"])
    widened = a_change(role, path=("rules", 0, "resourceNames"), old=["operator"], new=None)
    assert plausible(narrowed, "CrashLoopBackOff", refused="") == 1.0
    assert plausible(widened, "CrashLoopBackOff", refused="") == UNLIKELY
    assert lost_access(narrowed, [{"rules": [named]}]) == {("coordination.k8s.io", "leases", "get")}
    assert lost_access(widened, [{"rules": [rule]}]) == set()


def test_an_alert_about_a_workload_is_not_dated_by_what_rollouts_give_controllers_to_do() -> None:
    scheduler = "system:serviceaccount:kube-system:replicaset-controller"
    load = calls(scheduler, "create", "pods", rate=0.4, end=-30) + calls(
        scheduler, "create", "pods", rate=20, start=-30
    )
    ranking = ranked(
        incident=an_incident(an_alert(after(30), name="Flapping", deployment="web-front", namespace="shop")),
        load=load,
        states=[a_workload(WEB)],
    )
    assert any("Kubernetes' own controllers" in finding.sentence for finding in ranking.findings)
    assert ranking.onset.found_in.startswith("the alert's start")


def test_a_webhook_with_a_url_is_answered_by_what_is_called_like_it() -> None:
    rules: Json = [{"apiGroups": [""], "resources": ["pods"], "operations": ["CREATE"]}]
    hook: Object = {"name": "guard.corp.example", "rules": rules, "clientConfig": {"url": "https://10.0.0.1/"}}
    guard = a_resource("Deployment", "guard", "platform")
    top = topology([a_state(HOOK, {"webhooks": [hook]}), a_workload(guard), a_workload(WEB)])
    asked = ("asked", "validating-webhook", "", "pods", "create")
    assert reach(a_change(guard), top)[asked] == 0
    assert asked not in reach(a_change(WEB), top)


def test_a_limit_range_is_the_limit_of_whoever_sets_none() -> None:
    limits: Json = [{"name": "a", "resources": {"limits": {"memory": "1Gi"}}}]
    limited = a_resource("Deployment", "limited")
    top = topology([a_workload(limited, containers=limits), a_workload(WEB, containers=[{"name": "a"}])])
    reached = reach(a_change(a_resource("LimitRange", "defaults")), top)
    assert reached["workload", "shop", "web-front"] < reached["workload", "shop", "limited"]


@pytest.mark.parametrize(
    ("change", "leads"),
    [
        (kind("Node", "spec", "taints"), True),
        (a_change(WEB, path=("spec", "template", "spec", "tolerations"), old=[], new=None), True),
        (a_change(WEB, path=("spec", "replicas"), old=2, new=4), False),
    ],
)
def test_a_pod_that_no_node_lets_in_is_due_to_nodes_or_to_where_it_may_go(change: Change, leads: bool) -> None:
    cause = cause_of(["0/6 nodes are available: 6 node(s) had untolerated taint(s)."])
    assert cause is not None
    assert cause.leads(change) is leads


def test_a_patch_is_an_update_to_a_webhook() -> None:
    rules: Json = [{"apiGroups": [""], "resources": ["services"], "operations": ["UPDATE"]}]
    top = topology([a_state(HOOK, {"webhooks": [{"name": "guard.corp.example", "rules": rules}]})])
    reached = reach(a_change(HOOK), top)
    assert reached["api", "", "services", "patch"] == reached["api", "", "services", "update"]
    assert ("api", "", "services", "create") not in reached


def test_a_label_of_a_node_is_felt_by_who_asks_for_it() -> None:
    shipper = a_resource("DaemonSet", "log-shipper")
    top = topology([a_workload(shipper, nodeSelector={"pool": "general"}), a_workload(WEB)])
    node = a_resource("Node", "node-1", None)
    lost = a_change(node, path=("metadata", "labels", "pool"), old="general", new=None)
    other = a_change(node, path=("metadata", "labels", "rack"), old="7", new=None)
    home = ("workload", "shop", "log-shipper")
    assert home in reach(lost, top)
    assert ("workload", "shop", "web-front") not in reach(lost, top)
    assert home not in reach(other, top)


@pytest.mark.parametrize(
    ("namespace", "pod"),
    [("kube-system", {}), ("net", {"hostNetwork": True}), ("net", {"priorityClassName": "system-node-critical"})],
)
def test_a_part_of_each_node_reaches_the_pods_there(namespace: str, pod: dict[str, Any]) -> None:
    agent, beside = a_resource("DaemonSet", "routes", namespace), a_resource("DaemonSet", "log-shipper", "logs")
    top = topology([a_workload(agent, **pod), a_workload(beside), a_workload(WEB)])
    assert ("pods", "*") in reach(a_change(agent), top)
    assert ("pods", "*") not in reach(a_change(beside), top)


def test_a_provider_of_volumes_that_is_well_itself_may_provide_none() -> None:
    provider = a_resource("Deployment", "disk-provisioner", "storage")
    rollout = a_change(provider, at=after(-40))
    unbound = "0/6 nodes are available: pod has unbound immediate PersistentVolumeClaims"
    done = Rollout(provider, "uid", 2, after(-40), Outcome.COMPLETE, change_id=rollout.id, ended_at=after(-30))
    ranking = ranked(
        rollout,
        incident=an_incident(an_alert(after(30), name="KubePodNotReady", namespace="shop", deployment="web-front")),
        symptoms=[a_symptom(WEB, "Unschedulable", at=after(-5), message=unbound, count=4)],
        states=[a_workload(provider), a_workload(WEB)],
        rollouts=[done],
    )
    assert first(ranking) == ("Deployment", "disk-provisioner")


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("Evicted pod: Underutilized", True),
        ("Disrupting Node: Drifted", True),
        ("Disrupting NodeClaim: Expired", True),
        ("Disrupting Node: SpotInterrupted", False),
        ("The node was low on resource: memory", False),
    ],
)
def test_who_takes_nodes_away_says_why(message: str, *, told: bool) -> None:
    assert (cause_of((message,)) is NODES_TAKEN) is told
    pool = a_change(a_resource("NodePool", "general", None), path=("spec", "disruption"), old=1, new=2)
    assert NODES_TAKEN.leads(pool)
    assert not NODES_TAKEN.leads(image())
