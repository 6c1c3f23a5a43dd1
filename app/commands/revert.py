"""``foreshock revert``: how to undo a change, straight from the database; nothing is run."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncEngine

from app.commands.options import Output
from app.core.changes.revert import revert_recipe
from app.core.changes.revert_report import report
from app.failures import Exit, Expected
from app.store import timeline, undoing
from app.store.seen import read_seen
from app.web import answers
from app.web.manifests import NoManifestError, Which, read_manifest


class NoChangeError(Expected):
    """There is no change of that id."""


class NotKnownError(Expected):
    """The object's state is not known; the message says why."""

    code = Exit.UNUSABLE


async def told(engine: AsyncEngine, change_id: str, *, manifest: bool, output: Output) -> str:
    """The recipe of a change, or the object before it as YAML. Raises NoChangeError, NotKnownError."""
    async with engine.connect() as conn:
        try:
            change = await timeline.read_change(conn, change_id)
        except (ValueError, OverflowError):
            change = None
        if change is None:
            raise NoChangeError(f"there is no change {change_id!r}; the last part of its page's address is its id")
        if manifest:
            try:
                return (await read_manifest(conn, change, Which.BEFORE)).rstrip("\n")
            except NoManifestError as error:
                raise NotKnownError(str(error)) from None
        recipe = revert_recipe(change, await undoing.read_known(conn, change))
        if output is Output.JSON:
            seen = await read_seen(conn, change.resource.cluster, from_at=change.at, to_at=None)
            return answers.Revert.of(change, recipe, seen).model_dump_json(indent=2)
    return report(change, recipe).rstrip("\n")
