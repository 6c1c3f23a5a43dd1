"""What pages and REST read: filters, cursors, marks, surroundings, history."""

from datetime import timedelta
from typing import Self

import pytest
from msgspec.structs import replace
from sqlalchemy import Connection, event
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.model import Actor, ActorSource, Batch, Change, Outcome, Resource, Verb
from app.core.objects.starting import PASSED
from app.core.record import NO_MORE
from app.store import history, incidents, surroundings, timeline
from app.store.record import record
from app.store.seen import read_seen
from app.store.timeline import ChangeFilter
from tests.web import world


@pytest.fixture
async def filled(conn: AsyncConnection) -> AsyncConnection:
    """The made-up incident, recorded."""
    await record(conn, world.batch())
    await incidents.save_incident(conn, world.incident())
    await incidents.save_ranking(conn, world.ranking())
    return conn


class Counting:
    """Counts the statements that a connection sends."""

    def __init__(self, conn: AsyncConnection) -> None:
        assert conn.sync_connection is not None
        self.sync: Connection = conn.sync_connection
        self.count = 0

    def _seen(self, *_: object) -> None:
        self.count += 1

    def __enter__(self) -> Self:
        event.listen(self.sync, "before_cursor_execute", self._seen)
        return self

    def __exit__(self, *_: object) -> None:
        event.remove(self.sync, "before_cursor_execute", self._seen)


def told(changes: list[Change]) -> list[str]:
    return [change.id for change in changes]


def expected(batch_changes: tuple[Change, ...], wanted: ChangeFilter) -> list[str]:
    """What a filter should find, by the plainest means."""
    found = [
        change
        for change in batch_changes
        if change.begun_by is None
        and wanted.namespace in (None, change.resource.namespace)
        and wanted.kind in (None, change.resource.kind)
        and wanted.actor in (None, change.actor.name)
        and wanted.verb in (None, change.verb)
    ]
    return told(sorted(found, key=lambda change: (change.at, change.key), reverse=True))


@pytest.mark.parametrize(
    "wanted",
    [
        ChangeFilter(world.CLUSTER),
        ChangeFilter(world.CLUSTER, namespace="payments"),
        ChangeFilter(world.CLUSTER, kind="ConfigMap"),
        ChangeFilter(world.CLUSTER, actor="alice@shop.example"),
        ChangeFilter(world.CLUSTER, verb=Verb.DELETE),
        ChangeFilter(world.CLUSTER, namespace="identity", kind="Deployment"),
        ChangeFilter(world.CLUSTER, namespace="nowhere"),
        ChangeFilter(world.CLUSTER, kind="Nothing"),
    ],
)
async def test_filters_find_exactly_what_fits(filled: AsyncConnection, wanted: ChangeFilter) -> None:
    found = await timeline.list_changes(filled, wanted, limit=1000)
    assert told(found) == expected(world.batch().changes, wanted)


async def test_a_change_comes_back_as_it_was_recorded(filled: AsyncConnection) -> None:
    assert await timeline.read_change(filled, world.CULPRIT.id) == world.CULPRIT


async def test_text_is_looked_for_as_it_is_wildcards_included(conn: AsyncConnection) -> None:
    plain = world.a_change("one", summary="image of one: v1 → v2", version="a")
    odd = world.a_change("two", summary="limit of two: 50% → 60%", version="b")
    await record(conn, replace(world.batch(0), changes=(plain, odd), rollouts=(), objects=()))
    for text, names in (("50%", ["two"]), ("%", ["two"]), ("_", []), ("ONE", ["one"]), ("limit of", ["two"])):
        found = await timeline.list_changes(conn, ChangeFilter(text=text))
        assert [change.resource.name for change in found] == names, text


async def test_who_impersonated_and_who_was_impersonated_find_the_change(conn: AsyncConnection) -> None:
    bob = Actor("bob", ActorSource.AUDIT, impersonator="root-admin")
    change = replace(world.a_change("one", summary="image of one: v1 → v2", version="a"), actor=bob)
    await record(conn, replace(world.batch(0), changes=(change,), rollouts=(), objects=()))
    for actor, ids in (("bob", [change.id]), ("root-admin", [change.id]), ("alice", [])):
        assert told(await timeline.list_changes(conn, ChangeFilter(actor=actor))) == ids


async def test_another_cluster_sees_nothing_of_this_one(filled: AsyncConnection) -> None:
    assert await timeline.list_changes(filled, ChangeFilter("elsewhere")) == []
    around = await surroundings.read_surroundings(filled, "elsewhere", from_at=world.START, to_at=world.END)
    assert (around.marks, around.derived, around.rollouts, around.problems, around.seen.gaps) == ((), 0, (), (), ())


async def test_pages_join_without_a_gap_or_a_repeat_also_while_changes_arrive(filled: AsyncConnection) -> None:
    wanted = ChangeFilter(world.CLUSTER)
    everything = told(await timeline.list_changes(filled, wanted, limit=1000))
    seen: list[str] = []
    before = None
    while page := await timeline.list_changes(filled, wanted, before=before, limit=7):
        seen += told(page)
        before = timeline.after(page[-1])
        newer = world.a_change("late", at=world.END + timedelta(seconds=len(seen)), version=str(len(seen)))
        await record(filled, replace(world.batch(0), changes=(newer,), rollouts=(), objects=()))
    assert seen == everything


async def test_derived_edits_are_hidden_unless_asked_for(filled: AsyncConnection) -> None:
    hidden = await timeline.list_changes(filled, ChangeFilter(world.CLUSTER), limit=1000)
    shown = await timeline.list_changes(filled, ChangeFilter(world.CLUSTER, derived="shown"), limit=1000)
    assert len(shown) - len(hidden) == 40
    began = await timeline.list_begun_by(filled, world.CULPRIT)
    assert {change.begun_by for change in began} == {world.CULPRIT.id}
    assert len(began) == 40


async def test_a_window_holds_its_beginning_and_not_its_end(filled: AsyncConnection) -> None:
    at = world.CULPRIT_AT
    inside = await timeline.list_changes(filled, ChangeFilter(from_at=at, to_at=at + timedelta(microseconds=1)))
    before = await timeline.list_changes(filled, ChangeFilter(from_at=at - timedelta(microseconds=1), to_at=at))
    assert told(inside) == [world.CULPRIT.id]
    assert before == []


async def test_what_was_no_harm_is_no_problem_of_the_window(filled: AsyncConnection) -> None:
    async def problems() -> set[str]:
        around = await surroundings.read_surroundings(filled, world.CLUSTER, from_at=world.START, to_at=world.END)
        return {problem.reason for problem in around.problems}

    told = replace(
        world.batch().symptoms[0], fingerprint="started", reason="Unhealthy while it starts", severity="warning"
    )
    await record(filled, Batch(world.CLUSTER, symptoms=(told,)))
    assert "Unhealthy while it starts" in await problems()
    await record(filled, Batch(world.CLUSTER, symptoms=(replace(told, severity=PASSED),)))
    assert "Unhealthy while it starts" not in await problems()


async def test_surroundings_hold_every_change_of_the_window_in_one_query(filled: AsyncConnection) -> None:
    with Counting(filled) as queries:
        around = await surroundings.read_surroundings(filled, world.CLUSTER, from_at=world.START, to_at=world.END)
    assert queries.count == 1
    assert sum(mark.count for mark in around.marks) == 91
    assert around.derived == 40
    assert world.CULPRIT.id in {mark.change_id for mark in around.marks}
    assert len(around.rollouts) == len(world.batch().rollouts)
    assert {rollout.outcome for rollout in around.rollouts} >= {Outcome.RUNNING, Outcome.COMPLETE}
    assert {problem.reason for problem in around.problems} == {"BackOff", "Unhealthy"}
    assert sum(problem.count for problem in around.problems) == 6
    assert around.seen.gaps == (world.gap(),)
    assert around.seen.freshness[0].at == max(change.at for change in world.batch().changes)


async def test_marks_are_as_many_as_the_axis_has_places(conn: AsyncConnection) -> None:
    many = tuple(
        world.a_change(
            "settings", kind="ConfigMap", api_group="", at=world.START + timedelta(milliseconds=n), version=f"{n}"
        )
        for n in range(3000)
    )
    await record(conn, replace(world.batch(0), changes=many, rollouts=(), objects=()))
    around = await surroundings.read_surroundings(
        conn, world.CLUSTER, from_at=world.START, to_at=world.START + timedelta(seconds=3)
    )
    assert len(around.marks) == surroundings.SPOTS
    assert sum(mark.count for mark in around.marks) == 3000


async def test_a_gap_that_ends_where_the_window_begins_is_not_its_gap(filled: AsyncConnection) -> None:
    gap = world.gap()
    after = await read_seen(filled, world.CLUSTER, from_at=gap.to_at, to_at=None)
    until = await read_seen(filled, world.CLUSTER, from_at=None, to_at=gap.from_at)
    inside = await read_seen(filled, world.CLUSTER, from_at=gap.from_at, to_at=gap.from_at + timedelta(seconds=1))
    assert [one.why for one in after.gaps] == [NO_MORE], "what comes after the record is not seen"
    assert (until.gaps, inside.gaps) == ((), (gap,))


async def test_an_objects_history(filled: AsyncConnection) -> None:
    found = await history.read_history(filled, world.CULPRIT.resource)
    assert found is not None
    assert found.changes[0] == world.CULPRIT
    assert found.state.state == world.a_state(world.CULPRIT).state
    assert await history.read_history(filled, replace(world.CULPRIT.resource, name="never-seen")) is None


async def test_an_object_of_the_same_name_elsewhere_is_another_one(filled: AsyncConnection) -> None:
    there = Resource(world.CLUSTER, "apps", "Deployment", "identity", "checkout-api")
    assert await history.read_history(filled, there) is None


async def test_incident_and_ranking_come_back_as_they_were_saved_in_one_query(filled: AsyncConnection) -> None:
    with Counting(filled) as queries:
        found = await incidents.read_incident(filled, world.incident().id)
    assert queries.count == 1
    assert found is not None
    incident, ranking = found
    assert ranking == world.ranking()
    assert incident == replace(world.incident(), onset=world.ONSET, ranked_at=world.ranking().ranked_at)
    assert await incidents.read_incident(filled, "unknown") is None


async def test_how_incidents_stand_is_read_without_their_rankings(filled: AsyncConnection) -> None:
    for number in range(3):
        await incidents.save_incident(filled, replace(world.incident(), id=f"i{number}", title="x", status="resolved"))
    for cluster in (None, world.CLUSTER, "elsewhere"):
        whole = await incidents.list_incidents(filled, cluster=cluster, limit=2)
        found = await incidents.list_standings(filled, cluster=cluster, limit=2)
        assert found == [incidents.Standing(i.id, i.status, i.started_at, i.resolved_at, i.ranked_at) for i in whole]
        assert len(found) == (0 if cluster == "elsewhere" else 2)
    ranked = await incidents.read_standing(filled, world.incident().id)
    assert ranked == incidents.Standing(
        world.incident().id, world.incident().status, world.incident().started_at, None, world.ranking().ranked_at
    )
    assert await incidents.read_standing(filled, "unknown") is None


async def test_every_ranking_is_kept_and_the_newest_is_shown(filled: AsyncConnection) -> None:
    later = replace(world.ranking(), ranked_at=world.ranking().ranked_at + timedelta(minutes=7), suspects=())
    await incidents.save_ranking(filled, later)
    found = await incidents.read_incident(filled, world.incident().id)
    assert found is not None
    assert found[1] == later
    assert await incidents.first_suspects(filled, [world.incident().id]) == {world.incident().id: None}
    await filled.exec_driver_sql("DELETE FROM rankings")
    assert await incidents.first_suspects(filled, [world.incident().id]) == {}


async def test_a_ranking_that_is_saved_after_a_newer_one_is_kept_and_not_shown(filled: AsyncConnection) -> None:
    newer = await incidents.read_incident(filled, world.incident().id)
    assert newer is not None
    late = replace(world.ranking(), ranked_at=world.ranking().ranked_at - timedelta(seconds=1), suspects=())
    await incidents.save_ranking(filled, late)
    assert await incidents.read_incident(filled, world.incident().id) == newer
    assert (await filled.exec_driver_sql("SELECT count(*) FROM rankings")).scalar_one() == 2


async def test_the_list_tells_the_first_suspect(filled: AsyncConnection) -> None:
    found = await incidents.first_suspects(filled, [world.incident().id, "unknown"])
    called, quiet, listed = await incidents.list_with_suspected(filled, cluster=None, before=None, limit=9, suspected=9)
    assert ([one.id for one in called], quiet) == ([world.incident().id], [])
    assert found == listed == {world.incident().id: incidents.FirstSuspect.of(world.ranking())}
    first = found[world.incident().id]
    assert first is not None
    assert (first.kind, first.name, first.probability) == ("Deployment", "checkout-api", 0.93)
    assert first.none_of_these == world.ranking().none_of_these


async def test_a_ranking_of_no_incident_is_refused(conn: AsyncConnection) -> None:
    with pytest.raises(LookupError, match="no incident"):
        await incidents.save_ranking(conn, world.ranking())


async def test_incidents_page_by_cursor(filled: AsyncConnection) -> None:
    for number in range(5):
        await incidents.save_incident(
            filled,
            replace(world.incident(), id=f"i{number}", started_at=world.START + timedelta(hours=number // 2)),
        )
    seen: list[str] = []
    before = None
    while page := await incidents.list_incidents(filled, before=before, limit=2):
        seen += [incident.id for incident in page]
        before = (page[-1].started_at, page[-1].id)
    assert seen == ["i4", "i3", "i2", world.incident().id, "i1", "i0"]
    assert [i.id for i in await incidents.list_incidents(filled, cluster="elsewhere")] == []
    assert await incidents.list_incidents(filled, status="resolved") == []
