"""`foreshock export`: all of it, whole or not at all; and `changes --follow`, through a network that breaks."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from app.client import export as exporting
from app.client import server as serverside
from app.client.export import Exported, IncompleteError, export
from app.client.http import Http
from app.client.output import Output
from app.client.server import Server
from app.core.model import SLOT_SECONDS, Batch, CallCount, CallKey, Gap
from app.failures import Exit
from app.store.database import sqlalchemy_url
from app.store.record import record
from tests.client.conftest import Asked
from tests.faults.proxy import Mode, Proxy
from tests.test_cli import FORESHOCK, environment
from tests.test_tls import certificate
from tests.web import world


def recorded(dsn: str, batch: Batch) -> None:
    async def go() -> None:
        engine = create_async_engine(sqlalchemy_url(dsn), poolclass=NullPool)
        async with engine.begin() as conn:
            await record(conn, batch)
        await engine.dispose()

    asyncio.run(go())


def lines(file: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    *items, rest = map(json.loads, file.read_text().splitlines())
    return items, rest


def asking(site: Asked) -> Server:
    return Server(Http(site.url, site.tokens["viewer"].read_text().strip()))


def ago(**back: float) -> str:
    return (datetime.now(UTC) - timedelta(**back)).isoformat()


def exported(site: Asked, what: Exported, file: Path, *, begin: str, cluster: str | None = None) -> None:
    export(asking(site), what, begin, ago(), file=str(file), output=Output.JSON, namespace=None, cluster=cluster)


def test_what_is_no_file_is_written_to_and_not_replaced(site: Asked, tmp_path: Path) -> None:
    pipe, file, link = tmp_path / "pipe", tmp_path / "file", tmp_path / "link"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True)
    exported(site, Exported.CHANGES, pipe, begin=ago(hours=1))
    through = reader.communicate(timeout=30)[0]
    assert pipe.is_fifo()
    link.symlink_to(file)
    exported(site, Exported.CHANGES, link, begin=ago(hours=1))
    assert (link.is_symlink(), len(through.splitlines())) == (True, len(file.read_text().splitlines()))
    full = site.run("export", "changes", "--from", "1h", "--file", "/dev/full")
    assert (full.returncode, Path("/dev/full").is_char_device()) == (Exit.NOT_WRITTEN, True)


def test_every_page_and_every_gap(site: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = json.loads(site.said("changes", "--derived", "--limit", "1000", "-o", "json"))["items"]
    at = datetime.now(UTC) - timedelta(minutes=20)
    blind = [Gap("shop", "Node", at + timedelta(seconds=n), at + timedelta(seconds=n + 1), "busy") for n in range(250)]
    recorded(site.dsn, Batch("shop", gaps=tuple(blind)))
    monkeypatch.setattr(serverside, "PAGE", 50)
    file = tmp_path / "changes.ndjson"
    file.write_text("older")
    exported(site, Exported.CHANGES, file, begin=ago(hours=1))
    items, rest = lines(file)
    assert items == whole
    assert len(items) > 120
    assert len(rest["gaps"]) == 252
    assert rest["gaps"] == sorted(rest["gaps"], key=lambda gap: str(gap["from_at"]))
    assert rest["freshness"][0]["cluster"] == "shop"
    assert file.stat().st_mode & 0o077 == 0
    assert [one.name for one in tmp_path.iterdir()] == ["changes.ndjson"]


def test_every_gap_that_began_before(site: Asked, tmp_path: Path) -> None:
    """As of the kinds of a cluster with many, which are not seen for one reason."""
    at, file = datetime.now(UTC) - timedelta(hours=5), tmp_path / "changes.ndjson"
    blind = [
        Gap("shop", f"Kind{n}", at + timedelta(seconds=n), at + timedelta(hours=1, seconds=n), "away")
        for n in range(250)
    ]
    recorded(site.dsn, Batch("shop", gaps=tuple(blind)))
    begin = at + timedelta(hours=1, seconds=49)
    export(
        asking(site), Exported.CHANGES, begin.isoformat(), (begin + timedelta(minutes=10)).isoformat(),
        file=str(file), output=Output.JSON, namespace=None, cluster="shop",
    )  # fmt: skip
    kinds = [gap["kind"] for gap in lines(file)[1]["gaps"] if gap["kind"]]
    assert kinds == [f"Kind{n}" for n in range(50, 250)]


def test_what_is_not_seen_right_now_hides_no_gap_that_was(capsys: pytest.CaptureFixture[str]) -> None:
    at = datetime(2026, 11, 20, 14, tzinfo=UTC)

    class Blind(Server):
        """Of which Secrets have not been seen for days, and which was blind a second a minute."""

        def __init__(self) -> None:
            """Asks nobody."""

        def json(self, *path: str, **asked: Any) -> dict[str, Any]:
            """As store/seen.py has it: the newest hundred of the record, oldest first, and what is not seen now."""
            since, until = (datetime.fromisoformat(asked[name]) for name in ("from_", "to"))
            begun = [at + timedelta(minutes=n) for n in range(250)]
            told = [(one, one + timedelta(seconds=1), "") for one in begun if since < one + timedelta(seconds=1)]
            now = datetime.now(UTC)
            told = [(at - timedelta(days=9), now, "Secret"), *[one for one in told if one[0] < until][-100:]]
            items = [
                {"cluster": "shop", "kind": kind, "from_at": one.isoformat(), "to_at": end.isoformat(), "why": ""}
                for one, end, kind in told
            ]
            return {"items": items if path == ("gaps",) else [], "next": None, "freshness": []}

    export(
        Blind(), Exported.CHANGES, at.isoformat(), (at + timedelta(hours=6)).isoformat(),
        file="-", output=Output.JSON, namespace=None, cluster=None,
    )  # fmt: skip
    gaps = json.loads(capsys.readouterr().out)["gaps"]
    assert [gap["kind"] for gap in gaps] == ["Secret", *[""] * 250]


def test_incidents_are_whole_however_they_stand(site: Asked, tmp_path: Path) -> None:
    file = tmp_path / "incidents.ndjson"
    exported(site, Exported.INCIDENTS, file, begin="2026-11-20T14:00:00+00:00")
    items, _ = lines(file)
    found = next(one for one in items if one["id"] == world.incident().id)
    assert [suspect["rank"] for suspect in found["suspects"]] == [1, 2, 3]
    exported(site, Exported.INCIDENTS, file, begin="2026-11-20T14:03:15+00:00")
    assert world.incident().id not in {one["id"] for one in lines(file)[0]}


@pytest.mark.parametrize(
    ("before", "after"),
    [("open", "resolved"), ("suspected", "open"), ("suspected", "resolved"), ("open", "merged"), ("resolved", "open")],
)
def test_an_incident_that_becomes_another_meanwhile_is_exported_once(
    before: str, after: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for asked_before in range(6):
        told = becoming(before, after, asked_before, capsys)
        assert [one["status"] for one in told] in ([before], [after])


def becoming(before: str, after: str, asked_before: int, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """What is exported of an incident that is another after so many lists of incidents."""

    class Becoming(Server):
        def __init__(self) -> None:
            """Asks nobody."""
            self.asked = 0

        def json(self, *path: str, **asked: object) -> dict[str, Any]:
            status = before if self.asked < asked_before else after
            self.asked += path == ("incidents",)
            there = path == ("incidents",) and asked["status"] == status
            one = {"id": "5f0a1c22d3e4", "started_at": "2026-11-20T14:03:14Z", "status": status}
            return {"items": [one] if there else [], "next": None, "freshness": [], "gaps": []}

    export(
        Becoming(), Exported.INCIDENTS, "2026-11-20T14:00:00+00:00", "2026-11-20T15:00:00+00:00",
        file="-", output=Output.JSON, namespace=None, cluster=None,
    )  # fmt: skip
    *told, _ = map(json.loads, capsys.readouterr().out.splitlines())
    return told


def test_an_incident_is_exported_with_all_of_its_alerts(capsys: pytest.CaptureFixture[str]) -> None:
    one = {"id": "5f0a1c22d3e4", "started_at": "2026-11-20T14:03:14Z", "alert_count": 3}

    class Cutting(Server):
        def __init__(self) -> None:
            """Asks nobody."""

        def json(self, *path: str, **asked: object) -> dict[str, Any]:
            if path == ("incidents", one["id"]):
                return {"incident": {**one, "alerts": [1, 2, 3]}}
            there = path == ("incidents",) and asked["status"] == "open"
            return {"items": [{**one, "alerts": [1]}] if there else [], "next": None, "freshness": [], "gaps": []}

    export(
        Cutting(), Exported.INCIDENTS, "2026-11-20T14:00:00+00:00", "2026-11-20T15:00:00+00:00",
        file="-", output=Output.JSON, namespace=None, cluster=None,
    )  # fmt: skip
    told, _ = map(json.loads, capsys.readouterr().out.splitlines())
    assert told["alerts"] == [1, 2, 3]


def test_calls_are_asked_for_in_pieces_until_all_fit(
    site: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    until = int(datetime.now(UTC).timestamp()) // SLOT_SECONDS * SLOT_SECONDS - 1800
    keys = [CallKey(f"user-{n}", "", "agent", "get", "", "pods", "", 200) for n in range(2)]
    counts = [CallCount(keys[0], at, 3, 3000) for at in range(until - 240, until - 200, SLOT_SECONDS)]
    counts += [CallCount(keys[1], at, 2, 2000) for at in range(until - 60, until, SLOT_SECONDS)]
    recorded(site.dsn, Batch("shop", calls=tuple(counts)))
    begin, end = (datetime.fromtimestamp(at, UTC).isoformat() for at in (until - 299, until - 1))
    wanted = {"user-0": 8 * 3, "user-1": 12 * 2}
    pieces = []
    for page in (1000, 2):
        monkeypatch.setattr(exporting, "PAGE", page)
        file = tmp_path / f"calls-{page}.ndjson"
        export(
            asking(site), Exported.CALLS, begin, end, file=str(file), output=Output.JSON, namespace=None, cluster=None
        )
        items, _ = lines(file)
        assert {who: sum(one["count"] for one in items if one["user"] == who) for who in wanted} == wanted
        assert len({(one["from"], one["to"], one["user"]) for one in items}) == len(items)
        pieces.append({(one["from"], one["to"]) for one in items})
    assert list(map(len, pieces)) == [1, 2]
    monkeypatch.setattr(exporting, "PAGE", 1)
    file = tmp_path / "none.ndjson"
    with pytest.raises(IncompleteError, match="more than 1 kinds of calls"):
        export(
            asking(site), Exported.CALLS, begin, end, file=str(file), output=Output.JSON, namespace=None, cluster=None
        )
    assert not list(tmp_path.glob("*none*"))


def test_the_command_says_how_much_and_what_was_not_seen(site: Asked, tmp_path: Path) -> None:
    file = tmp_path / "all.ndjson"
    done = site.run("export", "changes", "--from", "1h", "-n", "payments", "--file", str(file))
    assert (done.returncode, done.stdout) == (0, "")
    items, rest = lines(file)
    assert {one["resource"]["namespace"] for one in items} == {"payments"}
    said = done.stderr.splitlines()
    assert said[0] == f"{len(items)} lines of changes in {file}"
    assert said[1].startswith("recorded up to ")
    assert said[2].startswith(f"not seen: {len(rest['gaps'])} interval")
    printed = site.run("export", "changes", "--from", "1h", "-n", "payments")
    assert printed.stdout.splitlines()[:-1] == file.read_text().splitlines()[:-1]
    refused = site.run("export", "calls", "-n", "payments")
    assert (refused.returncode, "calls are of a whole cluster" in refused.stderr) == (2, True)
    nowhere = site.run("export", "changes", "--file", str(tmp_path / "none" / "x"))
    assert (nowhere.returncode, "No such file or directory" in nowhere.stderr) == (Exit.NOT_WRITTEN, True)


def test_an_export_is_json_or_yaml_and_no_table(site: Asked) -> None:
    window = ("--from", (world.START + site.shift).isoformat(), "--to", (world.END + site.shift).isoformat())
    as_json = [json.loads(line) for line in site.run("export", "changes", *window).stdout.splitlines()]
    as_yaml = list(yaml.safe_load_all(site.run("export", "changes", *window, "-o", "yaml").stdout))
    assert len(as_json) > 50
    assert as_yaml[:-1] == as_json[:-1]
    assert as_yaml[-1].keys() == as_json[-1].keys()
    for output, what, instead in (("table", "calls", "who-calls"), ("wide", "incidents", "incident list")):
        refused = site.run("export", what, "--output", output)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert refused.stderr == (
            f"foreshock: --output: an export is for programs, json or yaml; `foreshock {instead}` prints tables\n"
        )


@contextmanager
def following(
    site: Asked, url: str, *options: str, what: tuple[str, ...] = ("changes",)
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*FORESHOCK, *what, "--follow", *options],
        env=environment(**{**site.variables(), "FORESHOCK_URL": url}),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_following_goes_on_after_the_connection_was_lost(site: Asked, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    proxy = Proxy(int(site.url.rpartition(":")[2]), certificate=cert, key=key)
    try:
        with following(site, f"http://127.0.0.1:{proxy.port}", "--limit", "2", "-o", "json") as process:
            assert process.stdout is not None
            assert process.stderr is not None
            first = [json.loads(process.stdout.readline()) for _ in range(2)]
            while "freshness" not in json.loads(process.stdout.readline()):
                pass
            proxy.turn(Mode.RESETS)
            assert "going on in 1 s" in process.stderr.readline()
            made = world.a_change("late", at=datetime.now(UTC), namespace="growth", version="late")
            recorded(site.dsn, Batch("shop", changes=(made,)))
            proxy.turn(Mode.CARRIES)
            told = []
            while made.id not in told:
                line = json.loads(process.stdout.readline())
                told += [line["change"]["id"]] if "change" in line else []
            assert told == [made.id]
            assert made.id not in {one["change"]["id"] for one in first}
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == Exit.INTERRUPTED
    finally:
        proxy.close()


def test_what_is_followed_is_a_table_of_80_columns(site: Asked) -> None:
    with following(site, site.url, "--limit", "3") as process:
        assert process.stdout is not None
        shown = [process.stdout.readline().rstrip("\n") for _ in range(4)]
        assert shown[0] == "TIME           CLUSTER    NAMESPACE        CHANGE               WHO"
        assert {len(line) <= 80 for line in shown} == {True}
        assert {line.split()[2] for line in shown[1:]} == {"shop"}
        times = [line[:14] for line in shown[1:]]
        assert times == sorted(times)
    with following(site, site.url, "--limit", "1", "--cluster", "shop") as process:
        assert process.stdout is not None
        title = process.stdout.readline()
        assert title == "TIME           NAMESPACE        CHANGE                          WHO\n"


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("-n", "payment"), "no namespace 'payment' is recorded; the nearest: payments"),
        (("--kind", "Depoyment"), "no kind 'Depoyment' is recorded; the nearest: Deployment"),
    ],
)
def test_what_is_followed_and_not_recorded_is_said(site: Asked, option: tuple[str, str], said: str) -> None:
    """It is waited for, and silence would read as calm."""
    with following(site, site.url, *option) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        assert process.stderr.readline() == f"foreshock: {said}; waiting for the first change of it\n"
        assert process.stdout.readline().startswith("TIME")
        assert process.poll() is None


def test_incidents_are_followed_too(site: Asked) -> None:
    with following(site, site.url, "--cluster", "shop", what=("incident", "list")) as process:
        assert process.stdout is not None
        title = process.stdout.readline()
        assert title == "TIME           ID           STATUS    TITLE                 FIRST SUSPECT\n"
        assert world.incident().id in process.stdout.readline()
        opened = site.said("incident", "open", "Followed", "-n", "payments", role="responder").strip()
        site.said("incident", "close", opened, role="responder")
        statuses: list[str] = []
        while statuses[-1:] != ["resolved"]:
            line = process.stdout.readline()
            assert len(line) <= 81
            statuses += [line.split()[3]] if opened in line else []
        assert statuses[0] == "open" or statuses == ["resolved"]
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == Exit.INTERRUPTED


def test_what_is_of_pages_is_not_of_what_is_followed(site: Asked) -> None:
    for option in (("--status", "open"), ("--after", "1.1")):
        refused = site.run("incident", "list", "--follow", *option)
        assert (refused.returncode, "--follow tells of all" in refused.stderr.replace("\n", " ")) == (2, True)


def test_what_was_not_seen_of_many_kinds_at_once_is_one_line(site: Asked) -> None:
    """As after a restart of the API server, or of Foreshock."""
    at, why = world.END + site.shift - timedelta(seconds=5), "the API server began anew"
    gaps = tuple(Gap("shop", kind, at, at + timedelta(seconds=2), why) for kind in ("ConfigMap", "Node", "Service"))
    recorded(site.dsn, Batch("shop", gaps=gaps))
    with following(site, site.url, "--limit", "20", "--cluster", "shop") as process:
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        while why not in lines[-1]:
            lines.append(process.stdout.readline())
        late = world.a_change("later", at=datetime.now(UTC), namespace="growth", version="later")
        recorded(site.dsn, Batch("shop", changes=(late,)))
        while "later" not in lines[-1]:
            lines.append(process.stdout.readline())
    (said,) = [line for line in lines if why in line]
    assert said.startswith("not seen (3 kinds) ")
