"""Incidents by hand over HTTP and on the pages: once each, ranked at once, only by who may."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from html import escape, unescape
from typing import Any

import httpx2
import pytest

from app.correlate import ByHand
from app.web.routes import create_app
from tests.web import world
from tests.web.conftest import Site, deps

PATH = "/api/v1/incidents"
KNOWN = f"{PATH}/{world.incident().id}"


def a_body(**more: Any) -> dict[str, Any]:
    return {"cluster": world.CLUSTER, "title": "Checkout is down"} | more


@pytest.fixture(scope="module")
def hands(site: Site) -> Site:
    """The same site where incidents are taken."""
    return Site(
        create_app(replace(deps(site.database), by_hand=ByHand(site.database.write))), site.database, site.bearer
    )


async def opened(hands: Site, **more: Any) -> dict[str, Any]:
    async with hands.client("responder") as client:
        answer = await client.post(PATH, json=a_body(**more))
    assert answer.status_code == 201, answer.text
    return dict(answer.json()["incident"])


async def test_it_is_opened_ranked_and_says_who_did(hands: Site) -> None:
    told = {"started_at": "2026-11-20T14:02:00Z", "namespaces": ["payments"], "severity": "critical"}
    async with hands.client("responder") as client:
        answer = await client.post(PATH, json=a_body(**told))
        found = (await client.get(answer.headers["location"])).json()["incident"]
        suspects = (await client.get(f"{answer.headers['location']}/suspects")).json()
    assert answer.status_code == 201
    assert found == answer.json()["incident"]
    assert (found["origin"], found["opened_by"], found["status"]) == ("by hand", "a responder", "open")
    assert found["namespaces"] == ["payments"]
    assert found["said"] == ["title", "severity", "started_at", "namespaces", "status"]
    assert suspects["candidates"] > 10


async def test_a_namespace_of_which_nothing_is_recorded_is_kept_and_said(hands: Site) -> None:
    said = "no namespace 'paymets' is recorded in shop; the nearest: payments"
    body = a_body(namespaces=["paymets", "payments"], workloads=["payments/checkout-api", "paymets/checkout-api"])
    async with hands.client("responder") as client:
        opened = (await client.post(PATH, json=body)).json()
        path = f"{PATH}/{opened['incident']['id']}"
        amended = (await client.patch(path, json={"namespaces": ["payments"]})).json()
        other = (await client.patch(path, json={"severity": "page"})).json()
    assert (opened["incident"]["namespaces"], opened["remarks"]) == (["paymets", "payments"], [said])
    assert (amended["incident"]["namespaces"], amended["remarks"], other["remarks"]) == (["payments"], [], [])


async def test_the_same_request_opens_one_incident(hands: Site) -> None:
    key = {"Idempotency-Key": "page-17"}
    async with hands.client("responder") as client:
        answers = await asyncio.gather(*(client.post(PATH, json=a_body(), headers=key) for _ in range(3)))
        other = await client.post(PATH, json=a_body(title="Other"), headers=key)
    assert sorted(answer.status_code for answer in answers) == [200, 200, 201]
    assert len({answer.json()["incident"]["id"] for answer in answers}) == 1
    assert (other.status_code, other.json()["field"]) == (422, "Idempotency-Key")


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"cluster": "nowhere"}, "cluster"),
        ({"cluster": "a/b"}, "cluster"),
        ({"title": " "}, "title"),
        ({"title": "two\nlines"}, "title"),
        ({"started_at": 1763647200}, "started_at"),
        ({"started_at": "2026-11-20T14:00:00"}, "started_at"),
        ({"started_at": "2030-01-01T00:00:00Z"}, "started_at"),
        ({"started_at": "2020-01-01T00:00:00Z"}, "started_at"),
        ({"namespaces": ["No!"]}, "namespaces.0"),
        ({"workloads": ["checkout"]}, "workloads.0"),
        ({"severity": "bad"}, "severity"),
        ({"colour": "red"}, "colour"),
    ],
)
async def test_what_is_wrong_is_named(hands: Site, more: dict[str, Any], field: str) -> None:
    async with hands.client("responder") as client:
        answer = await client.post(PATH, json=a_body(**more))
    assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text


@pytest.mark.parametrize(
    ("method", "body", "said"),
    [
        ("POST", [1], "the body is no JSON object"),
        ("PATCH", 3, "the body is no JSON object"),
        ("PATCH", {}, "the body names nothing that is to change"),
    ],
)
async def test_of_a_body_that_is_wrong_as_a_whole_that_is_said(hands: Site, method: str, body: Any, said: str) -> None:
    async with hands.client("responder") as client:
        answer = await client.request(method, PATH if method == "POST" else KNOWN, json=body)
    assert (answer.status_code, answer.json()["detail"], "field" in answer.json()) == (422, said, False)


@pytest.mark.parametrize(
    ("text", "field"),
    [('{"title": "a", "title": "b"}', "title"), (r'{"workloads": [{"\ud800": 1, "\ud800": 2}]}', None)],
)
async def test_a_name_that_stands_twice_is_refused(hands: Site, text: str, field: str | None) -> None:
    async with hands.client("responder") as client:
        answer = await client.post(PATH, content=text, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json().get("field")) == (422, field)
    assert "stands in the body 2 times" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", PATH),
        ("PATCH", KNOWN),
        ("POST", f"{KNOWN}/merge"),
        ("POST", "/incidents"),
        ("POST", f"/incidents/{world.incident().id}/correct"),
        ("GET", f"/incidents/{world.incident().id}/correct"),
    ],
)
async def test_a_viewer_may_not(hands: Site, method: str, path: str) -> None:
    async with hands.client("viewer") as client:
        assert (await client.request(method, path, json={})).status_code == 403


async def test_what_is_named_changes_and_nothing_else(hands: Site) -> None:
    incident = await opened(hands, namespaces=["payments"])
    async with hands.client("responder") as client:
        path = f"{PATH}/{incident['id']}"
        changed = (await client.patch(path, json={"nodes": ["n1"]})).json()["incident"]
        done = (await client.patch(path, json={"status": "resolved"})).json()["incident"]
        again = (await client.patch(path, json={"status": "open"})).json()["incident"]
        wrong = [await client.patch(path, json=body) for body in ({}, {"cluster": "x"}, {"status": "merged"})]
        unknown = await client.patch(f"{PATH}/000000000000", json={"status": "open"})
    assert (changed["nodes"], changed["namespaces"], changed["title"]) == (["n1"], ["payments"], incident["title"])
    assert (done["status"], done["resolved_at"] is None) == ("resolved", False)
    assert (again["status"], again["resolved_at"]) == ("open", None)
    assert [answer.status_code for answer in wrong] == [422, 422, 422]
    assert unknown.status_code == 404


async def test_of_an_unknown_cluster_the_known_ones_are_named(hands: Site) -> None:
    async with hands.client("responder") as client:
        refused = await client.post(PATH, json={"cluster": "shpo", "title": "slow"})
    assert (refused.status_code, refused.json()["field"]) == (422, "cluster")
    assert "there is no cluster 'shpo': known are shop" in refused.json()["detail"]


async def test_a_title_is_kept_without_its_secret(hands: Site) -> None:
    incident = await opened(hands, title="db is down: postgres://app:hunter2secret@db/shop")
    assert "hunter2secret" not in incident["title"]


async def test_what_is_merged_says_so_and_is_listed_no_more(hands: Site) -> None:
    one, into = await opened(hands, title="One"), await opened(hands, title="Into")
    async with hands.client("responder") as client:
        merge = f"{PATH}/{one['id']}/merge"
        whole = await client.post(merge, json={"into": into["id"]})
        again = await client.post(merge, json={"into": into["id"]})
        itself = await client.post(f"{PATH}/{into['id']}/merge", json={"into": into["id"]})
        mistyped = await client.post(merge, json={"into": "5f0a"})
        part = (await client.get(f"{PATH}/{one['id']}")).json()["incident"]
        listed = {item["id"] for item in (await client.get(PATH, params={"limit": 1000})).json()["items"]}
        page = (await client.get(f"/incidents/{one['id']}")).text
        amended = await client.patch(f"{PATH}/{one['id']}", json={"status": "open"})
    assert (whole.status_code, again.status_code) == (200, 200)
    assert whole.json()["incident"]["id"] == again.json()["incident"]["id"] == into["id"]
    assert mistyped.json()["detail"] == "into: must be the id of an incident, as 5f0a1c22d3e4"
    assert (part["status"], part["merged_into"]) == ("merged", into["id"])
    assert into["id"] in listed
    assert one["id"] not in listed
    assert f'href="/incidents/{into["id"]}"' in page
    assert "/status" not in page
    assert (itself.status_code, amended.status_code) == (422, 422)


# -- pages


async def send(client: httpx2.AsyncClient, path: str, **fields: str) -> httpx2.Response:
    return await client.post(path, data=fields)


async def form_of(client: httpx2.AsyncClient) -> dict[str, str]:
    page = (await client.get("/incidents/new")).text
    [once] = re.findall(r'name="once" value="([0-9a-f]{32})"', page)
    about = dict.fromkeys(("namespaces", "workloads", "nodes"), "")
    return {"cluster": world.CLUSTER, "once": once, "since": "", "severity": ""} | about


async def test_the_form_opens_one_incident_however_often_it_is_sent(hands: Site) -> None:
    async with hands.client("responder") as client:
        fields = await form_of(client) | {"title": "Käse & <b>", "since": "2026-11-20 14:01", "namespaces": "payments"}
        first, second = [await send(client, "/incidents", **fields) for _ in range(2)]
        page = (await client.get(first.headers["location"])).text
    assert (first.status_code, second.headers["location"]) == (303, first.headers["location"])
    assert "Käse &amp; &lt;b&gt;" in page
    assert "opened by hand by <b>a responder</b>" in page
    assert "20 Nov 14:01:00</b>, as a person said" in page


async def test_a_form_that_was_sent_and_is_filled_in_otherwise_comes_back_and_opens_another(hands: Site) -> None:
    """As the browser's Back leads to it, and a title is corrected there."""
    async with hands.client("responder") as client:
        fields = await form_of(client) | {"title": "Checkot is down"}
        first = await send(client, "/incidents", **fields)
        again = await send(client, "/incidents", **fields | {"title": "Checkout is down"})
        assert (first.status_code, again.status_code) == (303, 409)
        assert "this form has opened an incident already" in again.text
        assert 'value="Checkout is down"' in again.text
        [once] = re.findall(r'name="once" value="([0-9a-f]{32})"', again.text)
        other = await send(client, "/incidents", **fields | {"title": "Checkout is down", "once": once})
    assert other.status_code == 303
    assert other.headers["location"] != first.headers["location"]


async def test_a_form_that_is_wrong_comes_back_as_it_was_filled_in(hands: Site) -> None:
    async with hands.client("responder") as client:
        fields = await form_of(client) | {"title": "Kept", "since": "yesterday"}
        answer = await send(client, "/incidents", **fields)
        foreign = await client.post("/incidents", json={})
    assert answer.status_code == 422
    assert 'value="Kept"' in answer.text
    assert "Since: must be ISO 8601" in answer.text
    assert foreign.status_code == 422


async def test_the_form_asks_once_about_a_namespace_of_which_nothing_is_recorded(hands: Site) -> None:
    said = "no namespace 'paymets' is recorded in shop; the nearest: payments. Send it once more if that is meant."
    async with hands.client("responder") as client:
        fields = await form_of(client) | {"title": "Checkout is down", "workloads": "paymets/checkout-api"}
        asked = await send(client, "/incidents", **fields)
        meant = await send(client, "/incidents", **fields, sure=sure(asked.text))
        path = f"{meant.headers['location']}/correct"
        corrected = correction((await client.get(path)).text) | {"workloads": "", "namespaces": "payments idenity"}
        again = await send(client, path, **corrected)
        done = await send(client, path, **corrected | {"sure": sure(again.text)})
    assert asked.status_code == 422
    assert said in unescape(asked.text)
    assert 'name="workloads" value="paymets/checkout-api"' in asked.text
    assert (meant.status_code, again.status_code, done.status_code) == (303, 422, 303)
    assert "no namespace 'idenity' is recorded" in unescape(again.text)
    assert "'payments' is" not in unescape(again.text)


def sure(page: str) -> str:
    """The namespaces that a form, sent once more, says are meant."""
    [found] = re.findall(r'name="sure" value="([^"]*)"', page)
    return unescape(found)


async def test_the_form_opens_one_about_workloads_and_nodes(hands: Site) -> None:
    about = {"namespaces": "", "workloads": "payments/checkout-api, identity/login", "nodes": " n1  n2 "}
    async with hands.client("responder") as client:
        fields = await form_of(client) | {"title": "Two are down"} | about
        answer = await send(client, "/incidents", **fields)
        assert answer.status_code == 303, answer.text
        one = (await client.get(f"/api/v1{answer.headers['location']}")).json()["incident"]
    assert (one["workloads"], one["nodes"]) == (["payments/checkout-api", "identity/login"], ["n1", "n2"])
    assert (one["namespaces"], one["control_plane"]) == ([], False)
    assert one["said"] == ["title", "workloads", "nodes", "status"], "what is left empty is not said"


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("namespaces", "payments No!", "Namespace “No!”: must be the name of a namespace"),
        ("workloads", "payments/checkout-api checkout", "Workload “checkout”: must be namespace/name"),
        ("nodes", "n1 <b>", "Node “&lt;b&gt;”: must be the name of a node"),
        ("nodes", " ".join(f"n{number}" for number in range(101)), "Node: "),
    ],
)
async def test_of_several_names_in_a_field_it_says_which_is_wrong(
    hands: Site, field: str, value: str, said: str
) -> None:
    async with hands.client("responder") as client:
        answer = await send(client, "/incidents", **await form_of(client) | {"title": "Kept", field: value})
    assert answer.status_code == 422
    [told] = re.findall(r'role="alert"[^>]*>(.*?)</p>', answer.text)
    assert told.startswith(said), told
    assert f'name="{field}" value="{escape(value)}"' in answer.text, "it is as it was filled in"


async def test_the_form_opens_one_about_the_control_plane(hands: Site) -> None:
    async with hands.client("responder") as client:
        fields = await form_of(client) | {"title": "Calls are refused", "control_plane": "on"}
        wrong = await send(client, "/incidents", **fields | {"since": "yesterday"})
        answer = await send(client, "/incidents", **fields)
        one = (await client.get(f"/api/v1{answer.headers['location']}")).json()["incident"]
    assert 'name="control_plane" value="on" checked>' in wrong.text
    assert (one["control_plane"], one["namespaces"]) == (True, [])
    assert "control_plane" in one["said"]


def correction(page: str) -> dict[str, str]:
    """What the form that corrects is filled in with."""
    found = re.findall(r'name="(known|since|namespaces|workloads|nodes)" value="([^"]*)"', page)
    fields = {name: unescape(value) for name, value in found}
    return fields | ({"control_plane": "on"} if "checked>" in page else {})


async def test_the_form_corrects_what_is_filled_in_otherwise_and_has_it_ranked_anew(hands: Site) -> None:
    incident = await opened(hands, started_at="2026-11-20T14:03:00Z", namespaces=["payments"], nodes=["n1"])
    path = f"/incidents/{incident['id']}"
    async with hands.client("responder") as client:
        assert f'href="{path}/correct"' in (await client.get(path)).text
        filled = correction((await client.get(f"{path}/correct")).text)
        shown = {name: value for name, value in filled.items() if name != "known"}
        assert shown == {"since": "2026-11-20 14:03:00", "namespaces": "payments", "workloads": "", "nodes": "n1"}
        first = (await client.get(f"/api/v1{path}/suspects")).json()
        same = await send(client, f"{path}/correct", **filled)
        assert (same.status_code, same.headers["location"]) == (303, path)
        assert (await client.get(f"/api/v1{path}")).json()["incident"] == incident, "nothing was said"
        told = {"since": "2026-11-20 13:00", "namespaces": "payments, identity", "nodes": "", "control_plane": "on"}
        answer = await send(client, f"{path}/correct", **filled | told)
        assert (answer.status_code, answer.headers["location"]) == (303, path)
        one = (await client.get(f"/api/v1{path}")).json()["incident"]
        again = (await client.get(f"/api/v1{path}/suspects")).json()
        assert correction((await client.get(f"{path}/correct")).text)["control_plane"] == "on"
    assert (one["started_at"], one["namespaces"]) == ("2026-11-20T13:00:00Z", ["payments", "identity"])
    assert (one["nodes"], one["workloads"], one["control_plane"]) == ([], [], True)
    assert "workloads" not in one["said"], "what is as it was stays the alerts'"
    assert first["items"] != again["items"], "ranked anew"


async def test_a_correction_says_nothing_of_what_another_said_while_it_was_filled_in(hands: Site) -> None:
    incident = await opened(hands, namespaces=["payments"], nodes=["n1"])
    path = f"/incidents/{incident['id']}"
    async with hands.client("responder") as client:
        filled = correction((await client.get(f"{path}/correct")).text)
        await client.patch(f"/api/v1{path}", json={"namespaces": ["payments", "identity"], "control_plane": True})
        wrong = await send(client, f"{path}/correct", **filled | {"nodes": "No!"})
        answer = await send(client, f"{path}/correct", **correction(wrong.text) | {"nodes": "n2"})
        one = (await client.get(f"/api/v1{path}")).json()["incident"]
    assert (wrong.status_code, answer.status_code) == (422, 303)
    assert one["nodes"] == ["n2"]
    assert (one["namespaces"], one["control_plane"]) == (["payments", "identity"], True)


async def test_an_incident_about_thousands_of_workloads_can_be_corrected(hands: Site) -> None:
    incident = await opened(hands)
    path = f"/incidents/{incident['id']}"
    names = " ".join(f"payments/checkout-api-of-tenant-{n}" for n in range(2_000))
    async with hands.client("responder") as client:
        filled = correction((await client.get(f"{path}/correct")).text)
        known = json.loads(filled["known"]) | {"workloads": names}
        told = {"workloads": names, "known": json.dumps(known), "nodes": "n1"}
        answer = await send(client, f"{path}/correct", **filled | told)
        one = (await client.get(f"/api/v1{path}")).json()["incident"]
    assert answer.status_code == 303, answer.text
    assert (one["nodes"], one["workloads"]) == (["n1"], [])


async def test_a_correction_that_is_wrong_comes_back_as_it_was_filled_in(hands: Site) -> None:
    incident = await opened(hands)
    path = f"/incidents/{incident['id']}/correct"
    async with hands.client("responder") as client:
        filled = correction((await client.get(path)).text)
        for field, value, said in (
            ("since", "yesterday", "Since: must be ISO 8601"),
            ("since", "2030-01-01 00:00", "Since: it is more than 400 days ago, or to come"),
            ("namespaces", "No!", "Namespace “No!”: must be the name of a namespace"),
            ("workloads", "checkout", "Workload “checkout”: must be namespace/name"),
        ):
            answer = await send(client, path, **filled | {field: value})
            assert answer.status_code == 422
            assert said in answer.text
            assert correction(answer.text)[field] == value
        assert (await send(client, path, since="x")).status_code == 422
        assert (await send(client, path, **filled | {"known": "{}"})).status_code == 422
        assert (await send(client, "/incidents/000000000000/correct", **filled)).status_code == 404
        assert (await client.get("/incidents/000000000000/correct")).status_code == 404
        assert (await client.get(f"/api/v1/incidents/{incident['id']}")).json()["incident"] == incident
        foreign = {"sec-fetch-site": "cross-site"}
        assert (await client.post(path, data=filled, headers=foreign)).status_code == 403
    async with hands.client("viewer") as client:
        assert "/correct" not in (await client.get(f"/incidents/{incident['id']}")).text


async def test_the_buttons_resolve_and_reopen(hands: Site) -> None:
    incident = await opened(hands)
    path = f"/incidents/{incident['id']}"
    async with hands.client("responder") as client:
        assert ">Resolve</button>" in (await client.get(path)).text
        answer = await send(client, f"{path}/status", status="resolved")
        assert (answer.status_code, answer.headers["location"]) == (303, path)
        resolved = (await client.get(path)).text
        assert ">Reopen</button>" in resolved
        assert "<span>resolved at <b>" in resolved
        await send(client, f"{path}/status", status="open")
        assert ">Resolve</button>" in (await client.get(path)).text
        assert (await send(client, f"{path}/status", status="gone")).status_code == 422
        assert (await send(client, "/incidents/000000000000/status", status="open")).status_code == 404
        assert "/incidents/new" in (await client.get("/")).text
    async with hands.client("viewer") as client:
        assert "/status" not in (await client.get(path)).text
        assert "/incidents/new" not in (await client.get("/")).text
        assert (await client.get("/incidents/new")).status_code == 403


async def test_the_form_of_the_page_merges(hands: Site) -> None:
    one, near, far = [
        await opened(hands, title=title, started_at=at)
        for title, at in (
            ("Checkout <b>", "2026-11-20T14:03:00Z"),
            ("A part of it", "2026-11-20T14:04:00Z"),
            ("Long ago", "2026-11-20T09:00:00Z"),
        )
    ]
    path = f"/incidents/{one['id']}"
    async with hands.client("responder") as client:
        page = (await client.get(path)).text
        into = re.findall(r'<option value="([0-9a-f]{12})">', page)
        assert into.index(near["id"]) < into.index(far["id"])
        assert one["id"] not in into
        assert (await send(client, f"{path}/merge", into="nothing")).status_code == 422
        assert (await send(client, f"{path}/merge", into=one["id"])).status_code == 422
        assert (await send(client, f"{path}/merge", into="000000000000")).status_code == 404
        answer = await send(client, f"{path}/merge", into=near["id"])
        assert (answer.status_code, answer.headers["location"]) == (303, f"/incidents/{near['id']}")
        merged = (await client.get(path)).text
        assert "Merged into" in merged
        assert re.search(
            rf'<h3 id="whole"><a href="/incidents/{near["id"]}" title="[^"]+">{re.escape(near["title"])}</a>', merged
        )
        assert f'<a class="button primary" href="/incidents/{near["id"]}">Go on there</a>' in merged
        assert "Not ranked yet" not in merged, "it never will be"
        assert "/merge" not in merged
        foreign = {"sec-fetch-site": "cross-site"}
        assert (await client.post(f"{path}/merge", data={"into": far["id"]}, headers=foreign)).status_code == 403
    async with hands.client("viewer") as client:
        assert "/merge" not in (await client.get(f"/incidents/{near['id']}")).text
        assert (await send(client, f"/incidents/{near['id']}/merge", into=far["id"])).status_code == 403


async def test_another_site_cannot_act_for_a_person(hands: Site) -> None:
    async with hands.client("responder") as client:
        answer = await client.post(
            f"/incidents/{world.incident().id}/status",
            data={"status": "resolved"},
            headers={"sec-fetch-site": "cross-site"},
        )
    assert answer.status_code == 403


# -- the command line
