"""Lists of objects, minutes apart, into a real database: what was written in between, and when."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app.collect.files import UnreadableError
from app.collect.snapshot import Snapshot
from app.core.model import ActorSource, Change, Verb
from tests.collect.itbench_made import (
    EVERY,
    alert,
    an_object,
    at,
    config_map,
    deployment,
    listed,
    pod,
    put,
    table,
    warned,
)
from tests.collect.test_importer import Lab, lab

__all__ = ["lab"]
Objects = list[dict[str, Any]]
END = at(24 * 3600)


@pytest.fixture
def read(lab: Lab, tmp_path: Path) -> Callable[..., Any]:
    """Reads lists of objects up to a time, and tells the changes."""

    async def told(*lists: Objects, until: float | None = None, **files: Any) -> list[Change]:
        folder = put(tmp_path / "s", objects=table(listed(*lists)), **files)
        snapshot = await Snapshot.open(lab.database.write, lab.cluster, folder, now=END)
        await snapshot.read(END if until is None else at(until), ())
        return sorted(await lab.stored(), key=lambda one: one.at)

    return told


async def test_what_one_list_has_otherwise_was_written_when_its_managed_fields_say(read: Callable[..., Any]) -> None:
    before, after = deployment("web", 5, "web:1"), deployment("web", 9, "web:2", wrote=130)
    [change] = await read([before], [after], [after])
    assert change.summary.startswith("image of web: 1 → 2")
    assert (change.verb, change.at, change.since) == (Verb.UPDATE, at(130), None)
    assert (change.actor.name, change.actor.source) == ("kubectl", ActorSource.MANAGED_FIELDS)


@pytest.mark.parametrize("wrote", [None, -500])
async def test_where_they_do_not_say_it_was_between_the_two_lists(
    read: Callable[..., Any], wrote: float | None
) -> None:
    before, after = config_map("flags", 5, a="1"), config_map("flags", 9, a="2", wrote=wrote)
    [change] = await read([before], [before], [after])
    assert (change.at, change.since) == (at(2 * EVERY), at(EVERY))
    assert "between" in change.summary


async def test_nothing_is_known_before_it_was_listed(read: Callable[..., Any]) -> None:
    before, after = deployment("web", 5, "web:1"), deployment("web", 9, "web:2", wrote=130)
    assert await read([before], [after], until=EVERY - 1) == []


async def test_a_snapshot_is_read_on_from_where_it_was(lab: Lab, tmp_path: Path) -> None:
    steps = [deployment("web", 5 + step, f"web:{step}", wrote=step * EVERY - 60) for step in range(4)]
    folder = put(tmp_path / "s", objects=table(listed(*([step] for step in steps))))
    snapshot = await Snapshot.open(lab.database.write, lab.cluster, folder, now=END)
    found = []
    for until in (EVERY - 1, EVERY, EVERY + 1, 3 * EVERY):
        await snapshot.read(at(until), ())
        found.append(len(await lab.stored()))
    assert found == [0, 1, 1, 3]


async def test_writes_of_several_kinds_are_told_in_the_order_in_which_they_were_made(read: Callable[..., Any]) -> None:
    """What a controller wrote is listed before what it followed from."""

    def app(version: int, size: int, wrote: float | None = None) -> dict[str, Any]:
        return an_object("App", "web", version, api="example.org/v1", wrote=wrote, spec={"size": size})

    def config(version: int, size: str, wrote: float | None = None) -> dict[str, Any]:
        by, owner = "app-controller", ("App", "web")
        data = {"size": size}
        return an_object("ConfigMap", "web", version, api="v1", wrote=wrote, manager=by, owner=owner, data=data)

    first, follows = await read([config(5, "1"), app(6, 1)], [config(10, "2", wrote=131), app(9, 2, wrote=130)])
    assert [one.resource.kind for one in (first, follows)] == ["App", "ConfigMap"]
    assert follows.begun_by == first.id


async def test_an_object_was_created_when_it_says(read: Callable[..., Any]) -> None:
    old = config_map("old", 5)
    made = an_object("ConfigMap", "young", 9, api="v1", created=200, data={"a": "1"})
    [change] = await read([old], [old, made])
    assert (change.verb, change.resource.name, change.at, change.since) == (Verb.CREATE, "young", at(200), None)


async def test_an_experiment_that_is_listed_is_a_change(read: Callable[..., Any]) -> None:
    kind, api = "NetworkChaos", "chaos-mesh.org/v1alpha1"
    old = an_object(kind, "old", 5, api=api, namespace="chaos-mesh", spec={"action": "delay"})
    made = an_object(kind, "ad", 9, api=api, namespace="chaos-mesh", created=200, spec={"action": "partition"})
    [change] = await read([old], [old, made])
    assert (change.verb, str(change.resource), change.at) == (Verb.CREATE, "NetworkChaos chaos-mesh/ad", at(200))


async def test_an_object_whose_row_was_missing_was_neither_created_nor_deleted(read: Callable[..., Any]) -> None:
    a, b = config_map("a", 5), config_map("b", 6)
    assert await read([a], [a, b], [a], [a, b], [b]) == []


async def test_an_object_that_two_lists_lack_is_gone(read: Callable[..., Any]) -> None:
    a, b = config_map("a", 5), config_map("b", 6)
    now = config_map("a", 9, wrote=EVERY + 100, x="1")
    written, gone = await read([a, b], [a, b], [now], [now])
    assert (written.verb, written.at) == (Verb.UPDATE, at(EVERY + 100))
    assert (gone.verb, gone.resource.name) == (Verb.DELETE, "b")
    assert (gone.at, gone.since) == (at(2 * EVERY), at(EVERY))


async def test_where_a_row_was_refused_nothing_is_said_to_be_gone(lab: Lab, tmp_path: Path) -> None:
    a, b = config_map("a", 5), config_map("b", 6)
    text = table(listed([a, b], [a], [a])) + "yesterday\n"
    folder = put(tmp_path / "s", objects=text)
    snapshot = await Snapshot.open(lab.database.write, lab.cluster, folder, now=END)
    await snapshot.read(END, ())
    assert await lab.stored() == []
    path = folder / "k8s_objects_raw.tsv"
    assert snapshot.problems == [
        f"{path}, line 6, column 1: it has 1 columns, and the first line names 17: was it cut?"
    ]
    [row] = await lab.rows("quarantine", "source, line")
    assert tuple(row) == (str(path), 6)


async def test_what_took_a_name_ended_what_had_it(read: Callable[..., Any]) -> None:
    a, b = config_map("a", 5), config_map("b", 6)
    again = an_object("ConfigMap", "b", 9, api="v1", created=100, uid="other", data={"x": "1"})
    gone, made = await read([a, b], [a, again])
    assert (gone.verb, gone.at) == (Verb.DELETE, at(100) - timedelta(microseconds=1))
    assert (made.verb, made.at, made.uid) == (Verb.CREATE, at(100), "other")


async def test_a_namespace_that_is_listed_later_was_not_created_by_that(read: Callable[..., Any]) -> None:
    here = config_map("a", 5)
    there = an_object("ConfigMap", "a", 6, api="v1", namespace="other", created=-50, data={"a": "1"})
    young = an_object("ConfigMap", "b", 7, api="v1", namespace="other", created=60, data={"a": "1"})
    [change] = await read([here], [here, there, young])
    assert (change.verb, change.resource.name, change.at) == (Verb.CREATE, "b", at(60))


async def test_status_is_no_change_and_says_what_hurts(read: Callable[..., Any], lab: Lab) -> None:
    well = pod("web", "abc")
    ill = pod("web", "abc", version=9, waiting="ImagePullBackOff")
    events = table([warned(200, well, "BackOff", "Back-off pulling image"), warned(230, well, "BackOff", "again")])
    assert await read([well], [ill], events=events) == []
    found = await lab.rows("symptoms", "reason")
    assert {row[0] for row in found} == {"ImagePullBackOff", "BackOff"}


@pytest.mark.parametrize(
    ("objects", "problem"),
    [
        (None, "there is no object in k8s_objects_raw.tsv"),
        ("Timestamp\tBody\n", "there is no object in k8s_objects_raw.tsv"),
        ("Timestamp\tBody\nnow\t{}\n", "k8s_objects_raw.tsv, line 2, column 5: 'now' is no time in UTC"),
        ("Time\tBody\n", "k8s_objects_raw.tsv, line 1: it names no column Timestamp"),
    ],
)
async def test_a_snapshot_without_objects_cannot_be_read(
    lab: Lab, tmp_path: Path, objects: str | None, problem: str
) -> None:
    folder = put(tmp_path / "s", objects=objects, alerts={"one": [alert("Slow", 5)]})
    with pytest.raises(UnreadableError) as raised:
        await Snapshot.open(lab.database.write, lab.cluster, folder, now=END)
    assert problem in str(raised.value)
