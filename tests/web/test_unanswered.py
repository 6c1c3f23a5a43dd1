"""Who reads the log finds a request that was answered 503 by its id; many of them are few lines."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from types import ModuleType

import httpx2
import pytest
import structlog
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from app.store import incidents, tokens
from app.web import problems, unanswered
from app.web.deps import Deps
from app.web.numbered import HEADER
from app.web.problems import Problem, note
from app.web.routes import create_app
from app.web.unanswered import MOST, Unanswered
from tests.web.conftest import HOST, UNLIMITED, Site, site

__all__ = ["site"]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unanswered, "EVERY_SECONDS", 0.05)
    # Else what a test before these left to be told, within its second, is told with theirs, and as late.
    monkeypatch.setattr(problems, "unanswered", Unanswered())


async def test_a_503_is_told_by_its_id_and_a_404_is_not() -> None:
    nowhere = create_async_engine("postgresql+psycopg://nobody@127.0.0.1:1/none")
    app = create_app(Deps(nowhere, nowhere, HOST, lambda: datetime.now(UTC)), limits=UNLIMITED)

    with structlog.testing.capture_logs() as lines:
        async with httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=app), base_url=HOST, headers={"Authorization": "Bearer x"}
        ) as client:
            pages = [await client.get("/api/v1/incidents") for _ in range(3)]
            note(Problem(503, "repeats what was asked", "promql"), "0123")
            gone = await client.get("/static/nothing")
        await asyncio.sleep(0.2)
    assert [one.status_code for one in (*pages, gone)] == [503, 503, 503, 404]
    found = [
        (why, each)
        for line in lines
        if line["event"] == "not answered"
        for why, ids in line["requests"].items()
        for each in ids
    ]
    away = pages[0].json()["detail"]
    assert found == [*((away, one.headers[HEADER]) for one in pages), ("promql", "0123")], "no parameter is repeated"


async def test_many_are_few_lines_and_those_after_them_are_told_again() -> None:
    ours = Unanswered()
    with structlog.testing.capture_logs() as lines, structlog.contextvars.bound_contextvars(request_id="1"):
        for number in range(MOST + 7):
            ours.note(str(number), "away" if number % 2 else "busy")
        await asyncio.sleep(0.2)
        ours.note("later", "away")
        await asyncio.sleep(0.2)
    first, second = lines
    assert sum(map(len, first["requests"].values())) == MOST
    assert first["more"] == 7
    assert (second["requests"], second["more"]) == ({"away": ["later"]}, 0)


def test_one_that_was_noted_as_a_loop_ended_stops_none_after_it() -> None:
    ours = Unanswered()

    async def noted(number: str, wait: float) -> None:
        ours.note(number, "away")
        await asyncio.sleep(wait)

    asyncio.run(noted("1", 0))
    with structlog.testing.capture_logs() as lines:
        asyncio.run(noted("2", 0.2))
    assert [one["requests"] for one in lines] == [{"away": ["1", "2"]}]


@pytest.mark.parametrize("asked", [(incidents, "read_incident"), (tokens, "bearer")])
@pytest.mark.parametrize(
    ("statement", "status"),
    [
        ("SELECT nothing", 500),
        ("SELECT pg_terminate_backend(pg_backend_pid())", 503),
        ("DO $$ BEGIN RAISE SQLSTATE '25006'; END $$", 503),
    ],
)
async def test_a_question_that_the_database_does_not_understand_is_a_fault_of_ours(
    site: Site, monkeypatch: pytest.MonkeyPatch, asked: tuple[ModuleType, str], statement: str, status: int
) -> None:
    async def ask(conn: AsyncConnection, *_: object, **__: object) -> None:
        await conn.execute(text(statement))

    monkeypatch.setattr(*asked, ask)
    async with site.client() as client:
        answer = await client.get("/api/v1/incidents/1")
    assert answer.status_code == status
    detail = answer.json()["detail"]
    assert ("takes no writes" in detail) == ("25006" in statement)
    assert "again" in detail if status == 503 else "fault of ours" in detail
