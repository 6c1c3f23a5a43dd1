"""Manifests: the object as kubectl takes it, and a word on all that it lacks."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.core.model import DiffSource, Object, Resource, Verb, path_text
from app.core.objects.api_versions import built_in, by_priority, served
from app.core.objects.diff import diff
from app.core.objects.kinds import BUILT_IN
from app.core.objects.manifest import file_name, manifest, redacted
from app.core.objects.versions import Side, Write, sides
from tests.core.factories import a_resource

HIDDEN = "<redacted:0011aabb>"


def test_it_begins_as_every_manifest_does_and_names_the_object() -> None:
    found = manifest(a_resource(), {"spec": {"replicas": 2}, "metadata": {"labels": {"a": "b"}}}, version="apps/v1")
    assert list(found.object) == ["apiVersion", "kind", "metadata", "spec"]
    assert found.object["metadata"] == {"name": "web", "namespace": "shop", "labels": {"a": "b"}}
    assert found.notes == ("Without status and what the server adds itself.",)
    node = manifest(a_resource("Node", "n7", None), {"status": {"nodeInfo": {}}}, version="v1").object
    assert node == {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n7"}}


def test_every_value_that_is_kept_secret_is_named_and_none_else() -> None:
    state: Object = {
        "data": {"a.b": HIDDEN, "plain": "x"},
        "spec": {"env": [{"name": "KEY", "value": HIDDEN}], "args": ["-v", f"--token={HIDDEN}"], "n": None},
    }
    assert [path_text(path) for path in redacted(state)] == ['data["a.b"]', "spec.env[KEY].value", "spec.args[1]"]
    notes = manifest(a_resource("Secret"), state, version="v1").notes
    assert notes[1].startswith("NOT WHOLE: 3 values kept secret here.")
    assert notes[2:] == ('  data["a.b"]', "  spec.env[KEY].value", "  spec.args[1]")


def test_a_version_that_is_not_known_is_left_open() -> None:
    found = manifest(replace(a_resource("Widget"), api_group="shop.example"), {}, version="")
    assert found.object["apiVersion"] == "shop.example/VERSION"
    assert any("VERSION" in note for note in found.notes)


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("Deployment", "web", "web.deployment.before.yaml"),
        ("ClusterRole", 'system:a b/"; x', "system-a-b-x.clusterrole.before.yaml"),
        ("ConfigMap", "../..", "configmap.before.yaml"),
    ],
)
def test_a_file_name_holds_nothing_that_means_something(kind: str, name: str, expected: str) -> None:
    assert file_name(a_resource(kind, name), "before") == expected


def test_versions_go_by_their_priority() -> None:
    given = ["v1beta1", "v2alpha1", "foo1", "v11beta2", "v10", "v2", "v1", "v3beta1", "v12alpha1", "foo10"]
    assert by_priority(given) == (
        "v10", "v2", "v1", "v11beta2", "v3beta1", "v1beta1", "v12alpha1", "v2alpha1", "foo1", "foo10",
    )  # fmt: skip
    versions: Object = {"spec": {"versions": [{"name": "v1beta1", "served": True}, {"name": "v1", "served": False}]}}
    assert served(versions) == ("v1beta1",)
    assert served({}) == ()


def test_built_in_kinds_have_a_version() -> None:
    assert built_in("apps", "Deployment") == "apps/v1"
    assert built_in("", "ConfigMap") == "v1"
    assert built_in("autoscaling", "HorizontalPodAutoscaler") == "autoscaling/v2"
    assert built_in("argoproj.io", "Application") == "argoproj.io/v1alpha1"
    assert built_in("shop.example", "Widget") == ""
    assert all(built_in(*sort) for sort in BUILT_IN)


def a_spec(replicas: int) -> Object:
    return {"spec": {"replicas": replicas}}


A, B, C = map(a_spec, (1, 2, 3))


def wrote(old: Object | None, new: Object | None, source: DiffSource = DiffSource.STATES) -> Write:
    verb = Verb.CREATE if old is None else Verb.DELETE if new is None else Verb.UPDATE
    return Write(verb, diff(old, new), source)


UNTOLD = Write(Verb.DELETE, (), DiffSource.NONE)


@pytest.mark.parametrize(
    ("last", "writes", "before", "after"),
    [
        (C, [wrote(B, C), wrote(A, B)], Side(A, known=True), Side(B, known=True)),
        (B, [wrote(A, B)], Side(A, known=True), Side(B, known=True)),
        (A, [wrote(None, A)], Side(None, known=True), Side(A, known=True)),
        (A, [wrote(A, None)], Side(A, known=True), Side(None, known=True)),
        (C, [wrote(None, C), wrote(A, None)], Side(A, known=True), Side(None, known=True)),
        (C, [wrote(B, C, DiffSource.PATCH), wrote(A, B)], Side(None, known=False), Side(None, known=False)),
        (C, [wrote(None, C), UNTOLD, wrote(A, B)], Side(None, known=False), Side(None, known=False)),
        (None, [wrote(A, B)], Side(None, known=False), Side(None, known=False)),
        (A, [Write(Verb.UPDATE, (), DiffSource.NONE)], Side(None, known=False), Side(A, known=True)),
    ],
)  # fmt: skip
def test_both_sides_of_a_write_are_what_they_were(
    last: Object | None, writes: list[Write], before: Side, after: Side
) -> None:
    assert sides(last, writes) == (before, after)


def test_an_application_that_is_made_again_begins_no_sync() -> None:
    app = Resource("lab", "argoproj.io", "Application", "argocd", "shop")
    state: Object = {"spec": {"project": "shop"}, "operation": {"sync": {"revision": "abc"}}}
    assert set(manifest(app, state, version="argoproj.io/v1alpha1").object) == {
        "apiVersion",
        "kind",
        "metadata",
        "spec",
    }
