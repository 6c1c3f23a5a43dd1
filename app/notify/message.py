"""An incident and its ranking -> what Slack shows of it: one message, and what its thread is told. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import humanize

from app.core.changes.recipe import NOTHING, Known
from app.core.changes.revert import suspect_recipe
from app.core.findings import NONE, Incident, Opinion, Ranking, Suspect, Verdict
from app.core.model import Gap, Resource
from app.core.objects.actors import short
from app.core.phrases import duration, many, no_ranking, percent, t_minus
from app.core.ranking.flips import flip
from app.core.screen.first_ranking import at_first
from app.notify.alerted import alerts_said
from app.notify.blocks import (
    HEADER,
    NAME,
    SENTENCE,
    Json,
    code,
    context,
    cut,
    escape,
    label,
    link,
    moment,
    plain,
    section,
)
from app.notify.slack import Message, fitting
from app.store.outbox import Shown

SHOWN = 3
"""Suspects that the message argues for; the page has the rest."""
MORE_SHOWN = 7
"""That are shown to who asks for more."""
REASONS = 2
COMMAND, SHORT = 1200, 300
"""A longer command, of what leads and of others, is on the page: who reads Slack on a telephone does not copy it."""
WIDE = timedelta(minutes=1)
"""Of an onset that is not known better both ends are told, not its middle."""
SIGNS = {"suspected": "🟡", "open": "🔴", "resolved": "🟢", "merged": "⚪"}
IT, NOT_IT, JUDGE, OPEN, MORE = "it", "not_it", "judge", "open", "more"
"""What can be clicked, as payloads call it: the buttons of what leads, the menu of the others, the link, the rest."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a message is made of. ``first`` is the incident's first ranking, if there was one before ``ranking``, its
    newest; ``gaps`` are what was not seen of the time that was searched; ``url`` is where people reach us; ``known`` is
    what bears on undoing a suspect, by the id of its change."""

    incident: Incident
    ranking: Ranking | None
    first: Ranking | None
    gaps: tuple[Gap, ...]
    url: str
    known: Mapping[str, Known] = field(default_factory=dict)

    @property
    def page(self) -> str:
        return f"{self.url}/incidents/{self.incident.id}"


def shown(told: Told, version: str, made: str = "") -> Shown:
    """What is kept of what a message shows, to tell later what moved; ``made`` is the message's digest, by which it is
    known that nothing did."""
    leader = told.ranking.leader[0] if told.ranking else ""
    return Shown(version, told.incident.status, leader, made=made)


def message(told: Told) -> Message:
    """The incident's own message, with the commands of as many suspects as there is room for."""
    return fitting(lambda commands: _message(told, commands), SHOWN)


def _message(told: Told, commands: int) -> Message:
    incident = told.incident
    blocks: list[Json] = [
        {"type": "header", "text": label(_title(incident))},
        context(" · ".join(_facts(told))),
        *alerts_said(incident),
    ]
    if incident.merged_into is not None:
        blocks.append(section(part_of(incident.merged_into, url=told.url)))
        return Message(escape(sentence(told), 4 * SENTENCE), tuple(blocks))
    if told.ranking is None:
        why = no_ranking(incident.ranked_at)
        promised = "." if incident.ranked_at else ": the suspects appear here as soon as they are."
        blocks.append(section(f"{why[0].upper()}{why[1:]}{promised}"))
    else:
        blocks += _ranked(told, told.ranking, commands)
    buttons = [_button("Open the timeline", OPEN, incident.id, url=told.page)]
    if told.ranking and len(told.ranking.suspects) > SHOWN:
        buttons.append(_button("Show more", MORE, f"{MORE}/{incident.id}"))
    blocks.append({"type": "actions", "elements": buttons})
    return Message(escape(sentence(told), 4 * SENTENCE), tuple(blocks))


def part_of(into: str, *, url: str) -> str:
    """Where to go on from an incident that was merged into another, of this id."""
    return f"It is a part of {link(f'{url}/incidents/{into}', 'another incident')} now, where its alerts are."


def sentence(told: Told) -> str:
    """The whole of it in one line, as text that nothing is escaped of."""
    title = _title(told.incident)
    if told.incident.status == "merged":
        return f"{title}: a part of another incident now"
    return f"{title}: {_leading(told.ranking) if told.ranking else no_ranking(told.incident.ranked_at)}"


def _title(incident: Incident) -> str:
    return cut(f"{SIGNS.get(incident.status, '')} {plain(incident.title)}".strip(), HEADER)


def others(ranking: Ranking) -> Sequence[Suspect]:
    """The suspects that the message has no room for, as many as are shown to who asks."""
    return ranking.suspects[SHOWN : SHOWN + MORE_SHOWN]


def more(incident_id: str, ranking: Ranking, *, url: str, known: Mapping[str, Known]) -> Message:
    """The others, a line each and how to undo it, for who asked; ``known`` as of Told."""
    return fitting(lambda commands: _more(incident_id, ranking, url, known, commands), MORE_SHOWN)


def _more(incident_id: str, ranking: Ranking, url: str, known: Mapping[str, Known], commands: int) -> Message:
    rest = others(ranking)
    if not rest:
        return reply("There are no others any more.")
    blocks = []
    for place, one in enumerate(rest):
        change = one.change
        head = f"*{one.rank}.  {link(f'{url}/changes/{change.id}', change.resource.name)}*  {percent(one.probability)}"
        line = f"{head}, {where(change.resource)}, *{t_minus(one.t_minus)}* by {escape(short(change.actor))}"
        blocks += [section(line), *_undoing(one, known, SHORT if place < commands else 0)]
    if len(ranking.suspects) > SHOWN + MORE_SHOWN:
        left = len(ranking.suspects) - SHOWN - MORE_SHOWN
        blocks.append(section(f"{many(left, 'other')} {link(f'{url}/incidents/{incident_id}', 'on the page')}"))
    return Message(f"{many(len(rest), 'other suspect')}", tuple(blocks))


def reply(body: str) -> Message:
    """What is said in the thread, from ``news``."""
    return Message(body, (section(body),))


def news(before: Shown, told: Told) -> str:
    """What is said in the thread as the message is edited: that the incident ended or is open again, and what leads
    now; "" where neither is new."""
    incident, said = told.incident, []
    if incident.status != before.status and incident.status in {"open", "resolved"}:
        lasted = (incident.resolved_at or incident.started_at) - incident.started_at
        ended = f"Resolved after {duration(lasted.total_seconds())}."
        opened = "Somebody is called for it now." if before.status == "suspected" else "Open again."
        said.append(ended if incident.status == "resolved" else opened)
    if told.ranking and before.leader and before.leader not in told.ranking.leaders:
        said.append(f"Now likeliest: {_leading(told.ranking)}.{_formerly(before.leader, told.ranking)}")
    return escape(" ".join(said), 4 * SENTENCE)


def _formerly(leader: str, ranking: Ranking) -> str:
    """Where what led before stands now."""
    if leader == NONE:
        return f" Before it was none of these, now {percent(ranking.none_of_these)}."
    was = next((one for one in ranking.suspects if leader in one.ids), None)
    if was is None:
        return " What led before is no suspect any more."
    return f" Before it was {_named(was)}, now {humanize.ordinal(was.rank)} with {percent(was.probability)}."


def _leading(ranking: Ranking) -> str:
    if not ranking.suspects:
        return "no change was seen"
    if ranking.none_leads:
        return f"none of the changes that were seen ({percent(ranking.none_of_these)})"
    first = ranking.suspects[0]
    return f"{_named(first)} ({percent(first.probability)}, {t_minus(first.t_minus)})"


def _named(suspect: Suspect) -> str:
    resource = suspect.change.resource
    return f"{resource.kind} {cut(plain(resource.name), NAME)}"


def _facts(told: Told) -> Iterator[str]:
    incident = told.incident
    yield f"cluster *{escape(incident.cluster)}*"
    if incident.scope.namespaces:
        yield escape(", ".join(incident.scope.namespaces[:3]))
    if incident.severity:
        yield escape(incident.severity)
    since = f"since {moment(incident.started_at)}"
    if incident.status in ("resolved", "suspected") and incident.resolved_at is not None:
        lasted = (incident.resolved_at - incident.started_at).total_seconds()
        over = ", over by now" if incident.status == "suspected" else ""
        yield f"*{incident.status}*{over}, {since}, for {duration(lasted)}"
    else:
        yield f"*{incident.status}* {since}"
    if told.ranking:
        onset = told.ranking.onset
        is_wide = onset.high - onset.low > WIDE
        when = f"between {moment(onset.low)} and {moment(onset.high)}" if is_wide else moment(onset.at)
        yield f"onset {when}, found in {escape(onset.found_in)}"


def _ranked(told: Told, ranking: Ranking, commands: int) -> Iterator[Json]:
    places = told.first.places if told.first else {}
    if ranking.none_leads:
        yield from _none(told, ranking)
    for suspect in ranking.suspects[:SHOWN]:
        room = (COMMAND if suspect.rank == 1 else SHORT) if suspect.rank <= commands else 0
        yield from _suspect(told, ranking, suspect, places=places, room=room)
    if not ranking.none_leads:
        yield from _none(told, ranking)
    remarks = []
    if len(ranking.suspects) > SHOWN:
        remarks.append(f"{many(len(ranking.suspects) - SHOWN, 'less likely suspect')} on the page.")
    if ranking.not_measured:
        remarks.append(f"*Not measured:* {escape(' '.join(ranking.not_measured), SENTENCE)}")
    if told.gaps:
        gap, more = told.gaps[0], f" (and {len(told.gaps) - 1} more)" if told.gaps[1:] else ""
        blind = duration((gap.to_at - gap.from_at).total_seconds())
        remarks.append(f"*Not seen:* {blind} from {moment(gap.from_at)}, {escape(gap.why, SENTENCE)}{more}")
    if remarks:
        yield context("\n".join(remarks))


def _suspect(told: Told, ranking: Ranking, suspect: Suspect, *, places: dict[str, int], room: int) -> Iterator[Json]:
    change, resource = suspect.change, suspect.change.resource
    name = link(f"{told.url}/changes/{change.id}", resource.name)
    head = f"*{suspect.rank}.  {name}*  *{percent(suspect.probability)}*"
    lines = [
        f"{head}{_moved(suspect, places)}",
        f"{where(resource)} · *{t_minus(suspect.t_minus)}* by {escape(short(change.actor))}",
    ]
    if change.summary:
        lines.append(escape(change.summary, SENTENCE))
    for reason in suspect.evidence[: REASONS if suspect.rank == 1 else 1]:
        sign = "?" if not reason.measured else "−" if reason.weight < 0 else "+"
        lines.append(f"{sign} {escape(reason.sentence, SENTENCE)}")
    first = suspect.rank == 1
    if first and (hangs := flip(suspect, ranking)):
        lines.append(f"Without the evidence “{escape(hangs.rule)}” it would be behind {escape(hangs.behind)}.")
    leads = first and not ranking.none_leads
    yield from _judged(told.incident, suspect.ids, "\n".join(lines), _undoing(suspect, told.known, room), leads=leads)


def _moved(suspect: Suspect, places: dict[str, int]) -> str:
    said = at_first(suspect, places)
    return f"  _{said}_" if said else ""


def where(resource: Resource) -> str:
    """A kind, and the namespace that it is in."""
    return escape(f"{resource.kind} in {resource.namespace}" if resource.namespace else resource.kind)


def _undoing(suspect: Suspect, known: Mapping[str, Known], room: int) -> Iterator[Json]:
    """The command that undoes it, where that is no longer than ``room``, and what to mind."""
    recipe = suspect_recipe(suspect, known.get(suspect.change.id, NOTHING))
    if recipe.command and len(recipe.command) <= room:
        yield code(recipe.command)
        said = (escape(f"Run it {recipe.placed}.", SENTENCE), escape(recipe.warning, 2 * SENTENCE))
        yield context("\n".join(filter(None, said)))
    elif recipe.command:
        yield context("How to undo it is long, and on the page.")
    elif recipe.warning:
        yield context(escape(recipe.warning, 2 * SENTENCE))


def _none(told: Told, ranking: Ranking) -> Iterator[Json]:
    why = "traffic, hardware, time" + (", or a change that was not recorded" if ranking.none_leads else "")
    share = f"  *{percent(ranking.none_of_these)}*" if ranking.suspects else ""
    text = f"*None of these*{share}\n{why}"
    yield from _judged(told.incident, (NONE,), text, leads=ranking.none_leads)


def _judged(
    incident: Incident, ids: tuple[str, ...], text: str, below: Iterable[Json] = (), *, leads: bool
) -> Iterator[Json]:
    """An answer, what stands ``below`` it, and what to say of it: buttons under what leads, else a menu beside it."""
    said = next((one for one in incident.verdicts if one.change_id in ids), None)
    choices = [
        (words, f"{which}/{incident.id}/{said.change_id if said else ids[0]}")
        for which, words in ((IT, "This was it"), (NOT_IT, "Not it"))
    ]
    options = [{"text": label(words), "value": value} for words, value in choices]
    menu = {"type": "overflow", "action_id": JUDGE, "options": options}
    yield section(text) if leads else section(text) | {"accessory": menu}
    yield from below
    if said is not None:
        yield context(_said(said))
    if leads:
        buttons = [_button(words, value.partition("/")[0], value) for words, value in choices]
        yield {"type": "actions", "elements": buttons}


def _said(verdict: Verdict) -> str:
    words = "✅ This was it" if verdict.opinion is Opinion.IT else "❌ Not it"
    return f"{words}, says *{escape(verdict.by)}*, {moment(verdict.at)}"


def _button(words: str, action: str, value: str, *, url: str = "") -> Json:
    button = {"type": "button", "action_id": action, "value": value, "text": label(words)}
    return button | ({"url": url} if url else {})
