"""Saved views: one row a name."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import delete, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.metrics.views import MOST_VIEWS, View
from app.store import audit
from app.store.audit import Action
from app.store.tables import views


class TakenError(Exception):
    """There is a view of this name, in whatever case; or there are too many. The message says it."""


async def list_views(conn: AsyncConnection) -> list[View]:
    """All of them, by name."""
    rows = await conn.execute(select(views.c.id, views.c.name, views.c.query).order_by(views.c.name).limit(MOST_VIEWS))
    return [View(*row) for row in rows]


async def add_view(conn: AsyncConnection, name: str, query: str, *, now: datetime) -> None:
    """A new view. Raises TakenError."""
    others = await _others(conn)
    if len(others) >= MOST_VIEWS:
        raise TakenError(f"there are {MOST_VIEWS} views: delete one that nobody needs")
    if taken := _called(others, name):
        raise TakenError(f"there is a view of the name {taken.name!r}: choose another, or delete that one")
    statement = insert(views).values(name=name, query=query, created_at=now).returning(views.c.id)
    made = (await conn.execute(statement)).scalar_one()
    await audit.note(conn, Action.VIEW_SAVED, f"{made}: {name}", now=now)


async def rename_view(conn: AsyncConnection, view_id: int, name: str, *, now: datetime) -> bool:
    """Whether there is such a view, which has this name now. Raises TakenError."""
    there = await _others(conn)
    if view_id not in {view.id for view in there}:
        return False
    if taken := _called([view for view in there if view.id != view_id], name):
        raise TakenError(f"there is a view of the name {taken.name!r}: choose another")
    await conn.execute(update(views).where(views.c.id == view_id).values(name=name))
    await audit.note(conn, Action.VIEW_RENAMED, f"{view_id}: {name}", now=now)
    return True


async def delete_view(conn: AsyncConnection, view_id: int, *, now: datetime) -> bool:
    """Whether there was such a view."""
    statement = delete(views).where(views.c.id == view_id).returning(views.c.name)
    if (name := (await conn.execute(statement)).scalar()) is None:
        return False
    await audit.note(conn, Action.VIEW_DELETED, f"{view_id}: {name}", now=now)
    return True


async def _others(conn: AsyncConnection) -> list[View]:
    """All of them, of which none is made or renamed by anybody else until this transaction ends."""
    await conn.execute(text("LOCK TABLE views IN SHARE ROW EXCLUSIVE MODE"))  # who reads does not wait for it
    return await list_views(conn)


def _called(others: list[View], name: str) -> View | None:
    """The one that a person would take for a view of this name: case tells no two apart, in any language."""
    return next((view for view in others if view.name.casefold() == name.casefold()), None)
