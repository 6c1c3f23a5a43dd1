"""A change, a rollout or a burst of them -> one message of Slack, and what its thread is told. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlencode

from app.core.changes.hunks import Line, hunks
from app.core.changes.recipe import NOTHING, Known
from app.core.changes.revert import revert_recipe
from app.core.changes.rollouts import deleted
from app.core.metrics.turning import SOON, Moved
from app.core.model import Change, Outcome, Rollout
from app.core.objects.actors import short
from app.core.phrases import duration, many, measure
from app.notify.blocks import NAME, SENTENCE, clip, code, context, cut, escape, link, moment, plain, section
from app.notify.message import COMMAND, where
from app.notify.slack import Message, fitting
from app.store.notices import EDITS, Notice
from app.store.outbox import KEPT, Shown

LINES, WIDE = 12, 140
"""Lines of a diff that are shown, and characters of each; the change's page has the rest."""
LISTED, IN_SECTION = 15, 5
"""Changes of a digest that are listed, and in one section: a section takes 3,000 characters."""
REACHED = 5
"""Workloads that are named of those that a change reaches."""
BAR = 10
FOLLOWS = (timedelta(minutes=3), SOON)
"""So long after a change what followed is looked for."""
LATE = (timedelta(seconds=5), timedelta(seconds=35))
"""So long after a change its rollout is there, and an audit log has said who made it: it sends within 30 s
(https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/#batching)."""
OFTEN = timedelta(minutes=10)
"""For so long a rollout that goes on is looked at every EDITS, then every RARELY."""
RARELY = timedelta(minutes=1)
_SIGNS = {
    Outcome.RUNNING: "🔵",
    Outcome.COMPLETE: "🟢",
    Outcome.FAILED: "🔴",
    Outcome.ROLLED_BACK: "🟠",
    Outcome.SUPERSEDED: "⚪",
}
_PLAIN = "🔹"
TOLD_LATE = timedelta(hours=1)
"""What is told so long after it was made is told as such: nobody told meanwhile, or it was not seen."""


@dataclass(frozen=True, slots=True)
class Item:
    """A change, the rollout that it began, and the workloads that it reaches, as people call them; of one that failed
    what is ``known`` that bears on undoing it."""

    change: Change
    rollout: Rollout | None = None
    reach: tuple[str, ...] = ()
    known: Known = NOTHING

    @property
    def sign(self) -> str:
        return _SIGNS[self.rollout.outcome] if self.rollout else _PLAIN

    @property
    def is_failed(self) -> bool:
        """Whether its rollout failed, or was rolled back."""
        return self.rollout is not None and self.rollout.outcome in (Outcome.FAILED, Outcome.ROLLED_BACK)

    @property
    def state(self) -> str:
        """How far its rollout is, or how it ended, in words; "" where it began none."""
        return _state(self.rollout, timed=self.change.since is None) if self.rollout else ""

    @property
    def state_sentence(self) -> str:
        """The same as a sentence without its full stop."""
        return f"{self.state[:1].upper()}{self.state[1:]}"

    @property
    def name(self) -> str:
        """What changed, in words."""
        return self.change.summary or f"{self.change.resource}: {self.change.verb.value}"


@dataclass(frozen=True, slots=True)
class Told:
    """What a notice is made of: its items, the oldest first. ``url`` is where people reach us."""

    notice: Notice
    items: tuple[Item, ...]
    url: str

    @property
    def is_running(self) -> bool:
        return any(one.rollout and one.rollout.outcome is Outcome.RUNNING for one in self.items)

    @property
    def late(self) -> tuple[str, ...]:
        """How much later than made its first change is told, in words; nothing where it is told soon."""
        delay = self.notice.opened_at - self.items[0].change.at
        return (f"told {duration(delay.total_seconds())} later",) if delay > TOLD_LATE else ()


def message(told: Told) -> Message:
    """The notice's own message."""
    return _one(told, told.items[0]) if len(told.items) == 1 else _digest(told)


def shown(told: Told, what: Message) -> Shown:
    """What is kept of what a message shows, to tell later what moved."""
    rollout = told.items[0].rollout if len(told.items) == 1 else None
    return Shown(what.digest, rollout.outcome.value if rollout else "", failed=failed_of(told))


def failed_of(told: Told) -> tuple[str, ...]:
    """The ids of the changes of a digest whose rollouts failed or were rolled back."""
    return tuple(one.change.id for one in told.items if one.is_failed) if len(told.items) > 1 else ()


def news(before: Shown, told: Told) -> str:
    """What is said in the thread as the message is edited, for edits call nobody: that a rollout failed, or was rolled
    back; "" where neither is new."""
    if len(told.items) > 1:
        return _failures([one for one in told.items if one.is_failed and one.change.id not in before.failed])
    (item,) = told.items
    if item.rollout is None or item.rollout.outcome.value == before.status or not item.is_failed:
        return ""
    return escape(f"{item.state_sentence}.", 4 * SENTENCE)


def _failures(fresh: Sequence[Item]) -> str:
    lines = [f"• {escape(f'{one.name}: {one.state_sentence}', 2 * SENTENCE)}" for one in fresh[:IN_SECTION]]
    if len(fresh) > IN_SECTION:
        lines.append(f"and {len(fresh) - IN_SECTION:,} more")
    return "\n".join(lines)


def followed(told: Told, moved: Sequence[Moved]) -> tuple[str, tuple[str, ...]]:
    """What the thread is told of what moved after the change, and the names of these lines; "" where none is new."""
    change = told.items[0].change
    fresh = [(f"{one.who} {one.line.title}".strip(), one) for one in moved]
    fresh = [(name, one) for name, one in fresh if name not in told.notice.followed]
    if not fresh:
        return "", ()
    what = "rollout" if told.items[0].rollout else "change"
    lines = [f"• {_line(change, one)}" for _, one in fresh]
    return "\n".join([f"Since this {what}:", *lines]), tuple(name for name, _ in fresh)


def _line(change: Change, one: Moved) -> str:
    unit = one.line.unit
    away = (one.at - change.at).total_seconds()
    when = f"{duration(away)} later" if away >= one.line.step else "at once"
    what = f"{one.line.title} by {one.who}" if one.who else one.line.title
    return f"{escape(what, 2 * NAME)}: {measure(one.before, unit)} → {measure(one.after, unit)}, {when}"


def look_again(told: Told, now: datetime) -> datetime | None:
    """When the notice is to be looked at next; None when nothing of it can change any more."""
    notice = told.notice
    if now >= notice.opened_at + KEPT:
        return None
    marks = [notice.joined_at + after for after in LATE]
    marks += follow_marks(told)
    later = [at for at in marks if at > now]
    if told.is_running:
        often = now < notice.joined_at + OFTEN
        later.append(now + (EDITS if often else RARELY))
    return min(later, default=None)


def is_time_to_follow(told: Told, now: datetime) -> bool:
    """Whether what followed is looked for in this look. A look may come long after it was due, when nobody told for a
    while: it is for each mark that has passed since."""
    due = told.notice.look_at
    return due is not None and any(due <= mark <= now for mark in follow_marks(told))


def follow_marks(told: Told) -> tuple[datetime, ...]:
    """When what followed is looked for: of a single change alone."""
    return tuple(told.items[0].change.at + after for after in FOLLOWS) if len(told.items) == 1 else ()


def _one(told: Told, item: Item) -> Message:
    change = item.change
    name = link(f"{told.url}/changes/{change.id}", cut(plain(item.name), SENTENCE))
    blocks = [section(f"{item.sign} *{name}*"), context(" · ".join((*_facts(item), *told.late)))]
    if item.rollout:
        blocks.append(section(_progress(item, item.rollout)))
    if lines := list(diff_lines(change)):
        blocks.append(code("\n".join(lines)))
    if item.reach:
        more = f" and {len(item.reach) - REACHED} more" if len(item.reach) > REACHED else ""
        blocks.append(context(f"Reaches {escape(', '.join(item.reach[:REACHED]), SENTENCE)}{more}"))
    if item.rollout and item.rollout.outcome is Outcome.FAILED:
        recipe = revert_recipe(change, item.known)
        if recipe.command and len(recipe.command) <= COMMAND:
            blocks += [context(f"To undo it, {escape(recipe.placed, SENTENCE)}:"), code(recipe.command)]
        if recipe.warning:
            blocks.append(context(escape(recipe.warning, 2 * SENTENCE)))
    return Message(escape(sentence(told), 4 * SENTENCE), tuple(blocks))


def sentence(told: Told) -> str:
    """The whole of it in one line, as text that nothing is escaped of."""
    if len(told.items) == 1:
        (item,) = told.items
        return plain(f"{item.sign} {item.name}" + (f": {item.state}" if item.state else ""))
    items = sorted(told.items, key=first)
    clusters = sorted({one.change.resource.cluster for one in items})
    named = ", ".join(dict.fromkeys(str(one.change.resource) for one in items[:3]))
    return plain(f"{many(len(items) + told.notice.more, 'change')} in {', '.join(clusters)}: {named}")


def _facts(item: Item) -> Iterator[str]:
    change = item.change
    yield f"cluster *{escape(change.resource.cluster)}*"
    yield where(change.resource)
    yield f"between {moment(change.since)} and {moment(change.at)}" if change.since else moment(change.at)
    yield f"by {escape(short(change.actor))}"


def _progress(item: Item, rollout: Rollout) -> str:
    if rollout.outcome is not Outcome.RUNNING:
        return f"*{escape(item.state_sentence, 2 * SENTENCE)}*"
    done = rollout.percent * BAR // 100
    now = rollout.progress[-1] if rollout.progress else None
    pods = f"  {now.updated} of {now.desired} pods are new, {now.available} available" if now else ""
    why = f"\n{escape(rollout.reason, SENTENCE)}" if rollout.reason else ""
    return f"{'▰' * done}{'▱' * (BAR - done)}  *{rollout.percent} %*{pods}{why}"


def _state(rollout: Rollout, *, timed: bool) -> str:
    """``timed``: it was seen to begin."""
    lasted = duration(((rollout.ended_at or rollout.started_at) - rollout.started_at).total_seconds())
    after, within = (f" after {lasted}", f" in {lasted}") if timed else ("", "")
    why = f": {rollout.reason}" if rollout.reason else ""
    match rollout.outcome:
        case Outcome.RUNNING:
            return f"{rollout.percent} %"
        case Outcome.COMPLETE:
            return f"rolled out{within}{why}"
        case Outcome.FAILED:
            return f"failed{after}{why}"
        case Outcome.ROLLED_BACK:  # it may have been done, or have failed, long before
            return f"rolled back{why}"
    if rollout.reason == deleted(rollout.resource.kind):
        return f"over{after}{why}"
    return f"replaced by a newer rollout{after}"


def diff_lines(change: Change) -> Iterator[str]:
    """The first lines of its diff, as in a patch: of what was made or deleted nothing, for that is its name."""
    lines = [
        text
        for hunk in hunks([one for one in change.diffs if one.path])
        for text in (f"@ {plain(hunk.path)}", *(_in_diff(line) for line in hunk.lines if line.sign != "@"))
    ]
    yield from (clip(line, WIDE) for line in lines[:LINES])
    if len(lines) > LINES:
        yield f"… {many(len(lines) - LINES, 'more line')}"


def _in_diff(line: Line) -> str:
    """With its indent, and without what turns text around or cannot be seen."""
    bare = line.text.lstrip(" ")
    return f"{line.sign} {' ' * (len(line.text) - len(bare))}{plain(bare)}"


def _digest(told: Told) -> Message:
    return fitting(lambda listed: _listing(told, listed), LISTED)


def _listing(told: Told, listed: int) -> Message:
    items = sorted(told.items, key=first)
    clusters = sorted({one.change.resource.cluster for one in items})
    total = len(items) + told.notice.more
    count = many(total, "change")
    title = f"{_worst(items)} *{count}* in {escape(', '.join(clusters), 2 * NAME)}"
    for late in told.late:
        title += f", the first of {moment(told.items[0].change.at)}, {late}"
    lines = [_listed(told, one) for one in items[:listed]]
    blocks = [section(title)]
    blocks += [section("\n".join(lines[n : n + IN_SECTION])) for n in range(0, len(lines), IN_SECTION)]
    page = f"<{page_of(told)}|All of this time>"
    more = f"and {total - listed:,} more. " if total > listed else ""
    blocks.append(context(f"{more}{page}"))
    return Message(escape(sentence(told), 4 * SENTENCE), tuple(blocks))


def page_of(told: Told) -> str:
    """Where all changes of a digest are."""
    clusters = {one.change.resource.cluster for one in told.items}
    window = {"from": min(one.change.at for one in told.items).isoformat()}
    last = max(told.notice.joined_at, *(one.change.at for one in told.items))
    window["to"] = (last + timedelta(seconds=1)).isoformat()
    if len(clusters) == 1 and len(only := next(iter(clusters))) <= NAME:  # a context takes no text longer than 2,000
        window["cluster"] = only
    return f"{told.url}/changes?{urlencode(window)}"


def first(item: Item) -> tuple[int, datetime]:
    """What failed first, then what goes on, then the rest as it came."""
    outcome = item.rollout.outcome if item.rollout else None
    order = [Outcome.FAILED, Outcome.ROLLED_BACK, Outcome.RUNNING]
    return (order.index(outcome) if outcome in order else len(order), item.change.at)


def _worst(items: Sequence[Item]) -> str:
    return next((one.sign for one in items if one.rollout), _PLAIN)


def _listed(told: Told, item: Item) -> str:
    change = item.change
    name = link(f"{told.url}/changes/{change.id}", cut(plain(item.name), NAME))
    space = f" in {escape(change.resource.namespace, NAME)}" if change.resource.namespace else ""
    state = f": *{escape(item.state, NAME)}*" if item.state else ""
    return f"{item.sign} {name}{space} by {escape(short(change.actor), NAME)}{state}"
