"""Recordings as a Prometheus tells their alerts that asks exporters: `python -m tests.lab.exporters FROM TO`.

It adds the labels of its target. Where honor_labels is set, as kube-prometheus does for kube-state-metrics, what the
exporter says itself stays; else, as for the controller of Ingresses by its chart, that is called ``exported_…``:
https://prometheus.io/docs/prometheus/latest/configuration/configuration/#scrape_config .
"""

from __future__ import annotations

from pathlib import Path

import orjson

from app.core.alerted import WORKLOADS
from tests.lab.copied import main

ALERTS = "alerts.json"
_STATE = {
    "job": "kube-state-metrics",
    "namespace": "monitoring",
    "service": "stack-kube-state-metrics",
    "pod": "stack-kube-state-metrics-6f664bc8c4-5lwq6",
    "container": "kube-state-metrics",
}
_INGRESSES = {
    "job": "ingress-nginx-controller-metrics",
    "namespace": "ingress-nginx",
    "service": "ingress-nginx-controller-metrics",
    "pod": "ingress-nginx-controller-5d8c9c8b7f-abcde",
    "container": "controller",
}
_SCRAPED = {"endpoint": "http", "instance": "10.42.1.28:8080", "prometheus": "monitoring/stack-prometheus"}


def told(labels: dict[str, str]) -> dict[str, str]:
    """The labels of an alert as they come where an exporter told of it."""
    if labels.keys() & {*WORKLOADS, "node"}:
        return _STATE | _SCRAPED | labels
    if "ingress" in labels:
        return {(f"exported_{name}" if name in _INGRESSES else name): value for name, value in labels.items()} | {
            **_INGRESSES,
            **_SCRAPED,
        }
    return labels


def label(recording: Path) -> None:
    """Gives the alerts of a recording such labels."""
    payload = orjson.loads((recording / ALERTS).read_bytes())
    alerts = [alert | {"labels": told(alert["labels"])} for alert in payload["alerts"]]
    (recording / ALERTS).write_bytes(orjson.dumps(payload | {"alerts": alerts}))


if __name__ == "__main__":
    main(label, having=ALERTS)
