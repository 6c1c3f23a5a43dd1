"""Views are made, renamed and deleted by responders, kept without cluster and time, and open what they name."""

from __future__ import annotations

import asyncio
import re
from urllib.parse import parse_qsl

import httpx2
import pytest

from app.core.metrics.views import SHIPPED, View
from app.store.views import list_views
from tests.web.conftest import Site, site

__all__ = ["site"]
FORM = {"content-type": "application/x-www-form-urlencoded"}


async def post(site: Site, path: str, role: str = "responder", **form: str) -> httpx2.Response:
    async with site.client(role) as client:
        return await client.post(path, data=form, headers=FORM)


async def saved(site: Site) -> dict[str, tuple[int | None, str]]:
    async with site.database.read.connect() as conn:
        return {view.name: (view.id, view.query) for view in await list_views(conn)}


async def test_a_view_is_saved_shown_to_all_renamed_and_deleted(site: Site) -> None:
    answer = await post(
        site, "/views", name=" Writes <b>by</b>\ncaller ", query="?of=calls&by=user&cluster=shop&minus=6h&measure=rate"
    )
    assert (answer.status_code, answer.headers["location"]) == (
        303,
        "/explore?cluster=shop&minus=6h&of=calls&by=user&measure=rate",
    ), "who saved it sees what they saw"
    number, query = (await saved(site))["Writes <b>by</b> caller"]
    assert query == "of=calls&by=user&measure=rate", "neither the cluster nor the time"
    async with site.client() as viewer:
        page = (await viewer.get("/explore", params={"cluster": "shop", "minus": "30m"})).text
    assert 'href="/explore?cluster=shop&amp;minus=30m&amp;of=calls&amp;by=user&amp;measure=rate"' in page
    assert "Writes &lt;b&gt;by&lt;/b&gt; caller" in page
    assert "/rename" not in page, "who may not change them is offered no form"
    async with site.client("responder") as responder:
        assert f"/views/{number}/rename" in (await responder.get("/explore")).text
    assert (await post(site, f"/views/{number}/rename", name="Writes")).status_code == 303
    assert (await saved(site)).keys() == {"Writes"}
    assert (await post(site, f"/views/{number}/delete")).status_code == 303
    assert (await post(site, f"/views/{number}/delete")).status_code == 404
    assert await saved(site) == {}


async def test_a_viewer_changes_nothing(site: Site) -> None:
    for path in ("/views", "/views/1/rename", "/views/1/delete"):
        assert (await post(site, path, "viewer", name="x", query="of=calls")).status_code == 403


@pytest.mark.parametrize(
    ("name", "query", "why"),
    [
        ("", "of=calls", "1 to 80"),
        ("x" * 81, "of=calls", "1 to 80"),
        ("a\x00b", "of=calls", "printable"),
        (SHIPPED[0].name, "of=calls", "comes along"),
        (SHIPPED[0].name.upper(), "of=calls", "comes along"),
        ("x", "", "no question"),
        ("x", "metric=up&measure=odd", "no question of the explorer"),
        ("x", "of=calls&by=shoe", "calls have no"),
    ],
)
async def test_what_cannot_be_saved_is_refused_in_words(site: Site, name: str, query: str, why: str) -> None:
    answer = await post(site, "/views", name=name, query=query)
    assert answer.status_code == 422
    assert why in answer.text.lower()
    assert await saved(site) == {}


async def test_two_views_have_two_names(site: Site) -> None:
    await post(site, "/views", name="one", query="of=calls")
    await post(site, "/views", name="two", query="of=calls")
    again = await post(site, "/views", name="One", query="metric=up")
    number = (await saved(site))["two"][0]
    other = await post(site, f"/views/{number}/rename", name="ONE")
    assert [(answer.status_code, "of the name" in answer.text) for answer in (again, other)] == [(409, True)] * 2
    assert (await post(site, f"/views/{number}/rename", name="Two")).status_code == 303, "its own name in another case"
    assert (await saved(site)).keys() == {"one", "Two"}
    for one, _ in (await saved(site)).values():
        await post(site, f"/views/{one}/delete")


async def test_a_name_that_is_refused_stays_typed_above_its_question(site: Site) -> None:
    asked = "of=calls&by=user&cluster=shop&minus=6h"
    for name in ("one", "two"):
        await post(site, "/views", name=name, query=asked)
    number = (await saved(site))["two"][0]
    rename = f"/views/{number}/rename"
    for path, typed, status in (("/views", '"b" ONE', 303), ("/views", "ONE ", 409), (rename, "One", 409)):
        answer = await post(site, path, name=typed, query=asked)
        assert answer.status_code == status
        if status == 303:
            continue
        form = re.search(f'<form action="{path}".*?</form>', answer.text, re.DOTALL)
        assert form is not None, "the same page"
        assert f'name="name" value="{typed}"' in form[0]
        assert 'aria-describedby="unnamed" autofocus' in form[0]
        assert '<p id="unnamed" class="notice-alert" role="alert">There is a view of the name' in form[0]
        assert answer.text.count('role="alert"') == 1, "beside the name that was sent"
        assert "<details open>" in answer.text
        assert '<input name="by" value="user"' in answer.text, "what was asked is asked still"
    for one, _ in (await saved(site)).values():
        renamed = await post(site, f"/views/{one}/rename", name=f"view {one}", query=asked)
        deleted = await post(site, f"/views/{one}/delete", query=asked)
        onward = "/explore?cluster=shop&minus=6h&of=calls&by=user"
        assert [renamed.headers["location"], deleted.headers["location"]] == [onward] * 2


async def test_a_view_that_is_gone_is_not_renamed_to_a_name_that_is_taken(site: Site) -> None:
    await post(site, "/views", name="one", query="of=calls")
    assert (await post(site, "/views/999999/rename", name="one")).status_code == 404
    for one, _ in (await saved(site)).values():
        await post(site, f"/views/{one}/delete")


async def test_of_those_who_take_a_name_at_once_one_has_it(site: Site) -> None:
    for name in ("a", "b", "c"):
        await post(site, "/views", name=name, query="of=calls")
    paths = [f"/views/{number}/rename" for number, _ in (await saved(site)).values()]
    asked = [post(site, path, name=name) for path in paths for name in ("same", "Same")]
    made = [post(site, "/views", name=name, query="of=calls") for name in ("same", "SAME")]
    answers = await asyncio.gather(*asked, *made)
    assert {answer.status_code for answer in answers} == {303, 409}
    names = [name for name in await saved(site) if name.casefold() == "same"]
    assert len(names) == 1
    for one, _ in (await saved(site)).values():
        await post(site, f"/views/{one}/delete")


@pytest.mark.parametrize("view", SHIPPED, ids=lambda view: view.name)
async def test_what_comes_along_can_be_asked(site: Site, view: View) -> None:
    asked = dict(parse_qsl(view.query))
    async with site.client() as client:
        answer = await client.get("/explore", params={"cluster": "shop", "minus": "30m", **asked})
    assert answer.status_code == 200
    if "ServiceAccount" in view.name:
        assert "payments:checkout" in answer.text
