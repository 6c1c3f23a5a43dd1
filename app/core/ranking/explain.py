"""How well a candidate explains a signal: shared entities, names in messages, and time.

The match is the specificity with which the signal is about an entity, times a discount for each hop between the
change and that entity. Nothing that came after a signal can explain it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from app.core.edges.amounts import KILLED, holds_no_more, only_room
from app.core.edges.burdens import burdens
from app.core.edges.causes import LINKED, NOT_LET_IN, OUTSIDE, RIGHTS
from app.core.edges.front_doors import DOORS
from app.core.edges.leads import Cause, sets_room
from app.core.edges.mechanism import (
    AT_ONCE,
    BEFORE_RUNNING,
    CALLS_NOBODY,
    FULL,
    SERVING,
    UNLIKELY,
    by_schedule,
    cordons,
    hits,
    is_borne,
    is_less_patient,
    is_other_quota,
    only_adds,
    only_bounds,
    only_image,
    only_labels,
    only_reacts_to,
    only_restarts,
    plausible,
)
from app.core.edges.references import is_custom
from app.core.edges.said import NOT_BORNE
from app.core.edges.served import ASKED
from app.core.entities import NODES, POD_MAKING, WORKLOADS, Entity, pods_in, workload
from app.core.model import Change, Outcome, Verb
from app.core.objects.brought import quoted
from app.core.objects.grants import accepts_more
from app.core.objects.revisions import lacks
from app.core.objects.taints import is_other_taint
from app.core.ranking.candidates import Candidate
from app.core.ranking.consequences import is_consequence, lacks_room
from app.core.ranking.latent import began
from app.core.ranking.nearness import distance, mentioned
from app.core.ranking.refusing import DENIED
from app.core.ranking.short_of import shows_within
from app.core.ranking.ways import ways, widely
from app.core.signals.blamed import BLAMES, OVERRUN
from app.core.signals.growth import agrees
from app.core.signals.signal import Signal, SignalKind

CLEAR = 0.5
"""So salient must a signal be, of the most salient one, for a change to be only the occasion of it."""
HOP = 0.6
"""Each hop away keeps this much of a match."""
ROOM = 0.6
"""How much one workload alone that finds no room is about who took it: it may also ask for more than there ever was."""
SUFFERS = 0.5
"""What is left of a match with what a workload's own change, as a new image, hardly brings about: it complains of
somebody else, or far more is asked of it."""
COSMETIC = 0.3
"""What a match keeps where only labels changed that, as far as is known, nobody goes by."""
AS_NEAR = 0.8
"""Of two matches, what the weaker one is of the stronger, at least, where both are about as near."""
UNQUOTED = 0.5
"""What a match keeps where the messages quote another change's words."""
TAU = timedelta(minutes=10)
"""A lag of this length halves how well a change explains a signal, where that does not come later as a rule."""
SAYS_NOTHING = "must specify"
"""What a quota says of pods that do not say what they need; with no quota they need not
(https://kubernetes.io/docs/concepts/policy/resource-quotas/)."""
TAKES_EFFECT = timedelta(seconds=15)
"""By then an ingress controller serves what an Ingress says."""
CLOCK_SKEW = timedelta(seconds=1)
"""How far the clocks of those who tell may differ: of API servers, of kubelets."""

SOON = timedelta(seconds=10)
"""What is allowed, or runs, from now on shows in calls within this time: two slots."""

BY_CALLING = (("shares",), ("burdens",), ("asks",), ("occupies",), ("uncleared",), ("beside",), ("migrated",))
"""Ways to what a client does to what it calls, and to others that call it."""
_INTO_OTHERS = (("agent",), ("injected",))
"""Ways to what a program does for pods of others, or puts into them."""
BY_CONTENT = frozenset({"LimitRange", "Namespace", "ValidatingAdmissionPolicy"})
"""What refuses some pods and lets others pass, by what is in them (a Namespace by what pod security it enforces)."""


class Match(Struct, frozen=True, gc=False):
    """``score`` 0 to 1: how well this candidate explains this signal; ``via`` the entity they share. ``possible`` is
    what of that this sort of change leaves for this sort of complaint, ``lag`` how long after the change it began."""

    signal: Signal
    score: float
    via: Entity
    lag: timedelta
    possible: float = 1.0


def explain(candidate: Candidate, signal: Signal, *, churn_share: float) -> Match | None:
    """The match of a candidate with a signal, or None.

    ``churn_share`` is the candidate's share of all pods that candidates moved shortly before the signal.
    """
    in_time = before(candidate.change.at, signal.high)
    if not in_time:
        return None
    best, via = _nearest(candidate, signal)
    share, reached = _covered(candidate, signal)
    if share > best:
        best, via = share, ("spread", str(reached), str(len(signal.spread)))
    if (named := mentioned(candidate, signal)) and best < 0.95 * HOP ** named[1]:
        best, via = 0.95 * HOP ** named[1], ("named", named[0])
    if churn_share and (is_consequence(signal) or lacks_room(signal)):
        churned = (0.9 if is_consequence(signal) else ROOM) * churn_share
        if churned > best:
            best, via = churned, ("churn", candidate.change.resource.name)
    possible = _possible(candidate, signal, via)
    if signal.cause and signal.cause.few and possible == 1.0:
        best = math.sqrt(best)  # there are few that it can be
    best *= possible * in_time
    if best <= 0.05:
        return None
    acted, written = began(candidate, signal.high), candidate.change.at
    tau = shows_within(candidate.change, signal) or TAU
    score = best / (1.0 + max(timedelta(), signal.low - acted) / tau)
    return Match(signal, score, via, max(timedelta(), signal.low - written), possible)


def _possible(candidate: Candidate, signal: Signal, via: Entity) -> float:
    """What is left of a match where this sort of change hardly leads to that sort of complaint."""
    if candidate.inert or _is_other(candidate, signal) or _is_same_drain(candidate, signal):
        return UNLIKELY
    worked = _worked(candidate, signal) * (COSMETIC if candidate.cosmetic and only_labels(candidate.change) else 1.0)
    is_quoted = via[:1] == ("named",) and via[1] in quoted(candidate.change) and signal.cause is not RIGHTS
    is_server = via[:1] == ("calls",) and signal.cause not in (None, OUTSIDE) and not signal.cause.few
    by_itself = via[:1] in (("churn",), ("uncleared",))  # whatever sort of change it is
    if signal.cause and not (is_quoted or is_server or by_itself or _leads(candidate, signal.cause)):
        return UNLIKELY * worked
    if signal.cause and not signal.cause.few and via[:1] == ("ns",):
        return UNLIKELY * worked  # what says why says more than where
    if (is_borne(candidate.change, signal.came_up) and _stayed_well(signal)) or _was_borne(candidate, signal):
        return UNLIKELY * worked
    if signal.kind is not SignalKind.SYMPTOM or is_quoted:
        itself = UNLIKELY if not is_quoted and _is_denied(candidate, signal, via) else 1.0
        return itself * worked * _needed(candidate, signal) * agrees(candidate.change, candidate.added, signal)
    if via[:1] == ("named",):
        was_well = candidate.change.verb is Verb.CREATE and _was_well(candidate, signal)
        suffers = SUFFERS if via[1] in signal.facts.get(OVERRUN, "").split(", ") else 1.0
        return UNLIKELY if was_well else worked * suffers * _common(candidate, signal)
    reason, refused = signal.facts.get("reason", ""), signal.facts.get("refused", "")
    # What was made and was well has nothing in it that differs from when it was well; of an update that says little of
    # what it does for others. What is new may meet later what it was not made for.
    made = candidate.change.verb is Verb.CREATE or (reason in BEFORE_RUNNING and via[:1] not in _INTO_OTHERS)
    elsewhere = via[:1] in (*BY_CALLING, ("takes",), ("fills",), ("churn",), ("scheduling",)) or is_about_place(
        candidate, signal
    )
    if made and not elsewhere and _was_well(candidate, signal):
        return SUFFERS if _is_of_itself(candidate.change, via) else UNLIKELY
    is_new = not (only_restarts(candidate.change) or by_schedule(candidate.change))
    if not is_new and reason not in FULL and via[:1] == ("workload",):
        return UNLIKELY
    if via[:1] == ("workload",) and _suffers(candidate.change, signal):
        worked *= SUFFERS
    follows = (
        candidate.set_off
        or by_itself
        or signal.cause is LINKED
        or (via == ("scheduling",) and sets_room(candidate.change))
        or via[:1] in (("refuses",), ("calls",), ("reads",), ("unguarded",), *BY_CALLING)
    )
    sort = 1.0 if follows else plausible(candidate.change, reason, refused=refused)
    return worked * sort * _alone(candidate, signal) * _needed(candidate, signal) * _there(candidate, signal)


def _is_denied(candidate: Candidate, signal: Signal, via: Entity) -> bool:
    """Whether a webhook or a policy denies what is a workload's: so it is named."""
    is_named = via[:1] == ("named",) and candidate.change.resource.kind in WORKLOADS
    return is_named and DENIED.search(signal.text) is not None


def _is_of_itself(change: Change, via: Entity) -> bool:
    """Whether it made the very workload that complains."""
    is_made = change.verb is Verb.CREATE and change.resource.kind in WORKLOADS
    return is_made and via == workload(change.resource.namespace, change.resource.name)


def is_about_place(candidate: Candidate, signal: Signal) -> bool:
    """Whether it says where pods may run, which is what new ones complain of: that there was a place for the first
    says little of those to come."""
    return signal.cause is NOT_LET_IN and candidate.change.verb is Verb.UPDATE and NOT_LET_IN.leads(candidate.change)


def _is_other(candidate: Candidate, signal: Signal) -> bool:
    """Whether a quota was edited in something else than messages name, other taints, what only takes more since,
    where memory runs out what holds no more in it, or where a program breaks how much room it has."""
    reason = "" if candidate.set_off else signal.facts.get("reason", "")
    is_elsewhere = is_other_quota(candidate.change, signal.text) or accepts_more(candidate.change)
    if KILLED.search(signal.text) and holds_no_more(candidate.change):
        return True
    if NOT_BORNE.search(signal.text) and only_room(candidate.change):
        return True
    return is_elsewhere or is_other_taint(candidate.change, reason, signal.text)


def _is_same_drain(candidate: Candidate, signal: Signal) -> bool:
    """Whether who evicts had cordoned the node: that is how nodes are emptied, and only says that one is."""
    return ("user", candidate.user) in signal.about and cordons(candidate.change)


def _leads(candidate: Candidate, cause: Cause) -> bool:
    """Whether a change can lead to what is said; one that a program followed, by what it did: where it rolled out what
    a custom resource says, and did not only restart what reads that, only that."""
    acts = candidate.set_off
    if not acts:
        return cause.leads(candidate.change)
    anew = (act for act in acts if act.resource.kind in WORKLOADS and not only_restarts(act))
    rolled_out = is_custom(candidate.change.resource) and any(anew)
    return not rolled_out or any(cause.leads(act) for act in acts)


def _suffers(change: Change, signal: Signal) -> bool:
    """Whether a workload complains of somebody else, of which its own change says nothing, of what was put into its
    pods, or is asked for far more."""
    if ASKED in signal.facts or any(entity[0] == "injected" for entity in signal.about):
        return True
    return BLAMES in signal.facts and _says_nothing_of_calls(change)


def _says_nothing_of_calls(change: Change) -> bool:
    """Whether what a client calls, and how much it asks of that, is as before: by a new image, a flag."""
    return only_image(change) or (change.resource.kind == "ConfigMap" and not burdens(change))


def is_occasion(candidate: Candidate, matches: Iterable[Match], salience: Mapping[int, float]) -> bool:
    """Whether a change only reacts, does nothing yet, or is a workload's, or what its pods would start with, and
    hardly leads to what they complain of most: it came when that began, as any other would have by which pods are made
    anew."""
    if candidate.inert or only_reacts_to(candidate.change):
        return True
    is_workload = candidate.change.resource.kind in WORKLOADS or only_bounds(candidate.change)
    if not is_workload and candidate.acts_at is None:
        return False
    clear = [match for match in matches if salience.get(id(match.signal), 0.0) >= CLEAR]
    main = max(clear, key=lambda m: salience[id(m.signal)] * m.score / m.possible, default=None)
    if main is None or main.via[0] != "workload" or main.possible > UNLIKELY:
        return False
    return is_workload or main.signal.facts.get("reason") in BEFORE_RUNNING


def _was_borne(candidate: Candidate, signal: Signal) -> bool:
    """Whether all pods had come up well with what pods start with, before they were rolled out anew: what that brought
    is likelier."""
    if candidate.acts_at is None or signal.came_up is None or signal.rolled_out is None:
        return False
    since, by = signal.came_up
    return candidate.change.at <= since and candidate.acts_at <= since and by < signal.rolled_out


def _stayed_well(signal: Signal) -> bool:
    """Whether pods that came up well were well for longer than they took for that: memory fills as they work."""
    if signal.came_up is None:
        return False
    since, by = signal.came_up
    return signal.low - by > by - since


def _worked(candidate: Candidate, signal: Signal) -> float:
    """Less than 1 where what acts at once was there, and what fails now worked, or who calls more called as before."""
    change = candidate.change
    is_calling = signal.kind is not SignalKind.SYMPTOM
    if is_custom(change.resource) and is_calling and (heeded := _heeded(signal, change.at)) < 1.0:
        return heeded
    if change.verb is not Verb.CREATE and change.resource.kind not in AT_ONCE:
        return 1.0
    if signal.passed is not None and not (_by_content(change, signal) or is_less_patient(change)):
        return max(UNLIKELY, signal.passed.since(change.at))
    gives = change.resource.kind in CALLS_NOBODY
    # What is allowed calls nobody by itself; a program that was well and had called before does not call more for it.
    known = signal.active or signal.kind is SignalKind.FIGHT
    calling = signal.kind in (SignalKind.LOAD, SignalKind.FIGHT) or "able" in signal.facts
    if not calling or signal.low - change.at <= SOON:
        return 1.0
    return UNLIKELY if gives or (known and went_well(candidate, signal.low - SOON)) else 1.0


def _by_content(change: Change, signal: Signal) -> bool:
    """Whether what refuses these is of this sort, and looks at each: that others passed says nothing of them."""
    return any(
        entity[0] == "refuses" and entity[1] in BY_CONTENT and change.resource.kind.removesuffix("Binding") == entity[1]
        for entity in signal.about
    )


def _heeded(signal: Signal, told: datetime) -> float:
    """Less than 1 where a program was told something, did nothing, and began when it was rolled out. What watches
    heeds what it is told within SOON; over a field it fights with itself only where two versions of it run."""
    if signal.rolled_out is None or told >= signal.rolled_out:
        return 1.0
    idle = 1.0 if signal.kind is SignalKind.FIGHT else (signal.rolled_out - told) / SOON
    return max(UNLIKELY, 1.0 - idle)


def _was_well(candidate: Candidate, signal: Signal) -> bool:
    """Whether its rollout went well; of an Ingress or a route, whether requests were answered well for a while since it
    was made."""
    if candidate.change.resource.kind in DOORS:
        return signal.facts.get("reason") in SERVING and signal.low - candidate.change.at > TAKES_EFFECT
    return went_well(candidate, signal.low)


def went_well(candidate: Candidate, by: datetime) -> bool:
    """Whether all pods of its rollout were placed, started and ready by then."""
    rollout = candidate.rollout
    done = rollout is not None and rollout.outcome is Outcome.COMPLETE and rollout.ended_at is not None
    return rollout is not None and done and (rollout.ended_at or by) < by


def before(at: datetime, high: datetime) -> float:
    """How far a change at ``at`` can have come before what had begun by ``high``, 1 to 0."""
    return 1.0 if at <= high else 1.0 - min(1.0, (at - high) / CLOCK_SKEW)


def _common(candidate: Candidate, signal: Signal) -> float:
    """Less than 1 where others complain of the same at once, and the change reaches few of them: whatever they have in
    common is likelier than one for each."""
    reached = sum(_reaches(candidate, signal, other) for other in signal.others)
    return math.sqrt((1 + reached) / (1 + len(signal.others)))


def _alone(candidate: Candidate, signal: Signal) -> float:
    """The same, and less where others call the same server outside, or say it in the same words."""
    return _common(candidate, signal) / (1 + len(out_of_reach(candidate, signal)))


def out_of_reach(candidate: Candidate, signal: Signal) -> list[Entity]:
    """Of those that call the same server outside, or say it in the same words, whom the change does not reach."""
    return [fellow for fellow in signal.fellows if not _reaches(candidate, signal, fellow)]


def _reaches(candidate: Candidate, signal: Signal, other: Entity) -> bool:
    of_all = (entity for entity in signal.about if entity[0] == "agent")  # what one needs of it, others do as well
    near = (*ways(other, signal), pods_in(other[1]), POD_MAKING, *of_all)
    return any(way in candidate.reach for way in near)


def _needed(candidate: Candidate, signal: Signal) -> float:
    """Less than 1 where pods that do not have the change in them complain, or call more, too; UNLIKELY where they do
    about as much."""
    return max(UNLIKELY, 1.0 - 2.0 * without(candidate, signal))


def _there(candidate: Candidate, signal: Signal) -> float:
    """UNLIKELY where only the pods of some nodes complain, and the change touches them no more than others."""
    if signal.place is None or NODES in candidate.reach:
        return 1.0
    return 1.0 if any(("node", node) in candidate.reach for node in signal.place.nodes) else UNLIKELY


def without(candidate: Candidate, signal: Signal) -> float:
    """The share of the complaints made by pods that do not have the change in them, 0 to 1."""
    return sum(share for pod, share in signal.by_pod.items() if lacks(pod, candidate.lacking))


def _nearest(candidate: Candidate, signal: Signal) -> tuple[float, Entity]:
    """The best match over what the signal is about, and the entity it is over."""
    best: float = 0.0
    via: Entity = ()
    for entity, weight in signal.about.items():
        for way in ways(entity, signal):
            hops = distance(candidate.reach, way)
            if hops is not None and weight * HOP**hops > best:
                best, via = weight * HOP**hops, way
    return best, via


def _covered(candidate: Candidate, signal: Signal) -> tuple[float, int]:
    """Of a complaint that many share: the part made by those whom the change reaches, less the hops; and how many."""
    covered, reached = 0.0, 0
    for home, share in signal.spread.items():
        if home[0] == "asked":
            hops = distance(candidate.reach, home)
        else:
            own = (*ways(home, signal), *widely(home))
            hops = min((candidate.reach[way] for way in own if way in candidate.reach), default=None)
        if hops is not None:
            covered, reached = covered + share * HOP**hops, reached + 1
    return covered, reached


def less_unquoted(found: Sequence[Candidate], explained: Sequence[tuple[Match, ...]]) -> list[tuple[Match, ...]]:
    """The matches of each candidate; where messages quote what one change put in or took away, or one made the quota
    by which pods have to say what they need, others keep half."""
    quoting: set[int] = set()
    quotes = []
    gone = {candidate.change.resource for candidate in found if candidate.change.verb is Verb.DELETE}
    for candidate, matches in zip(found, explained, strict=True):
        is_named = any(match.via[0] == "named" for match in matches)
        words = set().union(*map(quoted, (candidate.change, *candidate.set_off))) if is_named else set()
        if candidate.change.verb is not Verb.UPDATE and candidate.change.resource in gone:
            words.add(candidate.change.resource.name)  # it is said that it is not found, or what is new of it
        own = {
            id(match)
            for match in matches
            if (match.via[0] == "named" and match.via[1] in words)
            or (match.via[0] == "workload" and _hits(candidate, match))
            or match.via[0] == "access"
            or (
                match.via[0] == "refuses" and candidate.change.verb is Verb.CREATE and SAYS_NOTHING in match.signal.text
            )
        }
        quoting |= {id(match.signal) for match in matches if id(match) in own}
        quotes.append(own)
    return [
        tuple(
            replace(match, score=UNQUOTED * match.score)
            if id(match.signal) in quoting and id(match) not in own
            else match
            for match in matches
        )
        for matches, own in zip(explained, quotes, strict=True)
    ]


def less_of_the_same(found: Sequence[Candidate], explained: Sequence[tuple[Match, ...]]) -> list[tuple[Match, ...]]:
    """The matches of each candidate; where something else is about as near to what fails, more pods of the same, which
    only show it, keep half."""
    adds = [candidate.change.resource.kind in WORKLOADS and only_adds(candidate.change) for candidate in found]
    others: dict[int, float] = {}
    for is_more, matches in zip(adds, explained, strict=True):
        for match in () if is_more else matches:
            others[id(match.signal)] = max(match.score, others.get(id(match.signal), 0.0))
    return [
        tuple(
            replace(match, score=SUFFERS * match.score)
            if is_more and _shows_it(match) and others.get(id(match.signal), 0.0) >= AS_NEAR * match.score
            else match
            for match in matches
        )
        for is_more, matches in zip(adds, explained, strict=True)
    ]


def _shows_it(match: Match) -> bool:
    """Whether more pods of a workload would only show what it does: not where calls are more for just that."""
    return match.via[0] == "workload" and "by_clients" not in match.signal.facts


def _hits(candidate: Candidate, match: Match) -> bool:
    """Whether a change is of the very thing that is complained of."""
    return hits(candidate.change, match.signal.facts.get("reason", ""), match.signal.text)


def window_of(at: datetime) -> tuple[datetime, datetime]:
    """The moves that a signal at ``at`` could be the consequence of."""
    return at - timedelta(minutes=15), at + timedelta(seconds=5)
