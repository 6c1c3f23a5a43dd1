"""``foreshock what-changed`` prints what REST answers."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
import typer

from app.commands import options, what_changed
from app.commands.options import Output
from app.failures import Exit
from app.store.seen import UnknownClusterError
from app.store.timeline import ChangeFilter
from tests.web import world
from tests.web.conftest import Site


async def told(
    site: Site,
    *,
    minus: timedelta = timedelta(minutes=10),
    namespace: str | None = None,
    cluster: str | None = None,
    output: Output = Output.TABLE,
) -> str:
    wanted = ChangeFilter(cluster=cluster, namespace=namespace, from_at=world.END - minus, to_at=world.END)
    return await what_changed.told(site.database.read, wanted, output)


async def test_a_table_of_twenty_lines(site: Site) -> None:
    lines = (await told(site)).split("\n")
    assert len(lines) == 20
    assert "91 changes" in lines[0]


async def test_everything_as_json(site: Site) -> None:
    found = json.loads(await told(site, output=Output.JSON, namespace="payments"))
    assert world.CULPRIT.id in {change["id"] for change in found["items"]}
    assert {change["resource"]["namespace"] for change in found["items"]} == {"payments"}


async def test_another_cluster_is_refused_with_the_known_ones(site: Site) -> None:
    with pytest.raises(UnknownClusterError, match="no cluster 'another': known are shop") as refused:
        await told(site, cluster="another")
    assert refused.value.code == Exit.WRONG_USE


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
