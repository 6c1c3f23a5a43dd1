"""What Slack did not take, in a browser: why, what to do, and sent again by a button, or forgotten by another."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe
from msgspec.structs import replace
from playwright.async_api import ViewportSize, expect
from sqlalchemy import insert

from app.core.roles import Role
from app.notify.slack_words import WORDS
from app.store import incidents, outbox, slack_tables
from tests.e2e.conftest import DESKTOP, PHONE, Program, Visit, tell
from tests.web import world

CHANNEL = "C0123456789"
FAILED = 60


@pytest.fixture(autouse=True)
async def _failed(program: Program) -> None:
    """Messages that Slack refused, for every reason that there is."""
    await tell(program.database, world.batch())
    kept: dict[str, Any] = {"channel": CHANNEL, "part": 0, "body": "", "attempts": 1, "not_before": world.END}
    async with program.database.write.begin() as conn:
        await conn.exec_driver_sql("DELETE FROM slack_messages")
        await outbox.name_channel(conn, CHANNEL, now=world.END)
        for n in range(FAILED):
            title = f"Checkout errors high in region {n}, for a while already"
            began = datetime.now(UTC) - timedelta(minutes=n)  # what is a week old is not sent again
            incident = replace(world.incident(title=title), id=f"{n:012}", started_at=began, alerts=())
            await incidents.save_incident(conn, incident)
            code = list(WORDS)[n % len(WORDS)]
            error = f"{WORDS[code]} ({code})"
            await conn.execute(insert(slack_tables.messages).values(**kept, incident_id=incident.id, error=error))


async def test_a_button_sends_it_again(visit: Visit) -> None:
    async with visit("/", role=Role.RESPONDER) as page:
        await page.get_by_role("link", name="not told").click()
        await expect(page.locator(".undelivered .row")).to_have_count(FAILED)
        await page.get_by_role("button", name="Send again").first.click()
        await expect(page.locator(".undelivered .row")).to_have_count(FAILED - 1)
        await page.get_by_role("button", name="Forget").first.click()
        await expect(page.locator(".undelivered .row")).to_have_count(FAILED - 2)
        await page.get_by_role("button", name="Send all again").click()
        await expect(page.get_by_role("heading", name="Slack is not set up")).to_be_visible()


@pytest.mark.parametrize("scheme", ["dark", "light"])
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["wide", "narrow"])
async def test_it_fits_and_axe_finds_nothing_serious(visit: Visit, viewport: ViewportSize, scheme: str) -> None:
    async with visit("/slack", role=Role.RESPONDER, viewport=viewport, color_scheme=scheme, bypass_csp=True) as page:
        await expect(page.locator(".undelivered .row").first).to_be_visible()
        assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        found = await Axe().run(page)
    serious = [one for one in found.response["violations"] if one["impact"] in {"serious", "critical"}]
    assert [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in serious] == []
