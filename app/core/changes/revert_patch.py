"""The patch that sets the values before a change, and leaves alone what else is there."""

from __future__ import annotations

from collections.abc import Iterable

from app.core.changes.recipe import Known
from app.core.changes.revert_since import overlapping
from app.core.model import Change, FieldDiff, Json, Object, Path
from app.core.objects.diff import ORDER, undo
from app.core.objects.normalise import TYPED

_NAMED_LISTS = frozenset({"containers", "initContainers", "env", "volumes", "webhooks"})
"""Lists that a strategic merge patch merges by ``name`` (x-kubernetes-patch-merge-key of the built-in kinds). Of custom
resources there is no such patch."""


def patch_of(change: Change, known: Known) -> tuple[Object | None, str]:
    """The patch that sets the values before, with its type; None where a list's other items are needed, but unknown."""
    if all(_is_plain(found.path) for found in change.diffs):
        return _tree((list(found.path), _before(found)) for found in change.diffs), "merge"
    if change.resource.api_group in TYPED and all(_is_named(found.path) for found in change.diffs):
        return _tree((list(found.path), _before(found)) for found in change.diffs), "strategic"
    roots = {_root(found.path) for found in change.diffs}
    if known.state is None or any(overlapping(one, roots) for one in known.since):
        return None, ""  # places in lists are those right after the change
    try:
        before = undo(reversed(change.diffs), known.state)
    except (KeyError, IndexError):
        return None, ""  # the state is not the one that this change led to
    return _tree((list(root), _at(before, root)) for root in sorted(roots, key=str)), "merge"


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


def _at(state: Json, steps: Iterable[object]) -> Json:
    for step in steps:
        state = state.get(str(step)) if isinstance(state, dict) else None
    return state


def _tree(values: Iterable[tuple[list[object], Json]]) -> Object:
    """Paths with values -> one nested document; items of named lists carry their name."""
    root: Object = {}
    for path, value in values:
        here: Json = root
        for at, step in enumerate(path):
            last = at == len(path) - 1
            if isinstance(here, list):
                key = dict(step) if isinstance(step, tuple) else {}
                item = next((i for i in here if isinstance(i, dict) and key.items() <= i.items()), None)
                if item is None or last:
                    item = value if last and isinstance(value, dict) else dict(key)
                    here.append(item)
                here = item
            elif isinstance(here, dict):
                if last:
                    here[str(step)] = value
                else:
                    empty: Json = [] if isinstance(path[at + 1], tuple) else {}
                    here = here.setdefault(str(step), empty)
    return root
