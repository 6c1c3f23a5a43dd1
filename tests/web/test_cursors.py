"""A cursor goes on where it came from, and nowhere else."""

from __future__ import annotations

import pytest

from tests.web import world
from tests.web.conftest import Site, site

__all__ = ["site"]
HISTORY = "/api/v1/objects/shop/apps/Deployment/payments/checkout-api"
LISTS = (
    "/api/v1/changes?limit=1",
    "/api/v1/changes?limit=1&namespace=payments",
    "/api/v1/changes?limit=1&derived=shown",
    "/api/v1/rollouts?limit=1&from=2026-11-20T14:00:00Z",
    "/api/v1/incidents?limit=1",
    "/api/v1/incidents?limit=1&status=open",
    f"{HISTORY}?limit=1",
)


async def answered(site: Site, path: str) -> int:
    async with site.client() as client:
        answer = await client.get(path)
    if answer.status_code == 400:
        assert answer.json()["field"] == "after"
        assert "go on with those that it came with, or start again without it" in answer.json()["detail"]
    return answer.status_code


@pytest.mark.parametrize("own", LISTS)
async def test_a_cursor_is_of_one_list_and_its_filters(site: Site, own: str) -> None:
    async with site.client() as client:
        cursor = (await client.get(own)).json()["next"]
    assert [path for path in LISTS if await answered(site, f"{path}&after={cursor}") == 200] == [own]
    old = cursor.rpartition(".")[0]  # as cursors were before they said of which list they are
    assert {await answered(site, f"{path}&after={old}") for path in LISTS} == {200}


async def test_times_may_move_from_page_to_page(site: Site) -> None:
    async with site.client() as client:
        cursor = (await client.get("/api/v1/changes?limit=1&from=2026-11-20T14:00:00Z")).json()["next"]
    assert await answered(site, f"/api/v1/changes?limit=9&from=2026-11-20T14:00:01Z&after={cursor}") == 200


@pytest.mark.parametrize(
    ("page", "taken"),
    [
        (f"/_/incidents/{world.incident().id}?rows=all", 400),
        ("/changes?namespace=payments", 400),
        ("/changes?", 200),
        ("/_/changes?", 200),
    ],
)
async def test_pages_and_rest_go_on_alike(site: Site, page: str, taken: int) -> None:
    async with site.client() as client:
        cursor = (await client.get(LISTS[0])).json()["next"]
        assert (await client.get(f"{page}&after={cursor}")).status_code == taken
