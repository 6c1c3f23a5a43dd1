"""The settings of one text, as a ConfigMap's file has them: which of them differ."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from app.core.model import FieldDiff
from app.core.objects.brought import LONGEST
from app.core.objects.values import name_of

PARTS = re.compile(r"[\n,;&{}]")
"""What stands between the settings of one text: of lines, JSON, a query."""
_SETTING = re.compile(r"""\s*["']?(?P<name>[\w.-]+)["']?(?:\s*[:=]\s*["']?|\s+(?=\d[\w.%]*\s*\Z))(?P<value>[^"']*)""")
"""A name and its value: with a sign between, or as nginx and Redis have it, a number after a space."""
_OF_MANY = re.compile(r"size|m(?:ax|in)(?:imum|size)?|limit|count|number|total|capacity|value|enabled", re.IGNORECASE)
_SECTION = re.compile(r"\[+([\w.-]+)\]+")
"""Of INI and TOML."""
_WORD = re.compile(r"[\w.-]+")


def parts(diff: FieldDiff) -> set[str]:
    """What differs of a whole text of several settings: lines, parts of JSON, of a query."""
    old, new = (set(PARTS.split(value)) if isinstance(value, str) else set[str]() for value in (diff.old, diff.new))
    return old ^ new if len(old) > 1 or len(new) > 1 or any("=" in part for part in old | new) else set()


def settings_of(diff: FieldDiff) -> Iterator[tuple[str, str, str]]:
    """What a diff sets, by name, with the old and the new value: one, or of a text of several those that differ."""
    name = next((name_of(step) for step in reversed(diff.path) if step != "value"), "")
    old, new = (_named(value) if isinstance(value, str) else () for value in (diff.old, diff.new))
    if not (old and new):
        yield name, str(diff.old), str(diff.new)
    elif [key for key, _ in old] == [key for key, _ in new]:  # of several of one name, each with its own
        yield from ((key, was, now) for (key, was), (_, now) in zip(old, new, strict=True) if was != now)
    else:
        was, now = dict(old), dict(new)
        yield from ((key, was[key], now[key]) for key in was.keys() & now.keys() if was[key] != now[key])


def settings_in(text: str) -> tuple[tuple[str, str], ...]:
    """The settings of a whole file, by name; none of a text that is only one value."""
    return _named(text) if "\n" in text else ()


@lru_cache(maxsize=256)  # each rule asks for each complaint
def _named(text: str) -> tuple[tuple[str, str], ...]:
    return tuple(_each(text[:LONGEST]))


def _each(text: str) -> Iterator[tuple[str, str]]:
    section = ""
    for above, line in _lines(text):
        if header := _SECTION.fullmatch(line):
            section = header[1]
            continue
        over = _WORD.findall(above[-1])[0] if above and _WORD.search(above[-1]) else section
        for told in filter(None, map(_SETTING.match, PARTS.split(line))):
            value = told["value"].strip()
            if value:
                yield full_name(over, told["name"]), value
            else:
                over = told["name"]


def full_name(over: str, name: str) -> str:
    """The name of a setting; of one that is called as many are (``max``), with that of what it is in (``pool.max``)."""
    return f"{over}.{name}" if over and _OF_MANY.fullmatch(name) else name


def differing(diff: FieldDiff) -> set[str]:
    """What differs of a value: of a text of several lines each with those under which it is indented, of another text
    of several settings its parts, and else all of it, the old and the new."""
    texts = [value for value in (diff.old, diff.new) if isinstance(value, str)]
    if any("\n" in text for text in texts):
        old, new = (
            set(_whole_lines(value)) if isinstance(value, str) else set[str]() for value in (diff.old, diff.new)
        )
        return old ^ new
    return parts(diff) or {str(value) for value in (diff.old, diff.new) if value is not None}


def _whole_lines(text: str) -> Iterator[str]:
    yield from (" ".join((*above, told)) for above, told in _lines(text))


def _lines(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Each line, with those under which it is indented."""
    above: list[tuple[int, str]] = []
    for line in text.splitlines():
        told = line.strip()
        depth = len(line) - len(line.lstrip())
        while above and above[-1][0] >= depth:
            above.pop()
        yield tuple(one for _, one in above), told
        above.append((depth, told))
