"""A change -> the command that undoes it, a dry run of that, what makes it hold, and what to mind.

Nothing here is run by us: a person reads the commands, judges them and runs them. What is sent to an API server for
them is in revert_write.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from app.core.changes import revert_since
from app.core.changes.promotions import is_asked, taken_back_by
from app.core.changes.recipe import NOTHING, Caution, Known, Recipe
from app.core.changes.revert_commands import argo, command, releases_beside
from app.core.changes.revert_owned import owners
from app.core.changes.revert_owner import holding, tenders
from app.core.findings import Suspect
from app.core.model import Change, Resource, Verb
from app.core.objects import kinds
from app.core.objects.revisions import TEMPLATE
from app.core.phrases import many

_AGAIN = "This rolls out the template that stands there now, from its first step on."
_STOPS = (
    "This stops the rollout at once and the pods of before take over; once it is complete, it does nothing: then undo"
    " the change of the template."
)
_KEPT_IN_REPLICA_SETS = (("apps", "Deployment"), ("argoproj.io", "Rollout"))


def revert_recipe(change: Change, known: Known = NOTHING, *, also: Sequence[Resource] = (), beside: int = 0) -> Recipe:
    """How to undo a change, by what is ``known`` of its object now: without that it is what undid it right after it.
    ``also`` are the objects that were made with it in one go, or got the same edit, ``beside`` is how many others were
    written with it (findings.Suspect): the command leaves those alone.

    The warning names a GitOps controller or a package manager that owns the object and would write it again.
    """
    if teller := kinds.told_by(change.resource.api_group):
        more = f", see {change.url}" if change.url else ""
        return Recipe("", (Caution(f"Kubernetes does not know it: undo it where it was made, in {teller}{more}."),))
    if nothing_left := revert_since.gone(change, known):
        return Recipe("", (nothing_left,))
    if is_asked(change):
        return _asked_back(change)
    found, held = command(change, known, also), holding(change, known)
    text, dry_run, looks, own = found.text, found.dry_run, found.looks, Caution(found.caution)
    if held.command:
        text, dry_run, looks, own = held.command, "", (), Caution("")
    said = (
        own,
        *_together(change, also, beside),
        *_follows(change),
        *revert_since.cautions(change, known),
        *held.cautions,
    )
    return Recipe(
        text,
        tuple(caution for caution in said if caution.text),
        dry_run,
        before=(*held.before, *looks) if text else (),
        after=held.after if text else (),
        cluster=change.resource.cluster,
    )


def suspect_recipe(suspect: Suspect, known: Known = NOTHING) -> Recipe:
    """How to undo a suspect, with all that it is, by what is ``known`` of its object now."""
    also = [one.resource for one in suspect.also]
    return revert_recipe(suspect.change, known, also=also, beside=len(suspect.beside))


def bearing(change: Change, known: Known) -> tuple[Resource, ...]:
    """The objects whose last known states tell more of how to undo it, by what is known so far: Known.others."""
    return (*tenders(change, known), *releases_beside(change.resource), *owners(change))


def is_of_revisions(change: Change) -> bool:
    """Whether it is undone by going back a revision that a ReplicaSet keeps: Known.revisions."""
    template = any(found.path[:2] == TEMPLATE for found in change.diffs)
    return template and (change.resource.api_group, change.resource.kind) in _KEPT_IN_REPLICA_SETS


def _asked_back(change: Change) -> Recipe:
    """What was asked of a rollout of Argo's goes by asking for the contrary: no field of the object is put back."""
    what = taken_back_by(change)
    said = _AGAIN if what != "abort" else _STOPS
    return Recipe(argo(what, change.resource), (Caution(said),), cluster=change.resource.cluster)


def _together(change: Change, also: Sequence[Resource], beside: int) -> Iterator[Caution]:
    if also and change.verb is not Verb.CREATE:
        yield Caution(f"The same edit was made to {many(len(also), 'other')}: undo each, by its name.")
    if beside:
        yield Caution(f"Written in one go with {many(beside, 'other')}, which this does not undo.")


def _follows(change: Change) -> Iterator[Caution]:
    if change.begun_by:
        yield Caution(
            "It follows from another change: undo that one, or a controller makes this again.", change.begun_by
        )
