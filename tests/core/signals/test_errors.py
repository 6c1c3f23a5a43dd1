"""Calls that fail: new by who failed at what, whatever the words; blamed by the words that are new."""

from __future__ import annotations

import pytest

from app.core.counted import Calls
from app.core.model import CallCount, Json, Path
from app.core.signals.calls import axis, loads
from app.core.signals.errors import error_signals
from app.core.signals.signal import Signal
from tests.core.company import background, first, ranked
from tests.core.factories import a_change, a_resource, after, an_alert, an_incident, calls

AGENT = "system:serviceaccount:monitoring:agent"
CI = "ci"


def errors(counts: list[CallCount]) -> list[Signal]:
    together = Calls.of(counts)
    slots = axis(together, until=after(60).timestamp())
    assert slots is not None
    return error_signals(together, slots, loads(together, slots))


def refused(text: str, **more: float) -> list[CallCount]:
    return calls(CI, "create", "configmaps", rate=0.2, code=403, error=text, **more)  # type: ignore[arg-type]


def test_a_new_refusal_of_what_worked_is_strong() -> None:
    worked = calls(AGENT, "list", "secrets", rate=2, end=-20)
    denied = calls(AGENT, "list", "secrets", rate=2, start=-20, code=403, error="forbidden")
    (signal,) = errors(worked + denied)
    assert signal.strength > 0.8
    assert "never before" in signal.sentence


def test_what_never_worked_is_weaker_and_what_always_failed_is_nothing() -> None:
    (found,) = errors(calls("x", "get", "pods", rate=1) + calls(AGENT, "list", "nodes", rate=2, start=-20, code=403))
    assert found.strength < 0.5
    assert errors(calls("x", "get", "pods", rate=1) + calls(AGENT, "list", "nodes", rate=0.4, code=403)) == []


def test_conflicts_weigh_little() -> None:
    fine = calls(AGENT, "update", "pods", rate=2)
    conflicts = calls(AGENT, "update", "pods", rate=2, start=-20, code=409)
    (signal,) = errors(fine + conflicts)
    assert signal.strength < 0.3


@pytest.mark.parametrize("distinct", [False, True])
def test_denials_count_together_whatever_they_name(distinct: bool) -> None:
    worked = calls(CI, "create", "configmaps", rate=1, end=-30)
    names = [f"config {'abcdefghij'[i]}x{'abcdefghij'[-i]} of a team" if distinct else "config" for i in range(10)]
    denials = [
        one
        for i, name in enumerate(names)
        for one in refused(
            f'webhook "sign.example" denied it: {name} is not signed', start=-30 + 5 * i, end=-25 + 5 * i
        )
    ]
    (signal,) = errors(worked + denials)
    assert signal.sentence == "ci got 403 on CREATE configmaps 10 times, never before"
    assert signal.strength == pytest.approx(errors(worked + refused("x", start=-30, end=20))[0].strength)
    assert abs((signal.low - after(-30)).total_seconds()) <= 5
    assert "sign.example" in signal.text


def test_what_few_of_the_messages_name_is_not_blamed() -> None:
    gone = [
        one
        for i in range(10)
        for one in calls(
            AGENT, "get", "scaledobjects", rate=1, start=-30 + 5 * i, end=-25 + 5 * i, code=404,
            error=f'scaledobjects.keda.sh "scaler-{"abcdefghij"[i]}" not found',
        )
    ]  # fmt: skip
    (signal,) = errors(background() + gone)
    assert signal.text == 'scaledobjects.keda.sh "*" not found'
    (signal,) = errors(background() + gone[:1] * 4)
    assert signal.text == 'scaledobjects.keda.sh "scaler-a" not found'


def test_the_same_failures_in_other_words_are_no_news() -> None:
    failed = calls(AGENT, "list", "nodes", rate=1, end=-20, code=403, error="old words")
    again = calls(AGENT, "list", "nodes", rate=1, start=-20, code=403, error="new words")
    assert errors(background() + failed + again) == []


def test_of_what_fails_more_the_new_words_are_to_blame() -> None:
    always = calls(CI, "create", "pods", rate=0.4, code=403, error='exceeded quota "compute"', namespace="shop")
    new = calls(CI, "create", "pods", rate=20, start=-20, code=403, error='"guard.example" denied it', namespace="web")
    (signal,) = errors(background() + always + new)
    assert signal.text == '"guard.example" denied it'
    assert ("ns", "web") in signal.about
    assert ("ns", "shop") not in signal.about


def test_one_that_failed_long_before_was_not_the_beginning() -> None:
    early = refused("x", start=-110, end=-105)
    (signal,) = errors(background() + early + calls(CI, "create", "configmaps", rate=4, start=-20, code=403))
    assert abs((signal.low - after(-20)).total_seconds()) <= 5
    assert signal.sentence.endswith("320 times, once before")


def test_what_fails_every_half_minute_did_so_before_the_record_began() -> None:
    starts = range(-90, 60, 30)
    polls = [c for at in starts for c in calls(AGENT, "list", "nodes", rate=4, start=at, end=at + 5, code=403)]
    assert errors(background() + polls) == []


def test_a_webhook_whose_denials_name_each_object_is_found_among_other_changes() -> None:
    hook = a_resource("ValidatingWebhookConfiguration", "sign-check", None)
    denials = [
        one
        for i in range(10)
        for one in refused(
            f'admission webhook "sign-check.example" denied the request: config {"abcdefghij"[i]}z is not signed',
            start=-30 + 5 * i,
            end=-25 + 5 * i,
        )
    ]
    ranking = ranked(
        a_change(hook, at=after(-31), path=("webhooks", (("name", "sign-check.example"),), "failurePolicy")),
        incident=an_incident(an_alert(after(40), name="DeployFailureRateHigh")),
        load=[*background(), *calls(CI, "create", "configmaps", rate=1, end=-30), *denials],
    )
    assert first(ranking) == ("ValidatingWebhookConfiguration", "sign-check")


@pytest.mark.parametrize(("place", "passed"), [("shop", True), ("pay", False)])
def test_only_what_passed_where_calls_fail_now_says_that_they_might(place: str, passed: bool) -> None:
    """A quota of one namespace lets all others go on."""
    maker = "system:serviceaccount:kube-system:replicaset-controller"
    worked = calls(maker, "create", "pods", rate=1, end=-20, namespace=place)
    going_on = calls(maker, "create", "pods", rate=1, namespace="pay")
    text = "failed quota: fair-share: must specify limits.cpu"
    denied = calls(maker, "create", "pods", rate=1, start=-20, code=403, error=text, namespace="shop")
    (signal,) = errors(worked + going_on + denied)
    assert signal.passed
    assert (signal.passed.since(after(-60)) < 0.01) == passed


def test_what_failed_elsewhere_before_did_not_pass() -> None:
    before = calls(CI, "create", "configmaps", rate=2, start=-110, end=-105, code=403, error="old", namespace="pay")
    now = calls(CI, "create", "configmaps", rate=4, start=-20, code=403, error="new policy", namespace="shop")
    worked = calls(CI, "create", "configmaps", rate=0.2, end=-20, namespace="shop")
    (signal,) = errors(before + worked + now)
    assert signal.passed
    assert (signal.passed.counts >= 0).all()
    assert signal.passed.since(after(-10)) <= 1.0


@pytest.mark.parametrize(("code", "is_of_budgets"), [(429, True), (500, True), (404, False)])
def test_evictions_that_are_refused_are_about_the_budgets_there(code: int, is_of_budgets: bool) -> None:
    drains = calls("drainer", "create", "pods/eviction", rate=1, start=-20, code=code, namespace="search")
    (signal,) = errors(calls("x", "get", "pods", rate=1) + drains)
    assert signal.about.get(("evictions", "search")) == (pytest.approx(0.95) if is_of_budgets else None)


def test_where_the_server_fails_the_caller_says_little_of_it() -> None:
    fine = calls(AGENT, "update", "leases", rate=2, end=-20)
    about = [
        errors([*fine, *calls(AGENT, "update", "leases", rate=2, start=-20, code=code)])[0].about for code in (504, 404)
    ]
    assert about[0]["user", AGENT] < about[1]["user", AGENT]


@pytest.mark.parametrize(
    ("path", "old", "new", "may"),
    [
        (("timeoutSeconds",), 10, 1, True),
        (("failurePolicy",), "Ignore", "Fail", True),
        (("failurePolicy",), "Fail", "Ignore", False),
    ],
)
def test_a_webhook_that_is_waited_for_less_long_refuses_only_what_takes_long(
    path: Path, old: Json, new: Json, *, may: bool
) -> None:
    hook = a_resource("ValidatingWebhookConfiguration", "sign-check", None)
    text = 'failed calling webhook "sign-check.example": context deadline exceeded'
    edit = a_change(hook, at=after(-60), path=("webhooks", (("name", "sign-check.example"),), *path), old=old, new=new)
    ranking = ranked(
        edit,
        incident=an_incident(an_alert(after(40), name="DeployFailureRateHigh")),
        load=[
            *background(),
            *calls(CI, "create", "configmaps", rate=2, end=-10),
            *calls(CI, "create", "configmaps", rate=2, start=-10, code=500, error=text),
        ],
    )
    found = (e.weight for s in ranking.suspects if s.change == edit for e in s.evidence if e.rule == "errors")
    assert (next(found, 0.0) > 1.0) is may
