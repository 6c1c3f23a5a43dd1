"""``foreshock incident``: incidents by hand, straight in the database, without a server."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from pydantic import TypeAdapter, ValidationError
from sqlalchemy.ext.asyncio import AsyncEngine

from app.commands.options import Output
from app.core.findings import Incident, Said
from app.core.incidents.hands import CannotError
from app.core.phrases import refusal
from app.correlate import ByHand
from app.failures import Expected
from app.store import incidents
from app.store.seen import read_seen
from app.web import answers, shapes
from app.web.asked_incidents import IncidentToOpen
from app.web.idempotency import OPENED, IdempotencyKey, key_of

WHO = "the command line"
MOST = 100
_KEY: TypeAdapter[dict[str, str | None]] = TypeAdapter(dict[str, IdempotencyKey])


class RefusedError(Expected):
    """What is asked of an incident cannot be; the message says why."""


async def opened(engine: AsyncEngine, told: Mapping[str, object], *, key: str | None, now: datetime) -> str:
    """Opens an incident, once for each ``key``, which REST knows too (None: each time); its id. Raises RefusedError."""
    try:
        asked = IncidentToOpen.model_validate(told)
        digest = key_of(_KEY.validate_python({"key": key})["key"], asked.cluster, OPENED)
        found, _ = await ByHand(engine).open(asked.cluster, asked.said(), by=WHO, key=digest, now=now)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(step) for step in first["loc"])
        raise RefusedError(f"{field}: {refusal(first['msg'])}") from None
    except CannotError as error:
        raise RefusedError(f"{error.field}: {error}") from None
    return found.id


async def set_status(engine: AsyncEngine, incident_id: str, status: str, *, now: datetime) -> str:
    """Resolves an incident or opens it again; a line that says so. Raises RefusedError."""
    try:
        found = await ByHand(engine).amend(incident_id, Said(status=status), now=now)
    except CannotError as error:
        raise RefusedError(str(error)) from None
    except LookupError:
        raise RefusedError(f"there is no incident {incident_id}") from None
    return f"{found.id} is {found.status}: {found.title}"


async def listed(engine: AsyncEngine, *, cluster: str | None, status: str | None, output: Output) -> str:
    """The newest incidents, as a table or as REST's answer. Raises UnknownClusterError."""
    async with engine.connect() as conn:
        found = await incidents.list_incidents(conn, cluster=cluster, status=status, limit=MOST)
        first = await incidents.first_suspects(conn, [one.id for one in found])
        seen = await read_seen(conn, cluster, from_at=min((one.started_at for one in found), default=None), to_at=None)
    if output is Output.JSON:
        items = [shapes.Incident.of(one, first.get(one.id)) for one in found]
        return answers.Incidents(items=items, next=None, **answers.context(seen)).model_dump_json(indent=2)
    if not found:
        return "no incident"
    return "\n".join([_row("ID", "BEGAN (UTC)", "STATUS", cluster="CLUSTER", title="TITLE"), *map(_line, found)])


def _line(one: Incident) -> str:
    began = f"{one.started_at:%Y-%m-%d %H:%M:%S}"
    return _row(one.id, began, one.status, cluster=one.cluster, title=one.title)


def _row(incident_id: str, began: str, status: str, *, cluster: str, title: str) -> str:
    return f"{incident_id:<12}  {began:<19}  {status:<9}  {cluster:<16}  {title}"
