"""Undoing a change in its cluster, for who asks and as who they are there: a dry run is shown, then it is done."""

from __future__ import annotations

import re
from dataclasses import dataclass

import structlog
from fastapi import APIRouter, Depends, Request
from starlette.responses import HTMLResponse

from app.core.access import Identity
from app.core.changes.hunks import hunks
from app.core.changes.recipe import Known
from app.core.changes.revert import revert_recipe
from app.core.changes.revert_write import NothingLeftError, NoWriteError, Tried, UndoError, Write, write_of
from app.core.model import Change
from app.core.objects import kinds
from app.core.roles import Role
from app.store import audit
from app.store.audit import Action
from app.store.database import UNAVAILABLE
from app.store.seen import Seen, read_seen
from app.store.undoing import read_known
from app.web import templates
from app.web.auth import Needs, has
from app.web.deps import deps_of
from app.web.incident_forms import read_form
from app.web.problems import Problem
from app.web.reading import reading
from app.web.revert_api import one_change

NAMELESS = "nobody said who you are in clusters: a token or a login link does not; an identity provider or a proxy does"
router = APIRouter(
    include_in_schema=False,
    default_response_class=HTMLResponse,
    dependencies=[Depends(Needs(Role.OPERATOR, limited=True))],
)
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Offer:
    """What a change's page says of undoing it from there: as ``who``; ``why_not`` "" where it can be. ``nothing_left``:
    that is what its recipe says, too."""

    who: str
    why_not: str
    nothing_left: bool = False


@dataclass(frozen=True, slots=True)
class _Asked:
    """A change, what is known of it, the request that undoes it, and for whom."""

    change: Change
    known: Known
    seen: Seen
    write: Write
    person: Identity
    who: Identity


def offer(request: Request, change: Change, known: Known) -> Offer | None:
    """None where nothing is said: it is not done in the cluster, or not for who asks; or the cluster knows nothing of
    it, which its recipe says, with where it is undone."""
    if not has(request, Role.OPERATOR) or not deps_of(request).reverts.is_offered(change.resource.cluster):
        return None
    if kinds.told_by(change.resource.api_group):
        return None
    try:
        _, who = _whose(request, change)
        write_of(change, known)
    except (UndoError, NoWriteError) as error:
        return Offer("", str(error), nothing_left=isinstance(error, NothingLeftError))
    return Offer(who.name, "")


@router.post("/changes/{change_id}/dry-run")
async def try_it(request: Request, change_id: str) -> HTMLResponse:
    """Shows what the API server would do, and asks whether it shall."""
    asked = await _read(request, change_id)
    try:
        tried = await deps_of(request).reverts.attempt(asked.write, asked.person, seen=None)
    except UndoError as error:
        return await _failed(request, asked, error)
    await _note(request, asked, Action.REVERT_TRIED)
    return _page(request, asked, tried=tried)


@router.post("/changes/{change_id}/undo")
async def do_it(request: Request, change_id: str) -> HTMLResponse:
    """Does what a dry run showed, if it still would. That it is begun is noted before."""
    seen = (await read_form(request)).get("seen", "")
    if not re.fullmatch("[0-9a-f]{64}", seen):
        raise Problem(422, "seen: this is no form of ours; begin with the dry run", "seen")
    asked = await _read(request, change_id)
    await _note(request, asked, Action.REVERT_BEGUN)
    try:
        tried = await deps_of(request).reverts.attempt(asked.write, asked.person, seen=seen)
    except UndoError as error:
        return await _failed(request, asked, error)
    otherwise = tried.seen != seen
    why = "otherwise than the dry run showed" if otherwise else ""
    noted = await _note_end(request, asked, Action.REVERT_DONE, why=why)
    return _page(request, asked, tried=tried, done=True, otherwise=otherwise, noted=noted)


async def _read(request: Request, change_id: str) -> _Asked:
    """Raises Problem 404 for a change that is not there for who asks, 403 for who is nobody in its cluster, 409 where
    no request undoes it."""
    async with reading(request) as conn:
        change = await one_change(conn, change_id)
        known = await read_known(conn, change)
        seen = await read_seen(conn, change.resource.cluster, from_at=change.at, to_at=None)
    try:
        person, who = _whose(request, change)
    except UndoError as error:
        raise Problem(403, str(error)) from None
    try:
        write = write_of(change, known)
    except NoWriteError as error:
        raise Problem(409, f"no single request undoes it: {error}") from None
    return _Asked(change, known, seen, write, person, who)


def _whose(request: Request, change: Change) -> tuple[Identity, Identity]:
    """Who asks, and who that is in the change's cluster. Raises UndoError."""
    person: Identity | None = request.state.identity
    if person is None:
        raise UndoError(NAMELESS)
    return person, deps_of(request).reverts.known_as(change.resource.cluster, person)


async def _failed(request: Request, asked: _Asked, error: UndoError) -> HTMLResponse:
    log.warning("a change was not undone", change=asked.change.id, why=str(error), unsure=error.unsure)
    noted = await _note_end(request, asked, Action.REVERT_FAILED, why=str(error))
    return _page(request, asked, error=error, noted=noted)


async def _note(request: Request, asked: _Asked, action: Action, why: str = "") -> None:
    about = f"{asked.change.id} in {asked.change.resource.cluster}, as {asked.who.name}: {asked.write.words}"
    async with deps_of(request).write.begin() as conn:
        await audit.note(conn, action, f"{about}: {why}" if why else about, now=deps_of(request).clock())


async def _note_end(request: Request, asked: _Asked, action: Action, why: str) -> bool:
    """Notes how it ended. What became of it is told also while the database is away, and nobody does it again for want
    of an answer; False: it is not noted, and the log has it."""
    try:
        await _note(request, asked, action, why)
    except UNAVAILABLE as error:
        log.error("not in the audit log", action=action, change=asked.change.id, who=asked.who.name, why=str(error))  # noqa: TRY400
        return False
    return True


def _page(
    request: Request,
    asked: _Asked,
    *,
    tried: Tried | None = None,
    done: bool = False,
    otherwise: bool = False,
    error: UndoError | None = None,
    noted: bool = True,
) -> HTMLResponse:
    recipe = revert_recipe(asked.change, asked.known)
    return templates.page(
        "undo.html",
        200 if error is None else 502 if error.unsure else 409,
        change=asked.change,
        words=asked.write.words,
        who=asked.who,
        tried=tried,
        hunks=hunks(tried.diffs) if tried else (),
        done=done,
        otherwise=otherwise,
        detail="" if error is None else str(error),
        unsure=error is not None and error.unsure,
        noted=noted,
        recipe=recipe,
        seen=asked.seen,
        now=deps_of(request).clock(),
    )
