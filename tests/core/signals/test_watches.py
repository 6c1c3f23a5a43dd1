"""Watches that are opened one after the other, and whose they are."""

from __future__ import annotations

from app.core.counted import Calls
from app.core.model import CallCount
from app.core.signals.calls import axis
from app.core.signals.signal import Signal
from app.core.signals.watches import watch_signals
from tests.core.company import background, first, ranked
from tests.core.factories import a_change, a_resource, a_workload, after, an_alert, an_incident, calls

EXPORTER = "system:serviceaccount:data:exporter"


def watches(counts: list[CallCount]) -> list[Signal]:
    together = Calls.of(counts)
    slots = axis(together, until=after(60).timestamp())
    assert slots is not None
    return watch_signals(together, slots)


def test_a_caller_that_opens_watch_after_watch() -> None:
    (signal,) = watches(background() + calls(EXPORTER, "watch", "cronjobs", rate=1.6, start=-30))
    assert (
        signal.sentence
        == "exporter opened 144 watches of cronjobs (100 % of the extra watches): it went from 0 to 1.6/s"
    )
    assert signal.about["user", EXPORTER] == 1.0
    assert abs((signal.low - after(-30)).total_seconds()) <= 5


def test_what_a_caller_watches_anew_is_one_signal() -> None:
    twice = [c for what in ("cronjobs", "jobs") for c in calls(EXPORTER, "watch", what, rate=1.6, start=-30)]
    (signal,) = watches(background() + twice)
    assert signal.sentence.startswith("exporter opened 288 watches of cronjobs and one other resource (100 %")


def test_who_reconnects_or_only_reacts_leaks_nothing() -> None:
    assert watches(background() + calls(EXPORTER, "watch", "cronjobs", rate=2, start=-30, end=-25)) == []
    assert watches(background() + calls(EXPORTER, "watch", "cronjobs", rate=2)) == []
    assert watches(background() + calls("system:node:a", "watch", "secrets", rate=4, start=-30)) == []


def test_the_rollout_that_leaks_watches_is_to_blame() -> None:
    exporter = a_resource("Deployment", "exporter", "data")
    ranking = ranked(
        a_change(exporter, at=after(-33), old="exporter:1", new="exporter:2"),
        incident=an_incident(an_alert(after(40), name="KubeAPIServerLongRunningRequestsHigh", job="apiserver")),
        load=[*background(), *calls(EXPORTER, "watch", "cronjobs", rate=1.6, start=-30)],
        states=[a_workload(exporter, serviceAccountName="exporter")],
    )
    assert first(ranking) == ("Deployment", "exporter")
    assert any("opened 144 watches" in one.sentence for one in ranking.suspects[0].evidence)
