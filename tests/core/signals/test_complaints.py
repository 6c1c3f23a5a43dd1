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


def test_what_programs_are_probed_for_does_not_tell_their_complaints_apart() -> None:
    late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
    asked = zip(APPS, ("10.1.0.4:8080/readyz", "10.1.2.9:8000/health", "10.1.3.1:8080/actuator/health"), strict=True)
    told = [
        a_symptom(app, "Unhealthy", at=after(0), message=f'Readiness probe failed: Get "http://{url}": {late}')
        for app, url in asked
    ]
    (signal,) = symptom_signals(told, start=after(-300), end=after(60))
    assert len(signal.spread) == 3


@pytest.mark.parametrize(
    ("reason", "message", "signals"),
    [
        (
            "FailedCreatePodSandBox",
            'failed to setup network for sandbox "{id}": plugin type="calico" failed (add): Unauthorized',
            1,
        ),
        ("FailedCreate", 'Error creating: pods "{app}-" is forbidden: container "{app}" must not run as root', 1),
        ("Unhealthy", '{probe} probe failed: command timed out: "{app} --check" timed out after 1s', 1),
        ("BackOff", "Back-off restarting failed container {app} in pod {pod}_{namespace}({uid})", 3),
    ],
)
def test_what_names_who_complains_does_not_tell_complaints_apart(reason: str, message: str, signals: int) -> None:
    """But that a program ends again and again, which each does by itself."""
    pods = (
        ("5d8c7b9f4-bcdfg", "0a1b", "Readiness"),
        ("74f9fbb5c8-x2x9p", "ffff", "Liveness"),
        ("6-kkkkk", "12ab", "Startup"),
    )
    told = []
    for app, (pod, start, probe) in zip(APPS, pods, strict=True):
        of = {"app": app.name, "pod": f"{app.name}-{pod}", "namespace": app.namespace, "probe": probe}
        says = message.format(**of, id=start * 16, uid=f"{start * 2}-3c1a-4b0e-9a3b-0e0f5e6d7c8b")
        told.append(a_symptom(app, reason, at=after(0), message=says))
        told[-1] = replace(told[-1], resource=a_resource("Pod", of["pod"] or "", app.namespace))
    assert len(symptom_signals(told, start=after(-300), end=after(60))) == signals


@pytest.mark.parametrize("message", ["dial tcp 10.1.0.4:8080: connect: connection refused", "volume: timed out"])
def test_who_always_complained_does_not_say_when_others_began_to(message: str) -> None:
    old = a_resource("Deployment", "old", "legacy")
    told = [a_symptom(old, "Unhealthy", at=after(at), message=message, count=1) for at in range(-300, 60, 20)]
    told += [a_symptom(app, "Unhealthy", at=after(n), message=message) for n, app in enumerate(APPS)]
    later, chronic = symptom_signals(told, start=after(-300), end=after(60))
    assert (later.low, len(later.spread)) == (after(-1), 3)
    assert chronic.strength < later.strength / 3


def test_many_that_are_late_at_once_lead_to_what_runs_on_all_nodes() -> None:
    """And to the servers of names, of which nobody says a word; not to one of them that was released as well."""
    late = 'Readiness probe failed: Get "http://10.1.0.4:8080/": context deadline exceeded'
    told = [a_symptom(app, "Unhealthy", at=after(n), message=late) for n, app in enumerate(APPS)]
    names, server = (a_resource(kind, "coredns", "kube-system") for kind in ("ConfigMap", "Deployment"))
    states = [a_workload(app) for app in (AGENT, server, *APPS)]
    incident = an_incident(an_alert(after(30), name="NodeSaturated"))
    release = a_change(APPS[0], at=after(-240), old="maps:4", new="maps:5")
    for shared in (
        a_change(AGENT, at=after(-120), old="agent:1", new="agent:2"),
        a_change(names, at=after(-120), path=("data", "Corefile"), old="forward . 10.0.0.2", new="forward . 10.9.9.9"),
    ):
        suspects = ranked(release, shared, incident=incident, symptoms=told, states=states).suspects
        assert suspects[0].change.id == shared.id
        assert "symptoms" in {one.rule for one in suspects[0].evidence if one.weight > 0}


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
