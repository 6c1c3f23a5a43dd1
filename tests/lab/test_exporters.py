"""Alerts as exporters tell them."""

from __future__ import annotations

import json
from pathlib import Path

from msgspec.structs import replace

from app.core.incidents.bundles import scope
from app.core.model import Symptom
from tests.core.factories import an_alert
from tests.lab.copied import copy_each
from tests.lab.exporters import ALERTS, label, told


def labelled(labels: dict[str, str]) -> Symptom:
    return replace(an_alert(name="Slow"), labels=tuple(labels.items()))


def test_what_an_alert_is_about_is_left_by_the_labels_of_who_told_it(tmp_path: Path) -> None:
    found = {
        "workload": {"namespace": "shop", "deployment": "web"},
        "ingress": {"namespace": "shop", "ingress": "web", "service": "web"},
        "node": {"node": "node-1"},
        "app": {"namespace": "shop", "service": "web"},
    }
    for name, labels in found.items():
        (tmp_path / "from" / name).mkdir(parents=True)
        (tmp_path / "from" / name / "label.json").write_text("{}")
        (tmp_path / "from" / name / "alerts.json").write_text(json.dumps({"alerts": [{"labels": labels}]}))
    copy_each(tmp_path / "from", tmp_path / "to", label, having=ALERTS)
    for name, labels in found.items():
        (alert,) = json.loads((tmp_path / "to" / name / "alerts.json").read_text())["alerts"]
        assert alert["labels"] == told(labels)
        assert scope([labelled(alert["labels"])]) == scope([labelled(labels)])
    assert told(found["app"]) == found["app"]
    assert told(found["ingress"])["namespace"] == "ingress-nginx"
