"""Remote-write over HTTP: who may send, in which form, and what each answer makes Prometheus do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import httpx2
import pytest
from sqlalchemy.exc import OperationalError

from app.store import tokens
from app.store.database import Database
from app.store.tokens import Purpose
from app.web.deps import Deps, TooLargeError
from app.web.known_tokens import KnownTokens
from app.web.routes import create_app

HOST = "http://foreshock.test"
NOW = datetime.now(UTC)
FORM = {
    "content-type": "application/x-protobuf",
    "content-encoding": "snappy",
    "x-prometheus-remote-write-version": "0.1.0",
}
ANSWERS: dict[bytes, Exception] = {
    b"bad": ValueError("the body is no prometheus.WriteRequest"),
    b"large": TooLargeError("20,000,000 bytes unpacked"),
    b"away": OperationalError("INSERT", {}, Exception("gone")),
}


@pytest.fixture
async def client(database: Database) -> AsyncIterator[httpx2.AsyncClient]:
    """Sends as the Prometheus of the cluster ``shop``."""

    async def take(_cluster: str, body: bytes) -> None:
        if body in ANSWERS:
            raise ANSWERS[body]

    async with database.write.begin() as conn:
        token = await tokens.create_for_cluster(conn, "shop", purpose=Purpose.METRICS, now=NOW)
    known = KnownTokens(database.write, lambda: NOW)
    await known.refresh()
    deps = Deps(database.read, database.write, HOST, lambda: NOW, cluster_of=known.cluster_of, take_samples=take)
    transport = httpx2.ASGITransport(app=create_app(deps), raise_app_exceptions=False)
    async with httpx2.AsyncClient(
        transport=transport, base_url=HOST, headers={"Authorization": f"Bearer {token}", **FORM}
    ) as made:
        yield made


@pytest.mark.parametrize(("body", "status"), [(b"good", 204), (b"bad", 400), (b"large", 413), (b"away", 503)])
async def test_only_what_may_be_taken_later_is_repeated(client: httpx2.AsyncClient, body: bytes, status: int) -> None:
    answer = await client.post("/intake/prometheus/shop", content=body)
    assert answer.status_code == status
    assert ("retry-after" in answer.headers) == (status == 503)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"content-type": "application/json"}, "application/x-protobuf"),
        ({"content-type": "application/x-protobuf;proto=io.prometheus.write.v2.Request"}, "prometheus.WriteRequest"),
        ({"x-prometheus-remote-write-version": "2.0.0"}, "remote-write 2.0"),
        ({"content-encoding": "gzip"}, "snappy"),
        ({"content-encoding": ""}, "snappy"),
    ],
)
async def test_another_form_is_refused_in_words(client: httpx2.AsyncClient, changed: dict[str, str], said: str) -> None:
    answer = await client.post("/intake/prometheus/shop", content=b"good", headers=changed)
    assert answer.status_code == 415
    assert said in answer.json()["detail"]


async def test_what_1_0_is_called_in_2_0_is_taken(client: httpx2.AsyncClient) -> None:
    kind = {"content-type": "application/x-protobuf;proto=prometheus.WriteRequest"}
    assert (await client.post("/intake/prometheus/shop", content=b"good", headers=kind)).status_code == 204


async def test_a_token_is_good_for_its_cluster_and_for_samples_alone(
    client: httpx2.AsyncClient, database: Database
) -> None:
    assert (await client.post("/intake/prometheus/south", content=b"good")).status_code == 403
    assert (await client.post("/intake/audit/shop", content=b"{}")).status_code == 401
    assert (await client.get("/api/v1/incidents")).status_code == 401
    async with database.write.begin() as conn:
        audit = await tokens.create_for_cluster(conn, "shop", now=NOW)
    for token in (audit, "fs_wrong"):
        answer = await client.post("/intake/prometheus/shop", headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 401
        assert "--role metrics --cluster NAME" in answer.json()["detail"]


async def test_a_body_without_end_is_cut_off(client: httpx2.AsyncClient) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * (1 << 20)

    assert (await client.post("/intake/prometheus/shop", content=endless())).status_code == 413
