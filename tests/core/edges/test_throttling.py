"""Flow control: a FlowSchema is suspected of refusing (429) whom its rules name."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.core.edges.indexing import topology
from app.core.edges.reach import Reach, reach
from app.core.edges.throttling import throttled
from app.core.metrics.families import FAMILIES
from app.core.model import Actor, ActorSource, Change, Json, Object, ObjectState, Resource
from app.core.objects.diff import diff
from app.core.ranking.nearness import distance
from tests.core.company import background, first, ranked
from tests.core.factories import a_change, a_resource, a_state, after, an_alert, an_incident, calls

OPERATOR = "system:serviceaccount:tenancy:tenant-operator"
READER = "system:serviceaccount:ops:reader"
TENANCY: Json = {"kind": "Group", "group": {"name": "system:serviceaccounts:tenancy"}}
EVERY_ACCOUNT: Json = {"kind": "Group", "group": {"name": "system:serviceaccounts"}}
ANYBODY: Json = {"kind": "User", "user": {"name": "*"}}
SIGNED_IN: Json = {"kind": "Group", "group": {"name": "system:authenticated"}}
KUBELETS: Json = {"kind": "Group", "group": {"name": "system:nodes"}}
TEAM: Json = {"kind": "Group", "group": {"name": "ci-readers"}}
SCHEMA, OTHER = (a_resource("FlowSchema", name, None) for name in ("quarantine", "readers"))


def an_account(user: str) -> Json:
    _, _, namespace, name = user.split(":")
    return {"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": name}}


def rules(*subjects: Json, level: str = "low") -> Object:
    everything: Json = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}
    rule: Json = {"subjects": list(subjects), "resourceRules": [everything]}
    return {"spec": {"matchingPrecedence": 500, "priorityLevelConfiguration": {"name": level}, "rules": [rule]}}


def edit(schema: Resource = SCHEMA, *, at: float = -20, new: int = 500) -> Change:
    return a_change(schema, at=after(at), path=("spec", "matchingPrecedence"), old=9000, new=new)


def hops(change: Change, user: str, *states: ObjectState) -> float | None:
    """From a change to what a caller's calls are about that were refused."""
    found: Reach = reach(change, topology(states))
    ways = (distance(found, entity) for entity in throttled(user))
    return min((one for one in ways if one is not None), default=None)


@pytest.mark.parametrize(
    ("subject", "user", "far"),
    [
        (an_account(OPERATOR), OPERATOR, 0),
        (an_account("system:serviceaccount:tenancy:*"), OPERATOR, 0),
        (TENANCY, OPERATOR, 0),
        (EVERY_ACCOUNT, OPERATOR, 0),
        (SIGNED_IN, OPERATOR, 0),
        (ANYBODY, OPERATOR, 0),
        (an_account(READER), OPERATOR, 2),
        (KUBELETS, OPERATOR, 2),
        (TEAM, OPERATOR, 2),
        (TEAM, "alice@corp.example", 0),
        (EVERY_ACCOUNT, "alice@corp.example", 2),
        (KUBELETS, "system:node:node-7", 0),
        (TENANCY, "system:node:node-7", 2),
        (TEAM, "system:node:node-7", 2),
        (SIGNED_IN, "system:anonymous", 2),
    ],
)
def test_a_schema_is_near_to_whom_its_rules_name(subject: Json, user: str, far: float) -> None:
    assert hops(edit(), user, a_state(SCHEMA, rules(subject))) == far


def test_a_schema_of_which_no_rules_are_known_may_throttle_anybody() -> None:
    assert hops(edit(), OPERATOR) == 0


def test_whom_a_schema_named_before_falls_to_another() -> None:
    before, now = rules(TENANCY, TEAM), rules(TEAM)
    change = replace(edit(), diffs=diff(before, now))
    assert hops(change, OPERATOR, a_state(SCHEMA, now)) == 0
    assert hops(change, READER, a_state(SCHEMA, now)) == 2
    assert hops(change, OPERATOR, a_state(SCHEMA, {"spec": {}})) == 0  # edited again since: the rules are not known


def test_others_of_a_level_have_what_a_schema_leaves_them() -> None:
    there = a_state(OTHER, rules(an_account(READER)))
    assert hops(edit(), READER, a_state(SCHEMA, rules(TENANCY)), there) == 1
    assert hops(edit(), READER, a_state(SCHEMA, rules(TENANCY, level="high")), there) == 2


def test_a_priority_level_is_near_to_those_of_its_schemas() -> None:
    level = replace(SCHEMA, kind="PriorityLevelConfiguration", name="low")
    change = a_change(level, path=("spec", "limited", "nominalConcurrencyShares"), old=30, new=1)
    its_own, others = a_state(SCHEMA, rules(TENANCY)), a_state(OTHER, rules(an_account(READER), level="high"))
    assert hops(change, OPERATOR, its_own, others) == 0
    assert hops(change, READER, its_own, others) == 2
    assert hops(change, READER) == 0


def test_of_two_schemas_that_one_is_first_which_names_who_is_refused() -> None:
    """Though the other was edited nearer to when calls were first refused."""
    refused = calls(OPERATOR, "update", "leases", rate=3, start=-15, code=429, error="too many requests")
    ranking = ranked(
        edit(at=-18),
        replace(edit(OTHER, at=-16, new=700), actor=Actor("carol@corp.example", ActorSource.AUDIT)),
        incident=an_incident(an_alert(after(40), name="KubeAPITooManyRequests")),
        load=[*background(), *calls(OPERATOR, "update", "leases", rate=3, end=-15), *refused],
        states=[a_state(SCHEMA, rules(TENANCY)), a_state(OTHER, rules(KUBELETS, level="nodes"))],
    )
    assert first(ranking) == ("FlowSchema", "quarantine")
    bystander = next(one for one in ranking.suspects if one.change.resource == OTHER)
    assert bystander.probability < ranking.suspects[0].probability / 10


def test_what_others_call_a_flow_schema_is_none() -> None:
    odd = a_state(replace(OTHER, api_group="shop.example"), {"spec": "anything"})
    assert hops(edit(), OPERATOR, a_state(SCHEMA, rules(TENANCY)), odd) == 0


def test_rejected_requests_lead_to_the_schema_of_which_they_are_and_to_its_level() -> None:
    rejected = next(family for family in FAMILIES if family.title == "Rejected")
    [(entity, _)] = [one for one in rejected.about({"flow_schema": SCHEMA.name}).items() if one[0][0] == "object"]
    level = a_change(replace(SCHEMA, kind="PriorityLevelConfiguration", name="low"), path=("spec", "limited"))
    states = topology([a_state(SCHEMA, rules(TENANCY)), a_state(OTHER, rules(KUBELETS, level="high"))])
    far = [distance(reach(change, states), entity) for change in (edit(), edit(OTHER), level)]
    assert far == [0, None, 0]
