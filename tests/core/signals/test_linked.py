"""A Service gives variables to every container that starts beside it; an app that takes one for its own ends on it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.core.findings import Ranking
from app.core.model import Outcome, Rollout, Verb
from app.core.objects.dependencies import variables_in
from tests.core.company import first, ranked
from tests.core.factories import a_change, a_resource, a_state, a_symptom, a_workload, after, an_alert, an_incident

APP = a_resource("Deployment", "wishlist")
CACHE = a_resource("Service", "my-cache")
UNREAD = 'wishlist ended with exit code 1: MY_CACHE_PORT: parsing "tcp://10.96.0.7:6379": invalid syntax'


def rolled_out(message: str, *, made: float | None = -40, where: str = "shop") -> Ranking:
    """A rollout of an app that ends with these words, ``made`` seconds after a Service of the namespace was made."""
    release = a_change(APP, at=after(-12), old="wishlist:1.0.0", new="wishlist:1.0.1")
    service = a_resource("Service", "my-cache", where)
    new = replace(
        a_change(service, at=after(made or 0), path=(), old=None, new={"spec": {"ports": [{"port": 6379}]}}),
        verb=Verb.CREATE,
    )
    return ranked(
        *([new] if made is not None else []),
        release,
        incident=an_incident(an_alert(after(10), name="Lacking", namespace="shop", deployment="wishlist")),
        symptoms=[
            a_symptom(APP, "Error", at=after(-10), message=message, count=3),
            a_symptom(APP, "CrashLoopBackOff", at=after(-10), message="wishlist: back-off 10s restarting", count=3),
        ],
        states=[a_workload(APP), a_state(service, {"spec": {"selector": {"app": "redis"}, "ports": [{"port": 6379}]}})],
        rollouts=[Rollout(APP, "uid", 2, after(-12), Outcome.RUNNING, change_id=release.id)],
    )


def test_an_app_that_ends_on_the_variable_of_a_new_service() -> None:
    ranking = rolled_out(UNREAD)
    assert first(ranking) == ("Service", "my-cache")
    said = " ".join(evidence.sentence for evidence in ranking.suspects[0].evidence)
    assert 'Error messages name "MY_CACHE_PORT"' in said
    assert "The first pods started with it 2 s before the onset" in said


@pytest.mark.parametrize(
    ("message", "made", "where"),
    [
        (UNREAD, None, "shop"),  # the Service was always there: the new version reads what the old one did not
        ("wishlist ended with exit code 1: cannot read a line", -40, "shop"),
        (UNREAD, -40, "media"),
    ],
)
def test_an_app_that_ends_on_its_own_account(message: str, made: float | None, where: str) -> None:
    assert first(rolled_out(message, made=made, where=where)) == ("Deployment", "wishlist")


def test_the_words_of_an_end_hold_for_why_it_is_not_started_again() -> None:
    [match] = [one for one in rolled_out(UNREAD).suspects[0].evidence if one.rule == "symptoms"]
    assert "CrashLoopBackOff" in match.sentence
    [own] = [
        one
        for suspect in rolled_out(UNREAD.replace("MY_CACHE_PORT", "LIMIT")).suspects
        for one in suspect.evidence
        if one.rule == "symptoms" and suspect.change.resource == APP
    ]
    assert own.sentence.startswith('CrashLoopBackOff ×3 on wishlist, 1 s after this change: "LIMIT: parsing')


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("CACHE_PORT: not a number", ["CACHE_PORT"]),
        ("cannot reach $(DB_SERVICE_HOST):$(DB_SERVICE_PORT)", ["DB_SERVICE_HOST", "DB_SERVICE_PORT"]),
        ("PORT 80, cache_port, EXPORT_PORTS", []),
    ],
)
def test_variables_that_a_text_names(text: str, found: list[str]) -> None:
    assert list(variables_in(text)) == found
