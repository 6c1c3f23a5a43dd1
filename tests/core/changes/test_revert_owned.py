"""An object that is made again: with its owners, where they are there."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.core.changes.recipe import Known
from app.core.changes.revert import bearing, revert_recipe
from app.core.changes.revert_write import write_of
from app.core.model import Json, Object, ObjectState, Resource
from tests.core.changes.test_revert import changed, now
from tests.core.factories import NOON, a_resource, a_state

OWNER = a_resource("Deployment", "web")
NODE = a_resource("Node", "node-7", None)


def referring(owner: Resource, uid: str) -> Json:
    group = f"{owner.api_group}/v1" if owner.api_group else "v1"
    return {"apiVersion": group, "kind": owner.kind, "name": owner.name, "uid": uid, "controller": True}


def owned(*references: Json) -> Object:
    return {"metadata": {"name": "web", "ownerReferences": list(references)}, "data": {"a": "1"}}


def there(owner: Resource, uid: str, *, gone: bool = False) -> ObjectState:
    return replace(a_state(owner, {}), uid=uid, deleted_at=NOON if gone else None)


def known(*owners: ObjectState) -> Known:
    return Known(others={one.resource: one for one in owners})


def test_what_the_owners_of_a_deleted_object_may_be_is_asked_for() -> None:
    deleted = changed("ConfigMap", owned(referring(OWNER, "u-1"), referring(NODE, "u-2")), None)
    assert set(bearing(deleted, Known())) == {
        OWNER,
        replace(OWNER, namespace=None),
        NODE,
        replace(NODE, namespace="shop"),
    }
    assert bearing(changed("ConfigMap", None, owned(referring(OWNER, "u-1"))), Known()) == ()


@pytest.mark.parametrize(("owner", "other"), [(OWNER, NODE), (NODE, OWNER)])
def test_a_reference_to_an_owner_that_is_there_stays(owner: Resource, other: Resource) -> None:
    deleted = changed("ConfigMap", owned(referring(owner, "u-1"), referring(other, "u-2")), None)
    stays = known(there(owner, "u-1"), there(other, "u-2", gone=True))
    body = write_of(deleted, stays).body
    assert body["metadata"] == {"name": "web", "ownerReferences": [referring(owner, "u-1")]}
    recipe = revert_recipe(deleted, stays)
    assert f"Its owner {other.kind} {other.name} is gone: it is made without" in recipe.warning
    assert "u-1" in recipe.command
    assert "u-2" not in recipe.command


@pytest.mark.parametrize("owner", [there(OWNER, "u-1", gone=True), there(OWNER, "u-another")])
def test_an_object_is_made_without_an_owner_that_is_gone_or_another(owner: ObjectState) -> None:
    deleted = changed("ConfigMap", owned(referring(OWNER, "u-1")), None)
    assert write_of(deleted, known(owner)).body["metadata"] == {"name": "web"}


@pytest.mark.parametrize("what", [known(), known(there(OWNER, ""))])
def test_where_it_is_not_known_whether_the_owner_is_there_that_is_told(what: Known) -> None:
    deleted = changed("ConfigMap", owned(referring(OWNER, "u-1")), None)
    assert write_of(deleted, what).body["metadata"] == owned(referring(OWNER, "u-1"))["metadata"]
    assert "Its owner Deployment web is not known here: if that is gone" in revert_recipe(deleted, what).warning


def test_what_has_no_owner_has_nothing_to_mind() -> None:
    deleted = changed("ConfigMap", {"metadata": {"name": "web"}, "data": {"a": "1"}}, None)
    assert "owner" not in revert_recipe(deleted, Known()).warning


def test_of_an_object_that_nobody_deleted_its_owners_stay_as_they_are() -> None:
    state = owned(referring(OWNER, "u-1"))
    edited = changed("ConfigMap", state, {**state, "data": {"a": "2"}})
    assert "owner" not in revert_recipe(edited, now({**state, "data": {"a": "2"}}, edited.resource)).warning
