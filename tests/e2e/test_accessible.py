"""Every page, dark and light, wide and narrow: axe finds nothing serious."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from axe_playwright_python.async_playwright import Axe

from app.core.model import Batch
from app.core.watching import Unseen, Watching
from app.store import collectors
from app.store.record import record
from tests.e2e.conftest import DESKTOP, PHONE, Program, Visit, tell
from tests.web import world

INCIDENT = f"/incidents/{world.incident().id}"
PAGES = (
    "/",
    INCIDENT,
    f"{INCIDENT}?change={world.CULPRIT.id}",
    "/changes",
    "/clusters",
    f"/changes/{world.CULPRIT.id}",
    "/objects/shop/apps/Deployment/payments/checkout-api",
    "/clusters/shop/control-plane?to=2026-11-20T14:03:45Z&minus=30m",
    "/explore?cluster=shop&metric=apiserver_request_total&by=verb&to=2026-11-20T14:03:45Z&minus=30m",
    "/login",
)


@pytest.fixture(scope="module", autouse=True)
async def _recorded(program: Program) -> None:
    await tell(program.database, world.batch())
    async with program.database.write.begin() as conn:
        await record(conn, Batch(cluster=world.CLUSTER, series=world.metrics()))
        epoch = await collectors.take(conn, "plant", "somebody")
        assert epoch
        silent = Unseen("Pod", datetime.now(UTC) - timedelta(minutes=5), "the API server says nothing any more")
        await collectors.renew(conn, "plant", epoch, Watching("v1.36.3", 64, (silent,), 4096))


@pytest.mark.parametrize("scheme", ["dark", "light"])
@pytest.mark.parametrize("path", PAGES)
async def test_nothing_serious(visit: Visit, path: str, scheme: str) -> None:
    async with visit(path, color_scheme=scheme, viewport=DESKTOP, bypass_csp=True) as page:
        if "change=" in path:
            await page.locator("#drawer ins").first.wait_for()
        found = await Axe().run(page)
    serious = [one for one in found.response["violations"] if one["impact"] in {"serious", "critical"}]
    assert [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in serious] == []


async def test_nothing_serious_on_a_phone(visit: Visit) -> None:
    async with visit(INCIDENT, viewport=PHONE, bypass_csp=True) as page:
        found = await Axe().run(page)
    assert [one["id"] for one in found.response["violations"] if one["impact"] in {"serious", "critical"}] == []
