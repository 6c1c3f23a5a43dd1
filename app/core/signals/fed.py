"""Who writes more often for there being more to do: as often for each object as before, of which others make more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from app.core.entities import Entity
from app.core.onset import Step
from app.core.phrases import number
from app.core.signals.calls import Load, caller_name, program

SOON = 2
"""Slots by which who makes objects may be seen later than who writes them."""
MOSTLY = 0.5


class Fed(NamedTuple):
    """What a rise of writes is about, its writer less, and who makes the objects; ``said`` where these are most of
    it."""

    about: dict[Entity, float]
    said: str


NOT_FED = Fed({}, "")


def fed(key: Load, steps: Mapping[Load, Step]) -> Fed:
    """Who makes more of the objects that are written more often.

    What is done w times to each of n objects a second grows by W·Δn + N·Δw, with the means W and N of before and after,
    as in growth.py: the first is of who makes them.
    """
    user, verb, group, resource = key
    made = ("create", group, resource.split("/")[0])
    makers = [other for other in steps if other[1:] == made and other[0] != user]
    if verb not in ("update", "patch") or not makers:
        return NOT_FED
    maker = max(makers, key=lambda other: steps[other].after - steps[other].before)
    mine, theirs = steps[key], steps[maker]
    if not theirs.before or theirs.after <= theirs.before or theirs.index > mine.index + SOON:
        return NOT_FED
    each = (mine.before / theirs.before + mine.after / theirs.after) / 2
    share = min(1.0, each * (theirs.after - theirs.before) / (mine.after - mine.before))
    times = f"{caller_name(maker[0])} makes {number(theirs.after / theirs.before)} times as many of them"
    return Fed(_told(maker[0], share) | _told(user, 1.0 - share / 2), times if share >= MOSTLY else "")


def _told(user: str, share: float) -> dict[Entity, float]:
    return {("user", user): share, **{entity: weight * share for entity, weight in program(user).items()}}
