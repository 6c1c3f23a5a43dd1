"""POST /api/v1/changes: who may tell, what is refused and how, and that the same request is told once."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from app.core.model import Batch
from app.store import tokens
from app.store.record import record
from app.store.tokens import Purpose
from app.web.requests import KIB
from tests.web import world
from tests.web.conftest import NOW, Site

PATH = "/api/v1/changes"


def a_body(**more: Any) -> dict[str, Any]:
    return {
        "source": "launchdarkly",
        "kind": "feature flag",
        "name": "new-checkout",
        "cluster": world.CLUSTER,
        "namespace": "payments",
        "workload": "checkout-api",
        "actor": "alice@shop.example",
        "url": "https://ld.example/flags/new-checkout",
        "fields": [{"path": "rules[0].rollout", "old": 0, "new": 100}],
    } | more


async def teller(site: Site, cluster: str = "") -> dict[str, str]:
    """The headers of who may tell of a cluster's external changes, or of those of any."""
    async with site.database.write.begin() as conn:
        token = await tokens.create_for_cluster(conn, cluster, purpose=Purpose.CHANGES, now=NOW)
    return {"Authorization": f"Bearer {token}"}


async def count(site: Site) -> int:
    async with site.database.read.connect() as conn:
        found = await conn.scalar(text("SELECT count(*) FROM changes WHERE sources = 16"))
    return int(found or 0)


async def test_what_is_told_is_a_change_like_any_other(site: Site) -> None:
    async with site.client("responder") as client:
        answer = await client.post(PATH, json=a_body(at="2026-11-20T14:02:00Z"))
        assert answer.status_code == 201, answer.text
        (told,) = answer.json()["items"]
        assert answer.headers["location"] == f"{PATH}/{told['id']}"
        read = (await client.get(answer.headers["location"])).json()["change"]
        listed = (await client.get(PATH, params={"kind": "feature flag"})).json()
        history = await client.get(
            f"/api/v1/objects/{world.CLUSTER}/external:launchdarkly/feature flag/payments/new-checkout"
        )
    assert read == told
    assert told["at"] == "2026-11-20T14:02:00Z"
    assert told["resource"]["api_group"] == "external:launchdarkly"
    assert (told["actor"], told["actor_source"], told["sources"]) == ("alice@shop.example", "told", ["external"])
    assert (told["url"], told["workload"]) == ("https://ld.example/flags/new-checkout", "checkout-api")
    assert told["diffs"] == [{"path": "rules[0].rollout", "op": "replace", "old": 0, "new": 100}]
    assert [one["id"] for one in listed["items"]] == [told["id"]]
    assert "external" in next(f for f in listed["freshness"] if f["cluster"] == world.CLUSTER)["sources"]
    assert [one["id"] for one in history.json()["items"]] == [told["id"]]


async def test_a_name_may_hold_slashes(site: Site) -> None:
    async with site.client("responder") as client:
        await client.post(PATH, json=a_body(source="terraform", kind="workspace", name="acme/prod/eu"))
        group = f"/objects/{world.CLUSTER}/external:terraform/workspace/payments"
        for path in (f"/api/v1{group}/acme%2Fprod%2Feu", f"/api/v1{group}/acme/prod/eu", f"{group}/acme%2Fprod%2Feu"):
            assert (await client.get(path)).status_code == 200, path


async def test_a_token_to_tell_with_tells_and_reads_nothing(site: Site) -> None:
    bearer = await teller(site)
    async with site.client(None) as client:
        assert (await client.post(PATH, json=a_body(), headers=bearer)).status_code == 201
        for path in (PATH, f"{PATH}/x", "/api/v1/incidents", "/", "/changes", "/openapi.json"):
            assert (await client.get(path, headers=bearer)).status_code == 401, path
        for path in ("/intake/alertmanager/shop", "/intake/audit/shop", "/logout"):
            assert (await client.post(path, json={}, headers=bearer)).status_code == 401, path


@pytest.mark.parametrize(("role", "status"), [("viewer", 403), ("responder", 201), ("admin", 201)])
async def test_of_the_roles_a_responder_may_tell(site: Site, role: str, status: int) -> None:
    async with site.client(role) as client:
        assert (await client.post(PATH, json=a_body())).status_code == status


async def test_a_token_that_ended_tells_nothing(site: Site) -> None:
    bearer = await teller(site)
    async with site.database.write.begin() as conn:
        await tokens.revoke(conn, bearer["Authorization"].split()[1], now=NOW)
    async with site.client(None) as client:
        assert (await client.post(PATH, json=a_body(), headers=bearer)).status_code == 401


async def test_a_token_of_one_cluster_tells_of_that_one(site: Site) -> None:
    bearer = await teller(site, "brand-new")
    async with site.client(None) as client:
        refused = await client.post(PATH, json=a_body(), headers=bearer)
        told = await client.post(PATH, json=a_body(cluster=None), headers=bearer)
    assert (refused.status_code, refused.json()["field"]) == (403, "cluster")
    assert [one["resource"]["cluster"] for one in told.json()["items"]] == ["brand-new"]


async def test_without_a_cluster_it_is_a_change_of_each(site: Site) -> None:
    async with site.database.write.begin() as conn:
        await record(conn, Batch("second"))
    async with site.client("responder") as client:
        answer = await client.post(
            PATH, json=a_body(cluster=""), headers={"Idempotency-Key": "all of them".replace(" ", "-")}
        )
        again = await client.post(PATH, json=a_body(cluster=""), headers={"Idempotency-Key": '"all-of-them"'})
    found = [one["resource"]["cluster"] for one in answer.json()["items"]]
    assert {world.CLUSTER, "second"} <= set(found)
    assert len(found) == len(set(found))
    assert (again.status_code, again.json()) == (200, answer.json())


async def test_a_request_that_is_sent_again_is_told_once(site: Site) -> None:
    key = {"Idempotency-Key": "deploy-1"}
    async with site.client("responder") as client:
        before = await count(site)
        answers = await asyncio.gather(*(client.post(PATH, json=a_body(), headers=key) for _ in range(4)))
        assert await count(site) == before + 1
        other = await client.post(PATH, json=a_body(verb="delete"), headers=key)
        elsewhere = await client.post(PATH, json=a_body(source="gitlab"), headers=key)
        assert await count(site) == before + 2
    assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 201]
    assert len({answer.text for answer in answers}) == 1
    assert len({answer.headers["location"] for answer in answers}) == 1
    assert (other.status_code, other.json()["field"]) == (422, "Idempotency-Key")
    assert elsewhere.status_code == 201


async def test_the_keys_of_two_clusters_tokens_do_not_meet(site: Site) -> None:
    key = {"Idempotency-Key": "deploy-2"}
    async with site.client(None) as client:
        for cluster in ("north", "south"):
            answer = await client.post(PATH, json=a_body(cluster=None), headers=key | await teller(site, cluster))
            assert answer.status_code == 201
            assert [one["resource"]["cluster"] for one in answer.json()["items"]] == [cluster]


async def test_a_refused_request_may_be_mended_under_its_key(site: Site) -> None:
    key = {"Idempotency-Key": "deploy-3"}
    async with site.client("responder") as client:
        assert (await client.post(PATH, json=a_body(cluster="nowhere"), headers=key)).status_code == 422
        assert (await client.post(PATH, json=a_body(), headers=key)).status_code == 201


@pytest.mark.parametrize(
    ("wrong", "field", "words"),
    [
        ({"source": "Launch Darkly"}, "source", "small letters"),
        ({"kind": "Deployment"}, "kind", "small letters"),
        ({"kind": None}, "kind", "string"),
        ({"name": " "}, "name", "more than spaces"),
        ({"name": "x" * 254}, "name", "253"),
        ({"verb": "flip"}, "verb", "'create', 'update' or 'delete'"),
        ({"cluster": "nowhere"}, "cluster", "nothing is recorded"),
        ({"cluster": "a/b"}, "cluster", "holds no /"),
        ({"namespace": "Payments"}, "namespace", "name of a namespace"),
        ({"namespace": ""}, None, "found by its namespace"),
        ({"workload": "Checkout API"}, "workload", "name of a workload"),
        ({"at": "2026-11-20T14:02:00"}, "at", "timezone"),
        ({"at": 1_700_000_000}, "at", "ISO 8601"),
        ({"at": (NOW + timedelta(minutes=6)).isoformat()}, "at", "ahead of our clock"),
        ({"at": (NOW - timedelta(days=91)).isoformat()}, "at", "kept for 90 days"),
        ({"url": "javascript:alert(1)"}, "url", "http://"),
        ({"url": "https://a b"}, "url", "no space"),
        ({"summary": "x" * 1001}, "summary", "1000"),
        ({"fields": [{"path": "a..b", "new": 1}]}, "fields.0.path", "dots between"),
        ({"fields": [{"path": "a"}]}, "fields.0", "old, new or both"),
        ({"fields": [{"path": "a", "new": 1}] * 101}, "fields", "100"),
        ({"colour": "red"}, "colour", "there is no parameter"),
    ],
)
async def test_what_is_wrong_is_said(site: Site, wrong: dict[str, Any], field: str | None, words: str) -> None:
    async with site.client("responder") as client:
        before = await count(site)
        answer = await client.post(PATH, json=a_body(**wrong))
        assert await count(site) == before
    assert (answer.status_code, answer.json().get("field")) == (422, field)
    assert answer.headers["content-type"] == "application/problem+json"
    assert words in answer.json()["detail"]


@pytest.mark.parametrize(
    ("body", "status"), [(b"", 400), (b"{", 400), (b"[]", 422), (b"null", 422), (b'"' + b"x" * 64 * KIB + b'"', 413)]
)
async def test_a_body_that_is_no_change_is_refused(site: Site, body: bytes, status: int) -> None:
    async with site.client("responder") as client:
        answer = await client.post(PATH, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


async def test_no_secret_is_stored_answered_or_repeated_in_a_refusal(site: Site) -> None:
    secret = "hunter2-and-a-half"
    hiding = a_body(
        summary=f"password={secret}",
        url=f"https://ci.example/1?access_token={secret}",
        fields=[{"path": "db.password", "old": secret, "new": {"a": [secret]}}],
    )
    async with site.client("responder") as client:
        told = await client.post(PATH, json=hiding, headers={"Idempotency-Key": "hiding"})
        refused = await client.post(PATH, json=hiding | {"verb": secret, "namespace": secret + "_"})
        page = await client.get(f"/changes/{told.json()['items'][0]['id']}")
    assert (told.status_code, refused.status_code, page.status_code) == (201, 422, 200)
    assert secret not in told.text + refused.text + page.text
    async with site.database.read.connect() as conn:
        rows = (await conn.execute(text("SELECT summary, url, diff::text FROM changes WHERE sources = 16"))).all()
    assert secret not in repr(rows)
    assert any("<redacted:" in row.diff for row in rows)
