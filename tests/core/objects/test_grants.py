"""Which edits of roles leave everybody what they had."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from app.core.model import FieldDiff, Json, Path, Verb
from app.core.objects.grants import CONSTRAINTS, accepts_more, loosens, only_allows_more
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


SCHEMA: Path = ("spec", "versions", (("name", "v1"),), "schema", "openAPIV3Schema", "properties", "spec", "properties")
DEFAULTS: Json = {"type": "object", "properties": {"size": {"type": "integer", "default": 3}}}


@pytest.mark.parametrize(
    ("path", "old", "new", "more"),
    [
        ((*SCHEMA, "logFile"), None, {"type": "string"}, True),
        ((*SCHEMA, "log"), None, DEFAULTS, False),  # which is written into what is there
        ((*SCHEMA, "size", "maximum"), None, 3, False),
        ((*SCHEMA[:-1], "required"), None, ["size"], False),
        ((*SCHEMA, "logFile"), {"type": "string"}, None, False),
    ],
)
def test_a_definition_takes_more_with_a_field_that_may_be_left_out(
    path: Path, old: Json, new: Json, more: bool
) -> None:
    definition = a_change(a_resource("CustomResourceDefinition", "backups.ops.example", None), path=path)
    op = "add" if old is None else "remove" if new is None else "replace"
    assert accepts_more(replace(definition, diffs=(FieldDiff(path, op, old, new),))) is more


@pytest.mark.parametrize(("new", "more"), [(["kube-system", "ml"], True), (["ml"], False)])
def test_a_constraint_takes_more_where_it_leaves_out_more_namespaces(new: Json, more: bool) -> None:
    constraint = replace(a_resource("K8sLimits", "limits", None), api_group=CONSTRAINTS)
    left_out: Path = ("spec", "match", "excludedNamespaces")
    assert accepts_more(a_change(constraint, path=left_out, old=["kube-system"], new=new)) is more
    parameters: Path = ("spec", "parameters", "memory")
    assert not accepts_more(a_change(constraint, path=parameters, old="8Gi", new="4Gi"))


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
