"""`foreshock import` as people run it: standard input, refusals, exit codes, and what is said at the end."""

from __future__ import annotations

import gzip
import json
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import psycopg
import pytest

from app.failures import Exit
from tests.test_cli import FORESHOCK, PATIENCE, environment
from tests.test_intake import client, payload

__all__ = ["client"]

START = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=30)


def at(second: int) -> str:
    return (START + timedelta(seconds=second)).isoformat().replace("+00:00", "Z")


def config(version: int) -> dict[str, object]:
    meta = {"name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": str(version)}
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": meta, "data": {"level": str(version)}}


def audited(version: int) -> dict[str, object]:
    return {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "auditID": f"a-{version}",
        "stage": "ResponseComplete",
        "verb": "update",
        "user": {"username": "alice"},
        "objectRef": {"resource": "configmaps", "namespace": "shop", "name": "web"},
        "responseStatus": {"code": 200},
        "requestObject": config(version),
        "responseObject": config(version),
        "requestReceivedTimestamp": at(version),
        "stageTimestamp": at(version),
    }


AUDIT = "".join(json.dumps(audited(version)) + "\n" for version in range(1, 6))
WATCH = "".join(
    json.dumps({"at": at(version), "type": "MODIFIED", "object": config(version)}) + "\n" for version in range(1, 6)
)
TIMELESS = "".join(
    json.dumps({"type": "MODIFIED", "object": config(version)}, indent=4) + "\n" for version in range(1, 900)
)
METRICS = f"# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 7 {START.timestamp()}\n# EOF\n"
DUMP = json.dumps({"kind": "List", "apiVersion": "v1", "items": [config(1)]}, indent=4)


def ended(
    dsn: str, *paths: object, cluster: str, stdin: bytes = b"", strict: bool = False
) -> subprocess.CompletedProcess[str]:
    """One import, and how it ended."""
    command = [*FORESHOCK, "import", *map(str, paths), "--cluster", cluster, *(["--strict"] if strict else [])]
    done = subprocess.run(
        command, input=stdin, env=environment(DATABASE_URL=dsn), capture_output=True, timeout=PATIENCE, check=False
    )
    return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())


def counted(dsn: str, table: str, cluster: str) -> int:
    with psycopg.connect(dsn) as conn:
        row = conn.execute(
            f"SELECT count(*) FROM {table} WHERE cluster_id = (SELECT id FROM clusters WHERE name = %s)",
            [cluster],
        ).fetchone()
    return int(row[0]) if row else 0


@pytest.mark.parametrize(
    ("stdin", "said"),
    [
        (gzip.compress(AUDIT.encode() * 400), "2,000 lines: 5 calls, 5 changes"),
        (WATCH.encode(), "5 lines: 0 calls, 4 changes"),
        (METRICS.encode(), "1 metric sample\n"),
        (DUMP.encode(), "1 object: 0 calls, 0 changes"),
    ],
    ids=["audit log", "watch", "metrics", "dump"],  # of their own: the bytes hold the time
)
def test_standard_input_is_told_by_its_content(dsn: str, stdin: bytes, said: str) -> None:
    cluster = f"stdin {abs(hash(stdin))}"
    done = ended(dsn, "-", cluster=cluster, stdin=stdin)
    assert (done.returncode, done.stderr) == (0, "")
    assert said in done.stdout
    assert counted(dsn, "quarantine", cluster) == 0


def test_histograms_whose_buckets_are_left_out_are_counted(dsn: str) -> None:
    at = START.timestamp()
    told = "".join(
        f"# TYPE {name} histogram\n"
        + "".join(f'{name}_bucket{{verb="GET",le="{le}"}} 1 {at}\n' for le in ("0.1", "1", "+Inf"))
        + f'{name}_sum{{verb="GET"}} 0.2 {at}\n{name}_count{{verb="GET"}} 1 {at}\n'
        for name in ("apiserver_request_duration_seconds", "etcd_request_duration_seconds", "nobody_asks_for_this")
    )
    done = ended(dsn, "-", cluster="buckets", stdin=f"{told}# EOF\n".encode())
    assert (
        "4 metric samples\n6 samples of buckets of 2 histograms left out (apiserver_request_duration_seconds,"
        " etcd_request_duration_seconds): their latencies are means; what a Prometheus sends by remote-write has"
        " percentiles\n"
    ) in done.stdout


def test_standard_input_is_not_known_again(dsn: str) -> None:
    ended(dsn, "-", cluster="again", stdin=METRICS.encode())
    again = ended(dsn, "-", cluster="again", stdin=METRICS.encode()).stdout
    assert "1 metric sample" in again
    assert "already imported" not in again


@pytest.mark.parametrize(
    ("stdin", "strict", "said"),
    [
        (TIMELESS, False, "-: is a watch whose events have no time"),
        (AUDIT, True, "-: --strict reads everything twice"),
    ],
)
def test_what_cannot_be_read_from_standard_input_is_said(dsn: str, stdin: str, strict: bool, said: str) -> None:
    done = ended(dsn, "-", cluster="refused", stdin=stdin.encode(), strict=strict)
    assert done.returncode == Exit.WRONG_USE
    assert said in done.stderr
    assert counted(dsn, "import_positions", "refused") == 0


@pytest.mark.parametrize("agent", ["kubectl", "k" * 20_000], ids=["small events", "large ones"])
def test_a_log_that_tells_the_newest_first_is_refused_until_it_is_turned_around(
    dsn: str, tmp_path: Path, agent: str
) -> None:
    cluster = f"newest {len(agent)}"
    lines = [json.dumps(audited(version) | {"userAgent": agent}) + "\n" for version in range(1, 31)]
    newest = "".join(reversed(lines)).encode()
    log, archive = tmp_path / "audit.log", tmp_path / "audit.log.gz"
    log.write_bytes(newest)
    archive.write_bytes(gzip.compress(newest))
    for path, stdin in ((log, b""), (archive, b""), ("-", newest), ("-", gzip.compress(newest))):
        done = ended(dsn, path, cluster=cluster, stdin=stdin)
        assert done.returncode == Exit.WRONG_USE
        assert f"{path}: tells the newest event first" in done.stderr
        assert "tac" in done.stderr
    assert [counted(dsn, table, cluster) for table in ("changes", "quarantine", "import_positions")] == [0, 0, 0]
    turned = subprocess.run(["tac", log], capture_output=True, check=True).stdout
    assert ended(dsn, "-", cluster=cluster, stdin=turned).returncode == Exit.DONE
    assert counted(dsn, "changes", cluster) == 30


def test_a_watch_without_times_is_refused_once_and_no_other_file_with_it(dsn: str, tmp_path: Path) -> None:
    (tmp_path / "watch.json").write_text(TIMELESS)
    (tmp_path / "audit.jsonl").write_text(AUDIT)
    named = ended(dsn, tmp_path / "watch.json", cluster="timeless")
    assert named.returncode == Exit.WRONG_USE
    assert named.stderr.count("have no time") == 1
    done = ended(dsn, tmp_path, cluster="timeless")
    assert done.returncode == Exit.DONE
    assert done.stdout.count("have no time") == 1
    assert "docs/import.md" in done.stdout
    assert counted(dsn, "quarantine", "timeless") == 0


def test_where_nothing_can_be_used_the_exit_code_says_so(dsn: str, tmp_path: Path) -> None:
    old = AUDIT.replace(f"{START.year}-", "1999-")
    (tmp_path / "old.jsonl").write_text(old)
    (tmp_path / "cut.json").write_text(DUMP[:-9])
    done = ended(dsn, tmp_path / "old.jsonl", tmp_path / "cut.json", cluster="unusable")
    assert (done.returncode, done.stderr) == (Exit.UNUSABLE, "")
    assert "6 lines could not be used; in quarantine:" in done.stdout
    (tmp_path / "some.jsonl").write_text(old + AUDIT)
    done = ended(dsn, tmp_path / "some.jsonl", cluster="unusable")
    assert done.returncode == Exit.DONE
    assert ended(dsn, tmp_path / "some.jsonl", cluster="unusable").returncode == Exit.DONE


def test_the_answer_of_a_recording_is_not_read(dsn: str, tmp_path: Path) -> None:
    (tmp_path / "label.json").write_text('{"culprit": {"kind": "Secret", "name": "a", "at": "x"}}')
    done = ended(dsn, tmp_path / "label.json", cluster="label")
    assert done.returncode == Exit.WRONG_USE
    assert "label.json: is the answer of a recording" in done.stderr
    assert counted(dsn, "quarantine", "label") == 0


NAMES = {"": "", "na me\n": "na%20me%0a", "x" * 300: "x" * 300, "a/b": "a%2Fb"}


@pytest.mark.parametrize("name", NAMES)
async def test_both_doors_refuse_the_same_names_of_clusters(
    dsn: str, tmp_path: Path, client: httpx2.AsyncClient, name: str
) -> None:
    (tmp_path / "audit.jsonl").write_text(AUDIT)
    done = ended(dsn, tmp_path / "audit.jsonl", cluster=name)
    assert done.returncode == Exit.WRONG_USE
    assert "cluster" in done.stderr
    answer = await client.post(f"/intake/alertmanager/{NAMES[name]}", json=payload())
    assert answer.status_code in (404, 422)
    with psycopg.connect(dsn) as conn:
        assert conn.execute("SELECT count(*) FROM clusters WHERE name = %s", [name]).fetchone() == (0,)


def test_a_log_that_is_being_written_is_imported_again_and_again(dsn: str, tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    half = AUDIT.index("a-4")
    log.write_text(AUDIT[:half])
    first = ended(dsn, log, cluster="growing")
    assert (first.returncode, "line 4" in first.stdout) == (Exit.DONE, True)
    log.write_text(AUDIT[: half + 9])
    again = ended(dsn, log, cluster="growing")
    assert again.returncode == Exit.DONE, "what it was given was used before"
    log.write_text(AUDIT)
    last = ended(dsn, log, cluster="growing", strict=True)
    assert last.returncode == Exit.DONE
    assert "2 lines: 2 calls, 2 changes" in last.stdout
    assert f"{log}: read on from line 4, where it ended at the last import" in last.stdout
    assert (counted(dsn, "requests", "growing"), counted(dsn, "quarantine", "growing")) == (5, 0)
