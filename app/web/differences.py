"""The difference between an object at two times, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from app.core.changes.hunks import hunks
from app.core.changes.report import VAGUE, WIDTH, plain, tame
from app.core.model import FieldDiff, Resource
from app.core.phrases import many
from app.core.screen import tables
from app.web import answers, shapes

MOST = 100
"""Changes in between that are told, the newest."""


def difference_report(resource: Resource, answer: answers.Difference, found: Sequence[FieldDiff] | None) -> str:
    """The answer for a terminal: values whole, on lines of their own, everything else in 80 columns."""
    said = answer.model_dump(mode="json", include={"freshness", "gaps"})
    lines = [plain(f"{resource} in {resource.cluster}", WIDTH).rstrip(), _head(answer), *fields(found or ())]
    if answer.changes:
        newest = "the newest " if len(answer.changes) == MOST else ""
        lines += ["", f"in between, {newest}{many(len(answer.changes), 'change')}:", *map(_change, answer.changes)]
    return "".join(f"{line}\n" for line in [*lines, "", *(plain(line, WIDTH).rstrip() for line in tables.seen(said))])


def _head(answer: answers.Difference) -> str:
    over = "" if answer.from_at.date() == answer.to_at.date() else f"{answer.to_at:%Y-%m-%d} "
    times = f"{answer.from_at:%Y-%m-%d %H:%M:%S} to {over}{answer.to_at:%H:%M:%S} UTC"
    if answer.diffs is None:
        return f"{times}: what differs is not known\n{answer.unknown}"
    differ = "no field differs" if not answer.diffs else f"{many(len(answer.diffs), 'field')} differ"
    return f"{times}: {differ.replace('one field differ', 'one field differs')}"


def fields(found: Sequence[FieldDiff]) -> Iterator[str]:
    """Each field behind an empty line, with its values before (-) and after (+), whole."""
    for hunk in hunks(found):
        yield ""
        yield tame(hunk.path)
        yield from (tame(f"{line.sign} {line.text}") for line in hunk.lines)
        if hunk.left_out:
            yield f"@ {hunk.left_out:,} more lines"


def _change(change: shapes.Change) -> str:
    return plain(f"{change.at:%m-%d %H:%M:%S}{VAGUE if change.since else ' '}{change.summary}", WIDTH).rstrip()
