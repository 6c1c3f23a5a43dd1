"""Saved views: one row a name."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import delete, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.metrics.views import MOST_VIEWS, View
from app.store import audit
from app.store.audit import Action
from app.store.tables import views


class TakenError(Exception):
    """There is a view of this name; or there are too many. The message says it."""


async def list_views(conn: AsyncConnection) -> list[View]:
    """All of them, by name."""
    rows = await conn.execute(select(views.c.id, views.c.name, views.c.query).order_by(views.c.name).limit(MOST_VIEWS))
    return [View(*row) for row in rows]


async def add_view(conn: AsyncConnection, name: str, query: str, *, now: datetime) -> None:
    """A new view. Raises TakenError."""
    if (await conn.scalar(select(func.count()).select_from(views)) or 0) >= MOST_VIEWS:
        raise TakenError(f"there are {MOST_VIEWS} views: delete one that nobody needs")
    statement = insert(views).values(name=name, query=query, created_at=now).on_conflict_do_nothing()
    if (made := (await conn.execute(statement.returning(views.c.id))).scalar()) is None:
        raise TakenError(f"there is a view of the name {name!r}: choose another, or delete that one")
    await audit.note(conn, Action.VIEW_SAVED, f"{made}: {name}", now=now)


async def rename_view(conn: AsyncConnection, view_id: int, name: str, *, now: datetime) -> bool:
    """Whether there is such a view, which has this name now. Raises TakenError."""
    other = select(views.c.id).where(views.c.name == name, views.c.id != view_id)
    if (await conn.execute(other)).first() is not None:
        raise TakenError(f"there is a view of the name {name!r}: choose another")
    statement = update(views).where(views.c.id == view_id).values(name=name).returning(views.c.id)
    if (await conn.execute(statement)).scalar() is None:
        return False
    await audit.note(conn, Action.VIEW_RENAMED, f"{view_id}: {name}", now=now)
    return True


async def delete_view(conn: AsyncConnection, view_id: int, *, now: datetime) -> bool:
    """Whether there was such a view."""
    statement = delete(views).where(views.c.id == view_id).returning(views.c.name)
    if (name := (await conn.execute(statement)).scalar()) is None:
        return False
    await audit.note(conn, Action.VIEW_DELETED, f"{view_id}: {name}", now=now)
    return True
