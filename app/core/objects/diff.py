"""Two desired states -> field diffs, and back. Items of lists are matched by their merge key, not by their place.

`apply` and `undo` are inverses of `diff` up to the places of items that came or went, and to the order of lists that
Kubernetes does not mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from importlib.resources import files

import orjson

from app.core.model import FieldDiff, Json, Object, Path, Segment

_Fields = list[tuple[list[str], bool]]
"""The fields that identify an item: of each the names it may have, and whether it may be absent."""


def _fields(written: list[str]) -> _Fields:
    return [(field.rstrip("?").split("|"), field.endswith("?")) for field in written]


_KEYS: dict[str, list[_Fields]] = {
    name: [_fields(one) for one in sets]
    for name, sets in orjson.loads(files("app.core").joinpath("data/merge_keys.json").read_bytes()).items()
}
"""By field name, the sets of fields that identify an item, best first. Source: data/SOURCES.md."""

_BY_NAME = [_fields(["name"])]
MAPS = frozenset({"annotations", "labels", "data"})
"""Maps that are the same empty as absent: their first and last entries are told as entries."""
ORDER = "(order)"
"""The last step of a path whose diff is the order of a keyed list: the keys of all items, as maps."""
_UNORDERED = frozenset(
    """conditions imagePullSecrets metrics ownerReferences ports secrets subjects taints tolerations
    versions""".split()  # noqa: SIM905
)
"""Keyed lists whose order means nothing, but in a pod template: there any difference begins a rollout. Everywhere else
it may: variables expand in the order of env, the first route that fits is taken, containers start one by one."""
_SETS = frozenset("apiGroups apiVersions nonResourceURLs operations resourceNames resources verbs".split())  # noqa: SIM905
"""Lists of words in the rules of roles and webhooks: sets."""
MergeKey = tuple[tuple[str, str], ...]


def diff(old: Json, new: Json) -> tuple[FieldDiff, ...]:
    """What changed, in the order of ``new``. None for old (new) is a whole create (delete): one diff, empty path."""
    if old is None or new is None:
        return () if old == new else (FieldDiff((), "add" if old is None else "remove", old, new),)
    found: list[FieldDiff] = []
    _compare(old, new, (), found)
    return tuple(found)


def _compare(old: Json, new: Json, path: Path, found: list[FieldDiff]) -> None:
    if _is_same(old, new):
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
            if old[key] is not value:  # states share the parts that did not change
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
    keys = _keys(field, old, new)
    if keys is None:
        if field in _SETS and "rules" in path and sorted(map(str, old)) == sorted(map(str, new)):
            return True
        if len(old) != len(new) or not all(isinstance(item, dict) for item in (*old, *new)):
            return False
        for index, (was, now) in enumerate(zip(old, new, strict=True)):
            _compare(was, now, (*path, index), found)
        return True
    before, after = (dict(zip(each, items, strict=True)) for each, items in zip(keys, (old, new), strict=True))
    for key, item in after.items():
        if key in before:
            _compare(before[key], item, (*path, key), found)
        else:
            found.append(FieldDiff((*path, key), "add", None, item))
    found.extend(FieldDiff((*path, key), "remove", item, None) for key, item in before.items() if key not in after)
    if field not in _UNORDERED or "template" in path:
        was_first, now_first = [k for k in before if k in after], [k for k in after if k in before]
        if was_first != now_first:
            orders = [dict(key) for key in before], [dict(key) for key in after]
            found.append(FieldDiff((*path, ORDER), "replace", *orders))  # type: ignore[arg-type]
    return True


def unordered(found: Iterable[FieldDiff]) -> tuple[FieldDiff, ...]:
    """Diffs without those of order: where a state was made by ``apply`` or ``undo``, it is not known."""
    return tuple(one for one in found if one.path[-1:] != (ORDER,))


def _keys(field: str, old: list[Json], new: list[Json]) -> tuple[list[MergeKey], list[MergeKey]] | None:
    """The keys by which the items of both lists are told apart, None where there are none."""
    if not old or not new:
        return None
    for fields in _KEYS.get(field, _BY_NAME):
        keys = [_key(item, fields) for item in old], [_key(item, fields) for item in new]
        if all(None not in each and len(set(each)) == len(each) for each in keys):
            return keys  # type: ignore[return-value]
    return None


def _key(item: Json, fields: _Fields) -> MergeKey | None:
    """An item's key: of each field the name that is there, and its value."""
    key = []
    for names, optional in fields:
        for name in names:
            value = _at(item, name)
            if isinstance(value, str | int) and not isinstance(value, bool):
                key.append((name, str(value)))
                break
            if value is not None:
                return None
        else:
            if not optional:
                return None
            key.append((names[0], ""))
    return tuple(key)


def _at(item: Json, name: str) -> Json:
    """What an item has in a field, or in a field of fields: "resource.name"."""
    for step in name.split("."):
        item = item.get(step) if isinstance(item, dict) else None
    return item


def _has(item: Json, key: Iterable[tuple[str, Json]]) -> bool:
    return isinstance(item, dict) and all(str("" if (is_ := _at(item, n)) is None else is_) == v for n, v in key)


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
    if step == ORDER and isinstance(value, list):
        return sorted(state, key=lambda item: _place(value, item))
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
    return next((index for index, item in enumerate(items) if _has(item, wanted)), len(items))


def _place(order: list[Json], item: Json) -> int:
    """Where an item stands in an order of keys; what it does not hold comes last."""
    keys = (key.items() if isinstance(key, dict) else () for key in order)
    return next((index for index, key in enumerate(keys) if _has(item, key)), len(order))
