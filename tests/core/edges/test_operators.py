"""Custom resources: what they refer to, who refers to them, who acts on them; and the agents on every node."""

from __future__ import annotations

import pytest

from app.core.counted import Calls
from app.core.edges.indexing import topology
from app.core.edges.operators import SEVERAL
from app.core.edges.reach import reach
from app.core.edges.references import FEW, references, watched
from app.core.model import Actor, ActorSource, CallCount, Json, Object, Outcome, Resource, Rollout
from tests.core.company import background, first, ranked
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

GROUP = "policies.example"
POLICY = Resource(a_resource().cluster, GROUP, "ClusterPolicy", None, "require-owner")
USER = "system:serviceaccount:guard:reports"


def test_references_are_read_at_any_depth() -> None:
    spec: Json = {
        "parentRefs": [{"name": "public", "namespace": "edge", "kind": "Gateway"}, {"name": "inner"}],
        "rules": [
            {"backendRefs": [{"name": "web"}], "filters": [{"extensionRef": {"name": "auth", "kind": "Filter"}}]}
        ],
        "refs": "none",
        "secretRef": {"key": "a"},
    }
    assert set(references({"spec": spec}, "shop")) == {
        ("Gateway", "edge", "public"),
        ("", "shop", "inner"),
        ("", "shop", "web"),
        ("Filter", "shop", "auth"),
    }


@pytest.mark.parametrize("kind", ["CustomResourceDefinition", "ValidatingWebhookConfiguration"])
def test_who_acts_on_a_kind_is_reached_by_its_definition_and_by_webhooks_asked_about_it(kind: str) -> None:
    reports, other = a_resource("Deployment", "reports", "guard"), a_resource("Deployment", "other", "guard")
    states: dict[str, Object] = {
        "CustomResourceDefinition": {"spec": {"names": {"kind": "ClusterPolicy"}}},
        "ValidatingWebhookConfiguration": {
            "webhooks": [{"name": "w", "rules": [{"apiGroups": [GROUP], "resources": ["clusterpolicies"]}]}]
        },
    }
    changed = a_resource(kind, f"clusterpolicies.{GROUP}", None)
    top = topology(
        [
            a_state(changed, states[kind]),
            a_workload(reports, serviceAccountName="reports"),
            a_workload(other, serviceAccountName="other"),
        ],
        Calls.of(calls(USER, "watch", "clusterpolicies", rate=1, group=GROUP)),
    )
    found = reach(a_change(changed, path=("spec", "x")), top)
    assert found["user", USER] == found["workload", "guard", "reports"] == 1
    assert ("workload", "guard", "other") not in found


def test_who_watches_everything_acts_on_nothing() -> None:
    backups = [
        count
        for number in range(FEW + 1)
        for count in calls("system:serviceaccount:ops:backup", "list", f"things{number}", rate=1, group="a.example")
    ]
    acting = calls(USER, "watch", "clusterpolicies", rate=1, group=GROUP)
    refused = calls("bob", "list", "clusterpolicies", rate=1, group=GROUP, code=403)
    itself = calls("system:kube-controller-manager", "watch", "clusterpolicies", rate=1, group=GROUP)
    assert watched(Calls.of([*backups, *acting, *refused, *itself])) == {(GROUP, "clusterpolicies"): {USER}}


@pytest.mark.parametrize("load", [calls(USER, "watch", "clusterpolicies", rate=0.2, group=GROUP), []])
def test_a_policy_makes_the_program_work_that_watches_it(load: list[CallCount]) -> None:
    change = a_change(POLICY, at=after(-20), path=("spec", "background"), old=False, new=True)
    ranking = ranked(
        change,
        incident=an_incident(an_alert(after(40), name="KubeAPIRequestsHigh", job="apiserver")),
        load=[*background(), *load, *calls(USER, "create", "policyreports", rate=30, start=-15, group="wg.example")],
    )
    blamed = first(ranking) == ("ClusterPolicy", "require-owner") and ranking.suspects[0].probability > 0.5
    assert blamed is bool(load)


@pytest.mark.parametrize(("told", "rolled_out", "leads"), [(-30, None, True), (-30, -14, False), (-13, -14, True)])
def test_a_program_that_began_when_it_was_rolled_out_was_not_told_to(
    told: float, rolled_out: float | None, leads: bool
) -> None:
    """It watches: what it was told a while before its rollout, it would have done then."""
    policy = a_change(POLICY, at=after(told), path=("spec", "background"), old=False, new=True)
    program = a_resource("Deployment", "reports", "guard")
    ranking = ranked(
        policy,
        incident=an_incident(an_alert(after(40), name="KubeAPIRequestsHigh", job="apiserver")),
        load=[
            *background(),
            *calls(USER, "watch", "clusterpolicies", rate=0.2, group=GROUP),
            *calls(USER, "create", "policyreports", rate=1, end=-10, group="wg.example"),
            *calls(USER, "create", "policyreports", rate=30, start=-10, group="wg.example"),
        ],
        rollouts=[Rollout(program, "uid", 2, after(rolled_out), Outcome.COMPLETE)] if rolled_out else [],
    )
    (suspect,) = (s for s in ranking.suspects if s.change.resource == POLICY)
    assert any(e.rule == "load" and e.weight > 1.0 for e in suspect.evidence) is leads


@pytest.mark.parametrize(("namespace", "name"), [("policies", "any"), ("ops", "policies-reports"), ("ops", "policies")])
def test_a_program_that_is_called_like_a_group_acts_on_its_kinds(namespace: str, name: str) -> None:
    home = a_workload(a_resource("Deployment", name, namespace), serviceAccountName="runner")
    reached = reach(a_change(POLICY), topology([home]))
    assert ("user", f"system:serviceaccount:{namespace}:runner") in reached
    other = a_workload(a_resource("Deployment", "web", "ops"), serviceAccountName="runner")
    assert not [entity for entity in reach(a_change(POLICY), topology([other])) if entity[0] == "user"]


@pytest.mark.parametrize(
    ("name", "is_reached"),
    [
        ("workflow-controller", True),
        ("workflow-server", False),
        ("flow-controller", False),
        ("workflow-nginx-controller", False),
    ],
)
def test_a_controller_that_is_called_by_the_first_word_of_a_kind_acts_on_it(name: str, is_reached: bool) -> None:
    template = Resource(a_resource().cluster, "argoproj.io", "WorkflowTemplate", "shop", "nightly")
    home = a_workload(a_resource("Deployment", name, "flows"), serviceAccountName="runner")
    assert (("workload", "flows", name) in reach(a_change(template), topology([home]))) is is_reached


@pytest.mark.parametrize(("name", "is_reached"), [("login-operator", True), ("login", True), ("relogin-web", False)])
def test_a_program_that_is_called_like_a_kind_acts_on_it_where_no_calls_tell(name: str, is_reached: bool) -> None:
    login = Resource(a_resource().cluster, "identity.example", "Login", "shop", "experiments")
    home = a_workload(a_resource("Deployment", name, "platform"), serviceAccountName="runner")
    reached = reach(a_change(login), topology([home]))
    assert (("workload", "platform", name) in reached) is is_reached


def test_what_refers_to_a_custom_resource_is_reached() -> None:
    gateway = Resource(a_resource().cluster, "gateway.networking.k8s.io", "Gateway", "edge", "public")
    route = Resource(a_resource().cluster, "gateway.networking.k8s.io", "HTTPRoute", "shop", "web")
    refs: Json = [{"name": "public", "namespace": "edge", "kind": "Gateway"}]
    top = topology([a_state(route, {"spec": {"parentRefs": refs}})])
    assert ("object", "HTTPRoute", "shop", "web") in reach(a_change(gateway), top)
    elsewhere = Resource(a_resource().cluster, "gateway.networking.k8s.io", "Gateway", "shop", "public")
    assert ("object", "HTTPRoute", "shop", "web") not in reach(a_change(elsewhere), top)


@pytest.mark.parametrize(
    ("agent", "reason", "message"),
    [
        ("block-csi-node", "FailedMount", "MountVolume.MountDevice failed: kubernetes.io/csi: driver not found"),
        ("calico-node", "FailedCreatePodSandBox", "failed to set up sandbox network: no route"),
    ],
)
def test_an_agent_on_every_node_is_blamed_for_what_it_does_for_pods(agent: str, reason: str, message: str) -> None:
    store = a_resource("StatefulSet", "store", "checkout")
    daemon = a_resource("DaemonSet", agent, "kube-system")
    ranking = ranked(
        a_change(daemon, at=after(-20)),
        a_change(a_resource("Deployment", "web", "checkout"), at=after(-8)),
        incident=an_incident(an_alert(after(40), name="PodNotReady", namespace="checkout", statefulset="store")),
        symptoms=[a_symptom(store, reason, at=after(-12), message=message, count=20)],
        states=[a_workload(store), a_workload(daemon)],
    )
    assert first(ranking) == ("DaemonSet", agent)
    other = a_symptom(store, "FailedMount", at=after(-12), message='secret "tls" not found', count=20)
    ranking = ranked(
        a_change(daemon, at=after(-20)),
        incident=an_incident(an_alert(after(40), name="PodNotReady", namespace="checkout", statefulset="store")),
        symptoms=[other],
        states=[a_workload(store), a_workload(daemon)],
    )
    assert ranking.none_of_these > ranking.suspects[0].probability


@pytest.mark.parametrize(("instances", "hops"), [(1, 1), (SEVERAL + 1, 2)])
def test_one_of_many_objects_keeps_its_program_busy_less(instances: int, hops: int) -> None:
    home = a_workload(a_resource("Deployment", "reports", "policies"), serviceAccountName="runner")
    others = [
        a_state(Resource(POLICY.cluster, GROUP, POLICY.kind, None, f"p-{n}"), {"spec": {}}) for n in range(instances)
    ]
    reached = reach(a_change(POLICY), topology([home, *others]))
    assert reached[("user", "system:serviceaccount:policies:runner")] == hops


@pytest.mark.parametrize(("name", "is_made"), [("routes-pg", True), ("routes", True), ("route", False), ("pg", False)])
def test_what_an_operator_makes_is_called_like_its_object(name: str, is_made: bool) -> None:
    client = a_workload(
        a_resource("Deployment", "planner", "dispatch"),
        containers=[{"name": "a", "env": [{"name": "DB", "value": "postgres://routes-pg-rw:5432/x"}]}],
    )
    service = a_state(a_resource("Service", "routes-pg-rw", "dispatch"), {"spec": {}})
    cluster = Resource("lab", "postgresql.cnpg.io", "Cluster", "dispatch", name)
    found = reach(
        a_change(cluster, path=("spec", "x")),
        topology([client, service, a_workload(a_resource("StatefulSet", "routes-pg", "dispatch"))]),
    )
    assert (("calls", "dispatch", "planner") in found) is is_made
    assert (("workload", "dispatch", "routes-pg") in found) is is_made


def test_a_custom_resource_leads_over_another_that_it_refers_to() -> None:
    server = Resource("lab", "policy.linkerd.io", "Server", "bank", "accounts-grpc")
    allowed = Resource("lab", "policy.linkerd.io", "ServerAuthorization", "bank", "accounts-grpc")
    states = [
        a_workload(a_resource("Deployment", "accounts", "bank")),
        a_state(server, {"spec": {"podSelector": {"matchLabels": {"app": "accounts"}}}}),
        a_state(allowed, {"spec": {"server": {"name": "accounts-grpc"}}}),
    ]
    assert ("workload", "bank", "accounts") in reach(a_change(allowed, path=("spec", "client")), topology(states))


@pytest.mark.parametrize(("kind", "provides"), [("NodePool", True), ("MachineDeployment", True), ("Backup", False)])
def test_what_makes_nodes_is_what_makes_room(kind: str, provides: bool) -> None:
    pool = Resource("lab", "karpenter.sh", kind, None, "general")
    assert (("agent", "nodes") in reach(a_change(pool, path=("spec", "limits")), topology([]))) is provides


@pytest.mark.parametrize(("image", "network"), [("quay.io/cilium/cilium:v1.17", True), ("r/cni-logs/shipper:2", False)])
def test_what_gives_pods_their_network_may_be_called_anything_but_its_image_tells(image: str, network: bool) -> None:
    daemon = a_resource("DaemonSet", "pod-links", "kube-system")
    top = topology([a_workload(daemon, containers=[{"name": "agent", "image": image}])])
    assert (("agent", "cni") in reach(a_change(daemon), top)) is network


def test_what_a_program_writes_down_for_itself_tells_it_nothing() -> None:
    scaler = a_resource("Deployment", "cluster-autoscaler", "kube-system")
    status = a_resource("ConfigMap", "cluster-autoscaler-status", "kube-system")
    top = topology([a_workload(scaler, serviceAccountName="autoscaler")])
    home = ("workload", "kube-system", "cluster-autoscaler")
    own = Actor("system:serviceaccount:kube-system:autoscaler", ActorSource.AUDIT)
    by_hand = reach(a_change(status, path=("data", "mode")), top)
    by_itself = reach(a_change(status, path=("data", "seen"), actor=own), top)
    assert {home, ("agent", "nodes")} <= by_hand.keys()
    assert by_itself.keys().isdisjoint({home, ("agent", "nodes")})


@pytest.mark.parametrize(
    ("group", "calls"), [("jetstream.nats.io", True), ("kafka.strimzi.io", False), ("streams.nats", False)]
)
def test_what_lies_in_a_server_called_by_its_api_group_is_felt_by_who_calls_that(group: str, *, calls: bool) -> None:
    env: Json = [{"name": "NATS_URL", "value": "nats://nats.bus:4222"}]
    top = topology(
        [
            a_workload(a_resource("StatefulSet", "nats", "bus"), labels={"app": "nats"}),
            a_state(a_resource("Service", "nats", "bus"), {"spec": {"selector": {"app": "nats"}}}),
            a_workload(a_resource("Deployment", "ingest", "wards"), containers=[{"name": "ingest", "env": env}]),
        ]
    )
    stream = Resource(a_resource().cluster, group, "Stream", "bus", "vitals")
    reached = reach(a_change(stream, path=("spec", "maxBytes"), old=100, new=10), top)
    assert (("calls", "wards", "ingest") in reached) is calls


def test_a_class_of_nodes_brings_their_runtime_and_what_their_network_needs() -> None:
    nodes = Resource(a_resource().cluster, "karpenter.k8s.aws", "EC2NodeClass", None, "batch")
    reached = reach(a_change(nodes, path=("spec", "amiSelectorTerms"), old="a", new="b"), topology([]))
    assert [reached["agent", sort] for sort in ("nodes", "runtime", "cni")] == [0, 1, 1]
