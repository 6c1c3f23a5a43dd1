"""What is of an app, and nothing ties to the incident, is hardly to blame; what a program with rights does may be."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.core.edges.indexing import topology
from app.core.edges.reach import reach
from app.core.entities import POD_MAKING
from app.core.findings import Ranking
from app.core.model import Actor, ActorSource, Change, Json, ObjectState, Verb
from app.core.ranking.apart import is_apart
from tests.core.company import ranked
from tests.core.factories import a_change, a_resource, a_state, a_symptom, a_workload, after, an_alert, an_incident

APP = a_resource("Deployment", "basket", "shop")
SYNC = a_resource("Deployment", "site-sync", "platform")
PROGRAM = "system:serviceaccount:cert-manager:cert-manager"
CERTIFICATE = a_resource("Secret", "basket-tls", "shop")


def states() -> list[ObjectState]:
    """An app that runs as nobody in particular, and a program that is bound to a role."""
    subject: Json = {"kind": "ServiceAccount", "name": "site-sync", "namespace": "platform"}
    role: Json = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "site-sync"}
    return [
        a_workload(APP, containers=[{"name": "web", "envFrom": [{"configMapRef": {"name": "basket"}}]}]),
        a_workload(SYNC, serviceAccountName="site-sync"),
        a_state(a_resource("ClusterRoleBinding", "site-sync", None), {"subjects": [subject], "roleRef": role}),
    ]


@pytest.mark.parametrize(
    ("change", "apart"),
    [
        (a_change(APP), True),
        (
            a_change(APP, path=("spec", "template", "spec", "containers", (("name", "web"),), "resources"), new={}),
            False,
        ),
        (a_change(a_resource("ConfigMap", "basket", "shop"), path=("data", "COLOUR"), old="a", new="b"), True),
        (a_change(a_resource("ConfigMap", "of-nobody", "shop"), path=("data", "COLOUR"), old="a", new="b"), False),
        (a_change(SYNC), False),
        (a_change(a_resource("DaemonSet", "agent", "shop")), False),
        (a_change(a_resource("NetworkPolicy", "basket", "shop"), path=("spec", "egress"), old=None, new=[]), False),
    ],
)
def test_what_does_nothing_for_others(change: Change, apart: bool) -> None:
    top = topology(states())
    assert is_apart(change, reach(change, top), top) is apart


def test_an_operator_that_is_gone_was_no_app() -> None:
    whole = states()[1].state
    gone = a_change(SYNC, path=(), old=whole, new=None, verb=Verb.DELETE)
    top = topology(state for state in states() if state.resource != SYNC)
    assert not is_apart(gone, reach(gone, top), top)


def calls_fail(*changes: Change, message: str = "") -> Ranking:
    return ranked(
        *changes,
        incident=an_incident(an_alert(after(30), name="ErrorsHigh", namespace="shop", service="basket")),
        symptoms=[a_symptom(APP, "Unhealthy", at=after(0), message=message, count=9)] if message else [],
        states=states(),
    )


def weight(ranking: Ranking, change: Change, rule: str) -> float:
    return sum(e.weight for s in ranking.suspects if s.change == change for e in s.evidence if e.rule == rule)


def test_where_nothing_is_known_a_program_with_rights_comes_before_an_app() -> None:
    elsewhere = a_resource("Deployment", "tariffs", "billing")
    release, sync = a_change(elsewhere, at=after(-8)), a_change(SYNC, at=after(-9))
    found = ranked(
        release,
        sync,
        incident=an_incident(an_alert(after(30), name="SitesBehind")),
        states=[*states(), a_workload(elsewhere)],
    )
    assert found.suspects[0].change == sync
    apps = [s.change for s in found.suspects[1:] if s.change.resource.kind == "Deployment"]
    assert apps
    assert all(weight(found, app, "plane") < -1.0 for app in apps)


def test_what_the_alert_names_is_tied() -> None:
    release = a_change(APP, at=after(-8))
    assert weight(calls_fail(release), release, "plane") == 0.0


@pytest.mark.parametrize(
    ("by", "message", "may"),
    [
        (PROGRAM, "HTTP 503", False),
        (PROGRAM, 'Get "https://basket": x509: certificate signed by unknown authority', True),
        ("carol@corp.example", "HTTP 503", True),
    ],
)
def test_a_certificate_that_a_program_renewed_where_nobody_speaks_of_one(by: str, message: str, *, may: bool) -> None:
    renewed = a_change(
        CERTIFICATE, at=after(-8), actor=Actor(by, ActorSource.AUDIT), path=("data", "tls.crt"), old="a", new="b"
    )
    mounts = a_workload(
        APP,
        containers=[{"name": "web"}],
        volumes=[{"name": "tls", "secret": {"secretName": "basket-tls"}}],
    )
    found = ranked(
        renewed,
        incident=an_incident(an_alert(after(30), name="ErrorsHigh", namespace="shop", service="basket")),
        symptoms=[a_symptom(APP, "Unhealthy", at=after(0), message=message, count=9)],
        states=[mounts],
    )
    assert (weight(found, renewed, "kind of change") < -1.0) is not may


@pytest.mark.parametrize(
    ("new", "weighs"), [("web:v2.0.1", 1.2), ("web:v1.4.0-r27", 0.5), ("web:v1.5.0", 0.5), ("other/web:v2.0.1", 0.5)]
)
def test_another_major_version(new: str, weighs: float) -> None:
    release = a_change(APP, at=after(-8), old="web:v1.4.0", new=new)
    assert weight(calls_fail(release), release, "kind of change") == weighs


@pytest.mark.parametrize(
    ("old", "new", "is_mended"),
    [
        ("web:v1.4.0", "web:v1.4.1", True),
        ("web:6.7.0-apache", "web:6.7.10-apache", True),
        ("web:1.4.1", "web:1.4.0", False),
        ("web:1.4.1", "web:1.5.0", False),
        ("web:1.4", "web:1.5", False),
        ("web:1.4.1.2", "web:1.4.1.3", False),
        ("web:1.4.0", "other:1.4.1", False),
    ],
)
def test_a_patch_release_is_believed_less(old: str, new: str, *, is_mended: bool) -> None:
    release = a_change(APP, at=after(-8), old=old, new=new)
    assert (weight(calls_fail(release), release, "kind of change") == 0.0) is is_mended


def test_what_a_mesh_is_told_in_its_own_namespace_leads_to_pods_everywhere() -> None:
    told = a_change(a_resource("ConfigMap", "istio", "istio-system"), path=("data", "mesh"), old="a", new="b")
    assert POD_MAKING in reach(told, topology(states()))
    assert POD_MAKING not in reach(a_change(a_resource("ConfigMap", "istio", "shop")), topology(states()))


@pytest.mark.parametrize(
    ("old", "new", "again"),
    [
        ("redis:7.4.2-r26", "redis:7.4.2-r27", True),
        ("redis:7.4.2-debian-12-r4", "redis:7.4.2-debian-12-r5", True),
        ("redis:7.4.2-1", "redis:7.5.0-1", False),
        ("redis:7.4-alpine3.19", "redis:7.4-alpine3.20", False),
        ("web:2026-11-25", "web:2026-11-26", False),
        ("web:412", "web:413", False),
    ],
)
def test_the_same_version_built_anew(old: str, new: str, *, again: bool) -> None:
    release = a_change(APP, at=after(-8), old=old, new=new)
    assert weight(calls_fail(release), release, "kind of change") == (-0.4 if again else 0.5)


@pytest.mark.parametrize(
    ("new", "weighs"),
    [("web:20260325-uat", 1.5), ("web:20260325-prod", 0.5), ("web:20260325-prod-test", 0.5), ("web:uatu", 0.5)],
)
def test_a_build_for_another_environment(new: str, weighs: float) -> None:
    release = a_change(APP, at=after(-8), old="web:20260324-prod", new=new)
    assert weight(calls_fail(release), release, "kind of change") == weighs


@pytest.mark.parametrize(("loosened", "tells"), [("75%", True), (0, False)])
def test_a_budget_that_lets_more_go_and_pods_that_went(loosened: Json, *, tells: bool) -> None:
    budget = a_resource("PodDisruptionBudget", "basket", "shop")
    edit = a_change(budget, at=after(-20), path=("spec", "maxUnavailable"), old=1, new=loosened)
    spec: Json = {"maxUnavailable": loosened, "selector": {"matchLabels": {"app": "basket"}}}
    pods = [
        replace(
            a_state(a_resource("Pod", f"basket-5d4f89c7b-{end}", "shop"), {"spec": {"nodeName": "n"}}),
            deleted_at=after(-4),
        )
        for end in ("x2x4b", "h7k9c")
    ]
    found = ranked(
        edit,
        incident=an_incident(an_alert(after(30), name="ErrorsHigh", namespace="shop", service="basket")),
        symptoms=[a_symptom(APP, "Unhealthy", at=after(0), message="HTTP 503", count=9)],
        states=[*states(), a_state(budget, {"spec": spec})],
        gone=pods,
    )
    assert any("may be evicted at once" in e.sentence for s in found.suspects for e in s.evidence) is tells
