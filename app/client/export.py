"""`foreshock export`: all of a stretch of time, one after the other, for a postmortem or for another program."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import IO, Any

from app.client.output import Output, line
from app.client.server import PAGE, Server
from app.core.phrases import many
from app.failures import Exit, Expected

MOST_GAPS = 100
"""Gaps that one answer holds at most."""
SLICE, SLOT = timedelta(minutes=5), timedelta(seconds=5)
"""Calls are asked for by so much at a time, and are counted in slots of so much."""
BY = "user,pod,user_agent,verb,resource,namespace,code,list_class,waited_for"
"""All that calls can be told apart by."""
STATUSES = ("suspected", "open", "resolved", "merged", "open")
"""In the order in which an incident takes them, so that none goes by from a list that was not read yet to one that was;
in the end those that opened again."""
Item = dict[str, Any]


class Exported(StrEnum):
    """What can be exported."""

    CHANGES = "changes"
    INCIDENTS = "incidents"
    CALLS = "calls"


class IncompleteError(Expected):
    """There is more than can be told; the message says of what. Nothing was written to the file."""

    code = Exit.UNUSABLE


class NoFileError(Expected):
    """The file cannot be written; the message says why."""

    code = Exit.NOT_WRITTEN


class NotForError(Expected):
    """An option that means nothing for what is exported: a filter that is ignored would answer another question."""


def export(
    server: Server,
    what: Exported,
    from_at: str,
    to_at: str,
    *,
    file: str,
    output: Output,
    namespace: str | None,
    cluster: str | None,
) -> None:
    """Writes everything of [from_at, to_at) to ``file`` ("-": standard output), as JSON or YAML, and says on stderr how
    much that is.

    The last one holds ``from``, ``to``, ``freshness`` and all ``gaps`` of that time. Raises NotForError, NoFileError,
    IncompleteError and what Server raises.
    """
    if output not in (Output.JSON, Output.YAML):
        instead = {Exported.INCIDENTS: "incident list", Exported.CALLS: "who-calls"}.get(what, "changes")
        raise NotForError(f"--output: an export is for programs, json or yaml; `foreshock {instead}` prints tables")
    if namespace and what is not Exported.CHANGES:
        raise NotForError(f"--namespace: {what} are of a whole cluster")
    window = {"cluster": cluster, "from_": from_at, "to": to_at}
    count = 0
    with _into(file) as out:
        match what:
            case Exported.CHANGES:
                items = _changes(server, namespace, window)
            case Exported.INCIDENTS:
                items = _incidents(server, cluster, from_at, to_at)
            case Exported.CALLS:
                items = _calls(server, server.only_cluster(cluster), *map(datetime.fromisoformat, (from_at, to_at)))
        for item in items:
            out.write(line(item, output))
            count += 1
        gaps, freshness = _gaps(server, window)
        out.write(line({"from": from_at, "to": to_at, "freshness": freshness, "gaps": gaps}, output))
    _summary(what, count, file, freshness, gaps)


def _changes(server: Server, namespace: str | None, window: Item) -> Iterator[Item]:
    """The newest first, with what controllers wrote because of another."""
    for page in server.pages("changes", derived="shown", namespace=namespace, **window):
        yield from page["items"]


def _incidents(server: Server, cluster: str | None, from_at: str, to_at: str) -> Iterator[Item]:
    """Those that began in that time, the newest first, however they stand, each with its ``suspects``."""
    begin, end = datetime.fromisoformat(from_at), datetime.fromisoformat(to_at)
    found: dict[str, Item] = {}  # one that ends meanwhile is told once, as it stood last
    for status in STATUSES:
        for page in server.pages("incidents", cluster=cluster, status=status):
            found |= {
                one["id"]: one for one in page["items"] if begin <= datetime.fromisoformat(one["started_at"]) < end
            }
            if any(datetime.fromisoformat(one["started_at"]) < begin for one in page["items"]):
                break
    for one in sorted(found.values(), key=lambda one: str(one["started_at"]), reverse=True):
        # A list has the first few alerts; an older server's had all, and no count.
        is_cut = one.get("alert_count", 0) > len(one.get("alerts", ()))
        whole = server.json("incidents", one["id"])["incident"] if is_cut else one
        yield {**whole, "suspects": server.json("incidents", one["id"], "suspects")["items"]}


def _calls(server: Server, cluster: str, begin: datetime, end: datetime) -> Iterator[Item]:
    """Each kind of call in each slice of time, the oldest slice first, with its ``from`` and ``to``: whole slots, as
    they are counted."""
    begin, end = _slot(begin), _slot(end + SLOT - timedelta(microseconds=1))
    while begin < end:
        until = min(begin + SLICE, end)
        yield from _slice(server, cluster, begin, until)
        begin = until


def _slot(at: datetime) -> datetime:
    """The beginning of the slot that a time is in."""
    return at - timedelta(seconds=at.timestamp() % SLOT.total_seconds())


def _slice(server: Server, cluster: str, begin: datetime, end: datetime) -> Iterator[Item]:
    """One slice; where an answer has no room for all of it, its halves."""
    minus = end - begin
    asked = {"cluster": cluster, "at": end.isoformat(), "minus": f"PT{minus.total_seconds():.0f}S", "by": BY}
    found = server.json("calls", limit=PAGE, **asked)["items"]
    if len(found) < PAGE:
        for one in found:
            if one["count"]:  # those of the time before alone are another slice's
                yield {**one, "from": begin.isoformat(), "to": end.isoformat()}
    elif minus <= SLOT:
        raise IncompleteError(
            f"there are more than {PAGE} kinds of calls within {SLOT.seconds} s of {begin.isoformat()}"
        )
    else:
        half = begin + max(minus / 2 // SLOT, 1) * SLOT
        yield from _slice(server, cluster, begin, half)
        yield from _slice(server, cluster, half, end)


def _gaps(server: Server, window: Item) -> tuple[list[Item], list[Item]]:
    """All gaps of a time, oldest first, and how fresh the record is: an answer holds the newest hundred alone, and
    beside them what is not seen right now, since whenever."""
    begin = since = datetime.fromisoformat(window["from_"])
    until, found = window["to"], dict[tuple[str, str, str], Item]()
    while True:
        answer = server.json("gaps", **{**window, "from_": since.isoformat(), "to": until})
        new = {(gap["cluster"], gap["kind"], gap["from_at"]): gap for gap in answer["items"]}
        is_last = len(new) < MOST_GAPS or new.keys() <= found.keys()
        found |= new
        if is_last:
            touching = [gap for gap in found.values() if datetime.fromisoformat(gap["to_at"]) > begin]
            return sorted(touching, key=lambda gap: datetime.fromisoformat(gap["from_at"])), answer["freshness"]
        begun = sorted((datetime.fromisoformat(gap["from_at"]) for gap in new.values()), reverse=True)
        told_of = begun[MOST_GAPS - 1]  # of the record no younger one is left out
        since, until = min(since, told_of), (told_of + timedelta(microseconds=1)).isoformat()


@contextmanager
def _into(file: str) -> Iterator[IO[str]]:
    """Standard output, or a file that is there once it is whole, for who writes it alone: it shows a cluster.

    What is there and no file (a pipe, /dev/null) is written to, and never replaced: root could. A link stays one.
    """
    if file == "-":
        yield sys.stdout
        return
    path = Path(file)
    try:
        if path.exists() and not path.is_file():
            with path.open("w", encoding="utf-8") as out:
                yield out
            return
        path = path.resolve()
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, prefix=f".{path.name}.", encoding="utf-8", delete=False
        ) as out:
            try:
                yield out
                out.flush()
                os.fsync(out.fileno())
                Path(out.name).replace(path)
            except BaseException:
                Path(out.name).unlink()
                raise
    except OSError as error:
        raise NoFileError(f"--file {file} cannot be written: {error.strerror}") from None


def _summary(what: Exported, count: int, file: str, freshness: list[Item], gaps: list[Item]) -> None:
    lines = [f"{many(count, 'line')} of {what.value}{'' if file == '-' else f' in {file}'}"]
    lines += [f"recorded up to {one['at'] or 'no time yet'}: {one['cluster']}" for one in freshness]
    if gaps:
        lines.append(f"not seen: {len(gaps)} interval{'' if len(gaps) == 1 else 's'} of it, as the last line says")
    print("\n".join(lines), file=sys.stderr)
