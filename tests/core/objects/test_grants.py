"""Which edits of roles leave everybody what they had."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from app.core.model import FieldDiff, Json, Path, Verb
from app.core.objects.grants import loosens, only_allows_more
from tests.core.factories import a_change, a_resource


@dataclass
class Edit:
    path: Path
    old: Json
    new: Json


@pytest.mark.parametrize(
    ("edit", "more"),
    [
        (Edit(("rules", 0, "verbs"), ["get"], ["get", "list"]), True),
        (Edit(("rules", 0, "verbs"), ["get", "list"], ["get"]), False),
        (Edit(("metadata", "annotations", "owner"), "a", None), True),
        (Edit(("metadata", "labels", "rbac.example/aggregate-to-view"), None, "true"), True),
        # https://kubernetes.io/docs/reference/access-authn-authz/rbac/#aggregated-clusterroles
        (Edit(("metadata", "labels", "rbac.example/aggregate-to-view"), "true", None), False),
        (Edit(("metadata", "labels", "rbac.example/aggregate-to-view"), "true", "false"), False),
    ],
)
def test_an_edit_of_a_role_only_allows_more_where_nothing_is_taken_away(edit: Edit, more: bool) -> None:
    role = a_resource("ClusterRole", "reader", None)
    assert only_allows_more(a_change(role, path=edit.path, old=edit.old, new=edit.new)) is more


PEER: Json = {"podSelector": {"matchLabels": {"app": "web"}}}


@pytest.mark.parametrize(
    ("path", "op", "more"),
    [
        (("spec", "ingress", 0, "ports", (("port", "9102"),)), "add", True),
        (("spec", "egress", 1), "add", True),
        (("spec", "ingress", 0, "from"), "add", False),
        (("spec", "ingress", 0, "ports", (("port", "9102"),)), "remove", False),
        (("spec", "ingress", 0, "ports", (("port", "9102"),), "port"), "replace", False),
        (("spec", "policyTypes"), "add", False),
    ],
    ids=["one more port", "one more rule", "peers where all might", "a port less", "another port", "of what it speaks"],
)
def test_a_policy_only_allows_more_where_it_names_one_more(path: Path, op: str, more: bool) -> None:
    policy = a_change(a_resource("NetworkPolicy", "web", "shop"), path=path, old=None, new=PEER)
    policy = replace(policy, diffs=(FieldDiff(path, op, None, PEER),))
    assert only_allows_more(policy) is more


def test_rules_that_are_written_anew_with_one_more_only_allow_more() -> None:
    policy = a_resource("NetworkPolicy", "web", "shop")
    rules: list[Json] = [{"to": [PEER]}, {"to": [{"podSelector": {}}]}]
    wider = a_change(policy, path=("spec", "egress"), old=rules[:1], new=rules)
    assert only_allows_more(wider)
    assert not only_allows_more(a_change(policy, path=("spec", "egress"), old=rules, new=rules[:1]))
    assert not only_allows_more(a_change(policy, path=("spec", "egress"), old=[], new=rules))


@pytest.mark.parametrize(
    ("field", "old", "new", "looser"),
    [
        ("maxUnavailable", 1, 2, True),
        ("maxUnavailable", 1, "75%", True),
        ("maxUnavailable", "50%", 1, False),
        ("minAvailable", 2, 1, True),
        ("minAvailable", 2, None, True),
        ("minAvailable", "25%", "50%", False),
        ("unhealthyPodEvictionPolicy", "a", "b", False),
    ],
)
def test_a_budget_that_lets_more_go(field: str, old: Json, new: Json, *, looser: bool) -> None:
    budget = a_resource("PodDisruptionBudget", "web", "shop")
    assert loosens(a_change(budget, path=("spec", field), old=old, new=new)) is looser
    assert loosens(a_change(budget, path=(), old={}, new=None, verb=Verb.DELETE))
