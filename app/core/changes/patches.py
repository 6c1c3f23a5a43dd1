"""A request body -> the field diffs it asks for, when the state after it was not recorded.

Merge patches (RFC 7386), strategic merge patches, server-side applies and whole objects are read as "these fields
become so"; JSON Patches (RFC 6902) as their operations. Values before are filled in where a state before is known.
"""

from __future__ import annotations

from app.core.model import FieldDiff, Json, Object, Path, Segment
from app.core.objects.diff import MAPS, apply, diff

_DIRECTIVES = ("$patch", "$retainKeys", "$setElementOrder/", "$deleteFromPrimitiveList/")
_KEYED = {"containers": "name", "initContainers": "name", "env": "name", "volumes": "name", "webhooks": "name"}
_NEVER_CHANGED = (("metadata", "name"), ("metadata", "namespace"))
_BOOKKEEPING = ("creationTimestamp", "status")
"""What Go writes as null where it has nothing to say."""
_ABSENT = object()


def patch_diffs(patch: Json, old: Object | None) -> tuple[FieldDiff, ...]:
    """The fields a redacted request body sets; those that ``old``, where it is known, already has drop out."""
    found: list[FieldDiff] = []
    if isinstance(patch, list):
        for operation in patch:
            _operation(operation, old, found)
    elif isinstance(patch, dict):
        _merge(patch, old, (), found)
    return tuple(one for one in found if one.path not in _NEVER_CHANGED)


def scaled(patch: Json, subresource: str) -> Json:
    """A Scale object (autoscaling/v1) says one thing about its target: how many replicas."""
    if subresource != "scale" or not isinstance(patch, dict):
        return patch
    spec = patch.get("spec")
    return {"spec": {"replicas": spec.get("replicas", 0)}} if isinstance(spec, dict) else {}


def with_removals(normal: Object, patch: Object) -> Object:
    """A normalised merge patch with the nulls and empty lists of ``patch`` in it again: in a state nothing, a removal
    in a patch."""
    out = dict(normal)
    for key, value in patch.items():
        if (value is None or value == []) and key not in _BOOKKEEPING:
            out.setdefault(key, value)
        elif isinstance(value, dict):
            known = out.get(key)
            inner = with_removals(known if isinstance(known, dict) else {}, value)
            if inner:
                out[key] = inner
    return out


def applied(found: tuple[FieldDiff, ...], old: Object | None) -> Object | None:
    """The state after a request, None where the one before is unknown or the request does not fit it."""
    if old is None:
        return None
    try:
        state = apply(found, old)
    except (KeyError, IndexError):
        return None
    return state if isinstance(state, dict) else None


def _merge(patch: Object, old: Json | object, path: Path, found: list[FieldDiff]) -> None:
    for key, value in patch.items():
        if key.startswith(_DIRECTIVES):
            continue
        here = (*path, key)
        before = old.get(key, _ABSENT) if isinstance(old, dict) else _ABSENT
        if value is None:
            if before is not _ABSENT or old is None:
                found.append(FieldDiff(here, "remove", None if before is _ABSENT else before, None))  # type: ignore[arg-type]
        elif isinstance(value, dict) and (isinstance(before, dict) or old is None or key in MAPS):
            _merge(value, before if isinstance(before, dict) else {} if old is not None else None, here, found)
        elif isinstance(value, list) and _is_keyed(key, value):
            _keyed(value, before, here, found)
        else:
            _set(before, value, here, found)


def _is_keyed(key: str, value: list[Json]) -> bool:
    return key in _KEYED and all(isinstance(item, dict) and isinstance(item.get(_KEYED[key]), str) for item in value)


def _keyed(items: list[Json], before: Json | object, path: Path, found: list[FieldDiff]) -> None:
    """A strategic merge of a list: items are named, the others stay as they are."""
    name = _KEYED[str(path[-1])]
    known = {item.get(name): item for item in before if isinstance(item, dict)} if isinstance(before, list) else {}
    for item in items:
        if not isinstance(item, dict):
            continue
        here = (*path, ((name, str(item[name])),))
        old = known.get(item[name])
        if item.get("$patch") == "delete":
            found.append(FieldDiff(here, "remove", old, None))
        elif isinstance(before, list) and old is None:
            found.append(FieldDiff(here, "add", None, item))
        else:
            _merge({k: v for k, v in item.items() if k != name}, old, here, found)


def _set(before: Json | object, value: Json, path: Path, found: list[FieldDiff]) -> None:
    if before is _ABSENT:
        found.append(FieldDiff(path, "add", None, value))
        return
    for part in diff(before, value):  # type: ignore[arg-type]
        found.append(FieldDiff((*path, *part.path), part.op, part.old, part.new))  # noqa: PERF401 - clearer as a loop


def _operation(operation: Json, old: Json, found: list[FieldDiff]) -> None:
    if not isinstance(operation, dict):
        return
    op, pointer, origin = operation.get("op"), operation.get("path"), operation.get("from")
    if not isinstance(pointer, str):
        return
    value = operation.get("value")
    if op in ("move", "copy") and isinstance(origin, str):
        source, moved = _found(origin, old)
        value = f"(what stood at {origin})" if moved is _ABSENT else moved  # type: ignore[assignment]
        if op == "move":
            found.append(FieldDiff(source, "remove", None if moved is _ABSENT else moved, None))  # type: ignore[arg-type]
    elif op not in ("add", "remove", "replace"):
        return
    path, here = _found(pointer, old)
    before = None if here is _ABSENT else here
    if op == "remove":
        found.append(FieldDiff(path, "remove", before, None))  # type: ignore[arg-type]
    elif here is _ABSENT or before != value:
        found.append(FieldDiff(path, "add" if here is _ABSENT else "replace", before, value))  # type: ignore[arg-type]


def _found(pointer: str, old: Json) -> tuple[Path, Json | object]:
    """The path that a JSON Pointer (RFC 6901) names, and what stands there."""
    path: list[Segment] = []
    here: Json | object = old if old is not None else _ABSENT
    for part in pointer.split("/")[1:]:
        step = part.replace("~1", "/").replace("~0", "~")
        if isinstance(here, list) and step.isdigit():
            path.append(int(step))
            here = here[int(step)] if int(step) < len(here) else _ABSENT
        else:
            path.append(int(step) if step.isdigit() and here is _ABSENT else step)
            here = here.get(step, _ABSENT) if isinstance(here, dict) else _ABSENT
    return tuple(path), here
