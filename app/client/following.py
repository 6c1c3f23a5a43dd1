"""`--follow`, of changes and of incidents: each as it comes, also after the connection was lost."""

from __future__ import annotations

import sys
import time
from typing import Any

from app.client.output import Output
from app.client.output import line as as_line
from app.client.server import BusyError, DeniedError, RefusedError, Server
from app.client.transport import UnreachableError
from app.core.changes.report import WIDTH, plain
from app.core.screen.tables import TABLES, Table, as_row, as_title
from app.core.unseen import all_not_seen

SILENT = 40.0
"""Seconds after which the connection is dead: the server says something every fifteen."""
AGAIN, LONGEST = 1.0, 30.0
"""Seconds before a connection is tried again, twice as long each time."""
_FOLLOWED = {"changes": ("change", TABLES["Changes"]), "incidents": ("incident", TABLES["Incidents"])}
"""By what is followed, the name of one in its line, and how it is a row."""


def follow(server: Server, output: Output, what: str, *, limit: int, **wanted: object) -> None:
    """Prints the newest ``limit`` of ``what``, one of _FOLLOWED, the oldest first, and then what is new, until it is
    stopped.

    Raises RefusedError where the server will not go on.
    """
    named, table = _FOLLOWED[what]
    since, pause = None, AGAIN
    several = not wanted.get("cluster")
    if output in (Output.TABLE, Output.WIDE):
        _print(as_title(table, clusters=several).rstrip())
    while True:
        unseen: list[dict[str, Any]] = []
        try:
            for line in server.lines(what, follow=1, limit=limit, since=since, silent=SILENT, **wanted):
                if problem := line.get("problem"):
                    _tell(None, unseen, table, several=several)
                    unseen = []
                    raise _ended(problem)
                since, pause = line.get("after", since), AGAIN
                if output in (Output.JSON, Output.YAML):
                    _print(as_line(line, output).removesuffix("\n"))
                elif gap := line.get("gap"):
                    unseen.append(gap)  # one of each kind: how fresh all is comes behind the last
                else:
                    _tell(line.get(named), unseen, table, several=several)
                    unseen = []
            lost = "it ended"
        except UnreachableError as error:
            lost = str(error)
        except BusyError as error:
            lost, pause = str(error), max(pause, error.retry_after)
        _tell(None, unseen, table, several=several)
        if since is None:
            raise UnreachableError(lost)
        print(f"foreshock: the connection was lost ({lost}); going on in {pause:.0f} s", file=sys.stderr)
        time.sleep(pause)
        pause = min(2 * pause, LONGEST)


def _ended(problem: dict[str, Any]) -> RefusedError:
    detail, status = str(problem.get("detail")), problem.get("status")
    if status == 503:
        return BusyError(detail, status=503)
    return DeniedError(detail, status=401) if status == 401 else RefusedError(detail, status=int(status or 0))


def _tell(one: dict[str, Any] | None, unseen: list[dict[str, Any]], table: Table, *, several: bool) -> None:
    """Prints what was not seen, of one reason at one time once, and then one row; how fresh all is, which is told every
    ten seconds, has none."""
    for said in all_not_seen(unseen, names=several):
        _print(plain(said, WIDTH).rstrip())
    if one is not None:
        _print(as_row(one, table, clusters=several).rstrip())


def _print(text: str) -> None:
    print(text, flush=True)
