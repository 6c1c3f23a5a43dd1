"""How to undo a change, for a terminal: sentences in 80 columns, commands whole and at the margin, to be copied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from app.core.changes.recipe import Recipe
from app.core.changes.report import VAGUE, WIDTH, tame
from app.core.model import Change
from app.core.objects.actors import short


def report(change: Change, recipe: Recipe, seen: Sequence[str] = ()) -> str:
    """The recipe of a change: what is to be done, in order, then what to mind; and what is ``seen`` of what came since,
    a line each (screen/tables.py)."""
    when = f"{change.at:%Y-%m-%d %H:%M:%S}{VAGUE if change.since else ''} UTC"
    lines = [
        *_wrapped(change.summary or f"{change.verb} of {change.resource}"),
        *_wrapped(f"{change.resource} in {change.resource.cluster}, {when}, by {short(change.actor)}"),
    ]
    for number, step in enumerate(recipe.steps, 1):
        lines += ["", *_wrapped(f"{step.purpose}{':' if step.command else '.'}", f"{number}. ")]
        lines += ["", *map(tame, step.command.split("\n"))] if step.command else []
    if not recipe.command:
        lines += ["", "No command undoes it."]
    for caution in recipe.cautions:
        lines += ["", *_wrapped(caution.text, "!  ")]
        lines += [f"   change {caution.change_id}"] if caution.change_id else []
    lines += ["", *(line for told in seen for line in _wrapped(told))] if seen else []
    return "\n".join(lines) + "\n"


def _wrapped(text: str, mark: str = "") -> Iterator[str]:
    """Sentences with a mark before the first line; what has no space is not cut."""
    yield from wrap(
        tame(text),
        WIDTH,
        initial_indent=mark,
        subsequent_indent=" " * len(mark),
        break_long_words=False,
        break_on_hyphens=False,
    )
