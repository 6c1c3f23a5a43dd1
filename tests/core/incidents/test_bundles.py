from collections.abc import Iterable
from datetime import timedelta

import pytest
from msgspec.structs import replace

from app.core.findings import Scope
from app.core.incidents import bundles
from app.core.incidents.bundles import bundle, scope, title
from app.core.model import Symptom
from tests.core.factories import NOON, after, an_alert


def test_alerts_close_in_time_are_one_incident() -> None:
    (incident,) = bundle([an_alert(NOON), an_alert(after(20), name="KubeAPIDown")], [], cluster="lab")
    assert len(incident.alerts) == 2
    assert incident.started_at == NOON


def test_an_alert_seen_again_changes_nothing() -> None:
    alert = an_alert(NOON)
    (first,) = bundle([alert], [], cluster="lab")
    (again,) = bundle([alert], [first], cluster="lab")
    assert again == first


def test_what_many_alerts_are_about_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A namespace whose thousand pods fail tells a thousand at once."""
    read = list[int]()

    def counted(alerts: Iterable[Symptom]) -> Scope:
        told = list(alerts)
        read.append(len(told))
        return scope(told)

    monkeypatch.setattr(bundles, "scope", counted)
    many = [replace(an_alert(NOON), fingerprint=str(number)) for number in range(200)]
    (incident,) = bundle(many, [], cluster="lab")
    assert len(incident.alerts) == 200
    assert incident.scope == scope(many)
    assert sum(read) < 4 * len(many), "each alert by itself, and all of them once"


def test_an_alert_hours_later_is_another_incident() -> None:
    (first,) = bundle([an_alert(NOON)], [], cluster="lab")
    (second,) = bundle([an_alert(NOON + timedelta(hours=3), name="Other")], [first], cluster="lab")
    assert second.id != first.id


def test_it_is_resolved_when_every_alert_has_ended() -> None:
    one, two = an_alert(NOON), an_alert(after(5), name="Two")
    (opened,) = bundle([one, two], [], cluster="lab")
    (half,) = bundle([replace(one, ended_at=after(60))], [opened], cluster="lab")
    assert half.status == "open"
    (done,) = bundle([replace(two, ended_at=after(90))], [half], cluster="lab")
    assert (done.status, done.resolved_at) == ("resolved", after(90))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("TyphaPingLatencyHigh", "Typha ping latency high"),
        ("KubeAPIDown", "Kube API down"),
        ("AVeryLongName", "A very long name"),
        ("HTTPServerDown", "HTTP server down"),
        ("ETCDInsufficientMembers", "ETCD insufficient members"),
        ("PodsUseManyCPUs", "Pods use many CPUs"),
        ("IPv6PoolFull", "IPv6 pool full"),
        ("K8sNodeNotReady", "K8s node not ready"),
        ("HTTP5xxErrors", "HTTP 5xx errors"),
        ("DiskFull90Percent", "Disk full 90 percent"),
        ("kube_pod_crash_looping", "Kube pod crash looping"),
        ("[prod] node-1.2: disk full!", "[prod] node-1.2: disk full!"),
        ("ÜberwachungFehlt", "ÜberwachungFehlt"),
        ("etcd_members_down", "Etcd members down"),
    ],
)
def test_a_title_is_the_alert_in_words(name: str, words: str) -> None:
    assert title([an_alert(name=name)]) == words


@pytest.mark.parametrize(
    ("severities", "worst"),
    [
        (("warning", "Critical"), "Critical"),
        (("info", "page", "warning"), "page"),
        (("INFO", "sev1"), "sev1"),
        (("warning", "P1"), "P1"),
        (("info", "emergency"), "emergency"),
        (("error", "SEV-1"), "SEV-1"),
        (("P3", "high"), "high"),
        (("average", "disaster"), "disaster"),
        (("info", "banana"), "banana"),
        (("banana", "error"), "error"),
        (("", "debug"), "debug"),
    ],
)
def test_the_worst_severity_is_that_of_the_incident_in_any_case(severities: tuple[str, ...], worst: str) -> None:
    alerts = [an_alert(name=f"Alert{number}", severity=one) for number, one in enumerate(severities)]
    (incident,) = bundle(alerts, [], cluster="prod")
    assert incident.severity == worst


def test_scope_comes_from_the_usual_labels() -> None:
    found = scope([an_alert(name="KubePodCrashLooping", namespace="payments", pod="payments-api-6d5f7b8c9d-x2x4z")])
    assert found.namespaces == ("payments",)
    assert found.workloads == ("payments/payments-api",)
    assert not found.control_plane


def test_an_alert_on_the_api_server_is_about_the_control_plane() -> None:
    assert scope([an_alert(name="KubeAPIErrorBudgetBurn")]).control_plane
    assert scope([an_alert(name="TargetDown", job="etcd")]).control_plane
