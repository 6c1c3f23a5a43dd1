"""Rollouts as they are stored: one row for each that began, whoever tells of it when."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.changes.sightings import Sighting
from app.core.changes.tracker import Tracker
from app.core.model import Batch, Change, Outcome, Progress, Resource
from app.core.objects.redact import Redactor
from app.store import rollouts, surroundings
from app.store.merge import STEPS
from app.store.record import record
from tests.core.changes.recorded import recorded
from tests.core.factories import a_change, a_resource
from tests.store.factories import CLUSTER, NOON, a_rollout

HOUR = timedelta(hours=1)


@contextmanager
def read_rows(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The generations of the rows that are read."""
    found: list[int] = []
    read = rollouts._rollout

    def noted(row: object) -> object:
        one = read(row)  # type: ignore[arg-type]
        found.append(one.generation)
        return one

    with monkeypatch.context() as patch:
        patch.setattr(rollouts, "_rollout", noted)
        yield found


async def test_of_an_objects_rollouts_only_those_that_are_told_again_are_read(
    conn: AsyncConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fight over a template makes thousands of them."""
    many = tuple(a_rollout(n, seconds=n) for n in range(1, 51))
    await record(conn, Batch(CLUSTER, rollouts=many))
    again = a_rollout(7, seconds=7, outcome=Outcome.COMPLETE, ended_at=NOON + HOUR)
    with read_rows(monkeypatch) as read:
        await record(conn, Batch(CLUSTER, rollouts=(again, a_rollout(51, seconds=51))))
    assert read == [7]
    kept = await rollouts.read_window(conn, CLUSTER, NOON, NOON + HOUR)
    assert len(kept) == 51
    assert [one.generation for one in kept if one.outcome is Outcome.COMPLETE] == [7]


async def test_of_two_that_began_at_once_the_later_generation_stays(conn: AsyncConnection) -> None:
    await record(conn, Batch(CLUSTER, rollouts=(a_rollout(5),)))
    await record(conn, Batch(CLUSTER, rollouts=(a_rollout(4),)))
    assert [one.generation for one in await rollouts.read_window(conn, CLUSTER, NOON - HOUR, NOON + HOUR)] == [5]
    await record(conn, Batch(CLUSTER, rollouts=(a_rollout(6),)))
    assert [one.generation for one in await rollouts.read_window(conn, CLUSTER, NOON - HOUR, NOON + HOUR)] == [6]


@pytest.mark.parametrize("limit", [1, 2, 4, 5])
async def test_of_many_that_began_at_once_no_page_leaves_one_out(conn: AsyncConnection, limit: int) -> None:
    """An audit log of whole seconds."""
    many = [replace(a_rollout(seconds=n // 4), resource=a_resource("Deployment", f"web-{n}")) for n in range(12)]
    await record(conn, Batch(CLUSTER, rollouts=tuple(many)))
    names, behind, more = list[str](), None, True
    while more:
        found, behind = await surroundings.list_rollouts(
            conn, CLUSTER, from_at=NOON, to_at=NOON + HOUR, limit=limit, behind=behind
        )
        names += [one.resource.name for one in found]
        more = behind is not None
    assert len(names) == 12
    assert set(names) == {one.resource.name for one in many}


async def test_of_a_rollout_that_goes_on_and_on_so_many_steps_are_kept(conn: AsyncConnection) -> None:
    """A DaemonSet of thousands of nodes, or one that hangs while its pods come and go."""
    steps = [Progress(NOON + timedelta(seconds=n), 9, 1 + n % 2, 1) for n in range(STEPS * 3)]
    for n in range(0, len(steps), 60):
        told = tuple(a_rollout(3, progress=(step,)) for step in steps[n : n + 60])
        await record(conn, Batch(CLUSTER, rollouts=told))
    (kept,) = await rollouts.read_window(conn, CLUSTER, NOON - HOUR, NOON + HOUR)
    assert STEPS // 2 <= len(kept.progress) <= STEPS
    assert (kept.progress[0].at, kept.progress[-1].at) == (NOON, NOON + timedelta(seconds=STEPS * 3 - 1))


async def kept(conn: AsyncConnection, name: str) -> list[Change]:
    """The changes of what a real controller of Argo Rollouts did (tests/core/changes/argo), stored as it is learned."""
    tracker = Tracker("lab", Redactor(b"a key that only the tests know.."), lambda *_: None)
    changes = list[Change]()
    for sighting in (one for one in recorded(name) if isinstance(one, Sighting)):
        found = tracker.observe(sighting)
        changes += found.changes
        await record(conn, Batch("lab", changes=found.changes, objects=found.states, rollouts=found.rollouts))
    return changes


async def test_an_argo_rollout_is_a_rollout_of_its_change(conn: AsyncConnection) -> None:
    changes = await kept(conn, "bluegreen")
    began = datetime(2026, 11, 30, 3, tzinfo=UTC)
    found = await rollouts.read_window(conn, "lab", began, began + HOUR)
    ends = [Outcome.COMPLETE, Outcome.COMPLETE, Outcome.ROLLED_BACK, Outcome.COMPLETE]
    assert [one.outcome for one in found] == ends
    begun = await rollouts.begun_by(conn, changes)
    assert [begun[one.id] for one in changes] == found
    assert [await rollouts.read_begun(conn, one.id) for one in changes] == found


async def test_each_template_of_another_workload_is_a_row_of_its_own(conn: AsyncConnection) -> None:
    """The generation of an Argo Rollout stays as it is when that of its Deployment moves on."""
    await kept(conn, "referring")
    began = datetime(2026, 11, 30, 3, tzinfo=UTC)
    found = await rollouts.read_window(conn, "lab", began, began + HOUR)
    assert [one.outcome for one in found] == [Outcome.COMPLETE, Outcome.COMPLETE, Outcome.FAILED]


async def test_of_two_that_a_change_began_that_with_pods_is_told(conn: AsyncConnection) -> None:
    """A Deployment whose template an Argo Rollout has rolls out nothing itself."""
    change = a_change(a_resource(), at=NOON)
    own = a_rollout(change_id=change.id, outcome=Outcome.COMPLETE, ended_at=NOON)
    web = Resource("lab", "argoproj.io", "Rollout", "shop", "web")
    argo = replace(a_rollout(seconds=1, change_id=change.id), resource=web)
    await record(conn, Batch("lab", changes=(change,), rollouts=(argo, own)))
    begun = await rollouts.begun_by(conn, [change])
    assert begun[change.id].resource.kind == "Rollout"
    one = await rollouts.read_begun(conn, change.id)
    assert one is not None
    assert one.resource.kind == "Rollout"
