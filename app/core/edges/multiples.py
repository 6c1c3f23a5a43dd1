"""By how many times an update has something done more often, or more of it at once."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice

from cronsim import CronSim, CronSimError

from app.core.edges.settings import settings_of
from app.core.model import Change, Verb

_LESS_IS_MORE = re.compile(
    r"interval|period|every|poll|refresh|resync|delay|sleep|pause|backoff|wait|seconds\Z", re.IGNORECASE
)
"""Names of settings that say how long it is until something is done again."""
_MORE = re.compile(
    r"concurren|parallel|worker|thread|batch|page.?(?:size|limit)|chunk|(?-i:(?<![a-z])rate|(?<![A-Z])R(?:ate|ATE))"
    r"|qps|rps|shards?\b|consumers?\b|retr(?:y|ies)|attempt|fetch|percent|\bweight\b",
    re.IGNORECASE,
)
"""Names of such that say how much is done at once, or how often it is tried again."""
_BOUNDS = re.compile(
    r"time.?out|(?<![a-z])ttl|expir|max.?age|grace|initial|deadline|retention|retain|look.?back|cool.?down|billing|memory"
    r"|window",
    re.IGNORECASE,
)
"""Names of such that only say for how long."""
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?) ?([a-z]*)")
_UNITS = {"ms": 0.001, "": 1.0, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
"""In seconds; a number without a unit is compared with such alone."""
_MACROS = {
    "@hourly": "0 * * * *",
    **dict.fromkeys(("@daily", "@midnight"), "0 0 * * *"),
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    **dict.fromkeys(("@yearly", "@annually"), "0 0 1 1 *"),
}
"""https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/#schedule-syntax"""
_RUNS = 20
"""So many runs of a schedule say how often it is."""
_SINCE = datetime(2026, 1, 1, tzinfo=UTC)


def multiplied(change: Change) -> tuple[float, str] | None:
    """The greatest number of times, above 1, that an update has something done, and the setting that says so."""
    if change.verb is not Verb.UPDATE:
        return None
    found = [
        (times, name)
        for diff in change.diffs
        for name, old, new in settings_of(diff)
        if (times := _times(name, old, new)) is not None and times > 1
    ]
    return max(found, default=None)


def _times(name: str, old: str, new: str) -> float | None:
    """How many times as much the new value of a setting is; None for what says nothing of how much."""
    before, since = _runs_a_day(old), _runs_a_day(new)
    if before and since:
        return since / before
    is_interval = _LESS_IS_MORE.search(name) is not None
    if _BOUNDS.search(name) or not (is_interval or _MORE.search(name)):
        return None
    before, since = _amount(old), _amount(new)
    if not before or not since or _has_unit(old) != _has_unit(new):
        return None
    return before / since if is_interval else since / before


def _amount(text: str) -> float | None:
    """A number, or of a length of time its seconds ("1h30m"); None for what is neither."""
    found = _AMOUNT.findall(text)
    is_whole = bool(found) and not _AMOUNT.sub("", text).strip() and all(unit in _UNITS for _, unit in found)
    return sum(float(number) * _UNITS[unit] for number, unit in found) if is_whole else None


def _has_unit(text: str) -> bool:
    return not text.strip().replace(".", "", 1).isdigit()


@lru_cache(maxsize=1_000)
def _runs_a_day(text: str) -> float | None:
    """How often a schedule is due in a day; None for what is no schedule."""
    fields = _MACROS.get(text, text)
    if fields.count(" ") != 4:
        return None
    try:
        due = list(islice(CronSim(fields, _SINCE), _RUNS))
    except CronSimError:
        return None
    return (len(due) - 1) / ((due[-1] - due[0]).total_seconds() / 86_400) if len(due) > 1 else None
