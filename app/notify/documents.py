"""A change, a rollout, a digest or an incident as text for people, where nothing is edited, clicked or threaded. Pure.

What is written in a cluster is text here, on one line, without what cannot be seen: each target escapes it in its way.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from msgspec import Struct

from app.core.changes.recipe import NOTHING, Recipe
from app.core.changes.revert import revert_recipe, suspect_recipe
from app.core.findings import Ranking, Suspect
from app.core.model import Outcome, Resource
from app.core.objects.actors import short
from app.core.phrases import duration, many, percent, t_minus
from app.notify import message, notice
from app.notify.blocks import NAME, SENTENCE, cut, plain


class Part(Struct, frozen=True):
    """Lines that stand together; ``is_code`` where each character counts."""

    lines: tuple[str, ...]
    is_code: bool = False


class Document(Struct, frozen=True):
    """What is told: ``title`` in a line, ``facts`` on where and when, and ``link`` to where more is. ``about`` names
    what it is of, the same in all that is told of it."""

    title: str
    facts: tuple[str, ...]
    parts: tuple[Part, ...]
    link: str
    about: str


def document(told: notice.Told | message.Told) -> Document:
    """Of what a notice or an incident is now."""
    if isinstance(told, message.Told):
        return _of_incident(told)
    return _of_change(told) if len(told.items) == 1 else _of_digest(told)


def _of_change(told: notice.Told) -> Document:
    (item,) = told.items
    change, parts = item.change, list[Part]()
    if item.rollout:
        parts.append(Part((item.state_sentence,)))
    if lines := tuple(notice.diff_lines(change)):
        parts.append(Part(lines, is_code=True))
    if item.reach:
        more = f" and {len(item.reach) - notice.REACHED} more" if len(item.reach) > notice.REACHED else ""
        parts.append(Part((f"Reaches {_line(', '.join(item.reach[: notice.REACHED]))}{more}.",)))
    if item.rollout and item.rollout.outcome is Outcome.FAILED:
        parts += _undoing(revert_recipe(change, item.known))
    when = f"between {_moment(change.since)} and {_moment(change.at)}" if change.since else _moment(change.at)
    who = f"by {_name(short(change.actor))}"
    facts = (f"cluster {_name(change.resource.cluster)}", _where(change.resource), when, who, *told.late)
    link = f"{told.url}/changes/{change.id}"
    return Document(_line(notice.sentence(told)), facts, tuple(parts), link, f"n{told.notice.id}")


def _of_digest(told: notice.Told) -> Document:
    items = sorted(told.items, key=notice.first)
    total = len(items) + told.notice.more
    lines = [_line(f"{one.sign} {one.name} ({one.change.resource.cluster})") for one in items[: notice.LISTED]]
    if total > notice.LISTED:
        lines.append(f"and {total - notice.LISTED:,} more")
    times = [one.change.at for one in items]
    facts = (f"from {_moment(min(times))}", f"to {_moment(max(times))}", *told.late)
    failed = len(notice.failed_of(told))
    title = f"{many(failed, 'rollout')} failed: {notice.sentence(told)}" if failed else notice.sentence(told)
    return Document(_line(title), facts, (Part(tuple(lines)),), notice.page_of(told), f"n{told.notice.id}")


def _of_incident(told: message.Told) -> Document:
    incident, ranking = told.incident, told.ranking
    facts = [f"cluster {_name(incident.cluster)}", *(_name(one) for one in incident.scope.namespaces[:3])]
    if incident.severity:
        facts.append(_name(incident.severity))
    since = f"since {_moment(incident.started_at)}"
    if incident.resolved_at is not None and incident.status == "resolved":
        since += f", for {duration((incident.resolved_at - incident.started_at).total_seconds())}"
    facts.append(f"{incident.status} {since}")
    parts = list(_ranked(told, ranking)) if ranking and incident.status != "merged" else []
    return Document(_line(message.sentence(told)), tuple(facts), tuple(parts), told.page, incident.id)


def _ranked(told: message.Told, ranking: Ranking) -> Iterator[Part]:
    none = Part((f"None of these, {percent(ranking.none_of_these)}",))
    if ranking.none_leads:
        yield none
    for suspect in ranking.suspects[: message.SHOWN]:
        yield Part(tuple(_suspect(suspect)))
        if suspect.rank == 1 and not ranking.none_leads:
            yield from _undoing(suspect_recipe(suspect, told.known.get(suspect.change.id, NOTHING)))
    if not ranking.none_leads:
        yield none
    if told.gaps:
        gap = told.gaps[0]
        blind = duration((gap.to_at - gap.from_at).total_seconds())
        yield Part((_line(f"Not seen: {blind} from {_moment(gap.from_at)}, {gap.why}"),))


def _suspect(suspect: Suspect) -> Iterator[str]:
    change, resource = suspect.change, suspect.change.resource
    yield f"{suspect.rank}. {_name(resource.name)}, {percent(suspect.probability)}"
    yield f"{_where(resource)}, {t_minus(suspect.t_minus)} by {_name(short(change.actor))}"
    if change.summary:
        yield _line(change.summary)
    for reason in suspect.evidence[: message.REASONS if suspect.rank == 1 else 1]:
        sign = "?" if not reason.measured else "−" if reason.weight < 0 else "+"
        yield f"{sign} {_line(reason.sentence)}"


def _undoing(recipe: Recipe) -> Iterator[Part]:
    if recipe.command and len(recipe.command) <= message.COMMAND:
        yield Part((_line(f"To undo it, {recipe.placed}:"),))
        yield Part(tuple(recipe.command.splitlines()), is_code=True)
    elif recipe.command:
        yield Part(("How to undo it is long, and on the page.",))
    if recipe.warning:
        yield Part((_line(recipe.warning),))


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _where(resource: Resource) -> str:
    return _line(f"{resource.kind} in {resource.namespace}" if resource.namespace else resource.kind)


def _name(text: str) -> str:
    return cut(plain(text), NAME)


def _line(text: str) -> str:
    return cut(plain(text), SENTENCE)
