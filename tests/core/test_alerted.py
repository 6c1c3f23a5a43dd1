"""What an alert is about, with the labels that kube-prometheus' alerts really have."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.core.alerted import about, text_of, told_in
from app.core.findings import Scope
from app.core.incidents.bundles import scope
from tests.core.factories import an_alert

TARGET = {"endpoint": "http", "instance": "10.42.1.28:8080", "prometheus": "monitoring/kube-prometheus-stack"}
STATE = {
    **TARGET,
    "job": "kube-state-metrics",
    "container": "kube-state-metrics",
    "pod": "stack-kube-state-metrics-6f664bc8c4-5lwq6",
    "service": "stack-kube-state-metrics",
}
KUBELET = {**TARGET, "job": "kubelet", "metrics_path": "/metrics", "node": "node-3", "service": "stack-kubelet"}
NODE_EXPORTER = {
    **TARGET,
    "job": "node-exporter",
    "namespace": "monitoring",
    "container": "kube-rbac-proxy",
    "pod": "stack-prometheus-node-exporter-w7bb7",
    "service": "stack-prometheus-node-exporter",
}


@pytest.mark.parametrize(
    ("name", "labels", "found"),
    [
        (
            "KubeDeploymentReplicasMismatch",
            {**STATE, "namespace": "payments", "deployment": "api"},
            Scope(("payments",), ("payments/api",)),
        ),
        (
            "KubePodCrashLooping",
            {**STATE, "namespace": "payments", "pod": "api-849ffcf9c7-wbmvz", "container": "app"},
            Scope(("payments",), ("payments/api", "payments/app")),
        ),
        ("KubeHpaMaxedOut", {**STATE, "namespace": "shop", "horizontalpodautoscaler": "web"}, Scope(("shop",))),
        (
            "KubeQuotaAlmostFull",
            {one: value for one, value in STATE.items() if one not in ("job", "instance")}
            | {"namespace": "shop", "resourcequota": "team", "resource": "pods"},
            Scope(("shop",)),
        ),
        ("KubeNodeNotReady", {**STATE, "namespace": "monitoring", "node": "node-1"}, Scope(nodes=("node-1",))),
        (
            "KubePersistentVolumeFillingUp",
            {**KUBELET, "namespace": "shop", "persistentvolumeclaim": "data-db-0"},
            Scope(("shop",), nodes=("node-3",)),
        ),
        ("KubeletPlegDurationHigh", {**KUBELET, "namespace": "kube-system"}, Scope(nodes=("node-3",))),
        ("NodeFilesystemAlmostOutOfSpace", {**NODE_EXPORTER, "device": "/dev/sdb1"}, Scope()),
        (
            "TargetDown",  # as its rule adds it up: of the exporter itself
            {"job": "node-exporter", "namespace": "monitoring", "service": "node-exporter"},
            Scope(("monitoring",), ("monitoring/node-exporter",)),
        ),
        (
            "PostgresDown",  # of an exporter that is asked without honor_labels
            {**TARGET, "job": "exporter", "namespace": "monitoring", "pod": "exporter-0", "exported_namespace": "shop"}
            | {"exported_pod": "db-0"},
            Scope(("shop",), ("shop/db",)),
        ),
        (
            "PaymentsSlow",
            {**TARGET, "job": "api", "namespace": "payments", "service": "api", "pod": "api-849ffcf9c7-wbmvz"},
            Scope(("payments",), ("payments/api",)),
        ),
    ],
)
def test_an_alert_is_about_what_its_exporter_tells_of(name: str, labels: dict[str, str], found: Scope) -> None:
    told = replace(an_alert(name=name), labels=tuple(sorted({"alertname": name, **labels}.items())))
    assert scope([told]) == found


def test_who_told_of_another_is_known_by_where_it_stands() -> None:
    assert told_in({"namespace": "ingress-nginx", "exported_namespace": "shop"}.items()) == "ingress-nginx"
    assert told_in({**STATE, "namespace": "shop", "deployment": "web"}.items()) is None


def test_an_exporter_and_who_evaluates_are_named_by_no_alert_of_others() -> None:
    labels = {**STATE, "namespace": "payments", "deployment": "api"}.items()
    assert "state-metrics" not in text_of(labels)
    assert "prometheus" not in about(labels)
