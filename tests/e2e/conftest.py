"""The real program in a process of its own, looked at with a real browser."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pytest
from playwright.async_api import Browser, FloatRect, Locator, Page, ViewportSize, async_playwright

from app.core.model import Batch
from app.core.roles import Role
from app.store import incidents, tokens
from app.store.database import Database
from app.store.partitions import ensure
from app.store.record import record
from app.store.tokens import Purpose
from tests.programs import found
from tests.serving import CHROMIUM, FLAGS, served
from tests.web import world

DESKTOP: ViewportSize = {"width": 1440, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}


@pytest.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    """One Chromium for all tests."""
    executable = found(*CHROMIUM, package="chromium")
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=executable, args=list(FLAGS))
        yield started
        await started.close()


@dataclass(slots=True)
class Program:
    """The running program and the database behind it."""

    address: str
    database: Database

    async def link(self, to: str, role: Role = Role.VIEWER) -> str:
        """A one-time login link that leads to ``to``."""
        async with self.database.write.begin() as conn:
            token = await tokens.create(conn, role, purpose=Purpose.LOGIN, now=datetime.now(UTC))
        return f"{self.address}/login?token={token}&to={quote(to)}"


@contextmanager
def serving(dsn: str, database: Database, port: int = 0) -> Iterator[Program]:
    """``foreshock serve`` on a port (0: a free one) for the length of the block."""
    with served(dsn, port) as address:
        yield Program(address, database)


@pytest.fixture(scope="module")
def program(dsn: str, database: Database) -> Iterator[Program]:
    """``foreshock serve`` on a free port."""
    with serving(dsn, database) as started:
        yield started


async def tell(database: Database, batch: Batch) -> None:
    """Records a batch, the made-up incident and its ranking."""
    async with database.write.begin() as conn:
        await record(conn, batch)
        await incidents.save_incident(conn, world.incident())
        await ensure(conn, "rankings", [world.ranking().ranked_at])
        await incidents.save_ranking(conn, world.ranking())


async def box(locator: Locator) -> FloatRect:
    """Where one element stands; it must be drawn."""
    found = await locator.bounding_box()
    assert found is not None, locator
    return found


@dataclass(slots=True)
class Complaints:
    """What a browser found wrong with a page: must stay empty. ``forgiven`` is a pattern of what a test provokes."""

    found: list[str] = field(default_factory=list)
    forgiven: str = "(?!)"

    def listen(self, page: Page, address: str) -> None:
        page.on("console", lambda message: self._note(message.type in {"error", "warning"}, message.text))
        page.on("pageerror", lambda error: self._note(wrong=True, text=str(error)))
        page.on("dialog", lambda dialog: self._note(wrong=True, text=f"dialog: {dialog.message}"))
        page.on("request", lambda request: self._note(not request.url.startswith((address, "data:")), request.url))

    def _note(self, wrong: bool, text: str) -> None:
        if wrong and not re.search(self.forgiven, text):
            self.found.append(text)


async def sign_in(page: Page, link: str) -> None:
    """Opens a login link, and uses it."""
    await page.goto(link)
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_load_state("load")


Visit = Callable[..., AbstractAsyncContextManager[Page]]


@pytest.fixture
def visit(browser: Browser, program: Program) -> Visit:
    """``async with visit(path) as page``: signed in, and no complaint of the browser is forgiven."""

    @asynccontextmanager
    async def visiting(
        path: str,
        *,
        at: Program = program,
        role: Role = Role.VIEWER,
        forgiven: str = "(?!)",
        **options: Any,
    ) -> AsyncIterator[Page]:
        wanted = {"viewport": DESKTOP, "color_scheme": "dark", "reduced_motion": "reduce", **options}
        context = await browser.new_context(**wanted)
        context.set_default_timeout(10_000)
        complaints = Complaints(forgiven=forgiven)
        page = await context.new_page()
        complaints.listen(page, at.address)
        await sign_in(page, await at.link(path, role))
        try:
            yield page
        finally:
            await context.close()
        assert complaints.found == []

    return visiting
