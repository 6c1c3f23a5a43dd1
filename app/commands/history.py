"""``foreshock history``: what a cluster remembers of its own past, recorded and printed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from sqlalchemy.ext.asyncio import AsyncEngine

from app.collect.contexts import ContextsError, WantedCluster
from app.collect.history import Report, rebuild
from app.commands.options import Output, cluster_to_write
from app.core.changes.report import remembered
from app.failures import Exit
from app.web import shapes


def of_context(kubeconfigs: Sequence[Path], context: str) -> WantedCluster:
    """The cluster of a context, called after it."""
    return WantedCluster(cluster_to_write(context.rpartition("/")[2]), ":".join(map(str, kubeconfigs)), context)


def chosen(found: Sequence[WantedCluster], name: str | None) -> WantedCluster:
    """The one that is called ``name``; the only one is called so from now on. Raises ContextsError."""
    if not found:
        raise ContextsError("no kubeconfig with a current context: see --kubeconfig and --context")
    named = [one for one in found if one.name == name]
    if named or len(found) == 1:
        one = (named or found)[0]
        return WantedCluster(name or one.name, one.kubeconfig, one.context, one.add, one.exclude)
    raise ContextsError(f"there are several clusters: --cluster names one of {', '.join(one.name for one in found)}")


async def told(engine: AsyncEngine, cluster: WantedCluster, *, since: datetime, now: datetime) -> Report:
    """Rebuild the past of a cluster. Raises as collect.history.rebuild and WantedCluster.connect do."""
    api = await cluster.connect()
    try:
        return await rebuild(engine, api, cluster, since=since, now=now)
    finally:
        await api.close()


def printed(report: Report, output: Output, *, since: datetime, now: datetime) -> str:
    """What the command prints."""
    if output is Output.JSON:
        items = [shapes.Change.of(change) for change in reversed(report.found)]
        found = shapes.Remembered(cluster=report.cluster, items=items, new=report.new, unread=list(report.unread))
        return found.model_dump_json(indent=2)
    table = remembered(list(reversed(report.found)), cluster=report.cluster, from_at=since, to_at=now, new=report.new)
    return table + "\n".join([f"not read: {line}" for line in report.unread])


def exit_code(report: Report) -> Exit:
    """UNUSABLE where nothing at all could be read."""
    return Exit.UNUSABLE if report.unread and not report.objects else Exit.DONE
