"""Incidents by hand: what a person said stays, whatever the alerts say; what is merged is one."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from app.core.findings import Incident, Origin, Said, Scope
from app.core.incidents.bundles import bundle
from app.core.incidents.hands import CannotError, amended, merged, opened
from app.core.model import Symptom
from tests.core.factories import NOON, after, an_alert

SAID = Said(title="Checkout is down", started_at=after(-600), namespaces=("shop",))


def by_hand(said: Said = SAID, *, request: str = "1") -> Incident:
    return opened("lab", said, by="alice", request=request, now=NOON)


def joined(incident: Incident, *alerts: Symptom) -> Incident:
    (found,) = bundle(alerts, [incident], cluster="lab")
    assert found.id == incident.id
    return found


def from_alert(alert: Symptom | None = None) -> Incident:
    (found,) = bundle([alert or an_alert(NOON, namespace="shop")], [], cluster="lab")
    return found


def test_it_is_as_it_was_said() -> None:
    found = by_hand()
    assert (found.title, found.status, found.started_at) == ("Checkout is down", "open", after(-600))
    assert found.scope == Scope(namespaces=("shop",))
    assert (found.origin, found.opened_by) == (Origin.HAND, "alice")
    assert found.id == by_hand().id != by_hand(request="2").id


def test_an_alert_joins_it_and_leaves_what_was_said() -> None:
    found = joined(by_hand(), an_alert(after(-900), namespace="shop", pod="web-1"))
    assert (found.title, found.started_at, found.scope.namespaces) == ("Checkout is down", after(-600), ("shop",))
    assert found.severity == "critical"  # nobody said
    assert found.scope.workloads


def test_a_start_that_nobody_said_moves_to_an_earlier_alert() -> None:
    found = joined(by_hand(Said(title="x")), an_alert(after(-300)))
    assert found.started_at == after(-300)


def test_an_alert_about_something_else_does_not_join_it_later() -> None:
    (found,) = bundle([an_alert(after(1500), namespace="infra")], [by_hand()], cluster="lab")
    assert found.origin is Origin.ALERTS


def test_an_alert_about_the_same_joins_it_while_it_is_open() -> None:
    assert len(joined(by_hand(), an_alert(after(7200), namespace="shop")).alerts) == 1


def test_the_end_of_its_alerts_does_not_end_it() -> None:
    assert joined(by_hand(), replace(an_alert(NOON, namespace="shop"), ended_at=after(60))).status == "open"


def test_resolved_by_hand_it_stays_so_while_its_alert_fires_on() -> None:
    done = amended(from_alert(), Said(status="resolved"), now=after(300))
    assert (done.status, done.resolved_at) == ("resolved", after(300))
    assert joined(done, an_alert(NOON, namespace="shop")).status == "resolved"


def test_resolved_by_hand_it_opens_again_when_its_alert_fires_anew() -> None:
    alert = an_alert(NOON, namespace="shop")
    done = amended(from_alert(replace(alert, ended_at=after(200))), Said(status="resolved"), now=after(300))
    again = joined(done, replace(alert, at=after(900)))
    assert (again.status, again.said.status) == ("open", None)
    assert joined(again, replace(alert, at=after(900), ended_at=after(950))).resolved_at == after(950)


def test_opened_again_it_is_open_until_somebody_resolves_it() -> None:
    alert = replace(an_alert(NOON, namespace="shop"), ended_at=after(60))
    again = amended(from_alert(alert), Said(status="open"), now=after(300))
    assert (again.status, again.resolved_at) == ("open", None)
    assert joined(again, alert).status == "open"
    assert amended(again, Said(status="resolved"), now=after(400)).resolved_at == after(400)


def test_only_what_is_named_changes() -> None:
    found = amended(by_hand(), Said(severity="warning"), now=NOON)
    assert found == replace(by_hand(), severity="warning", said=replace(by_hand().said, severity="warning"))


def test_it_cannot_begin_after_it_was_over() -> None:
    done = amended(by_hand(), Said(status="resolved"), now=after(60))
    with pytest.raises(CannotError, match="was over before that"):
        amended(done, Said(started_at=after(61)), now=after(90))


def test_what_is_merged_gives_its_alerts_and_later_ones_of_theirs() -> None:
    alert, other = an_alert(NOON, namespace="shop"), an_alert(after(7200), name="Other", namespace="infra")
    one, into = from_alert(alert), from_alert(other)
    part, whole = merged(one, into, now=after(7300))
    assert (part.status, part.merged_into, part.alerts, part.resolved_at) == ("merged", whole.id, (), after(7300))
    assert (whole.started_at, len(whole.alerts), whole.status) == (NOON, 2, "open")
    ended = joined(whole, replace(alert, ended_at=after(7400)), replace(other, ended_at=after(7500)))
    assert (ended.status, len(ended.alerts)) == ("resolved", 2)
    assert len(joined(ended, replace(alert, at=after(7600))).alerts) == 3


def test_what_somebody_is_called_for_stays_so_as_a_part_of_what_was_only_suspected() -> None:
    quiet = replace(from_alert(), alerts=(), status="suspected", origin=Origin.ITSELF)
    assert merged(by_hand(), quiet, now=NOON)[1].status == "open"
    _, whole = merged(amended(by_hand(), Said(status="resolved"), now=after(60)), quiet, now=after(90))
    assert (whole.status, whole.resolved_at) == ("resolved", after(60))
    over = replace(quiet, id="over", resolved_at=after(60))
    assert merged(over, quiet, now=after(90))[1].resolved_at is None, "it goes on"


def test_what_is_over_is_open_again_where_an_open_one_is_a_part_of_it() -> None:
    over = from_alert(replace(an_alert(NOON, namespace="shop"), ended_at=after(60)))
    closed = amended(from_alert(), Said(status="resolved"), now=after(60))
    for into in (over, closed):
        _, whole = merged(by_hand(), into, now=after(90))
        assert (whole.status, whole.resolved_at) == ("open", None)
        assert amended(whole, Said(status="resolved"), now=after(120)).resolved_at == after(120)
    firing = an_alert(after(30), name="Other", namespace="shop")
    _, whole = merged(from_alert(firing), closed, now=after(90))
    assert (whole.status, whole.said.status) == ("open", None), "until its alerts are over"
    _, whole = merged(amended(by_hand(), Said(status="resolved"), now=after(60)), over, now=after(90))
    assert whole.status == "resolved"


def test_merged_again_nothing_changes() -> None:
    pair = merged(from_alert(), by_hand(), now=NOON)
    assert merged(*pair, now=NOON + timedelta(days=1)) == pair


@pytest.mark.parametrize(
    ("one", "into", "field"),
    [
        (by_hand(), by_hand(), "into"),
        (by_hand(), replace(by_hand(request="2"), cluster="plant"), "into"),
        (by_hand(), replace(by_hand(request="2"), merged_into="a"), "into"),
        (replace(by_hand(), merged_into="a"), by_hand(request="2"), "id"),
    ],
)
def test_what_cannot_be_merged_says_why(one: Incident, into: Incident, field: str) -> None:
    with pytest.raises(CannotError) as refused:
        merged(one, into, now=NOON)
    assert refused.value.field == field


def test_a_part_cannot_be_amended() -> None:
    part, whole = merged(from_alert(), by_hand(), now=NOON)
    with pytest.raises(CannotError, match=whole.id):
        amended(part, Said(status="open"), now=NOON)
