"""What breaks what in Kubernetes: who refuses pods, who takes the room, what many complain of, what is not to blame."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.core.edges.indexing import topology
from app.core.edges.mechanism import is_cosmetic, is_inert, plausible, refused_by
from app.core.edges.reach import reach
from app.core.entities import only_reacts
from app.core.model import (
    Actor,
    ActorSource,
    Change,
    FieldDiff,
    Json,
    Object,
    ObjectState,
    Outcome,
    Progress,
    Rollout,
    Symptom,
    Verb,
)
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

TEAMS = ("checkout", "search", "billing", "media")


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ('pods "a-1" is forbidden: exceeded quota: compute, requested: pods=1', "ResourceQuota"),
        ('pods "a" is forbidden: minimum memory usage per Container is 1Gi, but request is 64Mi', "LimitRange"),
        ('pods "a" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true', "Namespace"),
        ('error looking up service account shop/web: serviceaccount "web" not found', "ServiceAccount"),
        ('admission webhook "policy.example" denied the request', "WebhookConfiguration"),
        ('ConfigMap "*" is invalid: data: Forbidden: field is immutable when `immutable` is set', "immutable"),
        ("connection refused", None),
    ],
)
def test_who_refused_is_read_from_the_message(message: str, kind: str | None) -> None:
    assert refused_by(message) == kind


@pytest.mark.parametrize(
    ("kind", "reason", "likely"),
    [
        ("ConfigMap", "CrashLoopBackOff", True),
        ("ConfigMap", "FailedScheduling", False),
        ("Service", "CrashLoopBackOff", False),
        ("NetworkPolicy", "Unready", True),
        ("Secret", "ImagePullBackOff", True),
        ("ResourceQuota", "OOMKilled", False),
        ("Node", "Unschedulable", True),
    ],
)
def test_some_changes_cannot_bring_about_some_complaints(kind: str, reason: str, likely: bool) -> None:
    change = a_change(a_resource(kind), path=("data", "x"))
    assert (plausible(change, reason, refused="") == 1.0) is likely


def test_a_refusal_blames_the_refuser_and_whoever_asked_for_more() -> None:
    restart: Change = a_change(path=("spec", "template", "metadata", "annotations", "restartedAt"))
    more = a_change(path=("spec", "replicas"), old=2, new=9)
    quota = a_change(a_resource("ResourceQuota", "compute"), path=("spec", "hard", "pods"), old="9", new="3")
    assert plausible(restart, "FailedCreate", refused="ResourceQuota") < 1
    assert plausible(more, "FailedCreate", refused="ResourceQuota") == 1
    assert plausible(quota, "FailedCreate", refused="ResourceQuota") == 1


def test_labels_are_cosmetic_but_those_of_a_namespace() -> None:
    path = ("metadata", "labels", "team")
    assert is_cosmetic(a_change(path=path))
    assert not is_cosmetic(a_change(a_resource("Namespace", "shop", None), path=path))
    assert not is_cosmetic(a_change(path=("spec", "template", "metadata", "labels", "team")))


def test_who_a_service_account_is_to_a_cloud_is_no_decoration() -> None:
    account = a_resource("ServiceAccount", "watchlist", "fraud")
    role = a_change(account, path=("metadata", "annotations", "eks.amazonaws.com/role-arn"), new=None)
    assert not is_cosmetic(role)
    assert is_cosmetic(a_change(account, path=("metadata", "annotations", "owner")))
    pods = a_workload(a_resource("Deployment", "watchlist", "fraud"), serviceAccountName="watchlist")
    assert reach(role, topology([pods]))[("workload", "fraud", "watchlist")] < 1


def wide(reason: str, *, at: float, message: str = "") -> list[Symptom]:
    return [
        a_symptom(a_resource("Deployment", f"{team}-1", team), reason, at=after(at), count=5, message=message)
        for team in TEAMS
    ]


def workloads() -> list[ObjectState]:
    return [a_workload(a_resource("Deployment", f"{team}-1", team)) for team in TEAMS]


def test_a_mutating_webhook_that_spoils_new_pods_everywhere() -> None:
    hook = a_resource("MutatingWebhookConfiguration", "sidecar-injector", None)
    rule: Json = {"apiGroups": [""], "resources": ["pods"], "operations": ["CREATE"]}
    state: Object = {"webhooks": [{"name": "inject.mesh.example", "rules": [rule], "namespaceSelector": {}}]}
    edit = a_change(hook, at=after(-20), path=("webhooks", (("name", "inject.mesh.example"),), "namespaceSelector"))
    restart = a_change(
        a_resource("Deployment", "search-1", "search"),
        at=after(-12),
        path=("spec", "template", "metadata", "annotations", "restartedAt"),
    )
    ranking = ranked(
        edit,
        restart,
        incident=an_incident(an_alert(after(30), name="KubePodNotReady", namespace="search", deployment="search-1")),
        symptoms=wide("ImagePullBackOff", at=-10),
        states=[a_state(hook, state), *workloads()],
    )
    assert first(ranking) == ("MutatingWebhookConfiguration", "sidecar-injector")
    assert any("acts on all 4 that complain" in one.sentence for one in ranking.suspects[0].evidence)


@pytest.mark.parametrize(
    ("kind", "path", "message"),
    [
        ("LimitRange", ("spec", "limits"), "is forbidden: minimum memory usage per Container is 1Gi"),
        (
            "Namespace",
            ("metadata", "labels", "pod-security.kubernetes.io/enforce"),
            'is forbidden: violates PodSecurity "restricted"',
        ),
    ],
)
def test_what_a_namespace_does_not_let_in(kind: str, path: tuple[str, ...], message: str) -> None:
    guard = a_resource(kind, "search", None if kind == "Namespace" else "search")
    names = ("suggest", "query-api", "indexer")
    homes = [a_resource("Deployment", name, "search") for name in names]
    bump = a_change(homes[0], at=after(-16), path=("spec", "template", "spec", "containers", 0, "image"))
    ranking = ranked(
        a_change(guard, at=after(-18), path=path, old=None, new="restricted"),
        bump,
        incident=an_incident(an_alert(after(30), name="Mismatch", namespace="search", deployment="suggest")),
        symptoms=[
            a_symptom(home, "FailedCreate", at=after(-12 + 3 * n), message=f'pods "{home.name}-x" {message}', count=9)
            for n, home in enumerate(homes)
        ],
        states=[a_workload(home) for home in homes],
    )
    assert first(ranking) == (kind, "search")


def test_a_disruption_budget_that_lets_nothing_be_evicted() -> None:
    budget = a_resource("PodDisruptionBudget", "inference", "media")
    refused = calls(
        "system:serviceaccount:kube-system:cluster-autoscaler", "create", "pods/eviction", rate=2, start=-15,
        code=429, error="Cannot evict pod as it would violate the pod's disruption budget.", namespace="media",
    )  # fmt: skip
    ranking = ranked(
        a_change(budget, at=after(-18), path=("spec", "minAvailable"), old=1, new="100%"),
        incident=an_incident(an_alert(after(30), name="NodeUpgradeStuck", namespace="kube-system")),
        load=[*background(), *refused],
        states=[a_workload(a_resource("Deployment", "inference", "media"))],
    )
    assert first(ranking) == ("PodDisruptionBudget", "inference")


def test_a_deployment_that_takes_the_room_of_others() -> None:
    big = a_resource("Deployment", "trainer", "ml")
    made = replace(
        a_change(big, at=after(-15), verb=Verb.CREATE), diffs=(FieldDiff((), "add", None, {"spec": {"replicas": 40}}),)
    )
    ranking = ranked(
        made,
        incident=an_incident(an_alert(after(30), name="KubePodNotReady", namespace="checkout")),
        symptoms=wide("FailedScheduling", at=-10, message="0/9 nodes are available: 9 Insufficient cpu."),
        states=[a_workload(big, replicas=40), *workloads()],
    )
    assert first(ranking) == ("Deployment", "trainer")


def test_a_selector_that_matches_nothing() -> None:
    service = a_resource("Service", "gateway", "media")
    spec: dict[str, Json] = {"spec": {"selector": {"app": "gateway", "instance": "new"}}}
    ranking = ranked(
        a_change(service, at=after(-15), path=("spec", "selector", "instance"), old=None, new="new"),
        incident=an_incident(an_alert(after(30), name="Ingress5xx", namespace="ingress", message="503 from gateway")),
        states=[a_state(service, spec), a_workload(a_resource("Deployment", "gateway", "media"))],
    )
    assert first(ranking) == ("Service", "gateway")
    assert "empties" in rules(ranking)


@pytest.mark.parametrize("way", ["scale", "delete"])
@pytest.mark.parametrize("others", [0, 1])
def test_a_service_whose_last_workload_is_taken_away(way: str, others: int) -> None:
    tax, service = a_resource("Deployment", "tax", "checkout"), a_resource("Service", "tax", "checkout")
    known = a_workload(tax)
    down = a_change(tax, at=after(-15), path=("spec", "replicas"), old=2, new=0)
    if way == "delete":
        whole = FieldDiff((), "remove", known.state, None)
        down = replace(a_change(tax, at=after(-15), verb=Verb.DELETE), diffs=(whole,))
    twins = [a_workload(a_resource("Deployment", "tax-2", "checkout"), labels={"app": "tax"})] * others
    ranking = ranked(
        down,
        incident=an_incident(an_alert(after(30), name="HighErrorRate", namespace="checkout", service="cart")),
        states=[*([known] if way == "scale" else []), a_state(service, {"spec": {"selector": {"app": "tax"}}}), *twins],
    )
    mine = next(suspect for suspect in ranking.suspects if suspect.change == down)
    assert ("empties" in {evidence.rule for evidence in mine.evidence}) is (others == 0)


def test_a_cordon_and_not_the_config_map_for_pods_without_a_place() -> None:
    inference = a_resource("Deployment", "inference", "media")
    config = a_resource("ConfigMap", "inference-config", "media")
    ranking = ranked(
        a_change(a_resource("Node", "gpu-1", None), at=after(-16), path=("spec", "unschedulable"), old=None, new=True),
        a_change(config, at=after(-14), path=("data", "batch"), old="1", new="2"),
        incident=an_incident(an_alert(after(30), name="KubePodNotReady", namespace="media", deployment="inference")),
        symptoms=[a_symptom(inference, "FailedScheduling", at=after(-12), count=8, message="1 node unschedulable")],
        states=[a_workload(inference, volumes=[{"name": "c", "configMap": {"name": "inference-config"}}])],
    )
    assert first(ranking) == ("Node", "gpu-1")


def test_a_rollout_whose_pods_were_well_for_long_speaks_against_it() -> None:
    web = a_resource("Deployment", "player", "media")
    bump = a_change(web, at=after(-110))
    secret = replace(a_change(a_resource("Secret", "player-creds", "media"), at=after(-15)), diffs=())
    done = Rollout(web, "u", 2, after(-110), Outcome.COMPLETE, after(-106), bump.id)
    ranking = ranked(
        bump,
        secret,
        incident=an_incident(an_alert(after(30), name="KubePodNotReady", namespace="media", deployment="player")),
        symptoms=[a_symptom(web, "Unready", at=after(-10), count=8)],
        states=[a_workload(web, volumes=[{"name": "c", "secret": {"secretName": "player-creds"}}])],
        rollouts=[done],
    )
    assert first(ranking) == ("Secret", "player-creds")
    (against,) = [e for s in ranking.suspects for e in s.evidence if s.change == bump and e.rule == "rollout"]
    assert against.sentence == "Its rollout went through and its pods were well for 95 s after."
    assert against.weight < -2.0


def test_one_caller_that_calls_for_three_things_is_one_rise() -> None:
    operator = a_resource("Deployment", "operator", "platform")
    user = "system:serviceaccount:platform:operator"
    lists = [
        call for plural in ("pods", "services", "configmaps") for call in calls(user, "list", plural, rate=8, start=-15)
    ]
    ranking = ranked(
        a_change(operator, at=after(-17), new="operator:2-nocache"),
        incident=an_incident(an_alert(after(30), name="KubeAPIServerCPUHigh", job="apiserver")),
        load=[*background(), *lists],
        states=[a_workload(operator, serviceAccountName="operator")],
    )
    assert first(ranking) == ("Deployment", "operator")
    load = next(e.sentence for e in ranking.suspects[0].evidence if e.rule == "load")
    assert "and 2 other sorts of call" in load


def test_writes_without_end_do_not_drown_who_began_them() -> None:
    operator = a_resource("Deployment", "annotator", "platform")
    user = "system:serviceaccount:platform:annotator"
    service = a_resource("Service", "checkout-1", "checkout")
    rewrites = [
        a_change(service, at=after(-14 + n / 20), path=("metadata", "annotations", "seen"), old=str(n), new=str(n + 1))
        for n in range(1000)
    ]
    ranking = ranked(
        a_change(operator, at=after(-16), new="annotator:2"),
        *rewrites,
        incident=an_incident(an_alert(after(40), name="KubeAPIServerCPUHigh", job="apiserver")),
        load=[*background(), *calls(user, "patch", "services", rate=20, start=-15)],
        states=[a_workload(operator, serviceAccountName="annotator")],
    )
    assert first(ranking) == ("Deployment", "annotator")
    assert ranking.suspects[0].probability > 0.5


def test_the_name_servers_configuration_reaches_every_pod() -> None:
    config, dns = a_resource("ConfigMap", "coredns", "kube-system"), a_resource("Deployment", "coredns", "kube-system")
    preview = a_resource("Deployment", "preview", "sandbox")
    ranking = ranked(
        a_change(config, at=after(-14), path=("data", "Corefile"), old=". {kubernetes}", new=". {}"),
        a_change(preview, at=after(-12)),
        incident=an_incident(an_alert(after(30), name="HttpErrorRateHigh")),
        symptoms=[*wide("Unready", at=-10), a_symptom(preview, "ImagePullBackOff", at=after(-11), count=3)],
        states=[a_workload(dns), a_workload(preview), *workloads()],
    )
    assert first(ranking) == ("ConfigMap", "coredns")


def test_a_wait_as_long_as_every_pod_waits_is_no_complaint() -> None:
    job = a_resource("Job", "import-1", "media")
    moment = replace(a_symptom(job, "Unschedulable", at=after(-60)), ended_at=after(-58))
    stuck = a_symptom(a_resource("Job", "import-2", "media"), "Unschedulable", at=after(-10))
    ranking = ranked(incident=an_incident(an_alert(after(30), namespace="media")), symptoms=[moment, stuck])
    assert not any("import-1" in finding.sentence for finding in ranking.findings)
    assert any("import-2" in finding.sentence for finding in ranking.findings)


def test_who_evicts_makes_the_controllers_work() -> None:
    descheduler = a_resource("Deployment", "descheduler", "kube-system")
    user = "system:serviceaccount:kube-system:descheduler"
    reacting = "system:serviceaccount:kube-system:replicaset-controller"
    ranking = ranked(
        a_change(a_resource("ConfigMap", "descheduler-config", "kube-system"), at=after(-17), path=("data", "policy")),
        incident=an_incident(an_alert(after(30), name="PodChurnHigh", namespace="search")),
        load=[
            *background(),
            *calls(user, "create", "pods/eviction", rate=2, start=-15),
            *calls(reacting, "create", "pods", rate=9, start=-15),
        ],
        states=[a_workload(descheduler, serviceAccountName="descheduler")],
    )
    assert first(ranking) == ("ConfigMap", "descheduler-config")


@pytest.mark.parametrize(
    ("account", "reacts"),
    [("replicaset-controller", True), ("generic-garbage-collector", True), ("descheduler", False), ("coredns", False)],
)
def test_only_the_controllers_of_kubernetes_merely_react(account: str, reacts: bool) -> None:
    assert only_reacts(f"system:serviceaccount:kube-system:{account}") is reacts


def test_labels_of_a_namespace_count_where_something_chooses_by_them() -> None:
    hook = a_resource("MutatingWebhookConfiguration", "mesh", None)
    chooses: Object = {
        "webhooks": [{"name": "m", "namespaceSelector": {"matchExpressions": [{"key": "mesh", "operator": "In"}]}}]
    }
    top = topology([a_state(hook, chooses)])

    def labelled(*keys: str) -> Change:
        edit = a_change(a_resource("Namespace", "shop", None), path=("metadata", "labels", keys[0]), old=None)
        more = tuple(FieldDiff(("metadata", "labels", key), "add", None, "x") for key in keys[1:])
        return replace(edit, diffs=(*edit.diffs, *more))

    assert top.ignores(labelled("team"))
    assert not top.ignores(labelled("mesh"))
    assert not top.ignores(labelled("team", "sidecar-injection"))
    assert not top.ignores(labelled("pod-security.kubernetes.io/enforce"))


def test_how_the_next_rollout_goes_changes_no_pod() -> None:
    assert is_inert(a_change(a_resource("DaemonSet", "cilium"), path=("spec", "updateStrategy", "maxUnavailable")))
    assert not is_inert(a_change(a_resource("DaemonSet", "cilium"), path=("spec", "template", "spec", "nodeName")))


def test_an_image_does_not_make_a_secret_vanish() -> None:
    image = a_change(path=("spec", "template", "spec", "containers", (("name", "web"),), "image"))
    label = a_change(path=("spec", "template", "metadata", "labels", "part-of"), old=None, new="shop")
    both = replace(image, diffs=(*image.diffs, *label.diffs))
    assert plausible(both, "CreateContainerConfigError", refused="") < 1
    assert plausible(label, "CreateContainerConfigError", refused="") == 1
    assert plausible(image, "CreateContainerConfigError", refused="") < 1
    assert plausible(image, "CrashLoopBackOff", refused="") == 1


def test_many_who_cannot_pull_at_once_have_no_one_rollout_to_blame() -> None:
    homes = [a_resource("Deployment", f"app-{n}", team) for n, team in enumerate(TEAMS * 2)]
    rollouts = [a_change(home, at=after(-30 + 3 * n), new=f"r/{home.name}:2") for n, home in enumerate(homes)]
    ranking = ranked(
        *rollouts,
        incident=an_incident(an_alert(after(30), name="KubeContainerWaiting", namespace="search", deployment="app-1")),
        symptoms=[
            a_symptom(home, "ImagePullBackOff", at=after(-29 + 3 * n), message=f"cannot pull r/{home.name}:2", count=4)
            for n, home in enumerate(homes)
        ],
        states=[a_workload(home) for home in homes],
    )
    alone = ranked(
        rollouts[1],
        incident=an_incident(an_alert(after(30), name="KubeContainerWaiting", namespace="search", deployment="app-1")),
        symptoms=[a_symptom(homes[1], "ImagePullBackOff", at=after(-26), message="cannot pull r/app-1:2", count=4)],
        states=[a_workload(homes[1])],
    )
    assert alone.none_of_these < 0.3 < ranking.none_of_these


def test_what_was_just_made_and_fails_is_not_why_others_do() -> None:
    preview = a_resource("Deployment", "preview-7", "search")
    made = replace(a_change(preview, at=after(-20), path=(), old=None, new={"spec": {}}), verb=Verb.CREATE)
    guilty = a_change(a_resource("Deployment", "ranker", "search"), at=after(-14))
    ranking = ranked(
        made,
        guilty,
        incident=an_incident(an_alert(after(30), name="HighErrorRate", namespace="search", deployment="ranker")),
        symptoms=[
            a_symptom(preview, "ImagePullBackOff", at=after(-19), count=9),
            a_symptom(guilty.resource, "CrashLoopBackOff", at=after(-11), count=9),
        ],
        states=[a_workload(guilty.resource), a_workload(preview)],
    )
    assert first(ranking) == ("Deployment", "ranker")
    assert ranking.onset.at >= after(-12)


def test_a_rollout_that_hangs_without_a_word_is_felt_by_who_calls_it() -> None:
    inbox = a_resource("Deployment", "inbox", "messaging")
    gateway = a_resource("Deployment", "gateway", "mobile")
    edit = a_change(inbox, at=after(-20), path=("spec", "template", "spec", "initContainers"), old=None, new=[])
    own = a_change(gateway, at=after(-40))
    calls_it: Json = {"name": "c", "env": [{"name": "INBOX", "value": "http://inbox.messaging.svc"}]}
    service = a_state(a_resource("Service", "inbox", "messaging"), {"spec": {"selector": {"app": "inbox"}}})
    template: Json = {"metadata": {"labels": {"app": "inbox"}}}
    hurried = a_state(inbox, {"spec": {"progressDeadlineSeconds": 60, "template": template}})
    stuck = Rollout(
        inbox, "u", 2, after(-20), Outcome.RUNNING, change_id=edit.id, progress=(Progress(after(0), 2, 2, 0),)
    )
    ranking = ranked(
        edit,
        own,
        incident=an_incident(an_alert(after(30), name="HighErrorRate", namespace="mobile", service="gateway")),
        symptoms=[a_symptom(gateway, "Unhealthy", at=after(-8), count=20)],
        states=[hurried, service, a_workload(gateway, containers=[calls_it])],
        rollouts=[stuck],
    )
    assert first(ranking) == ("Deployment", "inbox")
    assert any("hangs: 0 of 2 pods are available" in evidence.sentence for evidence in ranking.findings)


def test_what_follows_a_change_is_in_its_reach() -> None:
    """A person takes a label from a ClusterRole; the controller that aggregates roles takes the verbs from another."""
    tidied = a_change(
        a_resource("ClusterRole", "keda-scaling", None), at=after(-20), path=("metadata", "labels", "agg")
    )
    aggregate = a_resource("ClusterRole", "keda-operator", None)
    rule: Json = {"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["patch"]}
    derived = replace(a_change(aggregate, at=after(-19), path=("rules",), old=[rule], new=[]), begun_by=tidied.id)
    user = "system:serviceaccount:keda:keda-operator"
    binding = a_state(
        a_resource("ClusterRoleBinding", "keda", None),
        {
            "roleRef": {"kind": "ClusterRole", "name": "keda-operator"},
            "subjects": [{"kind": "ServiceAccount", "namespace": "keda", "name": "keda-operator"}],
        },
    )
    ranking = ranked(
        tidied,
        derived,
        incident=an_incident(an_alert(after(30), name="KafkaConsumerLagHigh", namespace="data")),
        load=background()
        + calls(user, "patch", "deployments/scale", rate=1, group="apps", end=-19)
        + calls(user, "patch", "deployments/scale", rate=1, group="apps", start=-18, code=403),
        states=[a_state(aggregate, {"rules": []}), binding],
    )
    assert first(ranking) == ("ClusterRole", "keda-scaling")


def test_an_annotation_is_read_by_whom_its_key_names() -> None:
    issuer = a_resource("Deployment", "cert-manager", "cert-manager")
    ingress = a_resource("Ingress", "mobile", "mobile")
    path = ("metadata", "annotations", "cert-manager.io/common-name")
    edit = a_change(ingress, at=after(-20), path=path, old=None, new="api")
    top = topology([a_workload(issuer, serviceAccountName="cert-manager")])
    user = "system:serviceaccount:cert-manager:cert-manager"
    assert ("user", user) in reach(edit, top)
    assert ("user", user) not in reach(replace(edit, actor=Actor(user, ActorSource.AUDIT)), top)


def test_an_error_that_names_what_a_change_put_in() -> None:
    ingress = a_resource("Ingress", "content", "content")
    edit = a_change(
        ingress, at=after(-20), path=("spec", "rules", "backend", "service", "name"), old="cms", new="site-web"
    )
    missing = 'services "site-web" not found'
    ranking = ranked(
        edit,
        incident=an_incident(an_alert(after(30), name="NginxIngress5xxRate", namespace="ingress-nginx")),
        load=background()
        + calls("system:serviceaccount:i:nginx", "get", "services", rate=1, start=-19, code=404, error=missing),
    )
    assert first(ranking) == ("Ingress", "content")
