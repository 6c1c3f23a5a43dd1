"""Before anything was recorded every page still says what to do."""

from __future__ import annotations

import pytest

from tests.web.conftest import Site


@pytest.mark.parametrize(("path", "words"), [("/", "foreshock import"), ("/changes", "foreshock import")])
async def test_an_empty_page_speaks(empty_site: Site, path: str, words: str) -> None:
    async with empty_site.client() as client:
        answer = await client.get(path)
    assert answer.status_code == 200
    assert words in answer.text


@pytest.mark.parametrize(
    "path", ["changes", "rollouts", "incidents", "gaps", "what-changed?format=json", "calls?cluster=x"]
)
async def test_an_empty_list_is_a_list(empty_site: Site, path: str) -> None:
    async with empty_site.client() as client:
        answer = await client.get(f"/api/v1/{path}")
    assert answer.json()["items"] == []
