"""An incident and its ranking -> what Slack shows of it: one message, and what is said in its thread as it moves. Pure.

Texts from the cluster are escaped as Slack asks (https://docs.slack.dev/messaging/formatting-message-text#escaping)
and never turned into links, mentions or channels (``verbatim``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate, takewhile
from typing import Any
from unicodedata import category
from urllib.parse import quote

import humanize

from app.core.changes.revert import suspect_recipe
from app.core.findings import NONE, Incident, Opinion, Ranking, Suspect, Verdict
from app.core.model import Gap, Resource
from app.core.objects.actors import short
from app.core.phrases import duration, many, percent, t_minus
from app.core.screen.first_ranking import at_first
from app.notify.slack import Message
from app.store.outbox import Shown

Json = dict[str, Any]

SHOWN = 3
"""Suspects that the message argues for; the page has the rest."""
REASONS = 2
SENTENCE, NAME = 240, 100
"""Characters of a sentence and of a name that are shown, so that no message gets longer than Slack takes."""
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
HEADER = 150
"""Characters that Slack takes in a header block (https://docs.slack.dev/reference/block-kit/blocks/header-block)."""
COMMAND = 1200
"""A longer command is on the page: who reads Slack on a telephone does not copy it."""
SIGNS = {"suspected": "🟡", "open": "🔴", "resolved": "🟢", "merged": "⚪"}
IT, NOT_IT, JUDGE, OPEN = "it", "not_it", "judge", "open"
"""What can be clicked, as payloads call it: the buttons of what leads, the menu of the others, the link."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a message is made of. ``first`` is the incident's first ranking, if there was one before ``ranking``, its
    newest; ``gaps`` are what was not seen of the time that was searched; ``url`` is where people reach us."""

    incident: Incident
    ranking: Ranking | None
    first: Ranking | None
    gaps: tuple[Gap, ...]
    url: str

    @property
    def page(self) -> str:
        return f"{self.url}/incidents/{self.incident.id}"


def shown(told: Told, version: str) -> Shown:
    """What is kept of what a message shows, to tell later what moved."""
    return Shown(version, told.incident.status, told.ranking.leader[0] if told.ranking else "")


def message(told: Told) -> Message:
    """The incident's own message."""
    incident = told.incident
    title = _cut(f"{SIGNS.get(incident.status, '')} {_plain(incident.title)}".strip(), HEADER)
    blocks: list[Json] = [
        {"type": "header", "text": _words(title)},
        _context(" · ".join(_facts(told))),
    ]
    if incident.status == "merged":
        onward = f"{told.url}/incidents/{incident.merged_into}"
        blocks.append(_section(f"It is a part of {_link(onward, 'another incident')} now, where its alerts are."))
        return Message(_escape(f"{title}: a part of another incident now", 4 * SENTENCE), tuple(blocks))
    if told.ranking is None:
        blocks.append(_section("Not ranked yet: the suspects appear here as soon as they are."))
    else:
        blocks += _ranked(told, told.ranking)
    blocks.append({"type": "actions", "elements": [_button("Open the timeline", OPEN, incident.id, url=told.page)]})
    return Message(_escape(f"{title}: {_leading(told.ranking)}", 4 * SENTENCE), tuple(blocks))


def reply(body: str) -> Message:
    """What is said in the thread, from ``news``."""
    return Message(body, (_section(body),))


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
    return _escape(" ".join(said), 4 * SENTENCE)


def _formerly(leader: str, ranking: Ranking) -> str:
    """Where what led before stands now."""
    if leader == NONE:
        return f" Before it was none of these, now {percent(ranking.none_of_these)}."
    was = next((one for one in ranking.suspects if leader in one.ids), None)
    if was is None:
        return " What led before is no suspect any more."
    return f" Before it was {_named(was)}, now {humanize.ordinal(was.rank)} with {percent(was.probability)}."


def _leading(ranking: Ranking | None) -> str:
    if ranking is None:
        return "not ranked yet"
    if ranking.none_leads:
        return f"none of the changes that were seen ({percent(ranking.none_of_these)})"
    first = ranking.suspects[0]
    return f"{_named(first)} ({percent(first.probability)}, {t_minus(first.t_minus)})"


def _named(suspect: Suspect) -> str:
    resource = suspect.change.resource
    return f"{resource.kind} {_cut(_plain(resource.name), NAME)}"


def _facts(told: Told) -> Iterator[str]:
    incident = told.incident
    yield f"cluster *{_escape(incident.cluster)}*"
    if incident.scope.namespaces:
        yield _escape(", ".join(incident.scope.namespaces[:3]))
    if incident.severity:
        yield _escape(incident.severity)
    since = f"since {_time(incident.started_at)}"
    if incident.status == "resolved" and incident.resolved_at is not None:
        lasted = (incident.resolved_at - incident.started_at).total_seconds()
        yield f"*resolved*, {since}, for {duration(lasted)}"
    else:
        yield f"*{incident.status}* {since}"
    if told.ranking:
        yield f"onset {_time(told.ranking.onset.at)}, found in {_escape(told.ranking.onset.found_in)}"


def _ranked(told: Told, ranking: Ranking) -> Iterator[Json]:
    places = told.first.places if told.first else {}
    if ranking.none_leads:
        yield from _none(told, ranking)
    for suspect in ranking.suspects[:SHOWN]:
        yield from _suspect(told, suspect, places=places, leads=suspect.rank == 1 and not ranking.none_leads)
    if not ranking.none_leads:
        yield from _none(told, ranking)
    remarks = []
    if len(ranking.suspects) > SHOWN:
        remarks.append(f"{many(len(ranking.suspects) - SHOWN, 'less likely suspect')} on the page.")
    if ranking.not_measured:
        remarks.append(f"*Not measured:* {_escape(' '.join(ranking.not_measured), SENTENCE)}")
    if told.gaps:
        gap, more = told.gaps[0], f" (and {len(told.gaps) - 1} more)" if told.gaps[1:] else ""
        blind = duration((gap.to_at - gap.from_at).total_seconds())
        remarks.append(f"*Not seen:* {blind} from {_time(gap.from_at)}, {_escape(gap.why, SENTENCE)}{more}")
    if remarks:
        yield _context("\n".join(remarks))


def _suspect(told: Told, suspect: Suspect, *, places: dict[str, int], leads: bool) -> Iterator[Json]:
    change, resource = suspect.change, suspect.change.resource
    name = _link(f"{told.url}/changes/{change.id}", resource.name)
    head = f"*{suspect.rank}.  {name}*  *{percent(suspect.probability)}*"
    lines = [
        f"{head}{_moved(suspect, places)}",
        f"{_where(resource)} · *{t_minus(suspect.t_minus)}* by {_escape(short(change.actor))}",
    ]
    if change.summary:
        lines.append(_escape(change.summary, SENTENCE))
    for reason in suspect.evidence[: REASONS if suspect.rank == 1 else 1]:
        sign = "?" if not reason.measured else "−" if reason.weight < 0 else "+"
        lines.append(f"{sign} {_escape(reason.sentence, SENTENCE)}")
    yield from _judged(told.incident, suspect.ids, "\n".join(lines), _undoing(suspect) if leads else None)


def _moved(suspect: Suspect, places: dict[str, int]) -> str:
    said = at_first(suspect, places)
    return f"  _{said}_" if said else ""


def _where(resource: Resource) -> str:
    return _escape(f"{resource.kind} in {resource.namespace}" if resource.namespace else resource.kind)


def _undoing(suspect: Suspect) -> Iterator[Json]:
    recipe = suspect_recipe(suspect)
    if recipe.command and len(recipe.command) <= COMMAND:
        command = {"type": "text", "text": recipe.command}
        yield {"type": "rich_text", "elements": [{"type": "rich_text_preformatted", "elements": [command]}]}
    elif recipe.command:
        yield _context("How to undo it is long, and on the page.")
    if recipe.warning:
        yield _context(_escape(recipe.warning, 2 * SENTENCE))


def _none(told: Told, ranking: Ranking) -> Iterator[Json]:
    why = "traffic, hardware, time" + (", or a change that was not recorded" if ranking.none_leads else "")
    text = f"*None of these*  *{percent(ranking.none_of_these)}*\n{why}"
    yield from _judged(told.incident, (NONE,), text, () if ranking.none_leads else None)


def _judged(incident: Incident, ids: tuple[str, ...], text: str, leading: Iterable[Json] | None) -> Iterator[Json]:
    """An answer and what to say of it: buttons below what leads, with what stands between; else a menu beside it."""
    said = next((one for one in incident.verdicts if one.change_id in ids), None)
    choices = [
        (words, f"{which}/{incident.id}/{said.change_id if said else ids[0]}")
        for which, words in ((IT, "This was it"), (NOT_IT, "Not it"))
    ]
    if leading is None:
        options = [{"text": _words(words), "value": value} for words, value in choices]
        yield _section(text) | {"accessory": {"type": "overflow", "action_id": JUDGE, "options": options}}
    else:
        yield _section(text)
        yield from leading
    if said is not None:
        yield _context(_said(said))
    if leading is not None:
        buttons = [_button(words, value.partition("/")[0], value) for words, value in choices]
        yield {"type": "actions", "elements": buttons}


def _said(verdict: Verdict) -> str:
    words = "✅ This was it" if verdict.opinion is Opinion.IT else "❌ Not it"
    return f"{words}, says *{_escape(verdict.by)}*, {_time(verdict.at)}"


def _button(words: str, action: str, value: str, *, url: str = "") -> Json:
    button = {"type": "button", "action_id": action, "value": value, "text": _words(words)}
    return button | ({"url": url} if url else {})


def _words(words: str) -> Json:
    return {"type": "plain_text", "text": words, "emoji": False}


def _section(text: str) -> Json:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}}


def _context(text: str) -> Json:
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": text, "verbatim": True}]}


def _time(at: datetime) -> str:
    """A moment, in the reader's own zone, with its day where that is not today's."""
    return f"<!date^{int(at.timestamp())}^{{date_short_pretty}} {{time_secs}}|{at:%Y-%m-%d %H:%M:%S} UTC>"


def _link(url: str, words: str) -> str:
    return f"<{quote(url, safe=':/[]')}|{_escape(words).replace('|', '¦')}>"


def _plain(text: str) -> str:
    """On one line, and without what turns text around or cannot be seen."""
    return "".join("\ufffd" if category(c) in {"Cf", "Cc", "Cs"} else c for c in " ".join(text.split()))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _escape(text: str, most: int = NAME) -> str:
    """What Slack reads as text and as nothing else, in at most so many characters as it counts them."""
    parts = [_ESCAPES.get(c, c) for c in _plain(text)]
    if sum(map(len, parts)) <= most:
        return "".join(parts)
    kept = takewhile(lambda at: at[1] < most, zip(parts, accumulate(map(len, parts)), strict=True))
    return "".join(part for part, _ in kept) + "…"
