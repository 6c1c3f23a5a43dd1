"""The one request that undoes a change, and where there is none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from app.core.changes.recipe import Definition, Known
from app.core.changes.revert_write import NoWriteError, Write, write_of
from app.core.model import Change, DiffSource, Object, Resource, Verb
from app.core.objects import kinds
from tests.core.changes.test_revert import WEB, changed, now
from tests.core.changes.test_revert_lists import begun_by
from tests.core.changes.test_revert_owner import ARGO, OF_SHOP
from tests.core.changes.test_revert_since import ROLLED, later, running
from tests.core.factories import a_change, a_resource, a_state

HELD: Object = {"metadata": {"name": "web", "namespace": "shop"}, "data": {"a": "1"}}
MADE = changed("ConfigMap", None, HELD)
GONE = changed("ConfigMap", HELD, None)
SCALED = a_change(WEB, path=("spec", "replicas"), old=2, new=9)
WIDGET = Resource("lab", "shop.example", "Widget", "shop", "web")


def test_a_value_is_set_as_it_was() -> None:
    assert write_of(SCALED, now({"spec": {"replicas": 9}})) == Write(
        "patch", WEB, "apps/v1", "deployments", {"spec": {"replicas": 2}}, "merge", a_state(WEB, {}).uid
    )


def test_a_template_is_patched_item_by_item_and_leaves_what_else_is_there() -> None:
    write = write_of(
        ROLLED, Known(a_state(WEB, running("web:2")), (later(path=("spec", "paused"), old=None, new=True),))
    )
    assert (write.verb, write.patch) == ("patch", "strategic")
    assert write.words == "patch deployments.apps/web -n shop"
    assert write.path == "/apis/apps/v1/namespaces/shop/deployments/web"
    image = {"name": "web", "image": "web:1"}
    assert write.body == {"spec": {"template": {"spec": {"containers": [image]}}}}


def test_what_was_made_is_deleted_and_that_very_object() -> None:
    made = replace(MADE, uid="u-1")
    assert write_of(made, Known()) == Write("delete", made.resource, "v1", "configmaps", {}, "", "u-1")


def test_what_was_deleted_is_made_as_it_was_last() -> None:
    write = write_of(GONE, Known())
    assert write == Write(
        "create", GONE.resource, "v1", "configmaps", {"apiVersion": "v1", "kind": "ConfigMap", **HELD}
    )
    assert write.path == "/api/v1/namespaces/shop/configmaps"


def test_what_is_in_no_namespace_has_none_in_its_address() -> None:
    node = a_resource("Node", "node-7", None)
    write = write_of(a_change(node, path=("spec", "unschedulable"), old=None, new=True), Known())
    assert (write.path, write.body) == ("/api/v1/nodes/node-7", {"spec": {"unschedulable": None}})
    assert write.words == "patch nodes/node-7"


def definition(*versions: str) -> Object:
    return {"spec": {"versions": [{"name": one, "served": True} for one in versions]}}


def test_a_custom_resource_has_the_plural_and_the_version_of_its_definition() -> None:
    change = a_change(WIDGET, path=("spec", "n"), old=1, new=2)
    found = Definition("Widget", "widgetry.shop.example", definition("v1", "v1beta1"), definition("v1"))
    write = write_of(change, Known(definition=found))
    assert write.path == "/apis/shop.example/v1/namespaces/shop/widgetry/web"


def gone(kind: str, name: str = "web") -> Change:
    return a_change(a_resource(kind, name, None if kind != "PersistentVolumeClaim" else "shop"), verb=Verb.CREATE)


HELM = replace(a_change(a_resource("Secret", "sh.helm.release.v1.shop.v3"), verb=Verb.CREATE), diffs=())
TOLD = a_change(Resource("lab", f"{kinds.EXTERNAL}terraform", "Apply", None, "prod"))
SYNCED = replace(a_change(WEB, path=("spec", "replicas"), old=2, new=9), actor=ARGO)
NO_VERSION = Definition("Widget", "widgets.shop.example", definition("v1"), None)


@pytest.mark.parametrize(
    ("change", "known", "why"),
    [
        (TOLD, Known(), "Kubernetes does not know it: it is undone where it was made, in "),
        (SCALED, now({"spec": {"replicas": 2}}), "the values before are there again: nothing is left to undo$"),
        (HELM, Known(), "^Helm undoes it"),
        (SYNCED, Known(a_state(WEB, {"metadata": OF_SHOP})), "^Argo CD goes back as a whole"),
        (a_change(WIDGET), Known(), "which version its API has is not known here"),
        (a_change(WIDGET), Known(definition=NO_VERSION), r"the API server serves shop\.example/v1 no more"),
        (gone("Namespace"), Known(), "deleting it deletes everything in the namespace"),
        (gone("CustomResourceDefinition"), Known(), "deleting it deletes every object"),
        (gone("PersistentVolumeClaim"), Known(), "deleting it may delete the data"),
        (replace(MADE, uid=""), Known(), "which object of this name it was is not known"),
        (replace(GONE, diffs=()), Known(), "what it held is not known"),
        (replace(SCALED, diff_source=DiffSource.PATCH), Known(), "the values before it were not recorded"),
        (replace(SCALED, diffs=()), Known(), "the values before it were not recorded"),
        (
            changed("Role", {"rules": [{"verbs": ["get"]}]}, {"rules": [{"verbs": ["list"]}]}),
            Known(),
            "it altered a list, of which it is not known",
        ),
        (
            changed("ConfigMap", {"data": {"password": "<redacted:0011aabb>"}}, {"data": {"password": "x"}}),
            Known(),
            "a value before is secret",
        ),
    ],
)
def test_where_no_single_request_undoes_it_the_reason_is_told(change: Change, known: Known, why: str) -> None:
    with pytest.raises(NoWriteError, match=why):
        write_of(change, known)


def rules(**verbs: str) -> Object:
    return {"rules": [{"resources": [kind], "verbs": [verb]} for kind, verb in verbs.items()]}


WIDENED = changed("Role", rules(pods="get", secrets="get"), rules(pods="list", secrets="get"))
BLIND = replace(later(), diffs=(), diff_source=DiffSource.NONE)


def test_a_place_in_a_list_counts_while_it_is_known_what_stands_there() -> None:
    role, there = WIDENED.resource, rules(pods="list", secrets="get")
    assert write_of(WIDENED, now(there, role)).body == rules(pods="get", secrets="get")
    moved, whole = a_state(role, rules(secrets="watch", pods="list")), a_state(role, there)
    for known in (Known(moved), Known(whole, is_cut=True), Known(whole, (BLIND,))):
        with pytest.raises(NoWriteError, match="or at which places"):
            write_of(WIDENED, known)


def test_an_item_that_was_removed_is_not_put_back_where_their_order_counts() -> None:
    removed = changed("CronJob", begun_by("a", "b"), begun_by("a"))
    with pytest.raises(NoWriteError, match="where in initContainers it stood is not recorded"):
        write_of(removed, now(begun_by("a"), removed.resource))


def test_what_is_not_recorded_whole_is_not_replaced() -> None:
    taints: Object = {"spec": {"taints": [{"key": "dedicated", "effect": "NoSchedule"}]}}
    with pytest.raises(NoWriteError, match=r"of spec\.taints.* not all is recorded"):
        write_of(changed("Node", {"spec": {}}, taints), now(taints))


def test_an_object_that_was_made_anew_is_another() -> None:
    made = replace(SCALED, uid="u-old")
    with pytest.raises(NoWriteError, match="made anew since"):
        write_of(made, Known(msgspec.structs.replace(a_state(WEB, {"spec": {"replicas": 9}}), uid="u-new")))


def test_a_set_that_takes_its_claims_with_it_is_not_deleted() -> None:
    policy: Object = {"spec": {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"}}}
    made = replace(changed("StatefulSet", None, policy), uid="u-1")
    with pytest.raises(NoWriteError, match="its volume claims with it"):
        write_of(made, now(policy, made.resource))


@pytest.mark.parametrize("name", ["..", ".", "../nodes/n1", "a/b", "a%2fb", "a?dryRun=", "a#b", "a b", ""])
@pytest.mark.parametrize("place", ["name", "namespace"])
def test_what_was_recorded_leads_to_no_other_address(name: str, place: str) -> None:
    """Somebody may have told of a change of anything: an import holds what a file says."""
    fields: dict[str, Any] = {"name": "web", "namespace": "shop"} | {place: name}
    if place == "namespace" and not name:
        return
    change = a_change(a_resource("ConfigMap", **fields), path=("data", "a"), old="1", new="2")
    with pytest.raises(NoWriteError, match="cannot be a part of its address"):
        write_of(change, Known())
