"""What a recording has of the time before its incident is remembered when it is ranked."""

from __future__ import annotations

import gzip
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from app.collect.shift import shift_times
from app.commands import demo, evaluate
from app.commands.evaluate_cases import recording

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
WEEK, HOURS = timedelta(days=7), timedelta(hours=3)


def recorded(folder: Path, *, ago: timedelta = timedelta(), files: tuple[str, ...] = ()) -> Path:
    """The demo's recording, or some of its files, as of so long ago."""
    folder.mkdir(parents=True)
    for path in demo.FOLDER.iterdir():
        if path.name == "README.md" or (files and path.name not in files):
            continue
        is_packed = path.suffix == ".gz"
        data = gzip.decompress(path.read_bytes()) if is_packed else path.read_bytes()
        data = as_of(data, ago)
        (folder / path.name).write_bytes(gzip.compress(data) if is_packed else data)
    return folder


def as_of(data: bytes, ago: timedelta) -> bytes:
    """What was asked then has ids of its own, and what was written has earlier versions than now."""
    later = 0 if ago else 1_000_000
    data = re.sub(rb'("resourceVersion": ?")(\d+)', lambda m: m[1] + b"%d" % (int(m[2]) + later), data)
    data = re.sub(rb'"auditID": ?"', rb"\g<0>%d-" % ago.total_seconds(), data)
    return shift_times(data, seconds=-int(ago.total_seconds()))


def told(folder: Path, cluster: str, *verdicts: dict[str, str]) -> None:
    """Whose it is, and what was said; its alerts were over soon."""
    path = folder / "alerts.json"
    if path.exists():
        payload = json.loads(path.read_text())
        for alert in payload["alerts"]:
            ended = datetime.fromisoformat(alert["startsAt"]) + timedelta(minutes=5)
            alert |= {"status": "resolved", "endsAt": ended.isoformat()}
        path.write_text(json.dumps(payload | {"status": "resolved"}))
    (folder / "past.json").write_text(json.dumps({"cluster": cluster, "verdicts": verdicts}))


def with_past(folder: Path, *, opinion: str = "it", alerts: bool = True) -> Path:
    """The same happened in another cluster hours ago, and here a week ago; then people said what it was."""
    made = recorded(folder)
    logs = ("audit.jsonl.gz", "watch.jsonl.gz", *(("alerts.json",) if alerts else ()))
    culprit = json.loads((made / "label.json").read_text())["culprit"]
    at = datetime.fromisoformat(culprit["at"]) - WEEK
    what = {key: culprit[key] for key in ("kind", "namespace", "name")}
    week = recorded(made / "before" / "1", ago=WEEK, files=logs)
    told(week, "", {**what, "at": at.isoformat(), "opinion": opinion})
    told(recorded(made / "before" / "2", ago=HOURS, files=logs), "eu-2")
    return made


async def test_what_was_before_is_evidence(dsn: str, tmp_path: Path) -> None:
    case, answer = await recording(dsn, with_past(tmp_path / "one"), now=NOW)
    first = case.first.suspects[0]
    assert first.change.id in answer.right
    said = {one.rule: one.sentence for one in first.evidence}
    assert said["verdicts"] == "Of such a change of this object people said one time that it was it."
    assert said["elsewhere"].startswith("The same change was made in eu-2, and there ")
    assert {one.rule for one in case.second.suspects[0].evidence} >= {"verdicts", "elsewhere"}


async def test_it_is_no_part_of_the_incident_itself(dsn: str, tmp_path: Path) -> None:
    case, _ = await recording(dsn, with_past(tmp_path / "one"), now=NOW)
    assert {one.resource.cluster for one in case.changes} == {"recording"}
    assert min(one.at for one in case.changes) > case.at_alert.incident.started_at - timedelta(hours=1)
    assert len(evaluate.recordings(tmp_path)) == 1


async def test_each_memory_is_ablated(dsn: str, tmp_path: Path) -> None:
    result = await evaluate.evaluate(dsn, [with_past(tmp_path / "one")], now=NOW, ablate=True)
    whole = result.surprise
    assert whole
    for rule in ("verdicts", "elsewhere"):
        assert result.ablation[rule].surprise.at_alert > whole.at_alert
    assert result.ablation["habit"].surprise == whole
    assert "first ever" in result.ablation


async def test_a_past_that_says_nothing_clear_is_not_judged(dsn: str, tmp_path: Path) -> None:
    with_past(tmp_path / "unclear", opinion="perhaps")
    with_past(tmp_path / "silent", alerts=False)
    result = await evaluate.evaluate(dsn, evaluate.recordings(tmp_path), now=NOW)
    reasons = {one.name: one.reason.replace(f"{tmp_path}/", "") for one in result.not_judged}
    assert reasons["unclear"].startswith("unclear/before/1/past.json: ")
    assert '"opinion"' in reasons["unclear"]
    assert (
        reasons["silent"] == "silent/before/1/past.json: somebody judged a change of it, but no alert beside it fired"
    )
