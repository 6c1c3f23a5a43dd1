"""Who reads what a program keeps up suffers when that one ends, but later."""

from __future__ import annotations

from msgspec.structs import replace

from app.core.counted import Calls
from app.core.edges.indexing import topology
from app.core.edges.reach import reach
from app.core.edges.renewals import kept_up
from app.core.findings import Ranking
from app.core.model import Actor, ActorSource, Change, Resource, Verb
from tests.core.company import background, first, ranked
from tests.core.factories import a_change, a_resource, a_symptom, a_workload, after, an_alert, an_incident, calls

USER = "system:serviceaccount:platform:logins"
GROUP = "identity.example"
OPERATOR = a_resource("Deployment", "login-operator", "platform")
APP = a_resource("Deployment", "vouchers")
SECRET = a_resource("Secret", "vouchers-login")
LOGIN = Resource(SECRET.cluster, GROUP, "Login", "search", "experiments")
STATES = [
    a_workload(OPERATOR, serviceAccountName="logins"),
    a_workload(APP, volumes=[{"name": "login", "secret": {"secretName": SECRET.name}}]),
]
WATCHES = calls(USER, "watch", "logins", rate=0.2, group=GROUP)


def renewed(*seconds: float, by: str = USER) -> list[Change]:
    actor = Actor(by, ActorSource.AUDIT)
    return [a_change(SECRET, at=after(at), path=("data", "until"), actor=actor) for at in seconds]


def test_what_is_written_once_is_not_kept_up() -> None:
    running, read = {("platform", "logins"): {("a", "op")}}, {("Secret", "shop", "vouchers-login"): {("shop", "app")}}
    assert kept_up(renewed(1), running_as=running, read_by=read) == {}
    assert kept_up(renewed(1, 2, by="alice"), running_as=running, read_by=read) == {}
    assert kept_up(renewed(1, 2), running_as=running, read_by=read) == {("a", "op"): {("shop", "app")}}


def test_what_ends_an_operator_reaches_who_reads_what_it_keeps_up() -> None:
    top = topology(STATES, Calls.of(WATCHES), changes=renewed(-60, -30))
    made = replace(a_change(LOGIN, path=(), old=None, new={"spec": {}}), verb=Verb.CREATE)
    found = reach(made, top)
    assert found["workload", "platform", "login-operator"] == 1
    assert found["reads", "shop", "vouchers"] == 2
    own = reach(replace(made, actor=Actor(USER, ActorSource.AUDIT)), top)
    assert ("workload", "platform", "login-operator") not in own


def panicked() -> Ranking:
    """An operator ends on a new object; twenty seconds later the credentials that it renewed are over."""
    made = a_change(LOGIN, at=after(-31), path=(), old=None, new={"spec": {"bucket": "a"}})
    return ranked(
        *renewed(-100, -70, -40),
        replace(made, verb=Verb.CREATE),
        incident=an_incident(an_alert(after(10), name="Lacking", namespace="shop", deployment="vouchers")),
        symptoms=[
            a_symptom(OPERATOR, "CrashLoopBackOff", at=after(-30), message="back-off 10s", count=4),
            a_symptom(APP, "Unhealthy", at=after(-8), message="Readiness probe failed: 503", count=6),
        ],
        states=STATES,
        load=background() + WATCHES,
    )


def test_the_onset_is_when_the_operator_ended() -> None:
    ranking = panicked()
    assert first(ranking) == ("Login", "experiments")
    assert abs((ranking.onset.at - after(-30)).total_seconds()) <= 1
    said = " ".join(evidence.sentence for evidence in ranking.suspects[0].evidence)
    assert "vouchers, which the alert names, reads what is kept up by it or by what depends on it" in said
