"""HEAD is answered as GET is, without the body."""

from __future__ import annotations

import pytest

from app.web import numbered
from tests.web import world
from tests.web.conftest import Site

CHANGES = "/api/v1/changes"
PATHS = ("/healthz", "/readyz", "/", "/changes", CHANGES, f"/incidents/{world.incident().id}", "/openapi.json")


@pytest.mark.parametrize("path", [*PATHS, "/static/app.css", "/api/v1/changes/0", "/nothing"])
async def test_head_is_get_without_its_body(site: Site, path: str) -> None:
    async with site.client() as client:
        got, headed = await client.get(path), await client.head(path)
    assert got.content
    assert headed.content == b""
    assert headed.status_code == got.status_code
    assert headed.headers.pop(numbered.HEADER) != got.headers.pop(numbered.HEADER)
    assert headed.headers == got.headers


@pytest.mark.parametrize("path", ["/", CHANGES])
async def test_head_needs_a_credential_as_get_does(site: Site, path: str) -> None:
    async with site.client(None) as stranger:
        assert (await stranger.head(path)).status_code == 401


async def test_only_get_has_a_head(site: Site) -> None:
    async with site.client() as client:
        assert (await client.head("/logout")).status_code == 405
