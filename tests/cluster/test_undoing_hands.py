"""A change is undone by hand in Chromium, on a real API server: what the pages show on the way, and what the cluster,
its audit log and ours have afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, ViewportSize, expect

from tests.cluster.test_undoing import (
    ALICE,
    CLUSTER,
    DAVE,
    MERGE,
    STRATEGIC,
    SYSTEM,
    World,
    allow,
    container,
    deployment,
    edited,
    lab,
    may_be_acted_for,
    wanted,
)
from tests.e2e.conftest import DESKTOP, PHONE, Complaints, browser

__all__ = ["browser", "lab"]
Json = dict[str, Any]
Signed = Callable[..., AbstractAsyncContextManager[Page]]
ACCOUNT = "system:serviceaccount:foreshock:foreshock-reverts"
REFUSED = "the server responded with a status of 409"


@pytest.fixture
def signed_in(browser: Browser, lab: World) -> Signed:
    """``async with signed_in(who, groups) as page``: let through by the proxy; no complaint of the browser is
    forgiven but those told."""

    @asynccontextmanager
    async def visiting(
        who: str, groups: str = "", *, viewport: ViewportSize = DESKTOP, scheme: str = "dark", forgiven: str = "(?!)"
    ) -> AsyncIterator[Page]:
        context = await browser.new_context(
            base_url=lab.address,
            extra_http_headers={"X-Forwarded-User": who, "X-Forwarded-Groups": groups},
            viewport=viewport,
            color_scheme="dark" if scheme == "dark" else "light",
            reduced_motion="reduce",
            bypass_csp=True,  # for axe
        )
        context.set_default_timeout(10_000)
        complaints = Complaints(forgiven=forgiven)
        page = await context.new_page()
        complaints.listen(page, lab.address)
        try:
            yield page
        finally:
            await context.close()
        assert complaints.found == []

    return visiting


async def arrived(page: Page, title: str) -> None:
    """The page of this title is there; it fits, and axe finds nothing serious."""
    await expect(page.locator("h1")).to_have_text(title, timeout=20_000)  # an API server is given 15 s to answer
    assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    found = await Axe().run(page)
    serious = [one for one in found.response["violations"] if one["impact"] in {"serious", "critical"}]
    assert [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in serious] == []


async def shows(page: Page, path: str, old: str, new: str) -> None:
    """One field is shown, with its value before and after."""
    await expect(page.locator(".hunk h3")).to_have_text([path])
    await expect(page.locator(".hunk del")).to_have_text([old])
    await expect(page.locator(".hunk ins")).to_have_text([new])


def writes(lab: World, name: str) -> list[Json]:
    """What the cluster's audit log has of those who wrote an object."""
    events = [one for one in lab.plane.audited() if one["verb"] in {"create", "patch"}]
    return [one for one in events if one["objectRef"].get("name") == name]


def tell_of_requests(lab: World, dsn: str, name: str, folder: Path) -> None:
    """Imports that."""
    log = folder / "audit.log"
    log.write_text("".join(f"{json.dumps(one)}\n" for one in writes(lab, name)))
    command = [sys.executable, "-m", "app", "import", "--cluster", CLUSTER, str(log)]
    env = {**os.environ, "DATABASE_URL": dsn, "FORESHOCK_DATA_DIR": str(folder)}
    subprocess.run(command, env=env, check=True, capture_output=True, timeout=120)


class Case(NamedTuple):
    """An object as it was made, what Alice edited of it, which field that is with its values, and how one looks at
    it."""

    name: str
    kind: str
    made: Json
    edit: Json
    headers: dict[str, str]
    field: str
    old: str
    new: str
    viewport: ViewportSize
    scheme: str


IMAGE = Case(
    "by-hand",
    "deployments",
    deployment("by-hand"),
    container("r/app:v2"),
    STRATEGIC,
    field="spec.template.spec.containers[app].image",
    old="r/app:v1",
    new="r/app:v2",
    viewport=DESKTOP,
    scheme="dark",
)
VALUE = Case(
    "on-a-phone",
    "configmaps",
    {"data": {"most": "10"}},
    {"data": {"most": "99"}},
    MERGE,
    field="data.most",
    old="10",
    new="99",
    viewport=PHONE,
    scheme="light",
)


@pytest.mark.parametrize("case", [IMAGE, VALUE], ids=["image", "value"])
async def test_who_looks_at_a_change_undoes_it(
    lab: World, signed_in: Signed, dsn: str, tmp_path: Path, case: Case
) -> None:
    name, kind, made, edit, headers, field, old, new, viewport, scheme = case
    lab.make(kind, name, **made)
    lab.change(name, 1)
    before = lab.read(kind, name)
    allow(lab.admin, "User", "alice", "deployments", "configmaps")
    with lab.plane.client("alice") as alice:
        assert alice.patch(lab.path(kind, name), content=json.dumps(edit), headers=headers).is_success
    lab.change(name, 2)
    changed = lab.read(kind, name)
    async with signed_in(ALICE, "sre, staff", viewport=viewport, scheme=scheme) as page:
        await page.goto(f"/changes?text={name}")
        await page.locator("tr.row a").first.click()
        drawer = page.locator("#drawer")
        await expect(drawer.locator("ins")).to_have_text([new])
        await expect(drawer.get_by_text(f"a dry run, as {ALICE}")).to_be_visible()
        await drawer.get_by_role("button", name="Try it from here").click()

        await arrived(page, "This would undo it")
        await shows(page, field, old=new, new=old)
        assert lab.read(kind, name) == changed, "a dry run changes nothing"
        await page.get_by_role("button", name="Undo it now").click()

        await arrived(page, "Undone")
        await shows(page, field, old=new, new=old)
        lab.change(name, 3)
        await page.get_by_role("link", name="The change").click()
        minded = "It cannot be undone from here: the values before are there again"
        await expect(page.locator(".mind")).to_contain_text(minded)
        await expect(page.get_by_text("nothing is left to undo")).to_have_count(1)
        await expect(page.get_by_role("button", name="Try it from here")).to_have_count(0)
        await arrived(page, name)

        tell_of_requests(lab, dsn, name, tmp_path)
        await page.goto(f"/changes?text={name}")
        row = page.locator("tr.row").first
        await expect(row).to_contain_text(f"foreshock-reverts as {ALICE}")
        await row.locator("a").first.click()
        await expect(drawer.locator("ins")).to_have_text([old])

    async with signed_in(SYSTEM, viewport=viewport, scheme=scheme) as page:
        await page.goto(f"/audit?who={ALICE}")
        about = f"as {ALICE}: patch {'deployments.apps' if kind == 'deployments' else kind}/{name} -n default"
        rows = page.locator(".audit .row").filter(has_text=about)
        await expect(rows.locator("td.did")).to_have_text(["revert done", "revert begun", "revert tried"])
        await arrived(page, "Audit log")

    found = lab.read(kind, name) or {}
    assert wanted(found) == wanted(before)
    assert "foreshock" in [one["manager"] for one in found["metadata"]["managedFields"]]
    through = [one for one in writes(lab, name) if one["user"]["username"] == ACCOUNT]
    assert ["dryRun=All" in one["requestURI"] for one in through] == [True, True, False]
    assert {one["impersonatedUser"]["username"] for one in through} == {ALICE}


async def test_who_goes_back_is_not_asked_to_send_it_again(lab: World, signed_in: Signed) -> None:
    """What answers a form stands at the address of the change: a browser has nothing to repeat."""
    change_id = edited(lab, "back-again")
    async with signed_in(ALICE, "sre") as page:
        await page.goto(f"/changes/{change_id}")
        await page.get_by_role("button", name="Try it from here").click()
        await expect(page.locator("h1")).to_have_text("This would undo it", timeout=20_000)
        await expect(page).to_have_url(f"{lab.address}/changes/{change_id}")
        await page.get_by_role("link", name="Leave it").click()
        await page.go_back()
        await expect(page.locator("h1")).to_have_text("back-again")
        await page.get_by_role("button", name="Try it from here").click()
        await expect(page.locator("h1")).to_have_text("This would undo it", timeout=20_000)
        await page.get_by_role("button", name="Undo it now").click()
        await expect(page.locator("h1")).to_have_text("Undone", timeout=20_000)
        await page.go_back()
        await expect(page.locator("h1")).to_have_text("back-again")
        await page.go_forward()
        await page.reload()
        await expect(page.locator("h1")).to_have_text("back-again")
    through = [one for one in writes(lab, "back-again") if "impersonatedUser" in one]
    assert ["dryRun=All" in one["requestURI"] for one in through] == [True, True, True, False], "what was clicked alone"


async def test_who_may_not_in_the_cluster_is_told_so_on_the_page(lab: World, signed_in: Signed) -> None:
    """Dave may read it there, and no more."""
    may_be_acted_for(lab, DAVE)
    allow(lab.admin, "User", DAVE, rule={"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]})
    change_id = edited(lab, "not-his")
    async with signed_in(DAVE, forgiven=REFUSED) as page:
        await page.goto(f"/changes/{change_id}")
        await page.get_by_role("button", name="Try it from here").click()
        await arrived(page, "Not undone")
        said = page.get_by_role("alert")
        await expect(said).to_contain_text("The API server refuses it (403)")
        await expect(said).to_contain_text(f'User "{DAVE}" cannot patch resource "configmaps"')
        await expect(page.get_by_role("button", name="Undo it now")).to_have_count(0)
    assert (lab.read("configmaps", "not-his") or {})["data"] == {"a": "2"}


async def test_what_another_wrote_since_is_not_written_over_unseen(lab: World, signed_in: Signed) -> None:
    change_id = edited(lab, "moved-on")
    async with signed_in(ALICE, "sre", viewport=PHONE, forgiven=REFUSED) as page:
        await page.goto(f"/changes/{change_id}")
        await page.get_by_role("button", name="Try it from here").click()
        await shows(page, "data.a", old="2", new="1")
        lab.edit("configmaps", "moved-on", {"data": {"a": "3"}})
        await page.get_by_role("button", name="Undo it now").click()
        await arrived(page, "Not undone")
        await expect(page.get_by_role("alert")).to_contain_text("It would do something else now than it showed")
        assert (lab.read("configmaps", "moved-on") or {})["data"] == {"a": "3"}

        lab.change("moved-on", 3)
        await page.get_by_role("button", name="Dry run again").click()
        await arrived(page, "This would undo it")
        await shows(page, "data.a", old="3", new="1")
        await expect(page.get_by_text("changed the same fields")).to_be_visible()
        await page.get_by_role("link", name="Leave it").click()
        await expect(page.locator("h1")).to_have_text("moved-on")
    assert (lab.read("configmaps", "moved-on") or {})["data"] == {"a": "3"}
