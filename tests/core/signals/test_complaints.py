"""Complaints of many that say the same cause are one, in whatever words about themselves they say it."""

from __future__ import annotations

import pytest

from app.core.model import Symptom, Verb
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
