"""What is read to undo a change: what came after it, whose the object is, its revisions, its kind's definition."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.model import Batch, Change, FieldDiff, Json, Object, ObjectState, Resource, Verb
from app.core.objects.diff import diff
from app.core.objects.versions import Side
from app.store import undoing
from app.store.record import record
from tests.store.factories import CLUSTER, NOON, a_change, a_resource, a_state

WEB = a_resource("web")
TRACKED: Object = {"argocd.argoproj.io/tracking-id": "shop:apps/Deployment:payments/web"}
APPLICATION = Resource(CLUSTER, "argoproj.io", "Application", "argocd", "shop")
CRD = Resource(CLUSTER, "apiextensions.k8s.io", "CustomResourceDefinition", None, "widgetry.shop.example")
WIDGET = Resource(CLUSTER, "shop.example", "Widget", "payments", "a")


def at(number: int) -> Object:
    return {"metadata": {"annotations": TRACKED}, "spec": {"template": {"image": f"web:{number}"}}}


def wrote(number: int, *, resource: Resource = WEB, uid: str = "u-1") -> Change:
    """The write that made the object as ``at(number)``."""
    diffs = diff(at(number - 1), at(number))
    return a_change(str(number), seconds=number, resource=resource, uid=uid, diffs=diffs)


def a_replica_set(name: str, owner: str, *, namespace: str = "payments") -> ObjectState:
    resource = Resource(CLUSTER, "apps", "ReplicaSet", namespace, name)
    return a_state(resource=resource, uid=f"u-{namespace}-{name}", owner_kind="Deployment", owner_name=owner)


async def test_what_bears_on_undoing_is_read(conn: AsyncConnection) -> None:
    gone = replace(a_replica_set("web-0", "web"), deleted_at=NOON)
    kept = [a_replica_set("web-1", "web"), a_replica_set("web-2", "web")]
    others = [a_replica_set("api-1", "api"), a_replica_set("web-1", "web", namespace="elsewhere"), gone]
    last = a_state("9", resource=WEB, state=at(9))
    app = a_state(resource=APPLICATION, uid="u-app")
    elsewhere = wrote(6, resource=a_resource("api"), uid="u-2")
    changes = (*map(wrote, (5, 6, 7, 9)), elsewhere)
    await record(conn, Batch(CLUSTER, changes=changes, objects=(last, app, *kept, *others)))
    known = await undoing.read_known(conn, wrote(6))
    assert known.last is not None
    assert known.state == at(9)
    assert [one.resource_version for one in known.since] == ["7", "9"]
    assert not known.is_cut
    assert {one.resource.name for one in known.revisions} == {"web-1", "web-2"}
    assert set(known.others) == {APPLICATION}
    assert known.definition is None
    assert known == await undoing.read_known(conn, wrote(6), last=known.last)


async def test_of_many_writes_the_newest_are_looked_at(conn: AsyncConnection) -> None:
    changes = tuple(map(wrote, range(1, undoing.LOOKED_AT + 3)))
    await record(conn, Batch(CLUSTER, changes=changes))
    known = await undoing.read_known(conn, changes[0])
    assert known.is_cut
    assert [one.id for one in known.since] == [one.id for one in changes[2:]]


async def test_of_an_object_that_is_gone_the_state_is_none(conn: AsyncConnection) -> None:
    last = a_state("9", resource=WEB, state=at(8), deleted_at=NOON)
    deleted = replace(wrote(9), verb=Verb.DELETE, diffs=(FieldDiff((), "remove", at(8), None),))
    await record(conn, Batch(CLUSTER, changes=(wrote(8), deleted), objects=(last,)))
    known = await undoing.read_known(conn, wrote(8))
    assert (known.last is not None, known.state) == (True, None)
    assert [one.verb for one in known.since] == [Verb.DELETE]
    assert await undoing.read_sides(conn, wrote(8)) == (Side(at(7), known=True), Side(at(8), known=True))
    assert await undoing.read_sides(conn, deleted) == (Side(at(8), known=True), Side(None, known=True))


def crd(*versions: str) -> Object:
    served: Json = [{"name": name, "served": True} for name in versions]
    return {"spec": {"group": "shop.example", "names": {"kind": "Widget"}, "versions": served}}


async def test_a_definition_is_read_as_it_was_and_as_it_is(conn: AsyncConnection) -> None:
    other = replace(CRD, name="gadgets.shop.example")
    defined = a_state("8", resource=CRD, uid="u-crd", state=crd("v1"))
    beside = a_state(resource=other, uid="u-o", state={"spec": {"names": {"kind": "Gadget"}}})
    upgraded = a_change("8", seconds=60, resource=CRD, uid="u-crd", diffs=diff(crd("v1beta1"), crd("v1")))
    early, late = (a_change(str(s), seconds=s, resource=WIDGET, uid="u-w") for s in (30, 90))
    await record(conn, Batch(CLUSTER, changes=(early, late, upgraded), objects=(defined, beside)))
    found = [(await undoing.read_known(conn, change)).definition for change in (early, late)]
    assert [(one.name, one.then, one.now) for one in found if one] == [
        (CRD.name, crd("v1beta1"), crd("v1")),
        (CRD.name, crd("v1"), crd("v1")),
    ]
    assert await undoing.read_version(conn, early) == ("shop.example/v1beta1", False)
    assert await undoing.read_version(conn, late) == ("shop.example/v1", True)
    assert await undoing.read_version(conn, wrote(1)) == ("apps/v1", True)
    unknown = a_change("3", resource=replace(WIDGET, api_group="other.example"), uid="u-x")
    assert await undoing.read_version(conn, unknown) == ("", True)


async def test_a_definition_that_is_gone_is_none_now(conn: AsyncConnection) -> None:
    defined = a_state("8", resource=CRD, uid="u-crd", state=crd("v1"), deleted_at=NOON + timedelta(minutes=5))
    change = a_change("3", resource=WIDGET, uid="u-w")
    await record(conn, Batch(CLUSTER, changes=(change,), objects=(defined,)))
    found = (await undoing.read_known(conn, change)).definition
    assert found is not None
    assert (found.then, found.now) == (crd("v1"), None)


async def test_of_a_helm_release_it_is_read_what_flux_would_release_again(conn: AsyncConnection) -> None:
    tender = a_state(
        resource=Resource(CLUSTER, "helm.toolkit.fluxcd.io", "HelmRelease", "flux-system", "shop"), uid="u-3"
    )
    secret = Resource(CLUSTER, "", "Secret", "payments", "sh.helm.release.v1.shop.v2")
    before = a_state(resource=replace(secret, name="sh.helm.release.v1.shop.v1"), uid="u-1")
    released = wrote(6, resource=secret, uid="u-2")
    await record(conn, Batch(CLUSTER, changes=(released,), objects=(tender, before)))
    known = await undoing.read_known(conn, released)
    assert set(known.others) == {tender.resource, before.resource}


async def test_of_an_app_of_apps_what_keeps_the_application_is_read_too(conn: AsyncConnection) -> None:
    root = Resource(CLUSTER, "argoproj.io", "Application", "argocd", "root")
    tracked: Object = {"argocd.argoproj.io/tracking-id": "root:argoproj.io/Application:argocd/shop"}
    kept: Object = {"metadata": {"annotations": tracked}}
    apps = (a_state(resource=APPLICATION, uid="u-app", state=kept), a_state(resource=root, uid="u-root"))
    await record(conn, Batch(CLUSTER, changes=(wrote(6),), objects=(a_state("9", resource=WEB, state=at(9)), *apps)))
    assert set((await undoing.read_known(conn, wrote(6))).others) == {APPLICATION, root}
