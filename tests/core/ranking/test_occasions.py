"""What only starts pods, only reacts or says nothing is not what broke them."""

from __future__ import annotations

from datetime import timedelta
from typing import cast

import pytest
from msgspec.structs import replace

from app.core.edges.indexing import topology
from app.core.edges.mechanism import by_schedule, hits, is_cosmetic, is_inert, only_adds, only_reacts_to, only_restarts
from app.core.edges.reach import reach
from app.core.incidents.bundles import scope
from app.core.model import Actor, ActorSource, FieldDiff, Json, Outcome, Path, Resource, Rollout, Verb
from app.core.ranking.candidates import candidates
from app.core.ranking.case import Case, Facts
from app.core.ranking.latent import started, waiting
from app.core.ranking.meant import with_meant
from app.core.ranking.moves import pods_moved
from app.core.ranking.priors import by_itself
from app.core.signals.complaints import symptom_signals
from app.core.signals.failed_calls import failed_calls
from tests.core.company import first, ranked
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
)

POD: Path = ("spec", "template", "metadata", "annotations")
TERMINATION = Actor("system:serviceaccount:kube-system:aws-node-termination-handler", ActorSource.AUDIT)
HPA = Actor("system:serviceaccount:kube-system:horizontal-pod-autoscaler", ActorSource.AUDIT)


@pytest.mark.parametrize(
    ("path", "restarts"),
    [
        ((*POD, "kubectl.kubernetes.io/restartedAt"), True),
        ((*POD, "checksum/config"), True),
        ((*POD, "build"), True),
        ((*POD, "sidecar.istio.io/inject"), False),
        (("metadata", "annotations", "build"), False),
        (("spec", "template", "spec", "containers", "image"), False),
    ],
)
def test_an_update_that_only_has_pods_made_anew(path: Path, restarts: bool) -> None:
    assert only_restarts(a_change(path=path)) is restarts


def test_a_restart_is_only_the_occasion_of_what_pods_start_with() -> None:
    api = a_resource("Deployment", "payroll", "hr")
    rotated = a_change(a_resource("Secret", "payroll-db", "hr"), at=after(-38), path=("data", "password"))
    restart = a_change(api, at=after(-6), path=(*POD, "kubectl.kubernetes.io/restartedAt"), old=None, new="now")
    message = 'payroll ended with exit code 1: FATAL: password authentication failed for user "payroll"'
    env: Json = [{"name": "P", "valueFrom": {"secretKeyRef": {"name": "payroll-db", "key": "password"}}}]
    ranking = ranked(
        rotated,
        restart,
        incident=an_incident(an_alert(after(28), name="KubePodCrashLooping", namespace="hr", deployment="payroll")),
        symptoms=[a_symptom(api, "Error", at=after(0), message=message, count=11)],
        states=[a_workload(api, containers=[{"name": "payroll", "env": env}])],
    )
    assert first(ranking) == ("Secret", "payroll-db")


def test_annotations_without_a_prefix_are_nobodys_but_others_of_an_ingress_decide() -> None:
    ingress = a_resource("Ingress", "shop", "web")
    note = a_change(ingress, path=("metadata", "annotations", "note"))
    size = a_change(ingress, path=("metadata", "annotations", "nginx.ingress.kubernetes.io/proxy-body-size"))
    assert is_inert(note)
    assert is_cosmetic(note)
    assert not is_inert(size)
    assert not is_cosmetic(size)


SCALER = Actor("system:serviceaccount:platform:traffic-scaler", ActorSource.AUDIT)
KURED = Actor("system:serviceaccount:kube-system:kured", ActorSource.AUDIT)


@pytest.mark.parametrize(
    ("kind", "path", "actor", "verb", "reacts"),
    [
        ("Deployment", ("spec", "replicas"), HPA, Verb.UPDATE, True),
        ("Deployment", ("spec", "replicas"), Actor("alice", ActorSource.AUDIT), Verb.UPDATE, False),
        ("Deployment", ("spec", "replicas"), SCALER, Verb.UPDATE, True),
        ("Deployment", ("spec", "paused"), SCALER, Verb.UPDATE, False),
        ("Deployment", ("spec", "paused"), HPA, Verb.UPDATE, True),
        ("Deployment", ("spec", "paused"), Actor("alice", ActorSource.AUDIT), Verb.UPDATE, False),
        ("Node", (), Actor("system:serviceaccount:kube-system:node-controller", ActorSource.AUDIT), Verb.DELETE, True),
        ("Node", (), Actor("system:serviceaccount:karpenter:karpenter", ActorSource.AUDIT), Verb.DELETE, False),
        ("Node", (), Actor("alice", ActorSource.AUDIT), Verb.DELETE, False),
        ("Node", ("spec", "unschedulable"), TERMINATION, Verb.UPDATE, True),
        ("Node", ("spec", "unschedulable"), KURED, Verb.UPDATE, True),
        ("Node", ("spec", "unschedulable"), Actor("alice", ActorSource.AUDIT), Verb.UPDATE, False),
    ],
)
def test_what_only_reacts(kind: str, path: Path, actor: Actor, verb: Verb, reacts: bool) -> None:
    new = True if "unschedulable" in path else 3
    change = a_change(a_resource(kind, "a", "b"), path=path, old=2, new=new, actor=actor, verb=verb)
    assert bool(only_reacts_to(change)) is reacts


def test_a_scaler_that_takes_pods_away_may_have_begun_it() -> None:
    assert not only_reacts_to(a_change(path=("spec", "replicas"), old=3, new=0, actor=SCALER))


@pytest.mark.parametrize(("owner", "by"), [("CronJob", True), ("Workflow", False)])
def test_a_job_that_its_schedule_makes_has_nothing_new_in_it(owner: str, by: bool) -> None:
    made: Json = {"metadata": {"name": "a", "ownerReferences": [{"kind": owner}]}, "spec": {}}
    job = a_change(a_resource("Job", "a"), path=(), old=None, new=made, verb=Verb.CREATE)
    assert by_schedule(job) is by
    assert not by_schedule(a_change(a_resource("Job", "a")))


MEMORY: Path = ("spec", "template", "spec", "containers", (("name", "web"),), "resources", "limits", "memory")
REQUESTED: Path = (*MEMORY[:-2], "requests", "memory")
PROBE: Path = ("spec", "template", "spec", "containers", (("name", "web"),), "livenessProbe", "timeoutSeconds")


@pytest.mark.parametrize(
    ("path", "old", "new", "reason", "said", "is_hit"),
    [
        (MEMORY, "1Gi", "512Mi", "OOMKilled", "", True),
        (MEMORY, "512Mi", "1Gi", "OOMKilled", "", False),
        (REQUESTED, "1Gi", "512Mi", "OOMKilled", "", False),
        (("spec", "limits", 0, "default", "memory"), "1Gi", "512Mi", "OOMKilled", "", True),
        (
            ("spec", "resourcePolicy", "containerPolicies", 0, "maxAllowed", "memory"),
            "2Gi",
            "224Mi",
            "OOMKilled",
            "",
            True,
        ),
        (MEMORY, "1Gi", "512Mi", "Unhealthy", "Readiness probe failed: timeout", False),
        (PROBE, 5, 1, "Unhealthy", "Liveness probe failed: timeout", True),
        (PROBE, 5, 1, "Unhealthy", "Readiness probe failed: timeout", False),
        (("spec", "rules", 0, "timeouts"), None, {"request": "1s"}, "Error", "504 UT response_timeout", True),
        (("spec", "rules", 0, "timeouts"), None, {"request": "1s"}, "Error", "panic: nil", False),
        (("metadata", "annotations", "alb/healthcheck-path"), "/", "/a", "NotReady", "Health checks failed", True),
    ],
)
def test_a_change_of_the_very_thing_that_is_complained_of(
    path: Path, old: Json, new: Json, reason: str, said: str, is_hit: bool
) -> None:
    assert hits(a_change(path=path, old=old, new=new), reason, said) is is_hit


def test_less_memory_is_preferred_to_other_configuration_where_it_runs_out() -> None:
    renderer = a_resource("Deployment", "renderer", "notary")
    fonts = a_resource("ConfigMap", "renderer-fonts", "notary")
    reads: Json = [{"name": "web", "envFrom": [{"configMapRef": {"name": fonts.name}}]}]
    ranking = ranked(
        a_change(renderer, at=after(-18), path=MEMORY, old="1Gi", new="512Mi"),
        a_change(fonts, at=after(-18), path=("data", "families"), old="serif", new="serif,sans"),
        incident=an_incident(an_alert(after(20), name="KubePodCrashLooping", namespace="notary")),
        symptoms=[a_symptom(renderer, "OOMKilled", at=after(0), message="exit code 137")],
        states=[a_workload(renderer, containers=reads)],
    )
    assert first(ranking) == ("Deployment", "renderer")


@pytest.mark.parametrize(("old", "new", "adds"), [(6, 9, True), (9, 6, False)])
def test_bounds_of_an_autoscaler_that_only_allow_more(old: int, new: int, adds: bool) -> None:
    hpa = a_resource("HorizontalPodAutoscaler", "web", "shop")
    assert only_adds(a_change(hpa, path=("spec", "maxReplicas"), old=old, new=new)) is adds


def test_what_messages_say_of_calls() -> None:
    refused = 'pods is forbidden: User "system:serviceaccount:a:b" cannot list resource "pods" in API group "" in the n'
    assert failed_calls(refused) == {("access", "system:serviceaccount:a:b", "", "pods", "list")}
    drain = 'error when evicting pods/"db-1" -n "data" (will retry after 5s): Cannot evict pod as it would violate'
    assert failed_calls(drain) == {("evictions", "data")}


def test_a_label_by_which_another_role_is_made_takes_rights_away() -> None:
    rules: Json = [{"apiGroups": ["corp.example"], "resources": ["turbines"], "verbs": ["list"]}]
    part = a_resource("ClusterRole", "turbines-view", None)
    selectors: Json = [{"matchLabels": {"rbac.corp.example/to-monitoring": "true"}}]
    states = [
        a_state(part, {"rules": rules}),
        a_state(
            a_resource("ClusterRole", "monitoring", None), {"aggregationRule": {"clusterRoleSelectors": selectors}}
        ),
        a_state(
            a_resource("ClusterRoleBinding", "exporter", None),
            {
                "roleRef": {"kind": "ClusterRole", "name": "monitoring"},
                "subjects": [{"kind": "ServiceAccount", "namespace": "scada", "name": "exporter"}],
            },
        ),
    ]
    taken = a_change(part, path=("metadata", "labels", "rbac.corp.example/to-monitoring"), old="true", new=None)
    lost = ("access", "system:serviceaccount:scada:exporter", "corp.example", "turbines", "list")
    assert lost in reach(taken, topology(states))
    assert topology(states).heeds(taken)
    other = a_change(part, path=("metadata", "labels", "team"), old="a", new=None)
    assert lost not in reach(other, topology(states))
    assert not topology(states).heeds(other)


def test_addresses_written_by_hand_are_their_services() -> None:
    client = a_workload(
        a_resource("Deployment", "sync", "warehouse"),
        containers=[{"name": "sync", "env": [{"name": "DB_URL", "value": "jdbc:thin:@oracle.warehouse.svc:1521"}]}],
    )
    piece = a_resource("EndpointSlice", "oracle-1", "warehouse")
    states = [
        client,
        a_state(a_resource("Service", "oracle", "warehouse"), {"spec": {}}),
        a_state(piece, {"metadata": {"labels": {"kubernetes.io/service-name": "oracle"}}}),
    ]
    assert ("calls", "warehouse", "sync") in reach(a_change(piece, path=("endpoints",)), topology(states))


def test_what_complains_of_an_object_hands_it_on() -> None:
    source = a_resource("HelmRepository", "internal-charts", "flux-system")
    release = a_resource("HelmRelease", "berths", "harbour")
    ranking = ranked(
        a_change(
            source, at=after(-17), path=("spec", "url"), old="https://a.corp.example", new="https://b.corp.example"
        ),
        a_change(release, at=after(-9), path=("spec", "values", "replicas"), old=2, new=3),
        incident=an_incident(an_alert(after(20), name="FluxReconciliationFailure", exported_namespace="harbour")),
        symptoms=[
            a_symptom(source, "FetchFailed", at=after(-1), message="failed to fetch index: 404", count=6),
            a_symptom(release, "NotReady", at=after(4), message="no artifact of source 'internal-charts'", count=6),
        ],
    )
    assert first(ranking) == ("HelmRepository", "internal-charts")


@pytest.mark.parametrize(("new", "cordoned"), [(True, True), (None, False), (False, False)])
def test_a_node_that_takes_pods_again_keeps_none_out(new: Json, cordoned: bool) -> None:
    player = a_resource("Deployment", "player", "premium")
    message = "0/3 nodes are available: 1 node(s) were unschedulable, 2 node(s) had volume node affinity conflict."
    ranking = ranked(
        a_change(a_resource("Node", "a-1", None), at=after(-9), path=("spec", "unschedulable"), old=not new, new=new),
        incident=an_incident(an_alert(after(20), name="KubePodNotReady", namespace="premium")),
        symptoms=[a_symptom(player, "FailedScheduling", at=after(0), message=message, count=8)],
        states=[a_workload(player)],
    )
    told = next(s for s in ranking.suspects if s.change.resource.kind == "Node")
    assert (told.rank == 1 and told.probability > 0.5) is cordoned


@pytest.mark.parametrize(
    ("reason", "message", "put_down"),
    [
        ("EvictionThresholdMet", "Attempting to reclaim memory", True),
        ("NodeNotReady", "Kubelet stopped posting node status.", False),
    ],
)
def test_a_node_that_is_short_of_something_is_put_down_to_what_runs_on_all(
    reason: str, message: str, put_down: bool
) -> None:
    agent = a_resource("DaemonSet", "log-shipper", "logging")
    ranking = ranked(
        a_change(agent, at=after(-40)),
        incident=an_incident(an_alert(after(20), name="KubeNodePressure", node="a-1")),
        symptoms=[a_symptom(a_resource("Node", "a-1", None), reason, at=after(0), message=message, count=3)],
        states=[a_workload(agent)],
    )
    assert first(ranking) == ("DaemonSet", "log-shipper")
    assert (ranking.suspects[0].probability > ranking.none_of_these) is put_down


def test_more_nodes_that_are_not_made_lead_to_the_pool_and_not_to_who_wants_more_pods() -> None:
    model = a_resource("Deployment", "monte-carlo", "pricing")
    pool = Resource("lab", "karpenter.sh", "NodePool", None, "general-purpose")
    room = "0/38 nodes are available: 38 Insufficient cpu."
    none = 'all available instance types exceed limits for nodepool: "general-purpose"'
    ranking = ranked(
        a_change(pool, at=after(-60), path=("spec", "limits", "cpu"), old="800", new="320"),
        a_change(model, at=after(-2), path=("spec", "replicas"), old=10, new=40),
        incident=an_incident(an_alert(after(20), name="KubePodNotReady", namespace="pricing")),
        symptoms=[
            a_symptom(model, "FailedScheduling", at=after(0), message=room, count=30),
            a_symptom(model, "FailedScheduling", at=after(1), message=none, count=30),
        ],
        states=[a_workload(model, replicas=40)],
    )
    assert first(ranking) == ("NodePool", "general-purpose")


def test_how_pods_end_shows_as_the_next_ones_take_their_place() -> None:
    api = a_resource("Deployment", "query-api", "search")
    hook = a_change(
        api, at=after(-60), path=("spec", "template", "spec", "containers", "lifecycle"), old={"preStop": {}}, new=None
    )
    harmless = a_change(api, at=after(-4))
    began = [
        Rollout(
            api, "u", n, change.at, Outcome.COMPLETE, ended_at=change.at + timedelta(seconds=3), change_id=change.id
        )
        for n, change in enumerate((hook, harmless))
    ]
    top = topology([a_workload(api)])
    found = candidates([hook, harmless], began, (), topology=top, until=after(60))
    waited = [waiting(one, started(began, [], top=top)) for one in found]
    assert [one.acts_at for one in waited] == [harmless.at, None]


def test_who_empties_a_node_cordons_it_first() -> None:
    node = a_resource("Node", "a-1", None)
    cordon = a_change(node, path=("spec", "unschedulable"), old=None, new=True)
    assert ("user", cordon.actor.name) in reach(cordon, topology([]))
    label = a_change(node, path=("metadata", "labels", "x"), old="a", new="b")
    assert ("user", label.actor.name) not in reach(label, topology([]))


@pytest.mark.parametrize(
    ("message", "network"), [("dial tcp licences.media: i/o timeout", True), ("status 500", False)]
)
def test_where_packets_do_not_arrive_the_network_is_considered(message: str, network: bool) -> None:
    told = symptom_signals(
        [a_symptom(message=message, resource=a_resource(), reason="Unhealthy")], start=after(-60), end=after(30)
    )
    assert (("agent", "cni") in told[0].about) is network
    config = a_change(a_resource("ConfigMap", "network-config", "kube-system"), path=("data", "POD_CIDR"))
    assert ("agent", "cni") in reach(config, topology([]))


def test_a_node_that_is_lost_as_it_was_short_leads_to_what_was_placed_there() -> None:
    nodes = [a_resource("Node", f"n-{n}", None) for n in range(3)]
    made = a_change(
        a_resource("Deployment", "market", "staging"),
        at=after(-30),
        path=(),
        old=None,
        new={"spec": {"replicas": 40, "template": {}}},
        verb=Verb.CREATE,
    )
    ranking = ranked(
        made,
        incident=an_incident(an_alert(after(30), name="KubeNodesNotReady", instance="n-1:9100")),
        symptoms=[
            *(a_symptom(node, "SystemOOM", at=after(-2), message="System OOM encountered", count=4) for node in nodes),
            *(
                a_symptom(node, "NodeNotReady", at=after(4), message="Kubelet stopped posting", count=4)
                for node in nodes
            ),
        ],
        states=[a_workload(made.resource, replicas=40)],
    )
    assert first(ranking) == ("Deployment", "market")
    assert any("wants room for 40 more pods" in evidence.sentence for evidence in ranking.suspects[0].evidence)


def test_what_was_made_moved_as_many_pods_as_it_was_made_with() -> None:
    runner = a_resource("Deployment", "runner", "ci")
    small: Json = {"spec": {"replicas": 3, "template": {}}}
    made = a_change(runner, path=(), old=None, new=small, verb=Verb.CREATE)
    now = a_state(runner, {"spec": {"replicas": 30, "template": {"metadata": {}, "spec": {}}}})
    assert pods_moved(made, None, topology([now])) == 3


def test_an_instance_that_is_a_node_is_meant() -> None:
    pod = a_state(a_resource("Pod", "web-7d9c5f9db-2x8sq", "shop"), {"spec": {"nodeName": "n-1"}})
    incident = an_incident(an_alert(NOON, name="HostOomKillDetected", instance="n-1:9100"))
    assert with_meant(incident, topology([pod])).scope.nodes == ("n-1",)
    assert with_meant(incident, topology([])).scope.nodes == ()


def test_a_node_whose_exporter_is_called_by_its_address_is_meant() -> None:
    asked = {
        "job": "node-exporter",
        "namespace": "monitoring",
        "pod": "node-exporter-w7bb7",
        "instance": "10.0.0.3:9100",
    }
    pod = a_state(a_resource("Pod", asked["pod"], asked["namespace"]), {"spec": {"nodeName": "n-1"}})
    for job, nodes in (("node-exporter", ("n-1",)), ("kube-state-metrics", ())):
        told = replace(an_alert(NOON, name="NodeFilesystemAlmostOutOfSpace"), labels=(*asked.items(), ("job", job)))
        incident = an_incident(told)
        incident = replace(incident, scope=scope(incident.alerts))
        assert with_meant(incident, topology([pod])).scope.nodes == nodes


def test_the_rarest_field_of_a_change_says_how_usual_it_is() -> None:
    image = ("spec", "template", "spec", "containers", "image")
    bumps = [
        a_change(a_resource("Deployment", f"web-{n}", "shop"), at=after(n), path=image, new=f"web:{n}")
        for n in range(5)
    ]
    release = a_change(a_resource("Deployment", "api", "shop"), at=after(9), path=image, new="api:2")
    without = FieldDiff(("spec", "template", "spec", "containers", "lifecycle"), "remove", {"preStop": {}}, None)
    both = replace(release, diffs=(*release.diffs, without))
    assert candidates([*bumps, release], (), (), topology=topology([]), until=after(60))[-1].alike == 5
    assert candidates([*bumps, both], (), (), topology=topology([]), until=after(60))[-1].alike == 0


def test_what_only_reacts_is_not_believed_whatever_follows_it() -> None:
    cordon = a_change(
        a_resource("Node", "worker-1", None), at=after(-2), path=("spec", "unschedulable"), old=None, new=True
    )
    api = a_resource("Deployment", "payroll", "hr")
    message = "0/6 nodes are available: 2 node(s) were unschedulable, 4 Insufficient cpu."
    rankings = {
        actor: ranked(
            replace(cordon, actor=actor),
            incident=an_incident(an_alert(after(20), name="KubePodPending", namespace="hr")),
            symptoms=[a_symptom(api, "FailedScheduling", at=after(0), message=message, count=12)],
            states=[a_workload(api)],
        )
        for actor in (TERMINATION, Actor("alice", ActorSource.AUDIT))
    }
    by_hand, reacting = rankings[Actor("alice", ActorSource.AUDIT)], rankings[TERMINATION]
    assert first(by_hand) == ("Node", "worker-1")
    assert by_hand.suspects[0].probability > 0.8
    assert reacting.none_of_these > reacting.suspects[0].probability


def test_a_rollout_that_met_what_it_cannot_have_brought_is_only_the_occasion() -> None:
    """That it came just before, and is what the alert names, says nothing then: any rollout would have met it."""
    api = a_resource("Deployment", "payroll", "hr")
    release = a_change(api, at=after(-3), old="payroll:1", new="payroll:2")
    rankings = [
        ranked(
            release,
            incident=an_incident(an_alert(after(20), name="KubePodCrashLooping", namespace="hr", deployment="payroll")),
            symptoms=[a_symptom(api, "Error", at=after(0), message=f"payroll ended: {said}", count=8)],
            states=[a_workload(api)],
        )
        for said in ("panic: nil map", "lookup cache.corp.example: server misbehaving")
    ]
    own, met = rankings
    assert own.none_of_these < 0.35
    assert met.none_of_these > 0.4
    (suspect,) = (one for one in met.suspects if one.change.id == release.id)
    said = {evidence.rule: evidence for evidence in suspect.evidence}
    assert said["time"].sentence.endswith("But such a change hardly leads to what is complained of.")
    assert 0 < said["scope"].weight < 0.3


@pytest.mark.parametrize(
    ("actor", "itself"),
    [
        ("system:serviceaccount:platform:machine-config-operator", True),
        ("system:serviceaccount:kube-system:deployment-controller", False),
        ("system:serviceaccount:argocd:argocd-application-controller", False),
        ("system:serviceaccount:flux-system:kustomize-controller", False),
        ("system:serviceaccount:builds:gitlab-runner", False),
        ("system:serviceaccount:apps:ci-deployer", False),
        ("alice", False),
    ],
)
def test_a_program_that_acts_on_what_it_sees_seldom_began_it(actor: str, itself: bool) -> None:
    """Not one that applies what people wrote elsewhere; Kubernetes' own controllers only react."""
    cordon = a_change(
        a_resource("Node", "worker-1", None),
        path=("spec", "unschedulable"),
        old=None,
        new=True,
        actor=Actor(actor, ActorSource.AUDIT),
    )
    (candidate,) = candidates([cordon], [], [], topology=topology([]), until=after(0))
    found = by_itself(cast("Case", None), Facts(candidate, (), 0))
    assert (found is not None) is itself
    assert found is None or found.weight < -1
