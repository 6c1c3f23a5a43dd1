"""The manifest of what a cluster must allow."""

from __future__ import annotations

import pytest
import yaml

from app.collect.rbac import RbacError, manifest


def allowed(text: str) -> set[tuple[str, str]]:
    """The group and plural of all that the ClusterRole names."""
    [role] = [one for one in yaml.safe_load_all(text) if one["kind"] == "ClusterRole" and one["rules"]]
    return {
        (group, plural) for rule in role["rules"] for group in rule.get("apiGroups", ()) for plural in rule["resources"]
    }


def test_the_kinds_that_are_followed_are_named_and_no_others() -> None:
    found = allowed(manifest())
    assert {("", "pods"), ("", "events"), ("apps", "deployments"), ("argoproj.io", "rollouts")} <= found
    assert not {("", "secrets"), ("events.k8s.io", "events"), ("coordination.k8s.io", "leases")} & found


def test_what_is_added_is_named_and_what_is_excluded_is_not() -> None:
    text = manifest(add=["secrets", "workflows.argoproj.io"], exclude=["pods", "tills.shop.example"], namespace="ops")
    assert allowed(text) - allowed(manifest()) == {("", "secrets"), ("argoproj.io", "workflows")}
    assert allowed(manifest()) - allowed(text) == {("", "pods")}
    assert "`foreshock rbac --add secrets --add workflows.argoproj.io --exclude pods" in text
    namespaces = {one["metadata"].get("namespace") for one in yaml.safe_load_all(text)}
    assert namespaces == {None, "ops"}


@pytest.mark.parametrize("name", ["tills", "pods/exec", "*", "", "pods\n  - secrets", "Secret", ".apps"])
def test_what_is_no_name_of_a_kind_is_refused(name: str) -> None:
    with pytest.raises(RbacError, match="is no kind"):
        manifest(add=[name])
    with pytest.raises(RbacError, match="is no kind"):
        manifest(exclude=[name])


@pytest.mark.parametrize("name", ["", "a.b", "a: b", "A"])
def test_what_is_no_name_of_a_namespace_is_refused(name: str) -> None:
    with pytest.raises(RbacError, match="name of a namespace"):
        manifest(namespace=name)
