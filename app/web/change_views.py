"""What the pages of one change and of one object show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from msgspec.structs import replace

from app.core.changes.hunks import Hunk, hunks
from app.core.changes.recipe import Known, Recipe
from app.core.changes.revert import revert_recipe
from app.core.edges.served import SERVED
from app.core.edges.touched import Touched
from app.core.metrics.turning import Moved
from app.core.model import Change, Resource, Rollout, Verb
from app.core.objects import kinds
from app.core.objects.diff import diff
from app.core.objects.versions import Version, Write, versions
from app.core.phrases import duration, measure
from app.core.screen.aftermath import Measured, moved
from app.core.screen.axis import Axis, Tick, ticks
from app.core.screen.elsewhere import NO_NEIGHBOURS, Link, Neighbours, elsewhere
from app.core.screen.lanes import Problem
from app.core.screen.timeline import line
from app.store.history import History
from app.store.seen import Seen
from app.store.surroundings import Surroundings
from app.web import drawing
from app.web.filters import exact_time
from app.web.undoing import Offer


@dataclass(frozen=True, slots=True)
class AfterRow:
    """A line that moved: ``turn`` is ``0.2/s → 41/s``, ``when`` ``2 s later`` or ``at once``."""

    drawn: drawing.Drawn
    who: str
    turn: str
    when: str
    harm: bool


@dataclass(frozen=True, slots=True)
class After:
    """What moved after a change, on one axis with the change's mark at ``x``. No rows: nothing moved.

    ``looked`` says in what it was looked for: calls, metrics, requests of apps, or nothing. ``among`` is the number of
    workloads and Services among which those were looked for that the change acts on, where there are more; else 0.
    """

    ticks: tuple[Tick, ...]
    x: float
    rows: tuple[AfterRow, ...]
    looked: tuple[str, ...]
    among: int = 0


@dataclass(frozen=True, slots=True)
class ChangePage:
    """One change, whole. ``manifests`` are the sides of it on which the object was there: before, after."""

    change: Change
    hunks: tuple[Hunk, ...]
    began: tuple[Change, ...]
    rollouts: tuple[Rollout, ...]
    problems: tuple[Problem, ...]
    seen: Seen
    address: str
    markdown: str
    recipe: Recipe
    manifests: tuple[str, ...]
    after: After
    elsewhere: tuple[Link, ...] = ()
    offer: Offer | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """Which page of an object's versions: cursors of this one and of the next, the two change ids to compare.

    ``old`` and ``new`` left out, the newest is compared with the one before.
    """

    here: str | None
    next: str | None
    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True)
class ObjectPage:
    """One object: a page of its versions, and the difference between two of them (None: it cannot be told).

    ``newest`` says that no version is newer than these.
    """

    resource: Resource
    deleted: bool
    versions: tuple[Version, ...]
    newest: bool
    shown: Shown
    old: Version | None
    new: Version | None
    hunks: tuple[Hunk, ...] | None
    seen: Seen


def after(change: Change, measured: Measured, who: Touched, *, among: int = 0) -> After:
    """What moved after a change, laid on an axis from the first to the last moment that was measured."""
    looked = looked_at(measured)
    found = moved(change.at, measured, who)
    if not found:
        return After((), 0.0, (), looked, among)
    begins, ends = min(_moments(one)[0] for one in found), max(_moments(one)[-1] for one in found)
    axis = Axis(datetime.fromtimestamp(begins, UTC), datetime.fromtimestamp(ends, UTC))
    shown = drawing.lines([line(axis, replace(one.line, bad_from=begins if one.harm else None)) for one in found])
    rows = tuple(_after_row(change, one, drawn) for one, drawn in zip(found, shown, strict=True))
    return After(ticks(axis, wanted=5), axis.x(change.at), rows, looked, among)


def looked_at(measured: Measured) -> tuple[str, ...]:
    """In what it is looked for what moved: calls, metrics, requests of apps, as far as there are any."""
    of_apps = {one.name in SERVED for one in measured.series}
    there = {"calls": measured.slots is not None, "metrics": False in of_apps, "requests of apps": True in of_apps}
    return tuple(what for what, was in there.items() if was)


def _moments(one: Moved) -> list[float]:
    """When the line was measured; it was, or it could not have moved."""
    line = one.line
    return [line.start + slot * line.step for slot, value in enumerate(line.values) if value is not None]


def _after_row(change: Change, one: Moved, drawn: drawing.Drawn) -> AfterRow:
    away = (one.at - change.at).total_seconds()
    return AfterRow(
        drawn,
        who=one.who,
        turn=f"{measure(one.before, one.line.unit)} → {measure(one.after, one.line.unit)}",
        when=f"{duration(away)} later" if away >= one.line.step else "at once",
        harm=one.harm,
    )


def change_page(
    change: Change,
    began: Sequence[Change],
    around: Surroundings,
    *,
    known: Known,
    after: After,
    address: str,
    neighbours: Neighbours = NO_NEIGHBOURS,
    offer: Offer | None = None,
) -> ChangePage:
    """The page of a change. ``known`` is what bears on undoing it, ``offer`` how it is undone from there; ``address``
    its permanent one, absolute."""
    found = hunks(change.diffs)
    return ChangePage(
        change=change,
        hunks=found,
        began=tuple(sorted(began, key=lambda edit: (edit.at, edit.key))),
        rollouts=tuple(rollout for rollout in around.rollouts if rollout.change_id == change.id),
        problems=tuple(problem for problem in around.problems if problem.first_at >= change.at)[:12],
        seen=around.seen,
        address=address,
        markdown=markdown(change, found, address=address),
        recipe=revert_recipe(change, known),
        manifests=_manifests(change),
        after=after,
        elsewhere=tuple(elsewhere(change, known, neighbours)),
        offer=offer,
    )


def _manifests(change: Change) -> tuple[str, ...]:
    if kinds.told_by(change.resource.api_group):
        return ()
    return {Verb.CREATE: ("after",), Verb.DELETE: ("before",)}.get(change.verb, ("before", "after"))


def markdown(change: Change, found: Sequence[Hunk], *, address: str) -> str:
    """The change as it is pasted into a chat or a postmortem."""
    fence = "`" * 4  # values may hold fences of three
    lines = [
        f"**{change.summary or change.resource}**",
        (
            f"{change.verb} of {change.resource} in {change.resource.cluster} {_when(change)}"
            f" by {change.actor.name or 'nobody that we could see'} ({change.actor.source})"
        ),
        *([f"not seen, but found in {change.found_in}"] if change.found_in else []),
        "",
        f"{fence}diff",
        *(line for hunk in found for line in _as_diff(hunk)),
        fence,
        *([change.url] if change.url else []),
        address,
    ]
    return "\n".join(lines)


def _when(change: Change) -> str:
    if change.since is None:
        return f"at {exact_time(change.at)}"
    return f"between {exact_time(change.since)} and {exact_time(change.at)}"


def _as_diff(hunk: Hunk) -> list[str]:
    return [f"@@ {hunk.path} @@", *(f"{line.sign}{line.text}" for line in hunk.lines)]


def object_page(
    resource: Resource, history: History, newer: Sequence[Write] | None, *, shown: Shown, seen: Seen
) -> ObjectPage | None:
    """An object's page. ``newer`` is what was written after the page's versions, None when that is too much to undo.

    None when a change id is not among the versions.
    """
    found = versions(history.state.state, history.changes, newer)
    by_id = {version.change.id: version for version in found}
    if any(asked is not None and asked not in by_id for asked in (shown.old, shown.new)):
        return None
    new = by_id[shown.new] if shown.new is not None else (found[0] if found else None)
    before = _before(found, new)
    old = by_id[shown.old] if shown.old is not None else before
    return ObjectPage(
        resource=resource,
        deleted=history.state.deleted_at is not None,
        versions=found,
        newest=newer is not None and not newer,
        shown=shown,
        old=old,
        new=new,
        hunks=_difference(old, new, before=before),
        seen=seen,
    )


def _before(found: tuple[Version, ...], version: Version | None) -> Version | None:
    if version is None:
        return None
    place = found.index(version) + 1
    return found[place] if place < len(found) else None


def _difference(old: Version | None, new: Version | None, *, before: Version | None) -> tuple[Hunk, ...] | None:
    """What lies between two states; where one is unknown, what ``new``'s own change tells of the version before it."""
    if new is None:
        return None
    if old is not None and old.known and new.known:
        return hunks(diff(old.state, new.state))
    return hunks(new.change.diffs) if old is before and new.change.diffs else None
