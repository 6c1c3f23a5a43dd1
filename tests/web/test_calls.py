"""Top callers, told apart by what is asked for."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.web import world
from tests.web.conftest import Site

END = world.END.isoformat().replace("+00:00", "Z")


async def calls(site: Site, **asked: str) -> list[dict[str, Any]]:
    params = {"cluster": "shop", "at": END, "minus": "60s", "limit": "1000", **asked}
    async with site.client() as client:
        answer = await client.get("/api/v1/calls", params=params)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


async def test_sums_stand_beside_means_on_both_sides(site: Site) -> None:
    for one in await calls(site):
        for side in ("", "before_"):
            count, latency = one[f"{side}count"], one[f"{side}latency_seconds"]
            assert one[f"{side}per_second"] == pytest.approx(count / 60)
            assert one[f"{side}mean_latency_ms"] == pytest.approx(1000 * latency / count if count else 0)
        assert one["code"] is one["pod"] is one["list_class"] is None
    assert sum(one["latency_seconds"] for one in await calls(site)) > 0


async def test_whatever_it_is_told_apart_by_the_sum_is_the_same(site: Site) -> None:
    whole = sum(one["count"] for one in await calls(site))
    for by in ("user", "pod,user_agent", "namespace,code", "list_class,waited_for", "user,pod,verb,resource,code"):
        found = await calls(site, by=by)
        assert sum(one["count"] for one in found) == whole
        told = {name for one in found for name, value in one.items() if value is not None}
        assert set(by.split(",")) <= told


async def test_failures_can_be_told_apart_by_their_code(site: Site) -> None:
    found = await calls(site, by="code")
    failed = [one for one in found if one["code"] >= 400]
    assert failed
    assert all(one["errors_per_second"] == one["per_second"] for one in failed)
    assert all(one["errors_per_second"] == 0 for one in found if one["code"] < 400)


async def test_latency_orders_by_its_rise(site: Site) -> None:
    found = await calls(site, order="latency")
    rises = [one["latency_seconds"] - one["before_latency_seconds"] for one in found]
    assert rises == sorted(rises, reverse=True)


async def test_what_comes_after_the_end_of_the_audit_log_was_not_seen(site: Site) -> None:
    """That nobody counted is not that nobody called: a table of zeros would be read as quiet."""
    later = world.END + timedelta(minutes=4)
    async with site.client() as client:
        for at in (later, later + timedelta(hours=1)):
            asked = {"cluster": "shop", "at": at.isoformat(), "minus": "5m"}
            answer = (await client.get("/api/v1/calls", params=asked)).json()
            heard_to = datetime.fromisoformat(answer["freshness"][0]["sources"]["audit log"])
            begin = max(heard_to, at - 2 * timedelta(minutes=5))
            *_, gap = answer["gaps"]
            assert gap["why"] == "the audit log is recorded no further"
            assert datetime.fromisoformat(gap["from_at"]) == begin
            assert datetime.fromisoformat(gap["to_at"]) == at
            text = (await client.get("/api/v1/calls", params=asked, headers={"Accept": "text/plain"})).text
            assert f"to {at:%H:%M:%S}: the audit log is recorded no further" in text
        asked = {"cluster": "shop", "at": END, "minus": "60s"}
        answer = (await client.get("/api/v1/calls", params=asked)).json()
        assert not [gap for gap in answer["gaps"] if gap["why"] == "the audit log is recorded no further"]


@pytest.mark.parametrize("name", ["serviceaccount", "ServiceAccounts", "sa", "SA"])
async def test_a_resource_is_named_as_to_kubectl(site: Site, name: str) -> None:
    assert await calls(site, resource=name) == await calls(site, resource="serviceaccounts") != []


@pytest.mark.parametrize("accept", ["application/json", "text/plain", "application/x-ndjson"])
async def test_a_resource_that_is_not_known_is_refused_with_the_nearest(site: Site, accept: str) -> None:
    async with site.client() as client:
        asked = {"cluster": "shop", "at": END, "resource": "serviceacounts"}
        answer = await client.get("/api/v1/calls", params=asked, headers={"Accept": accept})
    assert (answer.status_code, answer.json()["field"]) == (422, "resource")
    said = "no resource 'serviceacounts' is known, and none was ever called; the nearest: serviceaccounts, "
    assert answer.json()["detail"].startswith(said)


@pytest.mark.parametrize("wrong", ["by=shoe", "by=", "by=user,,verb", "by=user&by=verb", "order=odd"])
async def test_what_cannot_be_asked_is_refused(site: Site, wrong: str) -> None:
    async with site.client() as client:
        answer = await client.get(f"/api/v1/calls?cluster=shop&{wrong}")
    assert answer.status_code == 422
    assert wrong.partition("=")[0] in answer.text
