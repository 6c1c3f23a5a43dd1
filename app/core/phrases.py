"""Figures, lengths of time and names as a person reads them; the same on pages, in JSON and in terminals."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

SKEW = timedelta(seconds=1)
"""Clocks and rounding: what lies nearer to the onset is at it."""
SHORTEST = 5
"""Characters of a name that a text does not say by accident."""
_SHOULD = re.compile(r"^\w+ should ")
_REFUSED = {"Extra inputs are not permitted": "there is no such field", "Field required": "it is needed"}


def number(value: float) -> str:
    """A figure as a person reads it: 0.04, 3.5, 146, 12,400."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2g}" if abs(value) < 1 else f"{value:.3g}"


def measure(value: float, unit: str) -> str:
    """A figure with its unit: 123/s, 9.8 ms for 0.0098 s, 1.5 GiB for bytes."""
    if unit == "s" and 0 < value < 1:
        return f"{number(value * 1000)} ms"
    if unit in {"B", "bytes"}:
        for name in ("B", "KiB", "MiB", "GiB"):
            if value < 1024 or name == "GiB":
                return f"{number(value)} {name}"
            value /= 1024
    return f"{number(value)}{unit}" if unit.startswith("/") else f"{number(value)} {unit}".rstrip()


def rate(per_second: float, what: str = "") -> str:
    """How often something happens: "40 LIST pods/s"; "24 writes/min" where it is less than once a second."""
    each, unit = _each(per_second)
    return f"{number(each * per_second)}{' ' if what else ''}{what}{unit}"


def rise(before: float, after: float, what: str = "") -> str:
    """How a rate a second went up, both in the unit that suits the higher: "from 0 to 40 LIST pods/s"."""
    each, unit = _each(max(before, after))
    return f"from {number(each * before)} to {number(each * after)}{' ' if what else ''}{what}{unit}"


def _each(per_second: float) -> tuple[int, str]:
    return (60, "/min") if 0 < per_second < 1 else (1, "/s")


def times(count: float) -> str:
    """How often something happened: once, twice, 1,200 times."""
    return {1: "once", 2: "twice"}.get(round(count), f"{count:,.0f} times")


def many(count: int, one: str, more: str = "") -> str:
    """So many of something: one client, 12 clients; ``more`` where an s does not make it more."""
    return f"one {one}" if count == 1 else f"{count:,} {more or one + 's'}"


def first_of(names: Sequence[str], *, most: int = 3) -> str:
    """Names on one line, of more than ``most`` the first two: ns0, ns1 and 298 more."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[: most - 1])} and {len(names) - most + 1:,} more"


def percent(share: float) -> str:
    """A share or a probability as a person takes it in: 93 %, 2 %, < 1 %; never 100 % for what is not certain."""
    if 0.99 < share < 1:
        return "> 99 %"
    return "< 1 %" if 0 < share <= 0.005 else f"{share * 100:.0f} %"


def clock_time(at: datetime) -> str:
    """``14:02:27``, UTC."""
    return at.astimezone(UTC).strftime("%H:%M:%S")


def onset_text(at: datetime, low: datetime, high: datetime) -> str:
    """``05:22:29 ± 2 s``; ``between 14:26:24 and 14:46:24`` where the moment is not the middle of what is known."""
    within = (high - low) / 2
    if abs(low + within - at) > SKEW:
        return f"between {clock_time(low)} and {clock_time(high)}"
    told = within.total_seconds()
    return clock_time(at) + (f" ± {duration(told)}" if told >= 0.5 else "")


def no_ranking(ranked_at: datetime | None) -> str:
    """Why no ranking of an incident can be shown: there was none yet, or the last one, as of ``ranked_at``, is
    forgotten by now."""
    if ranked_at is None:
        return "not ranked yet"
    return f"its ranking, of {ranked_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC, is older than what is kept"


def no_ranking_in_short(ranked_at: datetime | None) -> str:
    """The same where there is room for a few words."""
    return no_ranking(None) if ranked_at is None else "its ranking is no longer kept"


def of_unnamed(count: int) -> str:
    """How ``count`` incidents count of which nobody said what it was; "" for none."""
    if not count:
        return ""
    return (
        f"Of {count} incident{'' if count == 1 else 's'} people said only what it was not. Where that was said of all "
        "that stood there, and of “none of these” where that led, the culprit counts as missed, though it may be that "
        "no change began it; else the incident is left out, as the culprit may have stood there."
    )


def short_actor(name: str) -> str:
    """The part of a user name that tells people and controllers apart: a ServiceAccount's own name."""
    return name.rsplit(":", 1)[1] if name.startswith("system:") else name


def t_minus(delta: timedelta) -> str:
    """How long before the onset: ``T−4 s``; ``T+12 s`` after it."""
    seconds = delta.total_seconds()
    return ("T−" if seconds >= 0 else "T+") + duration(abs(seconds))


def duration(seconds: float) -> str:
    """A length of time in at most two units: 350 ms, 4 s, 3 min 20 s, 2 h 5 min, 3 d 4 h."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms" if seconds else "0 s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    for big, name, small, rest in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= big:
            left = whole % big // small
            return f"{whole // big} {name}" + (f" {left} {rest}" if left else "")
    raise AssertionError(seconds)


def iso_duration(text: str) -> str:
    """``30m`` as ISO 8601 writes it (PT30M); anything else as it is."""
    if text[:1].isdigit() and text[-1:] in {"s", "m", "h", "d", "w"}:
        return f"P{'' if text[-1] in 'dw' else 'T'}{text.upper()}"
    return text


def refusal(said: str) -> str:
    """What pydantic says of a value ("Input should be less than 1"), as said of a field: must be less than 1."""
    return _REFUSED.get(said) or _SHOULD.sub("must ", said.removeprefix("Value error, "))


def excerpt(text: str, most: int = 140) -> str:
    """The beginning of a text on one line, cut at a word."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[:most].rsplit(" ", 1)[0] + " …"


_TURNING = {place: f"\\u{place:04x}" for place in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}


def straight(text: str) -> str:
    """A text in which what turns around how the rest is shown (https://www.unicode.org/reports/tr9/, 2.1 to 2.4) is
    spelled out: who reads it is to see what is there."""
    return text if text.isascii() else text.translate(_TURNING)


def both_ends(text: str, most: int) -> str:
    """A text on one line, without its middle where it is long: a panic begins with its cause, a traceback ends so."""
    line = " ".join(text.split())
    half = (most - 3) // 2
    return line if len(line) <= most else f"{line[:half]} … {line[-half:]}"


def names(text: str, name: str) -> bool:
    """Whether a text says this name whole, and not by accident: a short one may be a word, but where it stands in
    quotes behind a kind, as in StorageClass "fast"."""
    if name not in text:
        return False
    if len(name) < SHORTEST:
        return re.search(rf'\b[A-Z]\w+ "{re.escape(name)}"', text) is not None
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", text) is not None


LONGEST_WORD = 80
"""Characters of a word, as a name, that are read as one; of a longer one the beginning and the end are."""


def in_parts(word: str, most: int = LONGEST_WORD) -> tuple[str, str, str]:
    """A word's beginning, middle and end, where the middle has no room within ``most`` characters; else all of it is
    the beginning. Long names of one origin differ at their ends."""
    if len(word) <= most:
        return word, "", ""
    end = len(word) - most * 2 // 5
    begin = most - 1 - (len(word) - end)
    return word[:begin], word[begin:end], word[end:]
