"""Times and lengths of time as people write them at a command line."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from app.failures import Expected

_LENGTH = re.compile(r"(?:[0-9]{1,6}[smhdw])+")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class TimeError(Expected):
    """What was written is no time; the message says how one is."""


def is_length(text: str) -> bool:
    """Whether this is a length of time, as 30s, 30m, 2h, 1d or 1h30m."""
    return _LENGTH.fullmatch(text) is not None


def moment(text: str, *, now: datetime, called: str) -> str:
    """The time as REST takes it: of ISO 8601 with a zone, or so long before ``now``, as 30m. Raises TimeError.

    ``called`` is what it was written for.
    """
    try:
        if is_length(text):
            seconds = sum(int(number) * _SECONDS[unit] for number, unit in re.findall("([0-9]+)([smhdw])", text))
            return (now - timedelta(seconds=seconds)).isoformat()
        at = datetime.fromisoformat(text)
        if at.tzinfo is not None and "T" in text.upper().replace(" ", "T"):
            return at.astimezone(UTC).isoformat()
    except OverflowError:
        raise TimeError(f"{called}: {text!r} is before the first year, or after the last, that there is") from None
    except ValueError:
        pass
    raise TimeError(
        f"{called}: {text!r} is no time with a zone, like 2026-11-21T14:03:00Z, and not so long ago, like 30m"
    )


def is_time(text: str) -> bool:
    """Whether this is a length of time, or meant as a moment: what else may stand in its place begins with a letter."""
    return text[:1].isdigit()


def length(text: str, *, until: str, called: str) -> str:
    """How far back to look, as REST takes it: as it is written, or from a moment ``until`` another one, of ISO 8601.
    Raises TimeError."""
    if is_length(text):
        return text
    end = datetime.fromisoformat(until)
    since = datetime.fromisoformat(moment(text, now=end, called=called))
    if since >= end:
        raise TimeError(f"{called}: {text} is not before {until}, up to which is asked")
    return f"PT{(end - since).total_seconds():.6f}S"


def now() -> datetime:
    """The clock of who asks."""
    return datetime.now(UTC)
