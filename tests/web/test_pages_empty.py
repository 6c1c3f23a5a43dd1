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


@pytest.mark.parametrize("path", ["changes", "rollouts", "incidents", "gaps", "what-changed?format=json"])
async def test_an_empty_list_is_a_list(empty_site: Site, path: str) -> None:
    async with empty_site.client() as client:
        answer = await client.get(f"/api/v1/{path}")
    assert answer.json()["items"] == []


@pytest.mark.parametrize("path", ["/api/v1/calls?cluster=x", "/changes?cluster=x"])
async def test_a_cluster_is_not_known_before_anything_is(empty_site: Site, path: str) -> None:
    async with empty_site.client() as client:
        answer = await client.get(path)
    assert answer.status_code == 404
    assert "nothing is recorded yet" in answer.text


async def test_what_changed_says_that_nothing_is_recorded(empty_site: Site) -> None:
    async with empty_site.client() as client:
        answer = await client.get("/api/v1/what-changed")
    assert answer.text.endswith("UTC: no change is recorded yet\n")
