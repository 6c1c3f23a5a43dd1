"""Two desired states -> field diffs, and back. Items of lists are matched by their merge key, not by their place.

`apply` and `undo` are inverses of `diff` up to the order of keyed lists, which Kubernetes does not mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from importlib.resources import files

import orjson

from app.core.model import FieldDiff, Json, Object, Path, Segment

_KEYS: dict[str, list[list[str]]] = orjson.loads(files("app.core").joinpath("data/merge_keys.json").read_bytes())
"""By field name, the sets of fields that identify an item, best first. Source: data/SOURCES.md."""

_BY_NAME = [["name"]]
MAPS = frozenset({"annotations", "labels", "data"})
"""Maps that are the same empty as absent: their first and last entries are told as entries."""
_ORDERED = frozenset({"initContainers"})
MergeKey = tuple[tuple[str, str], ...]


def diff(old: Json, new: Json) -> tuple[FieldDiff, ...]:
    """What changed, in the order of ``new``. None for old (new) is a whole create (delete): one diff, empty path."""
    if old is None or new is None:
        return () if old == new else (FieldDiff((), "add" if old is None else "remove", old, new),)
    found: list[FieldDiff] = []
    _compare(old, new, (), found)
    return tuple(found)


def _compare(old: Json, new: Json, path: Path, found: list[FieldDiff]) -> None:
    if old is new or _is_same(old, new):  # states share the parts that did not change
        return
    if isinstance(old, dict) and isinstance(new, dict):
        _compare_maps(old, new, path, found)
        return
    if isinstance(old, list) and isinstance(new, list) and _compare_lists(old, new, path, found):
        return
    if old != new or isinstance(old, bool) != isinstance(new, bool):
        found.append(FieldDiff(path, "replace", old, new))


def _compare_maps(old: Object, new: Object, path: Path, found: list[FieldDiff]) -> None:
    for key, value in new.items():
        if key in old:
            _compare(old[key], value, (*path, key), found)
        elif key in MAPS and isinstance(value, dict) and value:
            _compare_maps({}, value, (*path, key), found)
        else:
            found.append(FieldDiff((*path, key), "add", None, value))
    for key, value in old.items():
        if key in new:
            continue
        if key in MAPS and isinstance(value, dict) and value:
            _compare_maps(value, {}, (*path, key), found)
        else:
            found.append(FieldDiff((*path, key), "remove", value, None))


def _is_same(old: Json, new: Json) -> bool:
    """Equal as JSON: Python holds True and 1 for equal, at any depth."""
    if old != new or type(old) is not type(new):
        return False
    return not isinstance(old, dict | list) or orjson.dumps(old) == orjson.dumps(new)


def _compare_lists(old: list[Json], new: list[Json], path: Path, found: list[FieldDiff]) -> bool:
    """Compare by merge key, else place by place where the lengths agree. False: they are one value."""
    field = path[-1] if path and isinstance(path[-1], str) else ""
    fields = _fields(field, old, new)
    if fields is None:
        if len(old) != len(new) or not all(isinstance(item, dict) for item in (*old, *new)):
            return False
        for index, (was, now) in enumerate(zip(old, new, strict=True)):
            _compare(was, now, (*path, index), found)
        return True
    before: dict[MergeKey, Json] = {_key(item, fields): item for item in old}
    after: dict[MergeKey, Json] = {_key(item, fields): item for item in new}
    if field in _ORDERED and [k for k in before if k in after] != [k for k in after if k in before]:
        return False
    for key, item in after.items():
        if key in before:
            _compare(before[key], item, (*path, key), found)
        else:
            found.append(FieldDiff((*path, key), "add", None, item))
    found.extend(FieldDiff((*path, key), "remove", item, None) for key, item in before.items() if key not in after)
    return True


def _fields(field: str, old: list[Json], new: list[Json]) -> list[str] | None:
    """The fields by which the items of both lists are told apart, None where there are none."""
    if not old or not new:
        return None
    for fields in _KEYS.get(field, _BY_NAME):
        if _distinct(old, fields) and _distinct(new, fields):
            return fields
    return None


def _distinct(items: list[Json], fields: list[str]) -> bool:
    seen = set()
    for item in items:
        if not isinstance(item, dict):
            return False
        values = tuple(item.get(name) for name in fields)
        if not all(isinstance(value, str | int) and not isinstance(value, bool) for value in values):
            return False
        seen.add(tuple(map(str, values)))
    return len(seen) == len(items)


def _key(item: Json, fields: list[str]) -> MergeKey:
    return tuple((name, str(item[name])) for name in fields) if isinstance(item, dict) else ()


def apply(diffs: Iterable[FieldDiff], old: Json) -> Json:
    """The state after, from the state before. Raises KeyError or IndexError where the path is not there."""
    state = old
    for found in diffs:
        state = _put(state, found.path, found.new, gone=found.op == "remove")
    return state


def undo(diffs: Iterable[FieldDiff], new: Json) -> Json:
    """The state before, from the state after."""
    state = new
    for found in diffs:
        state = _put(state, found.path, found.old, gone=found.op == "add")
    return state


def _put(state: Json, path: Sequence[Segment], value: Json, *, gone: bool) -> Json:
    """A copy of ``state`` with the place at ``path`` set or removed; what is not on the way is shared."""
    if not path:
        return None if gone else value
    step, rest = path[0], path[1:]
    if isinstance(state, dict) and isinstance(step, str):
        changed: Object = copy(state)
        if gone and not rest:
            del changed[step]
        else:
            inner = changed.get(step, {}) if step in MAPS else changed[step] if rest else None
            changed[step] = _put(inner, rest, value, gone=gone)
            if gone and step in MAPS and changed[step] == {}:
                del changed[step]
        return changed
    if not isinstance(state, list):
        raise KeyError(step)
    items = copy(state)
    index = step if isinstance(step, int) else _index(items, step)
    if gone and not rest:
        del items[index]
    elif index == len(items) and not rest:
        items.append(value)
    else:
        items[index] = _put(items[index] if rest else None, rest, value, gone=gone)
    return items


def _index(items: list[Json], step: Segment) -> int:
    wanted = step if isinstance(step, tuple) else ()
    for index, item in enumerate(items):
        if isinstance(item, dict) and all(str(item.get(name)) == value for name, value in wanted):
            return index
    return len(items)
