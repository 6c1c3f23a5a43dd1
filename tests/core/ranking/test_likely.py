"""What can hardly be behind what is said: of rooms, names, autoscalers, new namespaces, and what operators roll out."""

from __future__ import annotations

import pytest

from app.core.edges.causes import cause_of
from app.core.edges.indexing import topology
from app.core.edges.mechanism import plausible
from app.core.model import Actor, ActorSource, Change, Object, Path, Resource, Verb
from app.core.ranking.candidates import candidates
from app.core.ranking.nearness import mentioned
from app.core.signals.complaints import symptom_signals
from tests.core.company import ranked
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


def test_an_autoscaler_that_was_just_made_complains_for_itself() -> None:
    """Its workload was there before, and is well."""
    api, scaler = a_resource("Deployment", "payroll", "hr"), a_resource("HorizontalPodAutoscaler", "payroll", "hr")
    target: Object = {"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "payroll"}}}
    made = a_change(scaler, at=after(-9), path=(), old=None, new=target, verb=Verb.CREATE)
    unknown = a_symptom(scaler, "FailedGetResourceMetric", at=after(-7), message="no metrics", count=9)
    hurt = a_symptom(a_resource("Deployment", "web", "hr"), "Unhealthy", at=after(0), message="payroll: i/o timeout")

    def weight(*before: Change) -> float:
        ranking = ranked(
            *before,
            incident=an_incident(an_alert(after(20), name="HTTPErrors", namespace="hr")),
            symptoms=[unknown, hurt],
            states=[a_workload(api), a_state(scaler, target)],
        )
        return next((f.weight for f in ranking.findings if "FailedGetResourceMetric" in f.sentence), 0.0)

    edited = a_change(scaler, at=after(-9), path=("spec", "maxReplicas"), old=3, new=4)
    assert weight(made) < weight(edited) / 2


def test_of_many_that_find_no_room_one_more_pod_explains_a_part() -> None:
    homes = [a_resource("Deployment", f"ws-{n}", "workspaces") for n in range(20)]
    one = a_resource("Deployment", "web", "shop")
    template: Object = {"spec": {"replicas": 1, "template": {"metadata": {}, "spec": {}}}}
    made = a_change(one, at=after(-9), path=(), old=None, new=template, verb=Verb.CREATE)

    def symptoms(many: int) -> float:
        lacking = [
            a_symptom(home, "FailedScheduling", at=after(0), message="0/6 nodes: Insufficient memory", count=9)
            for home in homes[:many]
        ]
        ranking = ranked(
            made,
            incident=an_incident(an_alert(after(20), name="KubePodPending")),
            symptoms=lacking,
            states=[*(a_workload(home) for home in homes), a_state(one, template)],
        )
        return sum(e.weight for e in ranking.suspects[0].evidence if e.rule == "symptoms")

    assert symptoms(20) < symptoms(3) / 2


@pytest.mark.parametrize(
    ("kind", "message", "named"),
    [
        ("ConfigMap", "configmap 'ledger' is missing", True),
        ("ConfigMap", "dial tcp ledger.pay:80: i/o timeout", False),
        ("ConfigMap", "Get http://ledger/ready: 503", False),
        ("HorizontalPodAutoscaler", "lookup ledger: no such host", False),
        ("Service", "dial tcp ledger.pay:80: i/o timeout", True),
    ],
)
def test_a_server_that_is_named_by_its_address_is_no_configuration(kind: str, message: str, named: bool) -> None:
    change = a_change(a_resource(kind, "ledger", "pay"), path=("data", "x"))
    (candidate,) = candidates([change], [], [], topology=topology([]), until=after(0))
    told = a_symptom(a_resource("Deployment", "web", "pay"), "Unhealthy", message=message)
    (signal,) = symptom_signals([told], start=after(-60), end=after(30))
    assert (mentioned(candidate, signal) is not None) is named


@pytest.mark.parametrize(
    ("verb", "reason", "can"),
    [
        (Verb.CREATE, "OutOfmemory", False),
        (Verb.CREATE, "FailedCreate", True),
        (Verb.UPDATE, "Unhealthy", True),
    ],
)
def test_a_new_namespace_is_only_where_things_are(verb: Verb, reason: str, can: bool) -> None:
    home = a_change(a_resource("Namespace", "workspaces", None), path=("metadata", "labels", "x"), verb=verb)
    assert (plausible(home, reason, refused="") == 1) is can


def test_a_kubelet_that_does_not_admit_a_pod_finds_no_room() -> None:
    assert plausible(a_change(a_resource("ConfigMap", "a"), path=("data", "x")), "OutOfcpu", refused="") < 1


@pytest.mark.parametrize(
    ("path", "leads"),
    [
        (("spec", "template", "spec", "containers", (("name", "a"),), "image"), False),
        (("spec", "template", "spec", "volumes"), True),
    ],
)
def test_a_custom_resource_leads_to_what_its_operator_rolled_out(path: Path, leads: bool) -> None:
    engine = Resource("lab", "search.example", "SearchEngine", "pay", "audit")
    order = a_change(engine, at=after(-9), path=("spec", "version"), old="3.3.0", new="3.4.0")
    audit = a_resource("StatefulSet", "audit", "pay")
    operator = Actor("system:serviceaccount:pay:search-operator", ActorSource.AUDIT)
    rolled_out = a_change(audit, at=after(-7), path=path, actor=operator)
    program = a_workload(a_resource("Deployment", "search-operator", "pay"), serviceAccountName="search-operator")
    states = [program, a_workload(audit), a_state(engine, {"spec": {}})]
    ranking = ranked(
        order,
        rolled_out,
        incident=an_incident(an_alert(after(20), name="KubePodCrashLooping", namespace="pay", statefulset="audit")),
        symptoms=[a_symptom(audit, "Error", at=after(0), message="PKIX path validation failed", count=9)],
        load=calls(operator.name, "watch", "searchengines", rate=1, group="search.example"),
        states=states,
    )
    suspect = next(s for s in ranking.suspects if s.change.id == order.id)
    assert suspect.derived == (rolled_out.id,)
    weight = next(e.weight for e in suspect.evidence if e.rule == "symptoms")
    assert (weight > 1) is leads


def test_what_the_alert_names_weighs_more_where_nothing_turned_bad_clearly() -> None:
    web = a_resource("Deployment", "web")

    def scope(count: int) -> float:
        ranking = ranked(
            a_change(web, at=after(-20)),
            incident=an_incident(an_alert(after(30), name="TasksLate", namespace="shop", service="web")),
            symptoms=[a_symptom(web, "Unhealthy", at=after(-5), count=count)] if count else [],
            states=[a_workload(web)],
        )
        suspect = next(s for s in ranking.suspects if s.change.resource == web)
        return next(e.weight for e in suspect.evidence if e.rule == "scope")

    assert scope(0) == pytest.approx(1.5 * scope(40))


def edit(kind: str, field: str) -> Change:
    return a_change(a_resource(kind, "thing"), at=after(-10), path=("spec", field), new="x")


@pytest.mark.parametrize(
    ("message", "leads", "not_from"),
    [
        ("exec /usr/local/bin/app: exec format error", ("Deployment", "image"), ("ConfigMap", "x")),
        (
            'failed to get sandbox runtime: no runtime for "kata" is configured',
            ("DaemonSet", "x"),
            ("Deployment", "image"),
        ),
        (
            "AttachVolume.Attach failed: googleapi: Error 503: backendError",
            ("StorageClass", "x"),
            ("StatefulSet", "image"),
        ),
        ("Error 1054 (42S22): Unknown column 'm.city_id' in 'field list'", ("Job", "x"), ("ConfigMap", "x")),
        ('ERROR: relation "orders" does not exist', ("Deployment", "image"), ("Secret", "x")),
        ("invalid peer certificate: UnknownIssuer", ("Secret", "x"), ("Deployment", "image")),
        ('Failed to pull image "a": no basic auth credentials', ("EC2NodeClass", "x"), ("ConfigMap", "x")),
    ],
)
def test_what_can_be_behind_what_is_said(message: str, leads: tuple[str, str], not_from: tuple[str, str]) -> None:
    cause = cause_of([message])
    assert cause is not None
    assert cause.leads(edit(*leads))
    assert not cause.leads(edit(*not_from))


MAKER = "system:serviceaccount:kube-system:replicaset-controller"
LIMIT = a_change(
    a_resource("LimitRange", "containers", "shop"),
    at=after(-40),
    path=("spec", "limits", "0", "max", "memory"),
    old="2Gi",
    new="768Mi",
)
BOUND = a_change(a_resource("ValidatingAdmissionPolicyBinding", "images", None), at=after(-40), verb=Verb.CREATE)


@pytest.mark.parametrize(
    ("change", "text", "code"),
    [
        (LIMIT, "maximum memory usage per Container is 768Mi, but limit is 1Gi", 403),
        (BOUND, "ValidatingAdmissionPolicy 'images' with binding 'images' denied request: not from our registry", 422),
    ],
    ids=["LimitRange", "binding of a policy"],
)
def test_that_others_pods_pass_says_nothing_of_what_looks_at_each(change: Change, text: str, code: int) -> None:
    """Pods that pass were made all the while."""
    offers = a_resource("Deployment", "offers", "shop")
    refused = a_symptom(offers, "FailedCreate", at=after(0), message=f'pods "offers-1" is forbidden: {text}', count=9)
    passing = calls(MAKER, "create", "pods", rate=1, namespace="shop")
    denied = calls(MAKER, "create", "pods", rate=1, start=0, code=code, error=text, namespace="shop")
    ranking = ranked(
        change,
        incident=an_incident(an_alert(after(20), name="KubeDeploymentReplicasMismatch", namespace="shop")),
        load=[*passing, *denied],
        symptoms=[refused],
        states=[a_workload(offers)],
    )
    assert ranking.suspects[0].change.id == change.id
    assert sum(e.weight for e in ranking.suspects[0].evidence if e.rule == "symptoms") > 2
