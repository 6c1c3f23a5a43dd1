"""Lists in changes: which item is which, what their order means, and empty ones."""

from __future__ import annotations

from tests.core.objects import a_deployment, changes, learn, listed, told


def test_a_patch_that_empties_a_list_removes_what_is_in_it() -> None:
    full = a_deployment(version=5)
    full["spec"]["template"]["spec"]["tolerations"] = [{"key": "a", "operator": "Exists"}]
    patch = {"spec": {"template": {"spec": {"tolerations": []}}}}
    (change,) = changes(learn(listed(full), told("Deployment", "web", 1, patch=patch, group="apps")))
    assert [(found.path[-1], found.new) for found in change.diffs] == [("tolerations", [])]
