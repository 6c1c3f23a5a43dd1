"""Undoing a change from its page: for whom it is offered, what is shown, and what is noted. What an API server makes of
it is in tests/cluster/test_undoing.py."""

from __future__ import annotations

import re
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import cast

import httpx2
import pytest
from fastapi import FastAPI
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from app.core.access import Identity
from app.core.changes.revert_write import Tried, UndoError, Write
from app.core.model import Batch, FieldDiff, Object, ObjectState
from app.core.objects.diff import diff
from app.core.roles import Role, Scope
from app.store import audit, tokens
from app.store.audit import Action, Wanted
from app.store.record import record
from app.store.tokens import Purpose
from app.web import guard
from app.web.routes import create_app
from tests.web import world
from tests.web.conftest import HOST, NOW, UNLIMITED, Site, deps

ALL = '<img src=x onerror=alert(1)>"{{7*7}}'
OLD: Object = {"metadata": {"name": "limits", "namespace": "growth"}, "data": {"most": "10", "text": ALL}}
NEW: Object = {**OLD, "data": {"most": "99", "text": "short"}}
CHANGE = world.a_change(
    "limits", at=world.START, kind="ConfigMap", api_group="", namespace="growth", diffs=diff(OLD, NEW), version="7"
)
GROUPS = ("sre", "<b>staff")
SEEN = "5" * 64
OURS = {"Sec-Fetch-Site": "same-origin"}
"""What a browser says of a page's own form."""


@dataclass
class Server:
    """A database that goes away."""

    now: AsyncEngine

    def begin(self) -> AbstractAsyncContextManager[AsyncConnection]:
        return self.now.begin()


@dataclass
class Cluster:
    """What undoes, as it was asked; ``fails`` is what it says instead."""

    asked: list[tuple[Write, Identity, str | None]] = field(default_factory=list)
    fails: UndoError | None = None
    offered: bool = True
    alters: tuple[FieldDiff, ...] = diff(NEW, OLD)
    seen: str = SEEN
    stays: str = ""

    def is_offered(self, cluster: str) -> bool:
        return self.offered and cluster == world.CLUSTER

    def known_as(self, cluster: str, person: Identity) -> Identity:
        assert cluster == world.CLUSTER
        return Identity(f"oidc:{person.name}", person.groups)

    async def attempt(self, write: Write, person: Identity, *, seen: str | None) -> Tried:
        self.asked.append((write, person, seen))
        if self.fails:
            raise self.fails
        return Tried(self.known_as(write.resource.cluster, person), self.alters, self.seen, self.stays)


@pytest.fixture(scope="module", autouse=True)
async def _limits(site: Site) -> None:
    last = ObjectState(CHANGE.resource, CHANGE.uid, "7", CHANGE.at, NEW)
    async with site.database.write.begin() as conn:
        await record(conn, Batch(world.CLUSTER, changes=(CHANGE,), objects=(last,)))


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def app(site: Site, cluster: Cluster) -> FastAPI:
    return create_app(replace(deps(site.database), reverts=cluster, scoped=site.database.scoped), limits=UNLIMITED)


async def browser(
    app: FastAPI,
    site: Site,
    role: Role = Role.OPERATOR,
    *,
    groups: tuple[str, ...] | None = GROUPS,
    scope: Scope | None = None,
) -> httpx2.AsyncClient:
    """Somebody who signed in at a provider; without ``groups`` by a link."""
    async with site.database.write.begin() as conn:
        session = await tokens.create(
            conn, role, purpose=Purpose.SESSION, now=NOW, note="alice@example.com", groups=groups, scope=scope
        )
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    return httpx2.AsyncClient(transport=transport, base_url=HOST, cookies={guard.COOKIE: session}, headers=OURS)


async def noted(site: Site) -> list[tuple[str, str, str]]:
    async with site.database.read.connect() as conn:
        found = await audit.read(conn, Wanted(who="alice@example.com"), before=None, limit=10)
    return [(one.action, one.who, one.about) for one in found if one.action.startswith("revert ")]


async def test_what_would_be_done_is_shown_and_then_done(app: FastAPI, site: Site, cluster: Cluster) -> None:
    async with await browser(app, site) as alice:
        page = (await alice.get(f"/changes/{CHANGE.id}")).text
        assert f'action="/changes/{CHANGE.id}/dry-run"' in page
        assert "a dry run, as oidc:alice@example.com" in page
        tried = await alice.post(f"/changes/{CHANGE.id}/dry-run")
        assert tried.status_code == 200
        assert "<del>99</del><ins>10</ins>" in tried.text
        assert "in sre, &lt;b&gt;staff" in tried.text
        assert f'data-at="/changes/{CHANGE.id}"' in tried.text, "a browser has no form to send again"
        assert ALL not in tried.text
        assert f'name="seen" value="{SEEN}"' in tried.text
        done = await alice.post(f"/changes/{CHANGE.id}/undo", data={"seen": SEEN})
        assert done.status_code == 200
        assert "<title>Undone: " in done.text
    (write, person, first), (again, _, second) = cluster.asked
    assert (write.words, write.patch, write.uid) == ("patch configmaps/limits -n growth", "merge", CHANGE.uid)
    assert write == again
    assert (first, second) == (None, SEEN)
    assert person == Identity("alice@example.com", GROUPS)
    about = f"{CHANGE.id} in {world.CLUSTER}, as oidc:alice@example.com: patch configmaps/limits -n growth"
    assert await noted(site) == [
        (action, "alice@example.com", about)
        for action in (Action.REVERT_DONE, Action.REVERT_BEGUN, Action.REVERT_TRIED)
    ]


async def test_what_was_done_otherwise_than_shown_is_told_and_noted(app: FastAPI, site: Site, cluster: Cluster) -> None:
    cluster.seen = "6" * 64
    async with await browser(app, site) as alice:
        done = await alice.post(f"/changes/{CHANGE.id}/undo", data={"seen": SEEN})
    assert "It did something else than its dry run had shown" in done.text
    assert (await noted(site))[0][2].endswith(": otherwise than the dry run showed")


async def test_a_deletion_that_is_only_begun_is_not_told_as_done(app: FastAPI, site: Site, cluster: Cluster) -> None:
    cluster.stays = "its finalizers are taken away: <b>held"
    async with await browser(app, site) as alice:
        tried = await alice.post(f"/changes/{CHANGE.id}/dry-run")
        assert "The object would stay until its finalizers are taken away: &lt;b&gt;held." in tried.text
        done = await alice.post(f"/changes/{CHANGE.id}/undo", data={"seen": SEEN})
    assert "Its deletion has begun</h1>" in done.text
    assert "The object stays until its finalizers are taken away: &lt;b&gt;held." in done.text


async def test_that_it_is_begun_is_noted_before_it_is(app: FastAPI, site: Site, cluster: Cluster) -> None:
    before: list[str] = []

    async def attempt(write: Write, person: Identity, *, seen: str | None) -> Tried:
        before.extend(action for action, _, _ in await noted(site))
        raise UndoError(f"nobody answered {person.name} of {write.words}, {seen}", unsure=True)

    cluster.attempt = attempt  # type: ignore[method-assign]
    async with await browser(app, site) as alice:
        answer = await alice.post(f"/changes/{CHANGE.id}/undo", data={"seen": SEEN})
    assert answer.status_code == 502
    assert "Perhaps undone" in answer.text
    assert before[0] == Action.REVERT_BEGUN
    assert (await noted(site))[0][0] == Action.REVERT_FAILED


@pytest.mark.parametrize(
    ("fails", "status", "heading"),
    [
        (None, 200, "Undone</h1>"),
        (UndoError("it may have been done or not", unsure=True), 502, "Perhaps undone</h1>"),
        (UndoError("the API server refuses it (403): no"), 409, "Not undone</h1>"),
    ],
)
async def test_how_it_ended_is_told_also_where_the_database_went_away_meanwhile(
    site: Site, cluster: Cluster, fails: UndoError | None, status: int, heading: str
) -> None:
    """Whoever reads "try again" does it again."""
    writes = Server(site.database.write)
    attempts = cluster.attempt

    async def attempt(write: Write, person: Identity, *, seen: str | None) -> Tried:
        writes.now = create_async_engine("postgresql+psycopg://nobody@127.0.0.1:1/none")
        return await attempts(write, person, seen=seen)

    cluster.fails, cluster.attempt = fails, attempt  # type: ignore[method-assign]
    app = create_app(replace(deps(site.database), reverts=cluster, write=cast("AsyncEngine", writes)), limits=UNLIMITED)
    async with await browser(app, site) as alice:
        answer = await alice.post(f"/changes/{CHANGE.id}/undo", data={"seen": SEEN})
    assert answer.status_code == status
    assert heading in answer.text
    assert "How it ended is not in the audit log" in answer.text
    assert len(cluster.asked) == 1
    assert (await noted(site))[0][0] == Action.REVERT_BEGUN


async def test_what_fails_is_told_and_can_be_tried_again(app: FastAPI, site: Site, cluster: Cluster) -> None:
    cluster.fails = UndoError("the API server refuses it (403): <b>no</b>")
    async with await browser(app, site) as alice:
        for path, form in (("dry-run", {}), ("undo", {"seen": SEEN})):
            answer = await alice.post(f"/changes/{CHANGE.id}/{path}", data=form)
            assert answer.status_code == 409
            assert "The API server refuses it (403): &lt;b&gt;no&lt;/b&gt;." in answer.text
            assert "Dry run again" in answer.text
            assert 'name="seen"' not in answer.text


async def test_where_nothing_would_change_nothing_is_asked_for(app: FastAPI, site: Site, cluster: Cluster) -> None:
    cluster.alters = ()
    async with await browser(app, site) as alice:
        answer = await alice.post(f"/changes/{CHANGE.id}/dry-run")
    assert "Nothing to undo" in answer.text
    assert 'name="seen"' not in answer.text


async def test_what_is_to_be_done_stands_in_the_order_in_which_it_is(
    app: FastAPI, site: Site, cluster: Cluster
) -> None:
    flux = "kustomize.toolkit.fluxcd.io"
    labels: Object = {f"{flux}/name": "apps", f"{flux}/namespace": "flux-system"}
    change = world.a_change("of-flux", at=world.START, kind="ConfigMap", api_group="", version="7", diffs=CHANGE.diffs)
    last = ObjectState(change.resource, change.uid, "7", change.at, {**NEW, "metadata": {"labels": labels}})
    async with site.database.write.begin() as conn:
        await record(conn, Batch(world.CLUSTER, changes=(change,), objects=(last,)))
    async with await browser(app, site) as alice:
        tried = (await alice.post(f"/changes/{change.id}/dry-run")).text
        done = (await alice.post(f"/changes/{change.id}/undo", data={"seen": SEEN})).text
        cluster.alters = ()
        nothing = (await alice.post(f"/changes/{change.id}/dry-run")).text
        cluster.fails = UndoError("no")
        refused = (await alice.post(f"/changes/{change.id}/dry-run")).text
    articles = [page.split("<article")[1].split("</article>")[0] for page in (tried, done, nothing, refused)]
    assert [re.findall("<h2>([^<]+)", article) for article in articles] == [
        ["What it would change", "First, by hand ", "What to mind", "Undo it", "Afterwards, by hand"],
        ["What it changed", "What to mind", "Afterwards, by hand"],
        [],
        ["First, by hand ", "What to mind"],
    ]


@pytest.mark.parametrize("form", [{}, {"seen": ""}, {"seen": "5" * 63}, {"seen": "G" * 64}])
async def test_nothing_is_done_that_was_not_shown(
    app: FastAPI, site: Site, cluster: Cluster, form: dict[str, str]
) -> None:
    async with await browser(app, site) as alice:
        assert (await alice.post(f"/changes/{CHANGE.id}/undo", data=form)).status_code == 422
    assert cluster.asked == []


@pytest.mark.parametrize(
    ("role", "groups", "offered", "said"),
    [
        (Role.RESPONDER, GROUPS, True, ""),
        (Role.OPERATOR, GROUPS, False, ""),
        (Role.OPERATOR, None, True, "nobody said who you are in clusters"),
        (Role.ADMIN, None, True, "nobody said who you are in clusters"),
    ],
)
async def test_it_is_for_operators_with_a_name_where_it_is_set_up(
    app: FastAPI, site: Site, cluster: Cluster, role: Role, groups: tuple[str, ...] | None, offered: bool, said: str
) -> None:
    cluster.offered = offered
    async with await browser(app, site, role, groups=groups) as somebody:
        page = (await somebody.get(f"/changes/{CHANGE.id}")).text
        assert "/dry-run" not in page
        assert ("It cannot be undone from here" in page) == bool(said)
        assert said in page
        if offered:
            assert (await somebody.post(f"/changes/{CHANGE.id}/dry-run")).status_code == 403
            assert (await somebody.post(f"/changes/{CHANGE.id}/undo", data={"seen": SEEN})).status_code == 403
            assert cluster.asked == []


async def test_who_is_limited_undoes_what_they_reach(app: FastAPI, site: Site, cluster: Cluster) -> None:
    for namespace, status in (("growth", 200), ("payments", 404)):
        limited = Scope.parse([f"{world.CLUSTER}/{namespace}"])
        async with await browser(app, site, scope=limited) as somebody:
            assert (await somebody.post(f"/changes/{CHANGE.id}/dry-run")).status_code == status
    assert len(cluster.asked) == 1


@pytest.mark.parametrize(
    ("role", "said"),
    [
        (Role.OPERATOR, "It cannot be undone from here: the values before are there again: nothing is left to undo."),
        (Role.VIEWER, "The values before are there again: nothing is left to undo."),
    ],
)
async def test_that_nothing_is_left_to_undo_is_said_once(app: FastAPI, site: Site, role: Role, said: str) -> None:
    name = f"undone-{role}"
    change = world.a_change(
        name, at=world.START, kind="ConfigMap", api_group="", namespace="growth", diffs=CHANGE.diffs, version="7"
    )
    last = ObjectState(change.resource, change.uid, "8", change.at, OLD)
    async with site.database.write.begin() as conn:
        await record(conn, Batch(world.CLUSTER, changes=(change,), objects=(last,)))
    async with await browser(app, site, role) as somebody:
        page = (await somebody.get(f"/changes/{change.id}")).text
    assert page.count("nothing is left to undo") == 1
    assert f'<p class="mind">{said}' in page
    assert "/dry-run" not in page


@pytest.mark.parametrize("groups", [GROUPS, None])
async def test_that_kubernetes_does_not_know_it_is_said_once(
    app: FastAPI, site: Site, cluster: Cluster, groups: tuple[str, ...] | None
) -> None:
    change = world.a_change(
        "new-checkout", at=world.START, kind="feature flag", api_group="external:launchdarkly", diffs=CHANGE.diffs
    )
    async with site.database.write.begin() as conn:
        await record(conn, Batch(world.CLUSTER, changes=(change,)))
    async with await browser(app, site, groups=groups) as alice:
        page = (await alice.get(f"/changes/{change.id}")).text
        assert "Kubernetes does not know it: undo it where it was made, in launchdarkly." in page
        assert "It cannot be undone from here" not in page
        assert "/dry-run" not in page
        if groups:
            refused = await alice.post(f"/changes/{change.id}/dry-run")
            assert refused.status_code == 409
            assert "Kubernetes does not know it: it is undone where it was made, in launchdarkly" in refused.text
    assert cluster.asked == []


async def test_what_no_request_undoes_is_told_why(app: FastAPI, site: Site, cluster: Cluster) -> None:
    async with await browser(app, site) as alice:
        nowhere = await alice.post(f"/changes/{'0' * 28}/dry-run")
        assert nowhere.status_code == 404
        bare = world.a_change("empty", at=world.START, namespace="growth", version="9", diffs=())
        async with site.database.write.begin() as conn:
            await record(conn, Batch(world.CLUSTER, changes=(bare,)))
        answer = await alice.post(f"/changes/{bare.id}/dry-run")
        assert answer.status_code == 409
        assert "the values before it were not recorded" in answer.text
        assert "the values before it were not recorded" in (await alice.get(f"/changes/{bare.id}")).text
    assert cluster.asked == []
