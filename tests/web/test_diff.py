"""GET /api/v1/diff: an object at two times; and what else REST answers for a terminal alone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from app.core.model import Batch, Change, DiffSource, Json, ObjectState, Resource, Verb
from app.core.objects.diff import diff
from app.store.record import record
from app.web.accept import TEXT
from tests.web import world
from tests.web.conftest import Site

HIDDEN = "<redacted:0011aabb>"
WIDGETS = Resource(world.CLUSTER, "apiextensions.k8s.io", "CustomResourceDefinition", None, "widgets.shop.example")


def at(seconds: float) -> str:
    return (world.START + timedelta(seconds=seconds)).isoformat()


def a_write(
    name: str, old: Json, new: Json, *, second: int, kind: str = "ConfigMap", group: str = "", **more: Any
) -> Change:
    verb = Verb.CREATE if old is None else Verb.DELETE if new is None else Verb.UPDATE
    return world.a_change(
        name, at=world.START + timedelta(seconds=second), kind=kind, api_group=group,
        verb=verb, diffs=diff(old, new), summary=f"{verb} of {name}", version=str(second), **more,
    )  # fmt: skip


def a_state(number: int) -> dict[str, Json]:
    return {"data": {"mode": str(number), "password": HIDDEN, "text": f"first\nline {number}\nlast\n"}}


def definition(kind: str, group: str) -> dict[str, Json]:
    low = kind.lower()
    names: dict[str, Json] = {"kind": kind, "plural": f"{low}s", "shortNames": [low[:2]]}
    return {"spec": {"group": group, "scope": "Namespaced", "names": names}}


@pytest.fixture(scope="module", autouse=True)
async def _written(site: Site) -> None:
    """A ConfigMap with a life (created at second 10, written at 20 and 30, deleted at 40), one whose write at second 20
    has no body, and a custom resource."""
    writes = [
        a_write("settings", None, a_state(0), second=10),
        a_write("settings", a_state(0), a_state(1), second=20),
        a_write("settings", a_state(1), a_state(2), second=30),
        a_write("settings", a_state(2), None, second=40),
    ]
    bare = a_write("bare", a_state(0), a_state(1), second=20)
    bare = replace(bare, diff_source=DiffSource.NONE)
    widget = a_write("gear", {"size": 1}, {"size": 2}, second=20, kind="Widget", group="shop.example")
    guessed = a_write("thing", {"size": 1}, {"size": 3}, second=20, kind="Gizmo", group="other.example")
    gadget = a_write("thing", {"size": 1}, {"size": 2}, second=20, kind="GizMo", group="other.example")
    gone = world.START + timedelta(seconds=40)
    states = (
        ObjectState(writes[0].resource, writes[0].uid, "40", gone, a_state(2), deleted_at=gone),
        ObjectState(bare.resource, bare.uid, "20", gone, a_state(1)),
        ObjectState(widget.resource, widget.uid, "20", gone, {"size": 2}),
        ObjectState(guessed.resource, guessed.uid, "20", gone, {"size": 3}),
        ObjectState(gadget.resource, gadget.uid, "20", gone, {"size": 2}),
        ObjectState(WIDGETS, "crd", "1", gone, definition("Widget", "shop.example")),
    )
    async with site.database.write.begin() as conn:
        await record(conn, Batch(world.CLUSTER, changes=(*writes, bare, widget, gadget, guessed), objects=states))


async def asked(site: Site, accept: str = "", **query: str) -> httpx2.Response:
    given = {"cluster": world.CLUSTER, "namespace": "payments"} | query
    params = {name.rstrip("_"): value for name, value in given.items() if value}
    async with site.client() as client:
        return await client.get("/api/v1/diff", params=params, headers={"Accept": accept})


async def found(site: Site, name: str, begin: float, end: float) -> dict[str, Any]:
    answer = await asked(site, object=name, from_=at(begin), to=at(end))
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@pytest.mark.parametrize(("begin", "end"), [(20, 30), (21, 39), (25, 35)])
async def test_it_tells_the_fields_that_differ_and_who_changed_them(site: Site, begin: float, end: float) -> None:
    one = await found(site, "configmap/settings", begin, end)
    assert {(each["path"], each["op"]) for each in one["diffs"]} == {("data.mode", "replace"), ("data.text", "replace")}
    assert [each["summary"] for each in one["changes"]] == ["update of settings, by argocd"]
    assert one["unknown"] == ""
    assert one["freshness"][0]["cluster"] == world.CLUSTER


async def test_several_writes_are_one_difference_and_there_and_back_is_none(site: Site) -> None:
    one = await found(site, "cm/settings", 15, 35)
    assert [(each["old"], each["new"]) for each in one["diffs"] if each["path"] == "data.mode"] == [("0", "2")]
    assert len(one["changes"]) == 2
    same = await found(site, "ConfigMap/settings", 31, 39)
    assert (same["diffs"], same["changes"]) == ([], [])


async def test_an_object_that_was_not_there_is_whole_on_the_other_side(site: Site) -> None:
    born = await found(site, "configmaps/settings", 5, 15)
    assert [(each["path"], each["op"], each["new"]) for each in born["diffs"]] == [("", "add", a_state(0))]
    died = await found(site, "configmaps/settings", 35, 45)
    assert [(each["op"], each["old"], each["new"]) for each in died["diffs"]] == [("remove", a_state(2), None)]
    assert (await found(site, "configmaps/settings", 1, 5))["diffs"] == []
    assert (await found(site, "configmaps/settings", 50, 60))["diffs"] == []


async def test_what_was_not_recorded_is_not_guessed(site: Site) -> None:
    one = await found(site, "configmap/bare", 10, 30)
    assert one["diffs"] is None
    assert "what it held at from was not recorded" in one["unknown"]
    assert len(one["changes"]) == 1
    text = (await asked(site, TEXT, object="configmap/bare", from_=at(10), to=at(30))).text
    assert "what differs is not known\nwhat it held at from was not recorded" in text


@pytest.mark.parametrize(
    "name", ["widget/gear", "Widget/gear", "wi/gear", "widgets.shop.example/gear", "Widget.shop.example/gear"]
)
async def test_a_custom_resource_is_known_by_its_definition(site: Site, name: str) -> None:
    one = await found(site, name, 10, 30)
    assert one["resource"]["kind"] == "Widget"
    assert [(each["old"], each["new"]) for each in one["diffs"]] == [(1, 2)]


async def test_without_its_definition_its_kind_and_group_say_it(site: Site) -> None:
    one = await found(site, "GizMo.other.example/thing", 10, 30)
    assert [(each["old"], each["new"]) for each in one["diffs"]] == [(1, 2)]
    assert (await found(site, "gizmos.other.example/thing", 10, 30))["resource"]["kind"] == "Gizmo"


async def test_its_text_has_the_values_and_what_was_not_seen(site: Site) -> None:
    answer = await asked(site, TEXT, object="deploy/checkout-api", from_=at(0), to=at(120))
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    lines = answer.text.splitlines()
    assert lines[0] == "Deployment payments/checkout-api in shop"
    assert lines[1] == "2026-11-20 14:01:40 to 14:03:40 UTC: 3 fields differ"
    assert "- registry.example/checkout-api:v1.41.0" in lines
    assert "+ registry.example/checkout-api:v1.42.0" in lines
    assert "11-20 14:02:27 image of checkout-api: v1.41.0 → v1.42.0, by argocd" in lines
    assert lines[-1] == "not seen 11-20 14:01:58 to 14:02:03: the watch of pods was behind"


@pytest.mark.parametrize(
    ("query", "status", "field", "said"),
    [
        ({"object": "checkout-api"}, 422, "object", "KIND/NAME"),
        ({"object": "deploy/"}, 422, "object", "KIND/NAME"),
        ({"object": "nonsense/x"}, 404, "object", "no kind 'nonsense' is known"),
        ({"object": "nonsense.shop.example/x"}, 404, "object", "there is no Nonsense payments/x"),
        ({"object": "deploy/nobody"}, 404, "object", "there is no Deployment payments/nobody in shop"),
        ({"object": "pod/x"}, 422, "object", "of a Pod no history is kept"),
        ({"object": "deploy/checkout-api", "namespace": ""}, 422, "namespace", "say which"),
        ({"object": "deploy/checkout-api", "cluster": "moon"}, 404, "cluster", "there is no cluster 'moon'"),
        ({"object": "deploy/checkout-api", "to": at(-1)}, 422, "from", "from must be before to"),
        ({"object": "deploy/checkout-api", "from_": "30m"}, 422, "from", "from: must be ISO 8601"),
    ],
)
async def test_what_cannot_be_answered_is_said(
    site: Site, query: dict[str, str], status: int, field: str, said: str
) -> None:
    answer = await asked(site, **{"from_": at(0), "to": at(60)} | query)
    assert (answer.status_code, answer.json()["field"]) == (status, field)
    assert said in answer.json()["detail"]


async def test_one_incident_is_a_text_that_fits_a_terminal(site: Site) -> None:
    async with site.client() as client:
        answer = await client.get(f"/api/v1/incidents/{world.incident().id}", headers={"Accept": TEXT})
    lines = answer.text.splitlines()
    assert lines[0] == world.incident().title
    assert lines[1] == "5f0a1c22d3e4 in shop: open, critical, since 2026-11-20 14:03:14 UTC"
    assert "3 suspects" in lines
    assert any(line.startswith(" 1  93% T-4s     payments ") for line in lines)
    assert max(map(len, lines)) <= 80


async def test_calls_of_one_resource(site: Site) -> None:
    async with site.client() as client:
        answers = [
            (await client.get("/api/v1/calls", params={"cluster": "shop", "resource": what})).json()["items"]
            for what in ("serviceaccounts", "pods/binding", "")
        ]
        other = await client.get("/api/v1/calls", params={"cluster": "shop", "resource": "serviceaccounts.apps"})
    assert [{one["resource"] for one in items} for items in answers] == [
        {"serviceaccounts"}, {"pods/binding"}, {"serviceaccounts", "pods/binding"},
    ]  # fmt: skip
    assert (other.status_code, other.json()["field"]) == (422, "resource")
    assert "the nearest: serviceaccounts" in other.json()["detail"], "of another group there is none"
