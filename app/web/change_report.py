"""One change, for a terminal: what it is, who made it, its fields before and after, and what it began."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from app.core.changes.report import WIDTH, tame
from app.core.model import Actor, ActorSource, Change, DiffSource, Verb
from app.core.objects.actors import short
from app.core.screen import tables
from app.web import answers
from app.web.differences import fields

BEGAN = 20
"""Changes that it began which are told, the first; JSON has them all."""


def change_report(change: Change, answer: answers.OneChange) -> str:
    """The answer for a terminal: values whole, on lines of their own, addresses too, everything else in 80 columns."""
    said = answer.model_dump(mode="json", include={"began", "freshness", "gaps"})
    began = said.pop("began")
    links = [f"{tame(one.words)}: {tame(one.url)}" for one in answer.links]
    lines = [*_about(change), *links, *fields(change.diffs), ""]
    if began:
        more = f", of which the first {BEGAN} are told" if len(began) > BEGAN else ""
        lines.append(f"what controllers wrote because of it{more}:")
        end = tables.as_text({"items": began[:BEGAN], **said}, tables.TABLES["Changes"])
    else:
        end = "".join(f"{line}\n" for told in tables.seen(said) for line in _wrapped(told))
    return "".join(f"{line}\n" for line in lines) + end


def _about(change: Change) -> Iterator[str]:
    yield from _wrapped(change.summary or f"{change.verb} of {change.resource}")
    yield from _wrapped(f"{change.resource} in {change.resource.cluster}, {_when(change)}")
    yield from _wrapped(_who(change.actor))
    if change.found_in:
        yield from _wrapped(f"found in {change.found_in}: nobody told of the write itself")
    if change.begun_by:
        yield f"because of change {change.begun_by}"
    if change.workload:
        yield from _wrapped(f"it concerns {change.workload}")
    if change.url:
        yield tame(change.url)
    if change.diff_source is DiffSource.PATCH:
        yield "the state before is unknown: this is the request itself"
    elif not change.diffs and change.verb is not Verb.DELETE:
        yield "no body was recorded, only that it was written"


def _when(change: Change) -> str:
    at = f"{change.at:%Y-%m-%d %H:%M:%S} UTC"
    return f"after {change.since:%Y-%m-%d %H:%M:%S}, not after {at}" if change.since else at


def _who(actor: Actor) -> str:
    if not actor.name:
        return "nobody knows who made it"
    name = short(actor)
    by = f"by {name}" if name == actor.name else f"by {name} ({actor.name})"
    if actor.source is ActorSource.TOLD:
        return f"{by}, as told by {actor.user_agent}"
    program = " in pod ".join(filter(None, (actor.user_agent, actor.pod)))
    return f"{by}{f', with {program}' if program else ''}, known from {actor.source}"


def _wrapped(text: str) -> list[str]:
    return wrap(tame(text), WIDTH, subsequent_indent="  ")
