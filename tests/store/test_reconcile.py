"""What Alertmanager says that fires, against what we hold for firing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import chain, cycle, repeat
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace

from app import correlate
from app.collect.alerts import ANSWERS, Alertmanager, Firing, PayloadError, list_firing, parse, parse_listing
from app.core.findings import Incident, Said
from app.core.incidents.pagers import Paged
from app.core.objects.redact import Redactor
from app.store import reach
from app.store.database import Database
from app.store.incidents import list_incidents
from tests.collect.test_outbound import answering
from tests.core.factories import NOON, after, an_alert

REDACTOR = Redactor(b"a key of at least 16 bytes")


def listed(fingerprint: str, state: str = "active") -> dict[str, object]:
    """As api/v2/openapi.yaml of Alertmanager has it."""
    return {
        "labels": {"alertname": "KubePodCrashLooping", "namespace": "shop", "severity": "critical"},
        "annotations": {"summary": "pods crash"},
        "startsAt": NOON.isoformat(),
        "endsAt": (NOON + timedelta(minutes=9)).isoformat(),
        "updatedAt": NOON.isoformat(),
        "fingerprint": fingerprint,
        "receivers": [{"name": "foreshock"}],
        "status": {"state": state, "silencedBy": [], "inhibitedBy": []},
        "generatorURL": "http://prometheus.example/graph",
    }


def test_what_it_lists_is_as_its_webhook_tells_it() -> None:
    one = listed("f1")
    found = parse_listing(json.dumps([one, listed("f2", "suppressed")]).encode(), REDACTOR, received=after(60))
    body = {"version": "4", "alerts": [one | {"status": "firing"}]}
    (told,), _ = parse(json.dumps(body).encode(), REDACTOR, received=after(60))
    assert found.alerts == (replace(told, active_at=NOON),)
    assert found.fingerprints == frozenset({"f1", "f2"})


@pytest.mark.parametrize("body", [b"", b"{}", b'[{"fingerprint": "x"}]'])
def test_what_is_no_list_is_refused(body: bytes) -> None:
    with pytest.raises(PayloadError, match="API version 2"):
        parse_listing(body, REDACTOR, received=NOON)


async def test_what_fires_no_more_has_ended_and_what_nobody_told_comes_in(database: Database) -> None:
    stays, ends, silenced = (replace(an_alert(NOON, name=name, namespace=name.lower())) for name in ("A", "B", "C"))
    grafana = replace(an_alert(NOON, name="D"), labels=(("grafana_folder", "shop"),))
    pager = replace(an_alert(NOON, name="E"), fingerprint="pagerduty:Q1")
    await correlate.take_alerts(database.write, "lab", [stays, ends, silenced, grafana, pager], after(60))
    new = an_alert(after(30), name="F", namespace="f")
    fires = {stays.fingerprint, silenced.fingerprint, new.fingerprint}
    for _ in range(2):
        touched = await correlate.reconcile(database.write, "lab", [stays, new], fingerprints=fires, asked=after(120))
    assert touched == []  # the second time nothing changes
    async with database.read.connect() as conn:
        found = await list_incidents(conn, cluster="lab")
    ended = {alert.reason: alert.ended_at for incident in found for alert in incident.alerts}
    assert ended == {"A": None, "B": after(120), "C": None, "D": None, "E": None, "F": None}


async def test_a_clock_that_is_ahead_does_not_have_alerts_recorded_up_to_what_is_to_come(database: Database) -> None:
    ahead = an_alert(after(600), name="A", namespace="ahead")
    await correlate.take_alerts(database.write, "ahead", [ahead], after(5))
    async with database.read.connect() as conn:
        assert await reach.read(conn, "ahead") == {reach.ALERTS: after(5)}
    await correlate.reconcile(database.write, "ahead", [ahead], fingerprints=None, asked=after(10))
    page = Paged(replace(ahead, fingerprint="pagerduty:Q1"))
    await correlate.take_page(database.write, "ahead", page, source="pagerduty", now=after(15))
    async with database.read.connect() as conn:
        assert await reach.read(conn, "ahead") == {reach.ALERTS: after(15)}


async def test_what_began_after_it_was_asked_has_not_ended(database: Database) -> None:
    alert = an_alert(after(10), namespace="later")
    await correlate.take_alerts(database.write, "later", [alert], after(20))
    assert await correlate.reconcile(database.write, "later", [], fingerprints=(), asked=after(5)) == []
    (incident,) = await correlate.reconcile(database.write, "later", [], fingerprints=(), asked=after(30))
    assert (incident.status, incident.resolved_at) == ("resolved", after(30))


async def test_nothing_ends_by_an_alertmanager_that_does_not_know_of_all_yet(database: Database) -> None:
    alert, new = (an_alert(NOON, name=name, namespace="early") for name in ("A", "B"))
    await correlate.take_alerts(database.write, "early", [alert], after(5))
    await correlate.reconcile(database.write, "early", [new], fingerprints=None, asked=after(60))
    async with database.read.connect() as conn:
        (incident,) = await list_incidents(conn, cluster="early")
    assert [one.ended_at for one in incident.alerts] == [None, None]


async def test_an_end_that_was_inferred_is_taken_back_by_the_same_alert(database: Database) -> None:
    """By whoever tells of it, and as often: its Alertmanager, or that one's webhook."""
    alert = an_alert(NOON, name="A", namespace="back")
    write, fires = database.write, [alert.fingerprint]
    await correlate.take_alerts(write, "back", [alert], after(5))
    for minute in (30, 60):
        (ended,) = await correlate.reconcile(write, "back", [], fingerprints=(), asked=after(minute))
        assert (ended.status, ended.resolved_at) == ("resolved", after(minute))
        (again,) = await correlate.reconcile(write, "back", [alert], fingerprints=fires, asked=after(minute + 5))
        assert (again.id, again.status, again.resolved_at) == (ended.id, "open", None)
        assert await correlate.reconcile(write, "back", [alert], fingerprints=fires, asked=after(minute + 6)) == []
    await correlate.reconcile(write, "back", [], fingerprints=(), asked=after(90))
    (again,) = await correlate.take_alerts(write, "back", [replace(alert, at=after(1))], after(91))  # another replica
    assert (again.id, again.status) == (ended.id, "open")


async def test_an_end_that_the_source_told_stays(database: Database) -> None:
    """Told late it counts for more than one that was inferred, and no webhook that tells it to fire since the same time
    undoes it."""
    alert = an_alert(NOON, name="A", namespace="told")
    write, over = database.write, replace(alert, ended_at=after(20))
    await correlate.take_alerts(write, "told", [alert], after(5))
    await correlate.reconcile(write, "told", [], fingerprints=(), asked=after(30))
    (ended,) = await correlate.take_alerts(write, "told", [over], after(35))
    assert (ended.status, ended.resolved_at) == ("resolved", after(20))
    for late in (alert, replace(alert, at=after(1)), over):
        await correlate.take_alerts(write, "told", [late], after(40))
        assert await correlate.reconcile(write, "told", [], fingerprints=(), asked=after(50)) == []
    async with database.read.connect() as conn:
        (incident,) = await list_incidents(conn, cluster="told")
    assert (incident.id, incident.resolved_at) == (ended.id, after(20))


async def test_an_end_that_was_told_is_taken_back_by_a_list_that_is_newer(database: Database) -> None:
    """For good: what the list was told last is remembered, and alone it is no news."""
    alert = an_alert(NOON, name="A", namespace="newer")
    write, fires, early = database.write, [alert.fingerprint], replace(alert, ended_at=after(240))
    await correlate.take_alerts(write, "newer", [alert], after(5))
    (ended,) = await correlate.take_alerts(write, "newer", [early], after(250))

    async def look(seconds: float) -> list[Incident]:
        listed = replace(alert, active_at=after(seconds))
        return await correlate.reconcile(write, "newer", [listed], fingerprints=fires, asked=after(seconds + 20))

    await look(200)
    async with database.read.connect() as conn:
        assert [one.resolved_at for one in await list_incidents(conn, cluster="newer")] == [after(240)]
    (again,) = await look(310)
    assert (again.id, again.status, again.resolved_at) == (ended.id, "open", None)
    for seconds in (370, 430):
        assert await look(seconds) == []
    (told,) = await correlate.take_alerts(write, "newer", [early], after(460))
    assert (told.status, told.alerts[0].active_at) == ("open", after(430))
    (over,) = await correlate.take_alerts(write, "newer", [replace(alert, ended_at=after(450))], after(470))
    assert (over.id, over.resolved_at) == (ended.id, after(450))


@pytest.mark.parametrize(
    ("status", "knows"),
    [
        ({"uptime": after(-290).isoformat()}, False),
        ({"uptime": after(-310).isoformat()}, True),
        ({"uptime": "long"}, True),
        (None, True),
    ],
)
async def test_an_alertmanager_that_has_just_started_may_not_know_of_all(status: Any, knows: bool) -> None:
    def answer(request: web.Request) -> web.Response:
        if request.path == "/api/v2/status":
            return web.json_response(status, status=200 if status else 403)
        return web.json_response([listed("f1")])

    async with answering(answer) as url:
        found = await list_firing(Alertmanager(url), REDACTOR, now=NOON)
    assert [one.fingerprint for one in found.alerts] == ["f1"]
    assert found.fingerprints == ({"f1"} if knows else None)


async def answers(lists: Iterator[Iterable[str] | None], *held: str) -> tuple[set[str], int]:
    """What is told to fire, and by how many answers, where each of the next lists these (None: it fails)."""
    asked = 0

    def answer(request: web.Request) -> web.Response:
        nonlocal asked
        fires = next(lists)
        if request.path == "/api/v2/status":
            return web.json_response({"uptime": after(-310).isoformat()})
        asked += 1
        return web.json_response([listed(one) for one in fires or ()], status=200 if fires is not None else 503)

    async with answering(answer) as url:
        found = await list_firing(Alertmanager(url), REDACTOR, now=NOON, held=frozenset(held))
    assert found.fingerprints is not None
    assert found.fingerprints == {one.fingerprint for one in found.alerts}
    return {*found.fingerprints}, asked


async def test_of_several_replicas_others_are_asked_for_what_one_does_not_list() -> None:
    """They answer by turns: by requests, of which the first look makes two, or now and then not at all."""
    assert await answers(cycle([("a",), ("a", "b")]), "a") == ({"a"}, 1)
    assert await answers(cycle([("a",), ("a", "b")]), "a", "b") == ({"a", "b"}, 3)
    assert await answers(cycle([("a",), ("b",), ("c",)]), "a", "b", "c") == ({"a", "b", "c"}, 4)
    assert await answers(chain([("a",), ()], cycle([None, ("a",), ("b",)])), "a", "b") == ({"a", "b"}, 4)


async def test_what_none_lists_has_ended() -> None:
    assert await answers(cycle([("a",), ("b",)]), "gone") == ({"a", "b"}, ANSWERS)
    assert await answers(chain([("a",), ("a",)], repeat(None)), "gone") == ({"a"}, ANSWERS)


def test_two_answers_of_which_one_may_not_know_of_all_tell_of_no_end() -> None:
    one, other = Firing((), None), Firing((an_alert(NOON),), frozenset({"a"}))
    assert one.and_also(other) == other.and_also(one) == Firing(other.alerts, None)


def test_of_two_answers_the_one_that_was_told_last_counts() -> None:
    """A replica that its Prometheus no longer reaches lists what it knew for some minutes."""
    stale, fresh = (Firing((replace(an_alert(NOON), active_at=after(n)),), frozenset({"a"})) for n in (60, 120))
    assert stale.and_also(fresh) == fresh.and_also(stale) == fresh


async def test_what_a_person_resolved_is_not_ranked_at_each_look_while_its_alert_fires(database: Database) -> None:
    alert = an_alert(NOON, namespace="known")
    (incident,) = await correlate.take_alerts(database.write, "known", [alert], after(5))
    await correlate.ByHand(database.write).amend(incident.id, Said(status="resolved"), now=after(600))
    fires = {alert.fingerprint}
    touched = await correlate.reconcile(database.write, "known", [alert], fingerprints=fires, asked=after(700))
    assert touched == []
    async with database.read.connect() as conn:
        (found,) = await list_incidents(conn, cluster="known")
    assert found.status == "resolved"
