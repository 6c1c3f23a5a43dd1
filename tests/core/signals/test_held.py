"""Since when an alert's condition held, as the Prometheus knows that evaluates it."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from app.core.findings import Incident, Said
from app.core.model import MetricSeries, Symptom, SymptomSource
from app.core.signals.held import ALERTS_FOR_STATE, with_held
from tests.core.company import ranked
from tests.core.factories import a_resource, a_symptom, after

SHOP = a_resource("Namespace", "shop", None)
LABELS = {"alertname": "HighErrorRate", "namespace": "shop"}


def an_alert(*, at: float = 0, **labels: str) -> Symptom:
    told = tuple(sorted({**LABELS, "cluster": "shop-eu", **labels}.items()))
    return replace(a_symptom(SHOP, "HighErrorRate", at=after(at)), labels=told)


def an_incident(*alerts: Symptom) -> Incident:
    return Incident("i", "lab", "", "open", "", started_at=min(alert.at for alert in alerts), alerts=alerts)


def held(since: float, *, first: float, last: float, labels: dict[str, str] = LABELS) -> MetricSeries:
    times = tuple(after(first).timestamp() + 15 * n for n in range(int((last - first) // 15) + 1))
    return MetricSeries(
        ALERTS_FOR_STATE, tuple(sorted(labels.items())), "gauge", times, (after(since).timestamp(),) * len(times)
    )


def test_it_began_when_the_condition_began_to_hold() -> None:
    found = with_held(an_incident(an_alert()), [held(-300, first=-295, last=60)])
    assert found.started_at == after(-300)


@pytest.mark.parametrize("off", [-900, -300, 300, 900])
def test_an_alert_that_tells_a_wrong_time_is_put_right(off: float) -> None:
    found = with_held(an_incident(an_alert(at=off)), [held(-300, first=-295, last=120)])
    assert found.started_at == after(-300)


def test_of_several_times_the_one_that_the_alert_tells_of_counts() -> None:
    early, late = held(-900, first=-895, last=-800), held(-60, first=-55, last=60)
    both = replace(
        early, times=(*early.times, early.times[-1] + 15, *late.times), values=(*early.values, math.nan, *late.values)
    )
    assert with_held(an_incident(an_alert()), [both]).started_at == after(-60)
    assert with_held(an_incident(an_alert(at=-850)), [both]).started_at == after(-900)


@pytest.mark.parametrize(
    "series",
    [
        held(-300, first=-295, last=60, labels={**LABELS, "alertname": "Other"}),
        held(-300, first=-295, last=60, labels={**LABELS, "namespace": "pay"}),
        held(-9000, first=-8995, last=-8000),
    ],
    ids=["name", "labels", "long-ago"],
)
def test_what_another_alert_says_is_nothing_to_it(series: MetricSeries) -> None:
    incident = an_incident(an_alert())
    assert with_held(incident, [series]) == incident


def test_of_several_alerts_the_first_counts_and_a_person_knows_better() -> None:
    other = an_alert(at=-30, namespace="pay")
    incident = an_incident(an_alert(), other)
    assert with_held(incident, [held(-20, first=-15, last=60)]).started_at == after(-30)
    said = replace(incident, said=Said(started_at=after(-500)), started_at=after(-500))
    assert with_held(said, [held(-20, first=-15, last=60)]) == said


def test_where_nothing_else_turned_bad_that_is_the_onset() -> None:
    told = replace(an_alert(at=30), source=SymptomSource.ALERT)
    ranking = ranked(incident=an_incident(told), load=[], series=[held(-20, first=-15, last=60)])
    assert ranking.onset.at == after(-20)
    assert ranking.onset.found_in.startswith("the alert's condition began to hold")
    without = ranked(incident=an_incident(told), load=[])
    assert without.onset.at == after(30)
    assert without.onset.found_in.startswith("the alert's start")
    by_hand = ranked(incident=replace(an_incident(told), alerts=()), load=[])
    assert by_hand.onset.found_in.startswith("the start that it was given")
