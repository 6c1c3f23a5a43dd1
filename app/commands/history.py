"""``foreshock history``: what a cluster remembers of its own past, recorded and printed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from sqlalchemy.ext.asyncio import AsyncEngine

from app.collect.contexts import ContextsError, WantedCluster, usual
from app.collect.history import Report, rebuild
from app.commands.options import Output, cluster_to_write
from app.core.report import remembered
from app.failures import Exit
from app.web import shapes


def wanted(kubeconfigs: Sequence[Path], context: str | None, name: str | None) -> WantedCluster:
    """The cluster of a context, else the one that kubectl would talk to, else the one that this process runs in.

    Raises ContextsError.
    """
    paths = ":".join(map(str, kubeconfigs))
    if context:
        return WantedCluster(name or cluster_to_write(context.rpartition("/")[2]), paths, context)
    found = next(iter(usual(kubeconfigs)), None)
    if found is None:
        raise ContextsError(f"{paths}: no kubeconfig with a current context: see --kubeconfig and --context")
    return WantedCluster(name or found.name, found.kubeconfig, found.context)


async def told(engine: AsyncEngine, cluster: WantedCluster, *, since: datetime, now: datetime) -> Report:
    """Rebuild the past of a cluster. Raises as collect.history.rebuild and WantedCluster.connect do."""
    api = await cluster.connect()
    try:
        return await rebuild(engine, api, cluster.name, since=since, now=now)
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
