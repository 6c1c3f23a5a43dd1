"""Which changes compete: each once, as a suspect or as what followed from one."""

from __future__ import annotations

from datetime import timedelta
from typing import cast

import pytest
from msgspec.structs import replace

from app.core.edges.indexing import topology
from app.core.edges.reach import reach
from app.core.model import Actor, ActorSource, Change, Json, Path, Verb
from app.core.ranking.candidates import SAME_EDIT, Candidate, candidates
from app.core.ranking.case import Case, Facts
from app.core.ranking.explain import Match
from app.core.ranking.priors import novelty
from app.core.signals.complaints import symptom_signals
from tests.core.factories import a_change, a_resource, a_state, a_symptom, a_workload, after

CONFIG = a_resource("ConfigMap", "web-config")
ALICE, BOB = (Actor(name, ActorSource.AUDIT) for name in ("alice", "bob"))
OPERATOR, FLUX = (
    Actor(f"system:serviceaccount:{name}", ActorSource.AUDIT)
    for name in ("platform:machine-operator", "flux-system:kustomize-controller")
)
A: Path = ("data", "a")
LABEL: Path = ("metadata", "labels", "t")


def edit(seconds: float, path: Path, actor: Actor = ALICE) -> Change:
    return a_change(CONFIG, at=after(seconds), path=path, old="1", new="2", actor=actor)


def competing(*changes: Change) -> list[Candidate]:
    found = candidates(changes, (), (), topology=topology([]), until=after(999))
    told = [name for one in found for name in (one.change.id, *one.derived)]
    assert sorted(told) == sorted(change.id for change in changes)
    return found


def test_a_touch_soon_after_belongs_to_the_edit() -> None:
    first, second = edit(0, A), edit(10, LABEL)
    (found,) = competing(first, second)
    assert (found.change, found.derived) == (first, (second.id,))
    assert not found.cosmetic


@pytest.mark.parametrize(
    "second",
    [
        edit(10, ("data", "b")),  # it may be what broke things
        edit(10, LABEL, BOB),
        edit((SAME_EDIT + timedelta(seconds=1)).total_seconds(), LABEL),
    ],
)
def test_what_acts_by_itself_or_is_another_edit_competes(second: Change) -> None:
    assert [one.derived for one in competing(edit(0, A), second)] == [(), ()]


def test_a_real_edit_is_not_hidden_behind_a_touch_before_it() -> None:
    touch, real = edit(0, LABEL), edit(10, A)
    assert [one.change for one in competing(touch, real)] == [touch, real]


def test_what_becomes_of_a_node_becomes_of_the_pods_that_ran_there() -> None:
    node, home = a_resource("Node", "n1", None), a_resource("Deployment", "web", "shop")
    drained = a_change(node, verb=Verb.DELETE)
    for seconds, felt in ((-60, False), (5, True)):
        pod = a_state(a_resource("Pod", "web-6d4f7c9b8-x2k4z", "shop"), {"spec": {"nodeName": "n1"}})
        pod = replace(pod, deleted_at=after(seconds))
        assert (("workload", "shop", "web") in reach(drained, topology([a_workload(home)], gone=[pod]))) is felt


@pytest.mark.parametrize(("earlier", "weight"), [(0, None), (3, 0.555), (40, 1.2)])
def test_of_the_first_few_changes_of_a_window_none_is_known_to_be_new(earlier: int, weight: float | None) -> None:
    teams = [Actor(f"team-{n}", ActorSource.AUDIT) for n in range(earlier)]
    releases = [a_change(a_resource(name=team.name), at=after(-100 + n), actor=team) for n, team in enumerate(teams)]
    policy = a_change(a_resource("NetworkPolicy", "closed"), at=after(-10), path=("spec", "ingress"))
    *_, last = candidates([*releases, policy], [], [], topology=topology([]), until=after(0))
    assert (last.alike, last.earlier) == (0, earlier)
    found = novelty(cast("Case", None), Facts(last, (), 0))
    assert (found and found.weight) == weight


@pytest.mark.parametrize(
    ("kind", "path", "old", "new", "is_news"),
    [
        ("ConfigMap", ("data", "POOL"), "20", "30", False),
        ("ConfigMap", ("data", "POOL"), "20", "200", True),
        ("ConfigMap", ("data", "LOG_LEVEL"), "info", "warn", False),
        ("ConfigMap", ("data", "LOG_LEVEL"), "info", "debug", False),
        ("Deployment", ("spec", "replicas"), 2, 3, False),
        ("Deployment", ("spec", "replicas"), 3, 2, True),
        ("Deployment", ("spec", "replicas"), 0, 2, True),
        ("Deployment", ("spec", "replicas"), 2, 40, True),
    ],
)
def test_what_is_tuned_every_day_is_no_news(kind: str, path: Path, old: Json, new: Json, *, is_news: bool) -> None:
    teams = [Actor(f"team-{n}", ActorSource.AUDIT) for n in range(40)]
    releases = [a_change(a_resource(name=team.name), at=after(-100 + n), actor=team) for n, team in enumerate(teams)]
    tuned = a_change(a_resource(kind, "web", "shop"), at=after(-10), path=path, old=old, new=new)
    *_, last = candidates([*releases, tuned], [], [], topology=topology([]), until=after(0))
    found = novelty(cast("Case", None), Facts(last, (), 0))
    assert (found is not None and found.weight > 0) is is_news


@pytest.mark.parametrize(
    ("message", "is_news"), [("no space left on device", True), ("context deadline exceeded", False)]
)
def test_more_lines_in_a_log_are_news_where_something_is_full(message: str, *, is_news: bool) -> None:
    teams = [Actor(f"team-{n}", ActorSource.AUDIT) for n in range(40)]
    releases = [a_change(a_resource(name=team.name), at=after(-100 + n), actor=team) for n, team in enumerate(teams)]
    settings = a_resource("ConfigMap", "web", "shop")
    louder = a_change(settings, at=after(-10), path=("data", "LOG_LEVEL"), old="info", new="debug")
    *_, last = candidates([*releases, louder], [], [], topology=topology([]), until=after(0))
    told = a_symptom(a_resource("Deployment", "web"), "Error", at=after(0), message=message, count=9)
    [signal] = symptom_signals([told], start=after(-60), end=after(30))
    match = Match(signal, 0.5, ("workload", "shop", "web"), timedelta(seconds=10))
    found = novelty(cast("Case", None), Facts(last, (match,), 0))
    assert (found is not None and found.weight > 0) is is_news


@pytest.mark.parametrize(
    ("actor", "fields", "weight"),
    [
        (OPERATOR, "abcd", -0.832),
        (OPERATOR, "abc", -0.659),
        (OPERATOR, "ab", None),
        (ALICE, "abcd", None),
        (FLUX, "abcd", None),
        (ALICE, "aaaa", -0.832),
    ],
    ids=["a program", "three times", "twice", "a person", "what applies what people wrote", "the same field"],
)
def test_what_a_program_writes_of_one_object_again_and_again_is_routine(
    actor: Actor, fields: str, weight: float | None
) -> None:
    *_, last = competing(*(edit(10 * n, ("data", field), actor) for n, field in enumerate(fields)))
    found = novelty(cast("Case", None), Facts(last, (), 0))
    assert (found.weight if found and found.rule == "routine" else None) == weight


def test_what_a_program_writes_of_ever_other_objects_is_no_routine() -> None:
    *_, last = competing(
        *(
            a_change(a_resource("ConfigMap", name), at=after(n), path=("data", name), actor=OPERATOR)
            for n, name in enumerate("abcd")
        )
    )
    assert last.routine == 0


@pytest.mark.parametrize(("unread", "said"), [(1, True), (0, False)])
def test_its_writes_that_were_not_read_count_with_the_others(unread: int, said: bool) -> None:
    first, second = edit(0, A, OPERATOR), edit(10, ("data", "b"), OPERATOR)
    told = {second.key: unread}
    *_, last = candidates([first, second], (), (), topology=topology([]), until=after(999), unread=told)
    found = novelty(cast("Case", None), Facts(last, (), 0))
    assert (found is not None and found.rule == "routine") is said
