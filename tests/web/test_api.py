"""REST: the shapes that others rely on, pages by cursor, and an answer in words to every bad request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from app.core.model import Change
from app.core.record import NO_MORE
from tests.web import world
from tests.web.conftest import Site

ID = world.incident().id
START, END = (at.isoformat().replace("+00:00", "Z") for at in (world.START, world.END))
LISTS = (
    "changes",
    "rollouts",
    "incidents",
    "gaps",
    f"incidents/{ID}/suspects",
    "calls?cluster=shop",
    "what-changed?format=json",
)


async def got(site: Site, path: str, **params: str | int) -> dict[str, Any]:
    async with site.client() as client:
        answer = await client.get(f"/api/v1/{path}", params=params or None)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def refused(site: Site, path: str) -> httpx2.Response:
    async with site.client() as client:
        answer = await client.get(f"/api/v1/{path}")
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    problem = answer.json()
    assert problem["status"] == answer.status_code
    assert problem["detail"]
    assert "Traceback" not in answer.text
    return answer


@pytest.mark.parametrize("path", LISTS)
async def test_every_list_says_how_fresh_it_is_and_what_was_not_seen(site: Site, path: str) -> None:
    found = await got(site, path)
    assert isinstance(found["items"], list)
    (fresh,) = found["freshness"]
    assert fresh["cluster"] == world.CLUSTER
    assert fresh["at"] == max(fresh["sources"].values())
    assert set(fresh["sources"]) == {"audit log", "watch"}
    assert isinstance(found["gaps"], list)


async def test_incidents_are_listed_as_others_rely_on(site: Site) -> None:
    found = await got(site, "incidents")
    assert found["next"] is None
    (incident,) = found["items"]
    assert incident["id"] == ID
    assert incident["title"] == "Checkout errors high"
    assert incident["onset"] == world.ONSET_AT.isoformat().replace("+00:00", "Z")
    assert incident["alerts"][0]["labels"]["alertname"] == "CheckoutErrorsHigh"
    assert incident["alert_count"] == len(incident["alerts"]) == 1
    assert (await got(site, f"incidents/{ID}"))["incident"] == incident


async def test_suspects_are_listed_as_others_rely_on(site: Site) -> None:
    found = await got(site, f"incidents/{ID}/suspects")
    assert found["none_of_these"] == 0.04
    first = found["items"][0]
    assert (first["rank"], first["probability"]) == (1, 0.93)
    assert first["change"]["id"] == world.CULPRIT.id
    assert first["change"]["actor"] == world.ARGOCD
    assert first["change"]["actor_source"] == "audit log"
    assert first["change"]["verb"] == "update"
    assert first["change"]["summary"] == "image of checkout-api: v1.41.0 → v1.42.0, by argocd"
    assert first["change"]["resource"] == {
        "cluster": "shop",
        "api_group": "apps",
        "kind": "Deployment",
        "namespace": "payments",
        "name": "checkout-api",
    }
    assert first["evidence"][0]["rule"] == "load"
    assert first["evidence"][0]["weight"] == 3.2
    assert "41 PATCH" in first["evidence"][0]["sentence"]
    assert [one["measured"] for one in first["evidence"]][-1] is False


async def test_a_change_is_read_with_what_it_began(site: Site) -> None:
    found = await got(site, f"changes/{world.CULPRIT.id}")
    assert found["change"]["id"] == world.CULPRIT.id
    assert found["change"]["diffs"][0] == {
        "path": "spec.template.spec.containers[app].image",
        "op": "replace",
        "old": "registry.example/checkout-api:v1.41.0",
        "new": "registry.example/checkout-api:v1.42.0",
    }
    assert len(found["began"]) == 40
    assert {one["begun_by"] for one in found["began"]} == {world.CULPRIT.id}


@pytest.mark.parametrize("limit", [1, 7, 90, 91, 1000])
async def test_cursors_give_every_change_once_and_in_order(site: Site, limit: int) -> None:
    seen: list[str] = []
    times: list[str] = []
    after: dict[str, str] = {}
    for _ in range(200):
        page = await got(site, "changes", limit=limit, **after)
        seen += [change["id"] for change in page["items"]]
        times += [change["at"] for change in page["items"]]
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    everyday = {change.id for change in world.surrounding_changes()} | {world.CULPRIT.id}
    assert len(seen) == len(set(seen)) == len(everyday)
    assert set(seen) == everyday
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"kind": "ConfigMap"}, lambda c: c.resource.kind == "ConfigMap"),
        ({"kind": "networkpolicy"}, lambda c: c.resource.kind == "NetworkPolicy"),
        ({"kind": "netpol"}, lambda c: c.resource.kind == "NetworkPolicy"),
        ({"kind": "configmaps"}, lambda c: c.resource.kind == "ConfigMap"),
        ({"namespace": "identity"}, lambda c: c.resource.namespace == "identity"),
        ({"actor": "alice@shop.example"}, lambda c: c.actor.name == "alice@shop.example"),
        ({"verb": "delete"}, lambda c: c.verb == "delete"),
        ({"cluster": "shop"}, lambda c: True),
        ({"kind": "", "namespace": "", "text": ""}, lambda c: True),
        ({"text": "REPLICAS OF"}, lambda c: "replicas of" in c.summary),
        ({"text": "100%"}, lambda c: False),
        ({"text": "gateway"}, lambda c: "gateway" in c.resource.name),
        ({"from": START, "to": world.ONSET_AT.isoformat()}, lambda c: c.at < world.ONSET_AT),
        (
            {"kind": "Deployment", "namespace": "payments"},
            lambda c: (c.resource.kind, c.resource.namespace) == ("Deployment", "payments"),
        ),
    ],
)
async def test_filters_narrow(site: Site, wanted: dict[str, str], expected: Callable[[Change], bool]) -> None:
    found = await got(site, "changes", limit=1000, **wanted)
    everyday = [*world.surrounding_changes(), world.CULPRIT]
    assert {change["id"] for change in found["items"]} == {change.id for change in everyday if expected(change)}


async def test_derived_edits_are_shown_when_asked_for(site: Site) -> None:
    hidden = await got(site, "changes", limit=1000)
    shown = await got(site, "changes", limit=1000, derived="shown")
    assert len(shown["items"]) - len(hidden["items"]) == 40


async def test_an_objects_history(site: Site) -> None:
    found = await got(site, "objects/shop/apps/Deployment/payments/checkout-api")
    assert found["items"][0]["id"] == world.CULPRIT.id
    assert found["state"]["spec"]["replicas"] == 3
    assert found["resource"] == {
        "cluster": "shop",
        "api_group": "apps",
        "kind": "Deployment",
        "namespace": "payments",
        "name": "checkout-api",
    }


async def test_rollouts_of_a_window(site: Site) -> None:
    found = await got(site, "rollouts", **{"from": START, "to": END})
    culprit = next(one for one in found["items"] if one["change_id"] == world.CULPRIT.id)
    assert (culprit["outcome"], culprit["seconds"], culprit["ended_at"]) == ("running", None, None)
    ended = next(one for one in found["items"] if one["outcome"] == "complete")
    assert ended["seconds"] >= 4
    starts = [one["started_at"] for one in found["items"]]
    assert starts == sorted(starts, reverse=True)


@pytest.mark.parametrize("limit", [1, 3, 5])
async def test_rollouts_come_in_pages_that_leave_none_out(site: Site, limit: int) -> None:
    window = {"from": START, "to": END, "cluster": "shop"}
    whole = (await got(site, "rollouts", **window, limit=1000))["items"]
    pages, after = list[Any](), dict[str, str]()
    while True:
        page = await got(site, "rollouts", **window, **after, limit=limit)
        pages += page["items"]
        assert len(page["items"]) == limit or page["next"] is None
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert pages == whole
    assert len(whole) > 3 * limit


async def test_callers_now_against_before(site: Site) -> None:
    found = await got(site, "calls", cluster="shop", at=END, minus="60s")
    first = found["items"][0]
    assert first["user"] == "system:serviceaccount:payments:checkout"
    assert first["per_second"] == pytest.approx(40.0)
    assert first["before_per_second"] == 0
    assert first["errors_per_second"] == pytest.approx(4.0)
    assert first["mean_latency_ms"] == pytest.approx(2.0)
    assert found["items"][1]["before_per_second"] == pytest.approx(8.0)


async def test_gaps_of_a_window(site: Site) -> None:
    found = await got(site, "gaps", **{"from": START, "to": END})
    assert [gap["why"] for gap in found["items"]] == ["the watch of pods was behind"]
    later = await got(site, "gaps", **{"from": END})
    assert [gap["why"] for gap in later["items"]] == [NO_MORE]


async def test_what_changed_fits_a_terminal(site: Site) -> None:
    async with site.client() as client:
        answer = await client.get("/api/v1/what-changed", params={"at": END, "minus": "10m"})
    assert answer.headers["content-type"].startswith("text/plain")
    lines = answer.text.splitlines()
    assert len(lines) == 20
    assert max(len(line) for line in lines) <= 80
    assert "91 changes" in lines[0]
    assert lines[-1].startswith("not seen 11-20 14:01:58 to 14:02:03: the watch of pods was behind")
    as_json = await got(site, "what-changed", at=END, minus="10m", format="json")
    assert lines[2].startswith(as_json["items"][0]["at"][11:19])


async def test_an_empty_cluster_is_none(site: Site) -> None:
    async with site.client() as client:
        blank = await client.get("/api/v1/what-changed?cluster=&minus=1h")
        every = await client.get("/api/v1/what-changed?minus=1h")
    assert (blank.status_code, blank.text) == (200, every.text)


async def test_what_changed_in_one_namespace_and_in_none(site: Site) -> None:
    one = await got(site, "what-changed", minus="1h", namespace="payments", format="json")
    assert {change["resource"]["namespace"] for change in one["items"]} == {"payments"}
    async with site.client() as client:
        answer = await client.get("/api/v1/what-changed", params={"namespace": "payments", "minus": "6s"})
    assert "no change was seen" in answer.text


@pytest.mark.parametrize("path", ["what-changed", "what-changed?format=json", "changes", "changes?kind=Deployment"])
async def test_a_namespace_that_was_never_seen_is_refused(site: Site, path: str) -> None:
    async with site.client() as client:
        near = await client.get(f"/api/v1/{path}", params={"namespace": "payment", "cluster": "shop"})
        far = await client.get(f"/api/v1/{path}", params={"namespace": "30M"})
    assert (near.status_code, near.json()["field"]) == (404, "namespace")
    assert near.json()["detail"] == "no namespace 'payment' is recorded in shop; the nearest: payments"
    assert far.json()["detail"] == "no namespace '30M' is recorded; a length of time is written 30m"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("series?cluster=shop", "metric: must be given"),
        ("diff?cluster=shop&from=2026-11-20T14:00:00Z", "object: must be given"),
        ("calls?cluster=shop&order=size", "order: must be 'calls' or 'latency'"),
        ("changes?derived=all", "derived: must be 'hidden' or 'shown'"),
        ("incidents?status=closed", "status: must be 'open', 'resolved', 'suspected' or 'merged'"),
        ("changes?follow=1&since=zzz", "since: must be the after of a line that was read: begin again without since"),
        ("incidents?follow=1&since=zzz", "since: must be the after of a line that was read: begin again without since"),
        ("changes?follow=1&since=abc", "this is not an after of ours: begin again without since"),
    ],
)
async def test_what_is_wrong_is_said_in_words_and_not_in_patterns(site: Site, path: str, said: str) -> None:
    async with site.client() as client:
        answer = await client.get(f"/api/v1/{path}", headers={"Accept": "application/json, application/x-ndjson"})
    assert answer.json()["detail"] == said


async def test_a_kind_that_was_never_seen_is_refused(site: Site) -> None:
    """What was mistyped must not read as calm; of a kind of Kubernetes' own there may be no change."""
    async with site.client() as client:
        near = await client.get("/api/v1/changes", params={"kind": "Depoyment"})
        far = await client.get("/api/v1/changes", params={"kind": "Quux"})
        own = await client.get("/api/v1/changes", params={"kind": "lease"})
        cased = await client.get("/api/v1/changes", params={"kind": "dEPLOYMENT", "actor": "nobody"})
        page = await client.get("/changes", params={"kind": "Depoyment"})
    assert (near.status_code, near.json()["field"]) == (404, "kind")
    assert near.json()["detail"] == "no kind 'Depoyment' is recorded; the nearest: Deployment"
    assert far.json()["detail"] == "no kind 'Quux' is recorded"
    assert [(one.status_code, one.json()["items"]) for one in (own, cased)] == [(200, [])] * 2
    assert "No change matches: no kind &#39;Depoyment&#39; is recorded." in page.text


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("changes?limit=0", "limit"),
        ("changes?limit=1001", "limit"),
        ("changes?limit=-1", "limit"),
        ("changes?limit=x", "limit"),
        ("changes?nonsense=1", "nonsense"),
        ("changes?from=2026-11-20T14:00:00", "from"),
        ("changes?from=2026-13-01T00:00:00Z", "from"),
        ("changes?from=yesterday", "from"),
        ("changes?from=9999-12-31T23:59:59Z", "from"),
        ("changes?from=-infinity", "from"),
        ("changes?from=2026-11-20T14:00:00Z&to=2026-11-20T14:00:00Z", "from"),
        ("changes?from=2020-11-20T14:00:00Z&to=2026-11-20T14:00:00Z", "from"),
        ("changes?from=2020-01-01T00:00:00Z", "from"),
        ("rollouts?from=2020-01-01T00:00:00Z", "from"),
        ("gaps?from=2020-01-01T00:00:00Z", "from"),
        ("changes?from=1795183200", "from"),
        ("what-changed?at=1795183200.5", "at"),
        ("changes?verb=patch", "verb"),
        ("changes?derived=yes", "derived"),
        ("changes?kind=a&kind=b", "kind"),
        ("changes?text=%00", "text"),
        ("changes?text=" + "x" * 300, "text"),
        ("incidents?status=odd", "status"),
        ("incidents?limit=0", "limit"),
        ("what-changed?minus=0m", "minus"),
        ("what-changed?minus=-5m", "minus"),
        ("what-changed?minus=fortnight", "minus"),
        ("what-changed?minus=9999999d", "minus"),
        ("what-changed?at=2026-11-20T14:00:00", "at"),
        ("what-changed?format=xml", "format"),
        ("calls", "cluster"),
        ("calls?cluster=shop&minus=1s", "minus"),
        (f"incidents/{ID}?x=1", "x"),
        (f"incidents/{ID}/suspects?x=1", "x"),
        ("rollouts?from=2026-11-20T14:00:00Z&to=2026-11-19T14:00:00Z", "from"),
        ("gaps?from=2026-11-20T14:00:00Z&to=2026-11-19T14:00:00Z", "from"),
    ],
)
async def test_a_bad_parameter_is_named(site: Site, path: str, field: str) -> None:
    answer = await refused(site, path)
    assert answer.status_code == 422
    assert answer.json()["field"] == field


@pytest.mark.parametrize("time", ["2026-11-20T14:00:00", "2026-11-20T14:00", "2026-11-20 14:00:00.5"])
async def test_a_plus_that_an_address_made_a_space_is_told(site: Site, time: str) -> None:
    answer = await refused(site, f"changes?from={time}+02:00")
    assert (answer.status_code, answer.json()["field"]) == (422, "from")
    assert "must have %2B for the + of its zone" in answer.json()["detail"]
    await got(site, "changes", **{"from": f"{time}+02:00"})


@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "",
        "0.",
        "zz.1",
        "1.zz",
        "ffffffffffffffffffff.1",
        "1.8000000000000000",
        "-1.1",
        "1.1.1",
        "%00.1",
        "1.1.aabb",
    ],
)
async def test_a_cursor_that_is_not_ours_is_refused(site: Site, cursor: str) -> None:
    answer = await refused(site, f"changes?after={cursor}")
    assert answer.status_code == 400
    assert answer.json()["field"] == "after"


@pytest.mark.parametrize(
    "path",
    [
        "changes/0",
        "changes/" + "f" * 28,
        "changes/" + "0" * 12 + "f" * 16,
        "changes/" + "0" * 12 + "8" + "0" * 15 + "/revert",
        "changes/" + "z" * 28,
        "changes/" + "%00" * 28,
        "incidents/unknown",
        "incidents/unknown/suspects",
        "incidents/" + "x" * 30 + "%27--",
        "objects/shop/apps/Deployment/payments/unknown",
        "objects/another/apps/Deployment/payments/checkout-api",
        "objects/shop/apps/Deployment/-/checkout-api",
        "nothing",
        "",
    ],
)
async def test_what_is_not_there_is_not_found(site: Site, path: str) -> None:
    assert (await refused(site, path)).status_code == 404


@pytest.mark.parametrize(
    "path", ["changes", "rollouts", "calls", "incidents", "gaps", "what-changed", "what-changed?format=json"]
)
async def test_an_unknown_cluster_is_refused_with_the_known_ones(site: Site, path: str) -> None:
    answer = await refused(site, f"{path}{'&' if '?' in path else '?'}cluster=nosuch")
    assert answer.status_code == 404
    assert answer.json()["field"] == "cluster"
    assert answer.json()["detail"] == "there is no cluster 'nosuch': known are shop"


async def test_what_changed_after_the_record_ends_says_so(site: Site) -> None:
    async with site.client() as client:
        later = await client.get("/api/v1/what-changed", params={"at": "2026-11-21T14:00:00Z"})
    newest = max(change.at for change in [*world.surrounding_changes(), world.CULPRIT, *world.derived_changes()])
    assert later.text == (
        f"2026-11-21 13:30:00 to 14:00:00 UTC: nothing was recorded\nrecorded up to {newest:%Y-%m-%d %H:%M:%S} UTC\n"
        f"not seen 11-21 13:30:00 to 14:00:00: {NO_MORE}\n"
    )


async def test_a_wrong_method_is_refused(site: Site) -> None:
    async with site.client() as client:
        answer = await client.post("/api/v1/gaps", headers={"Sec-Fetch-Site": "same-origin"})
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, HEAD"
