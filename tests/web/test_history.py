"""An object's history, page by page: every version once, its state exact, the work of a page bounded."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from app.core.model import Batch, Change, Json, ObjectState, Verb
from app.core.objects.diff import diff
from app.store import history
from app.store.record import record
from app.store.timeline import Cursor
from app.web import incident_pages, pages
from tests.web import world
from tests.web.conftest import Site
from tests.web.test_pages import page, statements

MANY = 260
PATH = "/objects/shop/apps/Deployment/growth/restless"


def state(number: int) -> dict[str, Json]:
    """The object after its change ``number``: one field always moves, another at times."""
    return {"spec": {"replicas": number, "paused": number % 3 == 0}}


def writes() -> list[Change]:
    made = []
    for number in range(MANY):
        verb = Verb.UPDATE if number else Verb.CREATE
        diffs = diff(state(number - 1) if number else None, state(number))
        at = world.START - timedelta(days=9) + timedelta(minutes=number)
        made.append(
            world.a_change("restless", at=at, namespace="growth", verb=verb, diffs=diffs, version=f"{number + 1}")
        )
    return made


@pytest.fixture(scope="module", autouse=True)
async def _restless(site: Site) -> None:
    made = writes()
    last = ObjectState(made[-1].resource, made[-1].uid, made[-1].resource_version, made[-1].at, state(MANY - 1))
    async with site.database.write.begin() as conn:
        await record(conn, Batch(world.CLUSTER, changes=tuple(made), objects=(last,)))


def listed(found: Any) -> list[str]:
    """The change ids of a page's versions, as it lists them."""
    return [a["value"] for tag, a in found.elements if tag == "input" and a.get("name") == "new"]


def link(source: str, text: str) -> str | None:
    found = re.search(rf'<a class="button[^"]*" href="([^"]+)">{text}</a>', source)
    return None if found is None else found[1]


async def test_older_goes_on_to_the_first_version(site: Site) -> None:
    seen: list[str] = []
    address: str | None = PATH
    while address is not None:
        with statements() as asked:
            source, found = await page(site, address)
        assert len(asked) - 1 <= 4
        assert len(found.elements) <= 1500
        assert (link(source, "Newest") is None) == (address == PATH)
        seen += listed(found)
        address = link(source, "Older")
    assert seen == [change.id for change in reversed(writes())]


async def test_versions_of_an_older_page_are_exact(site: Site) -> None:
    source, _ = await page(site, PATH)
    older = link(source, "Older")
    assert older is not None
    ids = {change.id: number for number, change in enumerate(writes())}
    _, found = await page(site, older)
    new, old = listed(found)[3], listed(found)[40]
    source, _ = await page(site, f"{older}&old={old}&new={new}")
    assert f"<del>{ids[old]}</del><ins>{ids[new]}</ins>" in source


async def test_a_comparison_keeps_its_address_when_newer_versions_come(site: Site) -> None:
    path = PATH.replace("restless", "calm")
    made = [
        world.a_change("calm", at=world.START + timedelta(minutes=number), namespace="growth", version=f"{number}")
        for number in range(3)
    ]
    last = ObjectState(made[0].resource, made[0].uid, "1", made[1].at, {"spec": {}})
    async with site.database.write.begin() as conn:
        await record(conn, Batch(world.CLUSTER, changes=tuple(made[:2]), objects=(last,)))
    source, found = await page(site, path)
    here = next(a["value"] for tag, a in found.elements if tag == "input" and a.get("name") == "after")
    before = listed(found)
    assert before == [made[1].id, made[0].id]
    async with site.database.write.begin() as conn:
        await record(conn, Batch(world.CLUSTER, changes=(made[2],)))
    source, found = await page(site, f"{path}?after={here}&old={before[1]}&new={before[0]}")
    assert listed(found) == before
    assert link(source, "Newest") == path
    assert listed((await page(site, path))[1]) == [made[2].id, *before]


async def test_behind_what_can_be_undone_a_version_shows_its_own_change(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "MOST_UNDONE", 99)
    source, found = await page(site, PATH)
    older = link(source, "Older")
    assert older is not None
    source, found = await page(site, older)
    number = MANY - 1 - incident_pages.PAGE
    assert f"<del>{number - 1}</del><ins>{number}</ins>" in source
    source, _ = await page(site, f"{older}&old={listed(found)[5]}&new={listed(found)[0]}")
    assert "This cannot be told" in source


async def test_what_leads_back_is_read_to_a_bound(site: Site) -> None:
    made = writes()
    since = Cursor(made[-10].at, made[-10].key)
    async with site.database.read.connect() as conn:
        found = await history.read_newer(conn, made[0].resource, since, most=10)
        assert found is not None
        assert [write.diffs for write in found] == [change.diffs for change in reversed(made[-10:])]
        assert await history.read_newer(conn, made[0].resource, since, most=9) is None


async def test_rest_goes_on_too(site: Site) -> None:
    seen: list[str] = []
    after: str | None = None
    async with site.client() as client:
        while True:
            params = {"limit": "100"} | ({} if after is None else {"after": after})
            answer = (await client.get(f"/api/v1{PATH}", params=params)).json()
            seen += [change["id"] for change in answer["items"]]
            after = answer["next"]
            if after is None:
                break
    assert seen == [change.id for change in reversed(writes())]


async def test_a_page_without_versions_says_so(site: Site) -> None:
    source, _ = await page(site, f"{PATH}?after=1.1")
    assert "Nothing older was recorded." in source
    await page(site, f"{PATH}?after=nonsense", status=400)
