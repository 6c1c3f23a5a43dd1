"""Flux and LaunchDarkly over HTTP: with a token, or signed; once each; what is no change is said to be none."""

from __future__ import annotations

import hmac
from dataclasses import replace
from typing import Any

import orjson
import pytest

from app.store import tokens
from app.store.tokens import Purpose
from app.web.requests import MIB
from app.web.routes import create_app
from tests.core.changes.test_senders import DEEP, an_entry, an_event
from tests.web import world
from tests.web.conftest import NOW, Site, deps

SECRET = "a secret of sixteen or more"
PLACE = {"cluster": world.CLUSTER, "namespace": "payments", "workload": "checkout-api"}


def signed(body: bytes, *, secret: str = SECRET) -> dict[str, Any]:
    """A body with the header that LaunchDarkly sends with it."""
    signature = hmac.digest(secret.encode(), body, "sha256").hex()
    return {"content": body, "headers": {"X-LD-Signature": signature}}


@pytest.fixture(scope="module")
def signing(site: Site) -> Site:
    """The same site where LaunchDarkly's secret is set."""
    with_secret = replace(deps(site.database), launchdarkly_secret=SECRET)
    return Site(create_app(with_secret), site.database, site.bearer)


async def test_flux_tells_once_with_a_token_to_tell_with(site: Site) -> None:
    async with site.database.write.begin() as conn:
        token = await tokens.create_for_cluster(conn, "", purpose=Purpose.CHANGES, now=NOW)
    bearer = {"Authorization": f"Bearer {token}"}
    async with site.client(None) as client:
        first, again = [
            await client.post("/intake/flux", params=PLACE, content=an_event(), headers=bearer) for _ in range(2)
        ]
        failed = await client.post("/intake/flux", content=an_event(severity="error"), headers=bearer)
        assert (await client.post("/intake/flux", content=an_event())).status_code == 401
    async with site.client("viewer") as client:
        assert (await client.post("/intake/flux", content=an_event())).status_code == 403
        change = (await client.get(f"/api/v1/changes/{first.json()['changes'][0]}")).json()["change"]
    assert (first.status_code, again.status_code) == (200, 200)
    assert first.json() == again.json()
    assert (failed.status_code, failed.json()["changes"]) == (200, [])
    assert "severity" in failed.json()["left_out"]
    assert change["resource"] == {
        "cluster": world.CLUSTER,
        "api_group": "external:flux",
        "kind": "helm release",
        "namespace": "payments",
        "name": "payments/checkout",
    }
    assert (change["workload"], change["at"]) == ("checkout-api", "2026-11-20T14:02:27Z")


async def test_launchdarkly_tells_once_what_it_signed(signing: Site) -> None:
    async with signing.client(None) as client:
        first, again = [await client.post("/intake/launchdarkly", params=PLACE, **signed(an_entry())) for _ in range(2)]
    assert (first.status_code, again.json()) == (200, first.json())
    async with signing.client("viewer") as client:
        change = (await client.get(f"/api/v1/changes/{first.json()['changes'][0]}")).json()["change"]
    assert (change["resource"]["kind"], change["actor"]) == ("feature flag", "alice@shop.example")
    assert change["diffs"] == [{"path": "environments.production.on", "op": "replace", "old": False, "new": True}]


async def test_what_launchdarkly_did_not_sign_is_refused(signing: Site, site: Site) -> None:
    body = an_entry()
    async with signing.client(None) as client:
        answers = [
            await client.post("/intake/launchdarkly", content=body),
            await client.post("/intake/launchdarkly", content=body, headers={"X-LD-Signature": ""}),
            await client.post("/intake/launchdarkly", content=body, headers={b"X-LD-Signature": b"\xff"}),
            await client.post("/intake/launchdarkly", **signed(body, secret="another")),
            await client.post("/intake/launchdarkly", **{**signed(body), "content": body + b" "}),
        ]
    async with signing.client("admin") as client:
        answers.append(await client.post("/intake/launchdarkly", content=body))
    async with site.client(None) as client:
        answers.append(await client.post("/intake/launchdarkly", **signed(body, secret="")))
    assert [answer.status_code for answer in answers] == [401] * len(answers)
    assert "FORESHOCK_LAUNCHDARKLY_SECRET is not set" in answers[-1].json()["detail"]
    assert SECRET not in "".join(answer.text for answer in answers)


@pytest.mark.parametrize(
    ("body", "params", "status"),
    [
        (b"{}", {}, 400),
        (b"", {}, 400),
        (b" " * (MIB + 1), {}, 413),
        (an_entry(date=0), {}, 422),
        (an_entry(), {"cluster": "nowhere"}, 422),
        (an_entry(), {"workload": "checkout-api"}, 422),
        (an_entry(), {"colour": "red"}, 422),
        (an_entry(previousVersion={}).replace(b'"previousVersion":{}', b'"previousVersion":' + DEEP), {}, 400),
        (an_entry(_id="x", name="\x00"), {"cluster": world.CLUSTER}, 200),
        (an_entry(_id="y").replace(b"New checkout", b"\\ud800"), {"cluster": world.CLUSTER}, 200),
        (an_entry().replace(b"6560aabbccddeeff00112233", b"\\ud800"), {"cluster": world.CLUSTER}, 200),
    ],
)
async def test_what_is_signed_may_be_wrong_all_the_same(
    signing: Site, body: bytes, params: dict[str, str], status: int
) -> None:
    async with signing.client(None) as client:
        answer = await client.post("/intake/launchdarkly", params=params, **signed(body))
    assert answer.status_code == status, answer.text
    if status != 200:
        assert answer.headers["content-type"] == "application/problem+json"
        assert orjson.loads(answer.content)["detail"]
