"""One incident is recorded on a real control plane, and is what its label says."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from tests.cluster.control_plane import BARE, CONTROLLERS
from tests.cluster.programs import found
from tests.lab.api import Json
from tests.lab.before import before
from tests.lab.lab import Lab, Variation
from tests.lab.record import record
from tests.lab.scenario import Family, load


def lines(file: Path) -> list[Json]:
    return [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]


def with_a_week_before(family: Family) -> Family:
    """The same in a company that keeps what it did a week ago, and three hours ago in another cluster."""

    async def play(lab: Lab) -> AsyncIterator[None]:
        async with before(lab, days=7) as then:
            change = await lab.edit("bob", "ConfigMap", "shop", "frontend", {"data": {"TIMEOUT_MS": "1"}})
            then.judge(change, "not it")
            await lab.pause(1)
        async with before(lab, hours=3, cluster="eu-2"):
            await lab.pause(1)
        async for moment in family.play(lab):
            yield moment

    return replace(family, play=play)


def test_a_recording_is_what_its_label_says(tmp_path: Path) -> None:
    for program in (*BARE, *CONTROLLERS):
        found(program)
    family = with_a_week_before(load()["config-value"])
    label = asyncio.run(record(family, Variation(seed=7, alert_shift=-5), tmp_path))
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

    # What was before is told as of then, and of the cluster in which it was.
    mine, other = ({path.name for path in (tmp_path / "before" / number).iterdir()} for number in "12")
    assert (mine, other) == ({"audit.jsonl.gz", "watch.jsonl.gz", "past.json"}, mine | {"alerts.json"})
    past = json.loads((tmp_path / "before" / "1" / "past.json").read_text())
    [verdict] = past["verdicts"]
    assert (past["cluster"], verdict["kind"], verdict["namespace"], verdict["name"]) == (
        "",
        "ConfigMap",
        "shop",
        "frontend",
    )
    assert verdict["opinion"] == "not it"
    [write] = [
        one
        for one in lines(tmp_path / "before" / "1" / "audit.jsonl.gz")
        if one["verb"] == "patch"
        and one["requestURI"].endswith("/shop/configmaps/frontend")
        and one["user"]["username"].startswith("bob")
    ]
    assert write["stageTimestamp"] == verdict["at"]
    ago = datetime.fromisoformat(label["began"]) - datetime.fromisoformat(verdict["at"])
    assert timedelta(days=7) < ago < timedelta(days=7, minutes=5)
    assert json.loads((tmp_path / "before" / "2" / "past.json").read_text()) == {"cluster": "eu-2", "verdicts": []}
    [tried] = json.loads((tmp_path / "before" / "2" / "alerts.json").read_text())["alerts"]
    assert tried["status"] == "resolved"
