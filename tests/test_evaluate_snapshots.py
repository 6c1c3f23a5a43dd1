"""ITBench snapshots through everything: told, ranked, and compared with their ground truth."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app.collect.files import UnreadableError
from app.commands import evaluate
from app.commands.diagram import svg
from app.commands.evaluate import Result
from app.commands.evaluate_pool import pooled
from app.commands.evaluate_snapshots import snapshot
from app.commands.scores import as_json, as_table
from app.core.ranking.evidence import RULES
from app.core.ranking.precedents import RECALLS
from app.core.signals.loads import Apart
from app.failures import Exit
from tests.collect.itbench_made import alert, at, config_map, deployment, listed, pod, put, replica_set, table, warned
from tests.test_cli import foreshock

NOW = at(24 * 3600)
BROKE = 440
"""The second in which a Deployment got an image that there is not; it is listed in 600 for the first time."""
WATCHDOG = alert("Watchdog", -7000, severity="none")
LONG_AGO = alert("KubeCronJobRunning", -3000)
TRUTH = r"""
alerts:
  - {id: HighRequestErrorRate, group_id: api-service-1}
fault:
  - {category: Change, condition: Image of api is not there, fault_mechanism: image}
groups:
  - {id: api-pod-1, kind: Pod, namespace: shop, filter: ['api-.*'], root_cause: true}
  - {id: web-service-1, kind: Service, namespace: shop, filter: ['web\b']}
propagations:
  - {source: api-pod-1, target: web-service-1, condition: api is away, effect: web fails}
"""
CHAOS = TRUTH.replace("kind: Pod, namespace: shop", "kind: NetworkChaos, namespace: chaos-mesh")


def a_snapshot(folder: Path, *, second: float, truth: str | None = TRUTH, more: str = "", **alerts: Any) -> Path:
    """A Deployment breaks; the alert comes at a ``second``. ``more`` rows stand behind the others."""
    before = [replica_set("web", "1"), pod("web", "1"), replica_set("api", "1"), pod("api", "1")]
    before += [deployment("web", 5, "web:1"), deployment("api", 6, "api:1"), config_map("noise", 7, a="1")]
    quiet = [*before[:-1], config_map("noise", 8, a="2", wrote=120)]
    broken = [*before[:4], replica_set("api", "2", created=BROKE + 1, version=21)]
    broken += [pod("api", "2", created=BROKE + 1, version=25, waiting="ImagePullBackOff")]
    broken += [deployment("web", 5, "web:1"), deployment("api", 22, "api:none", wrote=BROKE), quiet[-1]]
    ill = pod("api", "2")
    said = 'Failed to pull image "api:none": not found'
    events = [warned(BROKE + 5 + 10 * n, ill, "Failed", said, count=n + 1) for n in range(4)]
    firing = [WATCHDOG, LONG_AGO, alert("HighRequestErrorRate", second, service_name="api")]
    return put(
        folder,
        objects=table(listed(before, quiet, broken, broken)) + more,
        events=table(events, zone=" +0000 UTC"),
        alerts={"2026-11-21T11-25-00.5": alerts.get("alerts", firing)},
        truth=truth,
    )


async def judged(dsn: str, folder: Path) -> Result:
    return await evaluate.evaluate(dsn, evaluate.recordings(folder), now=NOW)


async def test_a_change_is_found_once_it_was_listed(dsn: str, tmp_path: Path) -> None:
    a_snapshot(tmp_path / "early", second=480)
    a_snapshot(tmp_path / "late", second=640)
    result = await judged(dsn, tmp_path)
    assert [(one.name, one.when, one.rank) for one in result.verdicts] == [
        ("early", "alert", None),
        ("early", "later", 1.0),
        ("late", "alert", 1.0),
        ("late", "later", 1.0),
    ]
    assert all("api" in one.top for one in result.verdicts if one.rank)
    assert result.accuracy["foreshock, at the alert"].cases == 2
    assert (result.remarks, result.not_judged) == ((), ())


async def test_a_root_cause_that_was_not_listed_is_no_culprit_among_the_changes(dsn: str, tmp_path: Path) -> None:
    a_snapshot(tmp_path / "chaos", second=640, truth=CHAOS)
    a_snapshot(tmp_path / "change", second=640)
    result = await judged(dsn, tmp_path)
    assert result.accuracy["foreshock, at the alert"].cases == 1
    assert result.none_told is not None
    [remark] = result.remarks
    cause = "NetworkChaos chaos-mesh/api-.*"
    assert remark.name == "chaos"
    assert remark.said == f"no change of its root cause ({cause}) was recorded: without a culprit, as far as is known"
    assert f"chaos: {remark.said}" in "\n".join(as_table(result))
    assert json.loads(as_json(result))["remarks"] == [{"name": "chaos", "said": remark.said}]


async def test_one_of_the_same_edits_of_many_objects_is_the_answer_too(dsn: str, tmp_path: Path) -> None:
    before = [config_map(name, 5, size="1") for name in ("one", "two")]
    after = [config_map(name, 9 + n, wrote=200 + n, size="2") for n, name in enumerate(("one", "two"))]
    truth = "groups: [{kind: ConfigMap, namespace: shop, name: two, root_cause: true}]"
    alerts = {"2026-11-21T11-25-00": [alert("Slow", 640)]}
    put(tmp_path / "s", objects=table(listed(before, after, after)), alerts=alerts, truth=truth)
    case, _ = await snapshot(dsn, tmp_path / "s", now=NOW)
    assert [(one.change.resource.name, len(one.also)) for one in case.first.suspects] == [("one", 1)]
    result = await judged(dsn, tmp_path)
    assert [one.rank for one in result.verdicts] == [1.0, 1.0]


async def test_what_was_written_with_the_first_is_first_and_told_apart(dsn: str, tmp_path: Path) -> None:
    before = [config_map("one", 5, size="1"), config_map("two", 5, colour="red")]
    after = [config_map("one", 9, wrote=200, size="2"), config_map("two", 10, wrote=200, colour="blue")]
    for name in ("one", "two"):
        truth = f"groups: [{{kind: ConfigMap, namespace: shop, name: {name}, root_cause: true}}]"
        alerts = {"2026-11-21T11-25-00": [alert("Slow", 640)]}
        put(tmp_path / name, objects=table(listed(before, after, after)), alerts=alerts, truth=truth)
    found = (await judged(dsn, tmp_path)).accuracy
    assert found["foreshock, at the alert"].ac1 == 1.0
    assert found["the same, without what is beside"].ac1 == 0.5
    assert found["most recent"].ac1 == 1.0


async def test_what_cannot_be_judged_is_told_and_the_others_are_evaluated(dsn: str, tmp_path: Path) -> None:
    a_snapshot(tmp_path / "good", second=640, more="yesterday\n")
    a_snapshot(tmp_path / "unlabelled", second=640, truth=None)
    a_snapshot(tmp_path / "odd-truth", second=640, truth="groups: [")
    a_snapshot(tmp_path / "no-cause", second=640, truth="fault: []")
    a_snapshot(tmp_path / "no-alert", second=640, alerts=[WATCHDOG, LONG_AGO])
    objects = a_snapshot(tmp_path / "no-object", second=640) / "k8s_objects_raw.tsv"
    objects.unlink()
    result = await judged(dsn, tmp_path)
    assert {one.name for one in result.verdicts} == {"good"}
    reasons = {one.name: one.reason.replace(f"{tmp_path}/", "") for one in result.not_judged}
    assert reasons == {
        "unlabelled": "unlabelled: is not labelled: it has no ground_truth.yaml",
        "odd-truth": reasons["odd-truth"],
        "no-cause": 'no-cause/ground_truth.yaml: it names no root cause: neither "groups" with root_cause: true nor'
        ' "entities"',
        "no-alert": "no-alert: no alert in it began while objects were recorded, so there is no incident",
        "no-object": "no-object: there is no object in k8s_objects_raw.tsv, so there are no changes to rank",
    }
    assert reasons["odd-truth"].startswith("odd-truth/ground_truth.yaml: ")
    [refused] = result.remarks
    assert refused.name == "good"
    assert refused.said.startswith(f"refused: {tmp_path}/good/k8s_objects_raw.tsv, line 34, column 1: it has 1 columns")


async def test_of_rows_that_are_not_sorted_it_is_said_where_nothing_can_be_judged(dsn: str, tmp_path: Path) -> None:
    objects = a_snapshot(tmp_path / "newest-first", second=440) / "k8s_objects_raw.tsv"
    head, *rows = objects.read_text().splitlines()
    objects.write_text("\n".join([head, *reversed(rows)]) + "\n")
    [found] = (await judged(dsn, tmp_path)).not_judged
    assert "no alert in it began while objects were recorded" in found.reason
    assert "rows of it could not be used, first " in found.reason
    assert "it is older than the row before it: sort the rows by their Timestamp" in found.reason


@pytest.mark.parametrize(("named", "second"), [("HighRequestErrorRate", 640), ("NobodyKnows", 30)])
async def test_the_incident_is_that_of_the_alerts_which_the_ground_truth_names(
    dsn: str, tmp_path: Path, named: str, second: float
) -> None:
    firing = [WATCHDOG, LONG_AGO, alert("Other", 30), alert("HighRequestErrorRate", 640, service_name="api")]
    truth = TRUTH.replace("HighRequestErrorRate", named)
    folder = a_snapshot(tmp_path / "one", second=640, alerts=firing, truth=truth)
    case, answer = await snapshot(dsn, folder, now=NOW)
    assert case.at_alert.now == case.at_alert.incident.started_at == at(second)
    assert answer.has_culprit is (second > BROKE), "what came after the alert is no answer"


async def test_nothing_later_than_the_ranking_is_known_to_it(dsn: str, tmp_path: Path) -> None:
    folder = a_snapshot(tmp_path / "one", second=480)
    again = alert("Again", 482)
    over = alert("Slow", 470)
    for when, firing in {"11-08-30": [over, again], "11-09-00": [again], "11-30-00": []}.items():
        (folder / "alerts" / f"alerts_at_2026-11-21T{when}.json").write_text(json.dumps(firing))
    case, _ = await snapshot(dsn, folder, now=NOW)
    for gathered in (case.at_alert, case.later):
        assert all(one.at <= gathered.now for one in gathered.changes)
        assert all(one.ended_at is None or one.ended_at <= gathered.now for one in gathered.symptoms)
        assert all(one.at <= gathered.now for one in gathered.incident.alerts)
    assert case.later.now == at(660)


def test_a_folder_without_any_is_said_in_words(tmp_path: Path) -> None:
    with pytest.raises(
        UnreadableError, match=r"no recording in it .*, and no ITBench snapshot \(k8s_objects_raw.tsv\)"
    ):
        evaluate.recordings(tmp_path)


async def test_it_is_ranked_again_when_all_was_listed_once_more(dsn: str, tmp_path: Path) -> None:
    case, _ = await snapshot(dsn, a_snapshot(tmp_path / "one", second=640), now=NOW)
    assert case.later.now - at(900) < timedelta(seconds=1)


def test_recordings_and_snapshots_may_lie_in_one_folder(tmp_path: Path) -> None:
    a_snapshot(tmp_path / "b", second=640)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "label.json").write_text("{}")
    assert [path.name for path in evaluate.recordings(tmp_path)] == ["b", "c"]


async def test_each_rule_is_left_out_in_turn(dsn: str, tmp_path: Path) -> None:
    a_snapshot(tmp_path / "change", second=640)
    result = await evaluate.evaluate(dsn, evaluate.recordings(tmp_path), now=NOW, ablate=True)
    assert len(result.ablation) == len(RULES) + len(Apart) + len(RECALLS)
    assert {"write fight", "symptoms", "time before", "load: first mover"} <= result.ablation.keys()
    assert result.surprise is not None
    unsaid, told = result.ablation["write fight"], result.ablation["symptoms"]
    assert unsaid.surprise == result.surprise, "there is no write fight in it"
    assert unsaid.accuracy == result.accuracy["foreshock, at the alert"]
    assert told.surprise.at_alert > result.surprise.at_alert + 0.05
    assert told.surprise.later > result.surprise.later + 0.05
    assert told.none_told is None, "of one incident nothing is told apart"
    [line] = [line for line in as_table(result) if line.startswith("without symptoms ")]
    assert line.endswith(f"{told.surprise.at_alert:8.3f}{told.surprise.later:8.3f}")
    assert json.loads(as_json(result))["ablation"]["symptoms"]["surprise"]["later"] == told.surprise.later
    assert (await judged(dsn, tmp_path)).ablation == {}


def test_the_command_tells_of_a_snapshot(dsn: str, tmp_path: Path) -> None:
    a_snapshot(tmp_path / "one", second=640)
    done = foreshock("evaluate", str(tmp_path), DATABASE_URL=dsn)
    assert done.returncode == Exit.DONE, done.stderr
    assert "one (alert): rank 1 of" in done.stdout


async def test_what_was_evaluated_in_two_halves_is_pooled_to_what_it_is_at_once(dsn: str, tmp_path: Path) -> None:
    both = tmp_path / "both"
    for half, name, second, truth in (("a", "early", 480, TRUTH), ("a", "odd", 640, CHAOS), ("b", "late", 640, TRUTH)):
        a_snapshot(tmp_path / half / name, second=second, truth=truth)
    both.mkdir()
    for half, number in (("a", 1), ("b", 2)):
        (both / f"{number}").symlink_to(tmp_path / half)
    files = []
    for half in ("a", "b"):
        files.append(tmp_path / f"{half}.json")
        files[-1].write_text(as_json(await judged(dsn, tmp_path / half)))
    at_once = await judged(dsn, both)
    assert at_once.none_told is not None
    assert [len(of) for of in at_once.ranks.values()] == [2] * len(at_once.ranks)
    assert pooled(files) == at_once
    drawn = tmp_path / "odds.svg"
    done = foreshock("evaluate", "--pool", *map(str, files), "--diagram", str(drawn))
    assert done.stdout.splitlines() == [*as_table(at_once)], done.stderr
    assert drawn.read_text() == svg(at_once.reliability)
    with pytest.raises(UnreadableError, match="late: evaluated in two of these files"):
        pooled([files[1], files[1]])
    older = tmp_path / "older.json"
    older.write_text(files[0].read_text().replace('"has_culprit"', '"other"'))
    done = foreshock("evaluate", "--pool", str(older))
    assert done.returncode == 2
    assert "not what `foreshock evaluate DIR --json` of this version prints" in done.stderr
    assert foreshock("evaluate", "--pool").returncode == 2
