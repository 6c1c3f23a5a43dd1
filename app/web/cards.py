"""What an incident's page says of one suspect, and of the moment that it is measured against."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from app.core.changes.hunks import first_difference
from app.core.changes.recipe import Recipe
from app.core.changes.revert import suspect_recipe
from app.core.findings import Ranking, Suspect
from app.core.model import Change, FieldDiff, Json
from app.core.phrases import SKEW, duration
from app.core.ranking.flips import Flip, flip
from app.web.filters import value

STRONG = 1.0
"""The weight of evidence, for or against, that alone changes the odds threefold."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A field's value before and after, short enough for a card."""

    field: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class SuspectCard:
    """A suspect as the page argues for it."""

    suspect: Suspect
    turn: Turn | None
    distance: str
    recipe: Recipe | None
    """Of the first alone: the page offers no other."""
    argued: int
    """Pieces of evidence that are told at once; the rest is a click away."""
    flip: Flip | None
    leads: bool
    """It is likelier than any other answer: the page's first and only amber one, with its undoing at hand."""


def suspect_card(suspect: Suspect, ranking: Ranking) -> SuspectCard:
    """A suspect with its most telling field."""
    strong = sum(abs(reason.weight) >= STRONG for reason in suspect.evidence)
    return SuspectCard(
        suspect,
        turn(suspect.change),
        distance(suspect, ranking),
        suspect_recipe(suspect) if suspect.rank == 1 else None,
        argued=min(max(strong, 2), 3),
        flip=flip(suspect, ranking),
        leads=suspect.rank == 1 and not ranking.none_leads,
    )


def distance(suspect: Suspect, ranking: Ranking) -> str:
    """``4 s before``, ``3 min after``; ``at`` when nobody can say which. As the evidence of time tells it."""
    if suspect.t_minus < SKEW and suspect.change.at <= ranking.onset.high + SKEW:
        return "at"
    side = "before" if suspect.t_minus >= timedelta() else "after"
    return f"{duration(abs(suspect.t_minus.total_seconds()))} {side}"


def turn(change: Change) -> Turn | None:
    """The field that tells the change best: an image, else a plain value, else the first; None for a whole object."""
    if not change.diffs:
        return None
    best = min(change.diffs, key=_plainness)
    if not best.path:
        return None
    old, new = _text(best.old), _text(best.new)
    if "\n" in old.strip() and "\n" in new.strip():
        old, new = first_difference(old, new)
    if best.path[-1:] == ("image",):
        old, new = _without_shared_name(old, new)
    field = ".".join(best.path_text.split(".")[-2:])
    return Turn(field, _short(old), _short(new))


def _plainness(found: FieldDiff) -> tuple[bool, bool]:
    nested = isinstance(found.old, (dict, list)) or isinstance(found.new, (dict, list))
    return found.path[-1:] != ("image",), nested


def _text(json: Json) -> str:
    return "" if json is None else value(json)


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"


def _without_shared_name(old: str, new: str) -> tuple[str, str]:
    """Two images of one repository as their tags only."""
    old_name, _, old_tag = old.rpartition(":")
    new_name, _, new_tag = new.rpartition(":")
    return (old_tag, new_tag) if old_name and old_name == new_name else (old, new)
