"""One incident is recorded on a real control plane, and is what its label says."""

from __future__ import annotations

import asyncio
import gzip
import json
from datetime import datetime
from pathlib import Path

from tests.cluster.control_plane import BARE, CONTROLLERS
from tests.cluster.programs import found
from tests.lab.api import Json
from tests.lab.lab import Variation
from tests.lab.record import record
from tests.lab.scenario import load


def lines(file: Path) -> list[Json]:
    return [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]


def test_a_recording_is_what_its_label_says(tmp_path: Path) -> None:
    for program in (*BARE, *CONTROLLERS):
        found(program)
    label = asyncio.run(record(load()["config-value"], Variation(seed=7, alert_shift=-5), tmp_path))
    assert label == json.loads((tmp_path / "label.json").read_text())
    culprit = label["culprit"]
    assert (culprit["kind"], culprit["namespace"], culprit["name"]) == ("ConfigMap", "search", "indexer")

    audit = lines(tmp_path / "audit.jsonl.gz")
    [change] = [
        one for one in audit if one["verb"] == "patch" and one["requestURI"].endswith("/search/configmaps/indexer")
    ]
    assert change["user"]["username"] == culprit["actor"]
    assert (
        abs(datetime.fromisoformat(change["stageTimestamp"]) - datetime.fromisoformat(culprit["at"])).total_seconds()
        < 0.01
    )
    assert any("authentication.kubernetes.io/pod-name" in one["user"].get("extra", {}) for one in audit)

    watched = lines(tmp_path / "watch.jsonl.gz")
    version = change["responseObject"]["metadata"]["resourceVersion"]
    [seen] = [
        one
        for one in watched
        if one["object"]["kind"] == "ConfigMap" and one["object"]["metadata"]["resourceVersion"] == version
    ]
    assert seen["type"] == "MODIFIED"
    assert seen["object"]["metadata"]["managedFields"]

    # The alert follows from what happened: containers crash after the change; its time is wrong by the shift alone.
    crashed = [
        one["at"]
        for one in watched
        if one["type"] == "MODIFIED"
        and one["object"]["kind"] == "Pod"
        and "CrashLoopBackOff" in json.dumps(one["object"]["status"])
    ]
    assert crashed
    assert min(crashed) > culprit["at"]
    [alert] = json.loads((tmp_path / "alerts.json").read_text())["alerts"]
    late = datetime.fromisoformat(alert["startsAt"]) - datetime.fromisoformat(min(crashed))
    assert 0 < late.total_seconds() + 5 < 60

    state = json.loads(gzip.decompress((tmp_path / "state.json.gz").read_bytes()))
    assert any(one["metadata"]["name"] == "indexer" for one in state["configmaps"]["items"])
    assert not any("data" in one for one in state["secrets"]["items"])
    metrics = gzip.decompress((tmp_path / "metrics.om.gz").read_bytes()).decode()
    for job in ("apiserver", "kube-controller-manager", "kube-scheduler"):
        assert f'job="{job}"' in metrics
    assert 'http_requests_total{job="search/indexer",namespace="search",pod="indexer-' in metrics
    firing = f'ALERTS{{alertstate="firing",alertname="{alert["labels"]["alertname"]}",severity="critical",'
    assert firing in metrics
