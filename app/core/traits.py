"""What sort of change a change is: equal for two image bumps of two Deployments."""

from __future__ import annotations

from functools import lru_cache

from app.core.model import Change

Trait = tuple[str, str, str]  # kind, verb, the field's path without names


def trait(change: Change) -> Trait:
    """What sort of change it is: equal for two image bumps of two Deployments; of several fields, by the first."""
    return min(traits(change))


def traits(change: Change) -> set[Trait]:
    """What sorts of change it is: one for each field, of which the rarest tells most."""
    classes = {_class(diff.path) for diff in change.diffs} or {""}
    return {(change.resource.kind, change.verb.value, one) for one in classes}


@lru_cache(maxsize=50_000)  # the same few fields are written all the time
def _class(path: tuple[object, ...]) -> str:
    steps = [step for step in path if isinstance(step, str)]
    if not steps:
        return ""
    if steps[0] == "metadata":
        return ".".join(steps[:2])
    return ".".join(steps[:6])
