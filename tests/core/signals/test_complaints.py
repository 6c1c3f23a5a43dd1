"""Complaints of many that say the same cause are one, in whatever words about themselves they say it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.core.model import Symptom, SymptomSource, Verb
from app.core.signals.complaints import symptom_signals
from tests.core.company import first, ranked
from tests.core.factories import a_change, a_resource, a_symptom, a_workload, after, an_alert, an_incident

AGENT = a_resource("DaemonSet", "flow-agent", "monitoring")
APPS = [a_resource("Deployment", *of) for of in (("letters", "print"), ("routes", "maps"), ("prices", "shop"))]


def not_pulled(answer: str, *, agent: int = 0) -> list[Symptom]:
    """Each of the apps fails to pull the image of its own release, the agent so many times."""
    told = [(app, 2, f"registry.example/{app.namespace}/{app.name}:1.{n}") for n, app in enumerate(APPS)]
    told += [(AGENT, agent, "registry.example/monitoring/flow-agent:latest")] if agent else []
    return [
        a_symptom(app, "Failed", at=after(n), message=f'Failed to pull image "{image}": {answer}', count=count)
        for n, (app, count, image) in enumerate(told)
    ]


@pytest.mark.parametrize(
    ("answer", "together"), [("429 Too Many Requests", True), ("i/o timeout", True), ("unexpected EOF", False)]
)
def test_what_many_say_to_be_the_cause_is_one_signal(answer: str, together: bool) -> None:
    told = symptom_signals(not_pulled(answer), start=after(-300), end=after(60))
    assert [len(signal.spread) for signal in told] == ([3] if together else [0, 0, 0])


def test_who_asks_a_registry_most_is_preferred_to_a_rollout_that_was_refused() -> None:
    release = a_change(APPS[0], at=after(-1), old="letters:1.0", new="letters:1.1")
    ranking = ranked(
        a_change(AGENT, at=after(-15), verb=Verb.CREATE, path=(), old=None, new={"spec": {}}),
        release,
        incident=an_incident(an_alert(after(20), name="RolloutStuck", namespace="print", deployment="letters")),
        symptoms=not_pulled("429 Too Many Requests", agent=30),
        states=[a_workload(one) for one in (AGENT, *APPS)],
    )
    assert first(ranking) == ("DaemonSet", "flow-agent")


def unwell(reason: str, since: float, until: float) -> list[Symptom]:
    """Each of the apps, one second after the other."""
    return [
        replace(
            a_symptom(app, reason, at=after(since + n), message="not well"),
            source=SymptomSource.POD,
            ended_at=after(until + n),
        )
        for n, app in enumerate(APPS)
    ]


def others(told: list[Symptom]) -> list[Symptom]:
    """The same of as many other workloads."""
    named = [(one, a_resource("Deployment", f"other-{n}", "media")) for n, one in enumerate(told)]
    return [replace(one, resource=app, workload=app, fingerprint=app.name) for one, app in named]


@pytest.mark.parametrize(
    ("reason", "until", "turns"),
    [
        ("Unready", -60, 2),
        ("Unhealthy", -60, 2),
        ("Unready", -35, 2),
        ("Unready", -30, 1),
        ("Unready", 10, 1),
        ("CreateContainerError", -60, 1),
    ],
)
def test_what_had_ended_before_others_began_to_say_the_same_is_a_signal_of_its_own(
    reason: str, until: float, turns: int
) -> None:
    symptoms = [*unwell(reason, -90, until), *others(unwell(reason, 0, 30))]
    for given in (symptoms, symptoms[::-1]):
        told = symptom_signals(given, start=after(-300), end=after(60))
        assert [len(signal.spread) for signal in told] == [6 // turns] * turns


def test_what_goes_on_is_one_signal_with_who_says_it_later() -> None:
    on_and_on = [replace(one, ended_at=None) for one in unwell("Unready", -90, -60)]
    (told,) = symptom_signals([*on_and_on, *others(unwell("Unready", 0, 30))], start=after(-300), end=after(60))
    assert len(told.spread) == 6


@pytest.mark.parametrize(
    ("message", "volumes"),
    [
        ("0/6 nodes are available: 6 node(s) exceed max volume count.", True),
        ("0/6 nodes are available: 6 node(s) had untolerated taint {gpu: true}.", False),
    ],
)
def test_pods_that_find_no_node_with_room_for_a_volume_speak_of_its_driver(message: str, volumes: bool) -> None:
    (told,) = symptom_signals(
        [a_symptom(APPS[0], "FailedScheduling", message=message)], start=after(-300), end=after(60)
    )
    assert (("agent", "csi") in told.about) is volumes
