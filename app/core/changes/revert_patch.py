"""The patch that sets the values before a change, and leaves alone what else is there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from app.core.changes.recipe import Known
from app.core.changes.revert_since import blind, overlapping, renumbered
from app.core.model import Change, FieldDiff, Json, Object, Path, Segment
from app.core.objects.diff import ORDER, apply, diff, undo
from app.core.objects.normalise import TYPED

NOT_WHOLE = {("spec", "taints"), ("metadata", "finalizers")}
"""Lists that are recorded without what the system itself puts there (core.objects.normalise)."""
_NAMED_LISTS = frozenset({"containers", "initContainers", "env", "volumes", "webhooks"})
"""Lists that a strategic merge patch merges by ``name`` (x-kubernetes-patch-merge-key of the built-in kinds). Of custom
resources there is no such patch."""


def patch_of(change: Change, known: Known) -> tuple[Object | None, str]:
    """The patch that sets the values before, with its type; None where a list's other items are needed, but it is not
    known what they are, or at which places."""
    if all(_is_plain(found.path) for found in change.diffs):
        return _tree((found.path, _before(found)) for found in change.diffs), "merge"
    if change.resource.api_group in TYPED and all(_is_named(found.path) for found in change.diffs):
        diffs = sorted(change.diffs, key=lambda found: _places(found.path, known.state))
        return _tree([*((found.path, _before(found)) for found in diffs), *_orders(diffs, known.state)]), "strategic"
    roots = {_root(found.path) for found in change.diffs}
    before = _state_before(change, known, roots)
    if before is None:
        return None, ""
    return _tree((root, _sorted(root, _at(before, root), known.state)) for root in sorted(roots, key=str)), "merge"


def _state_before(change: Change, known: Known, roots: Collection[Path]) -> Json:
    """The object as it is, with the change undone; None unless its lists (``roots``) hold what the change wrote, and
    where it wrote that."""
    if known.state is None or known.is_cut or blind(known.since) or any(overlapping(c, roots) for c in known.since):
        return None
    try:
        before = undo(reversed(_kept_in_place(change.diffs)), known.state)
        return None if diff(apply(change.diffs, before), known.state) else before
    except (KeyError, IndexError):
        return None


def _kept_in_place(diffs: Sequence[FieldDiff]) -> Sequence[FieldDiff]:
    """The same, but an item that got another key, as a port another number, is altered where it stands now, not taken
    out and put in."""
    was = {came.path: gone for gone, came in renumbered(diffs)}
    taken = [gone.path for gone in was.values()]
    return [
        FieldDiff(found.path, "replace", was[found.path].old, found.new) if found.path in was else found
        for found in diffs
        if found.path not in taken
    ]


def _sorted(root: Path, items: Json, state: Json) -> Json:
    """Ports in the order of now: each where the one of its name stands, else that of its number. Those that swapped
    their numbers swapped their names as it was recorded, and would come back turned."""
    now = _at(state, root)
    if root[-1] != "ports" or not isinstance(items, list) or not isinstance(now, list):
        return items

    def place(item: Json) -> int:
        for fields in (("name",), ("port", "protocol")):
            told = _values(item, fields)
            if (at := next((at for at, one in enumerate(now) if _values(one, fields) == told), None)) is not None:
                return at
        return len(now)

    return sorted(items, key=place)


def _values(item: Json, fields: Sequence[str]) -> list[Json]:
    return [item.get(field) for field in fields] if isinstance(item, dict) else []


def _places(path: Path, state: Json) -> list[int]:
    """Sorts fields as the items they are in are sorted now; what is not there comes last."""
    return [_index(_at(state, path[:at]), step) for at, step in enumerate(path) if isinstance(step, tuple)]


def _orders(diffs: Iterable[FieldDiff], state: Json) -> Iterator[tuple[Path, Json]]:
    """The order of each list that gets an item back, as it is now with that last: else a patch puts it before others.
    What the patch itself has of the list must be in this order, too
    (https://github.com/kubernetes/design-proposals-archive/blob/main/cli/preserve-order-in-strategic-merge-patch.md).
    Nothing where the list is not known."""
    back: dict[Path, list[Json]] = {}
    for found in diffs:
        if found.op == "remove" and isinstance(found.path[-1], tuple):
            back.setdefault(found.path[:-1], []).append(dict(found.path[-1]))
    for path, items in back.items():
        there = _at(state, path)
        if isinstance(there, list):
            names: list[Json] = [{"name": one["name"]} for one in there if isinstance(one, dict) and "name" in one]
            yield (*path[:-1], f"$setElementOrder/{path[-1]}"), [*(one for one in names if one not in items), *items]


def _root(path: Path) -> Path:
    """The field that a merge patch replaces as a whole: the list on the way, or what the path leads to."""
    return path[: next((at for at, step in enumerate(path) if not isinstance(step, str) or step == ORDER), None)]


def _is_plain(path: Path) -> bool:
    return bool(path) and all(isinstance(step, str) and step != ORDER for step in path)


def _is_named(path: Path) -> bool:
    return all(
        (isinstance(step, str) and step != ORDER)
        or (isinstance(step, tuple) and step[0][0] == "name" and path[at - 1] in _NAMED_LISTS)
        for at, step in enumerate(path)
    )


def _before(found: FieldDiff) -> Json:
    """The value to set: null removes a field, ``$patch: delete`` an item of a named list."""
    last = found.path[-1]
    if isinstance(last, tuple):
        return {**dict(last), "$patch": "delete"} if found.op == "add" else found.old
    return None if found.op == "add" else found.old


def _at(state: Json, path: Path) -> Json:
    """What is there at a path of fields and items of named lists; None for nothing."""
    for step in path:
        if isinstance(state, list):
            at = _index(state, step)
            state = state[at] if at < len(state) else None
        else:
            state = state.get(str(step)) if isinstance(state, dict) else None
    return state


def _index(items: Json, step: Segment) -> int:
    """Where an item stands in a list; its length for what is not there."""
    there = items if isinstance(items, list) else []
    key = dict(step if isinstance(step, tuple) else ()).items()
    return next((at for at, item in enumerate(there) if isinstance(item, dict) and key <= item.items()), len(there))


def _tree(values: Iterable[tuple[Path, Json]]) -> Object:
    """Paths with values -> one nested document; items of named lists carry their name."""
    root: Object = {}
    for path, value in values:
        here: Json = root
        for at, step in enumerate(path):
            last = at == len(path) - 1
            if isinstance(here, list):
                index = _index(here, step)
                if index == len(here) or last:
                    index = len(here)
                    here.append(value if last else dict(step) if isinstance(step, tuple) else {})
                here = here[index]
            elif isinstance(here, dict):
                if last:
                    here[str(step)] = value
                else:
                    empty: Json = [] if isinstance(path[at + 1], tuple) else {}
                    here = here.setdefault(str(step), empty)
    return root
