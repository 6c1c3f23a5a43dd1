"""What is given out for a time hurts when that ends: as long after a change of who gives it out as it lasts."""

from __future__ import annotations

from typing import Any

import pytest

from app.core.findings import Evidence
from app.core.model import Change, Object, ObjectState, Resource, Verb
from tests.core.company import ranked
from tests.core.factories import a_change, a_resource, a_state, a_symptom, after, an_alert, an_incident

SIGN_IN = a_resource("Deployment", "sign-in", "shop")
SETTINGS = a_resource("ConfigMap", "sign-in-settings", "shop")
LATE = "Readiness probe failed: context deadline exceeded (Client.Timeout exceeded while awaiting headers)"


def a_program(**container: Any) -> ObjectState:
    """That reads its settings as variables."""
    spec: Object = {
        "containers": [{"name": "a", "envFrom": [{"configMapRef": {"name": "sign-in-settings"}}], **container}]
    }
    return a_state(SIGN_IN, {"spec": {"template": {"spec": spec}}})


def time_of(change: Change, *states: ObjectState) -> Evidence:
    ranking = ranked(
        change,
        incident=an_incident(an_alert(after(30), name="Down", namespace="shop", deployment="sign-in")),
        symptoms=[a_symptom(SIGN_IN, "Unhealthy", at=after(0), message=LATE, count=9)],
        states=states,
    )
    [suspect] = [one for one in ranking.suspects if one.change.id == change.id]
    return next(one for one in suspect.evidence if one.rule == "time")


def edited(ago: float, resource: Resource = SETTINGS, verb: Verb = Verb.UPDATE) -> Change:
    return a_change(resource, at=after(-ago), path=("data", "ISSUER"), old="a", new="b", verb=verb)


@pytest.mark.parametrize(
    "data",
    [
        {"ACCESS_TTL": "1h"},
        {"ACCESS_TTL": "3600"},
        {"TOKEN_EXPIRY_MS": "3600000"},
        {"tokenLifetimeMinutes": "60"},
        {"application.yaml": "issuer: b\ntoken-validity: 60m\n"},
    ],
)
def test_what_ends_as_long_after_a_change_as_it_lasts_dates_it(data: Object) -> None:
    said = time_of(edited(3660), a_program(), a_state(SETTINGS, {"data": data}))
    assert said.sentence.startswith("What lasts 1 h (")
    assert said.weight > 0


def test_variables_of_a_program_say_it_too() -> None:
    change = edited(3540, SIGN_IN)
    said = time_of(change, a_program(env=[{"name": "TOKEN_TTL", "value": "3600"}]))
    assert said.sentence.startswith("What lasts 1 h (TOKEN_TTL) ended ")


@pytest.mark.parametrize(
    ("ago", "data"),
    [
        (3660, {}),
        (3660, {"ACCESS_TTL": "2h"}),
        (3960, {"ACCESS_TTL": "1h"}),
        (3660, {"READ_TIMEOUT": "3600"}),
        (3660, {"ACCESS_TTL": "3600 times"}),
        (300, {"ACCESS_TTL": "5m"}),
    ],
    ids=["nothing lasts", "twice as long", "10 % off", "a deadline", "no unit of time", "what is soon"],
)
def test_what_lasts_otherwise_says_nothing(ago: float, data: Object) -> None:
    said = time_of(edited(ago), a_program(), a_state(SETTINGS, {"data": data}))
    assert "What lasts" not in said.sentence


def test_how_long_an_ended_job_is_kept_says_nothing() -> None:
    job = a_resource("Job", "index", "shop")
    said = time_of(edited(3600, job, Verb.CREATE), a_state(job, {"spec": {"ttlSecondsAfterFinished": 3600}}))
    assert "What lasts" not in said.sentence
