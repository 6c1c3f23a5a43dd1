"""An incident and everything recorded around it -> ranked suspects, with an honest "none of these".

The score of a change is a sum of evidence (evidence.py), each term a log-odds weight with a sentence. Probabilities
are a softmax over the candidates and "none of these", whose score is fixed: a change needs evidence, not only rivals
that are weaker, to be believed. docs/ranking.md says where the numbers come from and how they are measured.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from statistics import median

from app.core.alerted import about
from app.core.counted import NO_CALLS, Calls
from app.core.edges.indexing import topology
from app.core.edges.mechanism import UNLIKELY
from app.core.edges.served import MOST_SERVED, SERVED
from app.core.entities import PREEMPTS
from app.core.findings import Also, Evidence, Incident, Onset, Ranking, Suspect
from app.core.metrics.lines import Laid, laid
from app.core.model import CallEdge, Change, Gap, MetricSeries, ObjectState, Rollout, Symptom, SymptomSource
from app.core.objects.brought import said_by
from app.core.objects.pod_states import PREEMPTED
from app.core.onset import Floats
from app.core.ranking.bare import made_bare
from app.core.ranking.candidates import Candidate, candidates
from app.core.ranking.case import Case, Facts, Rule
from app.core.ranking.consequences import LOSE_WATCHES, is_consequence, takes_lost_watches
from app.core.ranking.evidence import RULES
from app.core.ranking.explain import explain, is_occasion, less_of_the_same, less_unquoted, window_of
from app.core.ranking.flips import with_flips
from app.core.ranking.lasting import with_lasting
from app.core.ranking.latent import began, started, waiting
from app.core.ranking.making import with_pods_made
from app.core.ranking.meant import with_meant
from app.core.ranking.overrun import grown
from app.core.ranking.permitted import may_read, may_watch, pod_makers, rights, with_callers
from app.core.ranking.probed import with_probed
from app.core.ranking.refusing import with_refusals
from app.core.ranking.relevance import Near, inside, surroundings, weigh
from app.core.ranking.rooms import has_pods, with_rooms
from app.core.ranking.same_edit import releases
from app.core.ranking.scoped import touches
from app.core.ranking.shared import shared
from app.core.ranking.short_of import with_alerted
from app.core.ranking.shortlist import ALL_READ, Unread
from app.core.signals.addressed import with_names
from app.core.signals.blamed import with_blamed
from app.core.signals.budgets import with_unready
from app.core.signals.calls import Loads, Slots, axis, caller_rows, loads
from app.core.signals.common_ground import with_common_ground
from app.core.signals.complaints import rollout_signals, symptom_signals
from app.core.signals.costs import cost_signals
from app.core.signals.errors import error_signals
from app.core.signals.evictions import with_deleters, with_evictors
from app.core.signals.fellows import with_fellows
from app.core.signals.fight_signals import fight_signal
from app.core.signals.fights import write_fights
from app.core.signals.held import with_held
from app.core.signals.injected import with_injected
from app.core.signals.linked import with_linked
from app.core.signals.loads import APART, Apart, load_signals
from app.core.signals.newborn import Newborn, newborn
from app.core.signals.operated import with_operators
from app.core.signals.outside import with_outside
from app.core.signals.places import located
from app.core.signals.relists import relist_signals
from app.core.signals.series import metric_signals, sparks
from app.core.signals.serving import Rise, answering, rises, serving_signals, serving_sparks
from app.core.signals.signal import Signal, SignalKind, moment
from app.core.signals.silence import silence_signals
from app.core.signals.waits import wait_signals
from app.core.signals.watches import watch_signals
from app.core.signals.worked import with_came_up, with_passed, with_rolled_out
from app.core.unseen import newest

NONE_SCORE = 2.3
"""The score of "none of these", however many candidates there are: how many other changes came between is weighed of
each already. Scores are log-odds as they stand. docs/decisions/0071 has how it was measured."""
LATE_ALERT = timedelta(minutes=15)
"""A person's start time may be this wrong, so onsets are looked for this long after it too."""
RATED = timedelta(minutes=5)
"""Over so long alerts look at rates, as a rule: what they see may have begun as long before."""
SALIENT = 0.35
"""Signals at least this salient (of the most salient one) may set the incident's onset."""
FAINT = 0.1
"""Fainter signals date nothing, however little else there is."""
SHOWN = 20
LINES = 6
"""Of measured lines the page has room for so many beside the changes."""

_Scored = tuple[float, Candidate, tuple[Evidence, ...]]


@dataclass(frozen=True, slots=True)
class Gathered:
    """Everything recorded around an incident, as of ``now``: nothing later is in it. ``gone`` are the last states of
    the pods that went in that time; ``unread`` is what is known of the changes that are not among ``changes``;
    ``unseen`` when changes were not recorded, of all kinds or of some."""

    incident: Incident
    start: datetime
    now: datetime
    changes: tuple[Change, ...] = ()
    rollouts: tuple[Rollout, ...] = ()
    symptoms: tuple[Symptom, ...] = ()
    calls: Calls = NO_CALLS
    series: tuple[MetricSeries, ...] = ()
    edges: tuple[CallEdge, ...] = ()
    states: tuple[ObjectState, ...] = ()
    gone: tuple[ObjectState, ...] = ()
    unread: Unread = ALL_READ
    unseen: tuple[Gap, ...] = ()


def rank(gathered: Gathered, *, rules: tuple[Rule, ...] = RULES, apart: frozenset[Apart] = APART) -> Ranking:
    """Rank the changes before an incident. ``rules`` lets an ablation leave some out, as ``apart`` does of what is told
    apart in a rise of calls."""
    incident, now = gathered.incident, gathered.now
    gathered = replace(gathered, symptoms=with_names(gathered.symptoms, gathered.states))
    fights = write_fights((c for c in gathered.changes if c.at <= now), stands_for=gathered.unread.stands_for)
    new = newborn((c for c in gathered.changes if c.at <= now), gathered.rollouts)
    slots = axis(gathered.calls, until=now.timestamp())
    lines = laid((one for one in gathered.series if one.name not in SERVED), until=now.timestamp())
    made = loads(gathered.calls, slots) if slots else {}
    top_of = topology(
        gathered.states,
        gathered.calls,
        gone=gathered.gone,
        complaints=gathered.symptoms,
        changes=gathered.changes,
        edges=gathered.edges,
    )
    # Of apps the Prometheus tells at intervals of its own.
    apps = laid((one for one in gathered.series if one.name in SERVED), until=now.timestamp())
    served = rises(apps, top_of) if apps else []
    acting = [fight_signal(fight, gathered.rollouts, runs=top_of.by_account) for fight in fights]
    if slots and slots.size:
        acting += load_signals(gathered.calls, slots, made, gathered.rollouts, runs=top_of.by_account, apart=apart)
    measured = _signals(gathered, acting, new, slots=slots, made=made, lines=lines, served=served)
    incident = with_held(with_meant(incident, top_of), gathered.series)
    is_held = incident.started_at != gathered.incident.started_at
    signals = with_rooms(with_injected(located(measured, gathered.symptoms, top_of), top_of), top_of)
    signals = with_deleters(with_evictors(signals, gathered.calls, top_of), gathered.calls, top_of)
    signals = with_unready(signals, top_of)
    signals = with_blamed(with_outside(with_linked(signals, gathered.changes), top_of, incident), top_of)
    signals = with_operators(signals, top_of)
    signals = with_probed(signals, incident, top_of, answering=lambda: answering(apps, top_of), is_held=is_held)
    signals = with_common_ground(with_fellows(signals, top_of), top_of)
    signals = with_alerted(signals, incident, top_of)
    around = surroundings(incident, top_of, new=new)
    weighed = weigh(signals, incident.scope, near=around, top=top_of)
    if not gathered.calls:
        able = rights(top_of)
        top_of.watched.update(may_watch(able, top_of))
        top_of.reading.update(may_read(top_of))
        told = with_callers((signal for signal, _ in weighed), able, top_of)
        weighed = [(signal, weight) for signal, (_, weight) in zip(told, weighed, strict=True)]
    top = max((w for _, w in weighed), default=0.0)
    salience = {id(s): w / top for s, w in weighed} if top else {}
    onset = find_onset(incident, weighed, near=around, is_held=is_held)
    earlier = gathered.unread.earlier
    found = candidates(gathered.changes, gathered.rollouts, fights, topology=top_of, until=now, unread=earlier)
    begun = started(gathered.rollouts, gathered.changes, gathered.states, top=top_of)
    creating = gathered.calls or made_bare((*gathered.states, *gathered.gone), pod_makers(top_of))
    waited = with_lasting(with_refusals((waiting(c, begun) for c in found), signals), onset, top_of)
    found = with_pods_made(waited, creating)
    matter = tuple(s for s, w in weighed if top and w >= 0.05 * top)
    case = Case(
        incident=incident,
        onset=onset,
        signals=matter,
        salience=salience,
        quality=min(1.0, top / 0.4),
        typical_pods=median([c.pods for c in found if c.pods] or [1]),
        audited=bool(gathered.calls),
        now=now,
        alert_messages="\n".join(alert.message for alert in incident.alerts),
        alert_labels=frozenset(value for alert in incident.alerts for value in about(alert.labels).values()),
        alert_words=frozenset(word for alert in incident.alerts for word in said_by(alert)),
        grown=grown(incident, matter, salience),
    )
    suspects, none = _score(case, found, rules, others=gathered.unread.times)
    ranking = Ranking(
        incident_id=incident.id,
        ranked_at=now,
        onset=onset,
        suspects=tuple(suspects),
        none_of_these=none,
        candidates=len(found),
        window=(gathered.start, now),
        fights=tuple(fights),
        sparks=(
            *(serving_sparks(served, incident.scope, apps.axis) if apps else ()),
            *(sparks(lines) if lines else ()),
        )[:LINES],
        callers=tuple(caller_rows(made, slots, onset=onset.at.timestamp())) if slots else (),
        findings=tuple(
            Evidence(s.kind.value, round(salience[id(s)], 3), f"{s.sentence}, from {s.low:%H:%M:%S}.")
            for s in sorted(case.signals, key=lambda s: -salience[id(s)])[:12]
        ),
        not_measured=_missing(gathered),
        scope=incident.scope,
    )
    return with_flips(ranking)


def _missing(gathered: Gathered) -> tuple[str, ...]:
    missing = [f"{line[:1].upper()}{line[1:]}." for line in newest(gathered.unseen, names=False)]
    if not gathered.calls:
        missing.append("Who called the API: no audit log.")
    if not gathered.series:
        missing.append("Control-plane metrics.")
    if not any(s.source is not SymptomSource.ALERT for s in gathered.symptoms):
        missing.append("Warning events and pod states.")
    if sum(one.name in SERVED for one in gathered.series) >= MOST_SERVED:
        missing.append(f"Requests of all apps: {MOST_SERVED:,} series of them were read, of its namespaces first.")
    if left := gathered.unread.count:
        missing.append(f"{left:,} changes that are older, elsewhere, or repeated since.")
    return tuple(missing)


def _signals(
    gathered: Gathered,
    acting: list[Signal],
    new: Newborn,
    *,
    slots: Slots | None,
    made: Loads,
    lines: Laid | None,
    served: list[Rise],
) -> list[Signal]:
    """Everything that turned bad in the window: who fights or calls more, ``acting``, and the rest."""
    calls = gathered.calls
    found = [*acting]
    if slots and slots.size:
        found += error_signals(calls, slots, made) + relist_signals(calls, slots)
        found += wait_signals(calls, slots) + silence_signals(calls, slots) + watch_signals(calls, slots)
        found += cost_signals(calls, slots, made)
    complaints = (s for s in gathered.symptoms if s.at <= gathered.now)
    hurt = symptom_signals(complaints, start=_seen_from(gathered), end=gathered.now, new=new)
    found += hurt + rollout_signals(gathered.rollouts, hurt, states=gathered.states, now=gathered.now)
    found += metric_signals(lines) if lines else []
    found += serving_signals(served)
    found = with_rolled_out(with_came_up(with_passed(found), gathered.rollouts), gathered.rollouts)
    latest = gathered.incident.started_at + LATE_ALERT
    return [s for s in found if s.low <= latest]


def _seen_from(gathered: Gathered) -> datetime:
    """When the window's record really begins: before that, nothing can be said to be new."""
    firsts = [change.at for change in gathered.changes[:1] + gathered.changes[-1:]]
    firsts += [moment(gathered.unread.oldest)] if gathered.unread.oldest is not None else []
    firsts += [moment(int(gathered.calls.slot.min()))] if gathered.calls else []
    firsts += [moment(min(one.times[0] for one in gathered.series if one.times))] if gathered.series else []
    return max(gathered.start, min(firsts, default=gathered.start))


def find_onset(incident: Incident, weighed: list[tuple[Signal, float]], *, near: Near, is_held: bool) -> Onset:
    """When it began to go wrong: the earliest of the signals that matter; the alert's start where none does, or since
    when its condition has held, where that is known (``is_held``).

    Where those that matter are not about what the alert is about, it may have begun as late as the alert.
    """
    top = max((w for _, w in weighed), default=0.0)
    enough = max(SALIENT * top, FAINT)
    matter = [s for s, w in weighed if w >= enough and s.kind is not SignalKind.METRIC]
    matter = matter or [s for s, w in weighed if w >= enough]
    # Every rollout gives Kubernetes' own controllers work: that is not yet what a workload suffers from.
    about_workload = bool(incident.scope.workloads) and not incident.scope.control_plane
    own = [s for s in matter if not is_consequence(s)]
    matter = own if own or about_workload else matter
    if not matter:
        return _alerted(incident, is_held=is_held)
    earliest = min(matter, key=lambda s: s.low)
    # Of those that may have begun together, the one that knows best when.
    first = min((s for s in matter if s.low <= earliest.high), key=lambda s: (s.high - s.low, s.low))
    middle = first.low + (first.high - first.low) / 2
    is_meant = any(inside(s, incident.scope, upstream=near.upstream) for s in matter)
    high = first.high if is_meant or not incident.scope.namespaces else max(first.high, incident.started_at)
    return Onset(middle, first.low, high, first.sentence.split(":")[0])


def _alerted(incident: Incident, *, is_held: bool) -> Onset:
    at = incident.started_at
    if is_held:
        return Onset(at, at - RATED, at, "the alert's condition began to hold, and nothing else measured turned bad")
    told = "the alert's start" if incident.alerts else "the start that it was given"
    return Onset(at, at - timedelta(minutes=20), at, f"{told}, as nothing measured turned bad")


def _score(
    case: Case, found: list[Candidate], rules: tuple[Rule, ...], *, others: Floats
) -> tuple[list[Suspect], float]:
    """The first suspects, and the odds of none. ``others`` are the times of rivals that were not read."""
    moves = sorted((c.change.at, c.pods) for c in found if c.pods)
    adding = [c for c in found if c.added]
    rooms = {s.room for s in case.signals}
    adds = {room: sorted((c.change.at, c.added) for c in adding if has_pods(c, room)) for room in rooms}
    # An edit made over and over is one rival, not as many.
    times = sorted([*others.tolist(), *(c.change.at.timestamp() for c in found if not c.routine and not c.unread)])
    before_onset = bisect_right(times, case.onset.high.timestamp())
    scored = []
    explained = [
        tuple(
            match
            for signal in signals
            if (match := explain(candidate, signal, churn_share=_share(candidate, signal, moves, adds[signal.room])))
        )
        for candidate, signals in zip(found, shared(found, case.signals), strict=True)
    ]
    explained = less_of_the_same(found, less_unquoted(found, explained))
    for candidate, matches in zip(found, explained, strict=True):
        between = max(0, before_onset - bisect_right(times, began(candidate, case.onset.high).timestamp()))
        keeps = UNLIKELY if is_occasion(candidate, matches, case.salience) else 1.0
        led = max((case.salience.get(id(match.signal), 0.0) * match.score for match in matches), default=0.0)
        facts = Facts(candidate, matches, between, led, keeps, touches(case, candidate, matches, explained=led))
        evidence = tuple(e for rule in rules if (e := rule(case, facts)))
        scored.append((sum(e.weight for e in evidence), candidate, evidence))
    scored.sort(key=lambda item: (-item[0], -item[1].change.at.timestamp()))
    scored, beside = _by_release(scored)
    weights = _as_rivals([math.exp(score - NONE_SCORE) for score, _, _ in scored], [c for _, c, _ in scored])
    total = 1.0 + sum(weights)
    return [
        Suspect(
            rank=index + 1,
            probability=weight / total,
            score=round(score, 3),
            change=candidate.change,
            evidence=tuple(sorted(evidence, key=lambda e: -abs(e.weight))),
            derived=candidate.derived,
            t_minus=case.onset.at - candidate.change.at,
            also=_named(candidate.also),
            beside=_named(beside[candidate.change.id]),
        )
        for index, ((score, candidate, evidence), weight) in enumerate(zip(scored[:SHOWN], weights, strict=False))
    ], 1.0 / total


def _by_release(scored: list[_Scored]) -> tuple[list[_Scored], dict[str, list[Change]]]:
    """Of what was written in one go the likeliest alone, and by its id the others: a release is one rival."""
    firsts = releases(candidate.change for _, candidate, _ in scored)
    leaders: dict[str, str] = {}
    kept: list[_Scored] = []
    beside: dict[str, list[Change]] = defaultdict(list)
    for one in scored:
        candidate, number = one[1], one[1].change.id
        leader = leaders.setdefault(firsts.get(number, number), number)
        if leader == number:
            kept.append(one)
        else:
            beside[leader] += [candidate.change, *candidate.also]
    return kept, beside


def _named(changes: Iterable[Change]) -> tuple[Also, ...]:
    return tuple(Also(one.id, one.at, one.resource) for one in changes)


def _as_rivals(weights: list[float], found: list[Candidate]) -> list[float]:
    """An edit that is made over and over is one rival: all of them together weigh as much as the likeliest."""
    together: dict[int, list[float]] = defaultdict(list)
    for candidate, weight in zip(found, weights, strict=True):
        together[candidate.edit].append(weight)
    shares = {edit: max(some) / sum(some) for edit, some in together.items()}
    return [weight * shares[candidate.edit] for candidate, weight in zip(found, weights, strict=True)]


def _share(
    candidate: Candidate, signal: Signal, moves: list[tuple[datetime, int]], adds: list[tuple[datetime, int]]
) -> float:
    """The candidate's share of the pods that were moved shortly before the signal; of those added, where room is
    what lacks."""
    pods, all_pods = (candidate.added, adds) if signal.kind is SignalKind.SYMPTOM else (candidate.pods, moves)
    by_priority = signal.facts.get("reason") == PREEMPTED
    if not pods or (by_priority and PREEMPTS not in candidate.reach) or not has_pods(candidate, signal.room):
        return 0.0
    low, high = window_of(signal.high)
    if not low <= candidate.change.at <= high:
        return 0.0
    total = sum(
        count for _, count in all_pods[bisect_left(all_pods, (low, 0)) : bisect_right(all_pods, (high, 1 << 30))]
    )
    if takes_lost_watches(signal) and total < LOSE_WATCHES:
        return 0.0
    if signal.kind is SignalKind.SYMPTOM:  # more that find no room were made besides: bare pods are no changes
        total = max(total, len(signal.spread))
    return pods / total if total else 0.0
