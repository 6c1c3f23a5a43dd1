"""The one line that a person reads about a change: its most telling field first, at most 120 characters."""

from __future__ import annotations

from app.core.model import FieldDiff, Json, Object, Resource, Verb

LIMIT = 120


def summary(
    resource: Resource, verb: Verb, diffs: tuple[FieldDiff, ...], *, old: Object | None, new: Object | None
) -> str:
    """What was done to what, without who: "image of payments-api: v1.41.0 → v1.42.0"."""
    name = f"{resource.kind} {resource.name}"
    if verb is not Verb.UPDATE:
        return clip(f"{name} {verb.value}d")
    if not diffs:
        return clip(f"{name} written (its content was not recorded)")
    return clip(f"{name}: " + ", ".join(_plain(found) for found in diffs[:4]))


def _plain(found: FieldDiff) -> str:
    return f"{found.path_text} {_value(found.old)} → {_value(found.new)}"


def _value(value: Json) -> str:
    return "none" if value is None else str(value) if not isinstance(value, dict | list) else "…"


def clip(text: str) -> str:
    return text if len(text) <= LIMIT else text[: LIMIT - 1] + "…"
