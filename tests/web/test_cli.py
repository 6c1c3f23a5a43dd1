"""``foreshock what-changed`` prints what REST answers."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
import typer

from app.commands import options
from app.commands.options import Output
from app.commands.what_changed import print_what_changed
from app.store.database import DatabaseError
from tests.web import world
from tests.web.conftest import Site


def printed(
    capsys: pytest.CaptureFixture[str],
    dsn: str,
    *,
    namespace: str | None = None,
    cluster: str | None = None,
    output: Output = Output.TABLE,
) -> str:
    minus = timedelta(minutes=10)
    print_what_changed(dsn, minus=minus, at=world.END, namespace=namespace, cluster=cluster, output=output)
    return capsys.readouterr().out


@pytest.fixture
def recorded(site: Site, dsn: str) -> str:
    """The DSN of a database that holds the world."""
    return dsn


def test_a_table_of_twenty_lines(recorded: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, recorded).splitlines()
    assert len(lines) == 20
    assert "91 changes" in lines[0]


def test_everything_as_json(recorded: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(printed(capsys, recorded, output=Output.JSON, namespace="payments"))
    assert world.CULPRIT.id in {change["id"] for change in found["items"]}
    assert {change["resource"]["namespace"] for change in found["items"]} == {"payments"}


def test_another_cluster_has_nothing(recorded: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no change was seen" in printed(capsys, recorded, cluster="another")


def test_a_database_that_is_not_there_is_said() -> None:
    with pytest.raises(DatabaseError, match="cannot reach PostgreSQL"):
        print_what_changed(
            "postgresql://nobody@127.0.0.1:1/none",
            minus=timedelta(minutes=1), at=None, namespace=None, cluster=None, output=Output.TABLE,
        )  # fmt: skip


@pytest.mark.parametrize("text", ["soon", "", "-5m", "0s", "2026-11-20"])
def test_a_bad_duration_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not 30s, 30m, 2h or 1d"):
        options.duration(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("30m", 1800), ("2h", 7200), ("1d", 86_400), ("2w", 1_209_600), ("1h30m", 5400), ("PT5M", 300)],
)
def test_durations_as_people_write_them(text: str, seconds: int) -> None:
    assert options.duration(text).total_seconds() == seconds


@pytest.mark.parametrize("text", ["yesterday", "2026-11-20T14:00:00", ""])
def test_a_bad_time_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="with a zone"):
        options.moment(text)
