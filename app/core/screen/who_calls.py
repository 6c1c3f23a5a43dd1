"""Who talks to the API server, as a table for a terminal or a chat: at most 20 lines of 80 columns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from app.core.changes.report import LINES, as_text, plain
from app.core.model import Gap
from app.core.phrases import duration, number
from app.core.screen.talkers import Talker
from app.core.signals.calls import caller_name

ROWS = LINES - 4
"""Callers that there is room for, below two lines of heads and above two of gaps."""
_FIGURES = ("NOW/s", "BEFORE/s", "FAILED/s")
_WIDE = 8
_TEXTS = {"WHO": 24, "VERB": 8, "WHAT": 19}


def who_calls(
    found: Sequence[Talker], *, cluster: str, to_at: datetime, minus: timedelta, gaps: Sequence[Gap], heard: bool
) -> str:
    """``found``, told apart by user, verb and resource, in the ``minus`` before ``to_at`` and in as long before that.

    ``heard`` says whether any call of the cluster is known in that time.
    """
    length = duration(minus.total_seconds())
    head = f"{cluster}: the {length} to {to_at:%Y-%m-%d %H:%M:%S} UTC, beside the {length} before"
    blind = [f"not seen {gap.from_at:%H:%M:%S} to {gap.to_at:%H:%M:%S}: {gap.why}" for gap in gaps[:2]]
    if not found:
        why = "nobody called for it" if heard else "no call is known of then: it takes an audit log"
        return as_text([head, why, *blind])
    title = [*(name.rjust(_WIDE) for name in _FIGURES), *(name.ljust(width) for name, width in _TEXTS.items())]
    return as_text([head, " ".join(title), *map(_row, found[:ROWS]), *blind])


def _row(one: Talker) -> str:
    figures = (one.now.calls, one.before.calls, one.now.failed)
    what = ".".join(filter(None, (one.of["resource"], one.of["api_group"])))
    texts = (caller_name(one.of["user"]), one.of["verb"], what)
    cells = (
        *(number(count / one.seconds).rjust(_WIDE) for count in figures),
        *(plain(text, width) for text, width in zip(texts, _TEXTS.values(), strict=True)),
    )
    return " ".join(cells)
