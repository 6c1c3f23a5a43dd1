"""The evidence rules: each a small function (Case, Candidate's facts) -> Evidence or nothing, in one tuple.

A weight is a log-odds contribution, capped to ±CAP. A rule that lacks its input says so (``measured`` False) and
weighs nothing: what was not measured never counts against a change. docs/ranking.md explains each.
"""

from __future__ import annotations

import math
from datetime import timedelta

from app.core.edges.mechanism import SERVING
from app.core.edges.program_causes import EXHAUSTED
from app.core.entities import WORKLOADS, workload
from app.core.findings import Evidence
from app.core.model import SLOT_SECONDS, Change, Outcome, Verb
from app.core.objects.kinds import several
from app.core.objects.stalls import EXCEEDED, lacks, rests
from app.core.phrases import excerpt, many, percent
from app.core.ranking.candidates import Candidate
from app.core.ranking.case import CAP, Case, Facts, Rule, say, seconds
from app.core.ranking.chains import chain
from app.core.ranking.consequences import SHORT
from app.core.ranking.explain import BY_CALLING, CLOCK_SKEW, Match, before, is_about_place, without
from app.core.ranking.latent import began
from app.core.ranking.lessened import left, lessened
from app.core.ranking.multiplied import more_often
from app.core.ranking.overrun import overrun
from app.core.ranking.priors import ROOM, by_itself, novelty, plane, risk
from app.core.ranking.scoped import NAMED, in_scope
from app.core.ranking.short_of import is_full, shows_within
from app.core.ranking.together import together
from app.core.ranking.worded import worded
from app.core.signals.blamed import BLAMES
from app.core.signals.calls import caller_name
from app.core.signals.evictions import DELETER
from app.core.signals.signal import Signal, SignalKind

UNWELL = frozenset({*SERVING, "Unhealthy", "Unready"})
"""Reasons that say that a workload is unwell, and not why."""
EXPLAINS = 4.0
"""What it weighs at most, before it is capped, that a change explains what was measured of calls."""
COMPLAINED = 2.0
"""The same for complaints: many changes lead to them, and of those that do the stronger are hardly the likelier
(docs/decisions/0043)."""
OWN = 0.4
"""What is left of what such a complaint says for a change of that very workload: time and what the alert names say the
same once more. Of 61 leaders of tests that were met first whose own complaints said no cause 24 were right, of the 67
others to whom complaints led 52 (docs/decisions/0042)."""
TOO = 0.2
"""From this share of the complaints on, others complain too."""
UNEXPLAINED = 1.9
"""What it weighs against a change that nothing that turned bad leads to it, where that is clearly bad (0043)."""
UNDONE = -1.5
"""What it weighs against a change that it was undone before the onset: pods may still have started with it."""
TAU_ONSET = timedelta(minutes=5)
NEAR = 1.6
"""What it weighs to have come at the onset, with nothing between."""
WELL_UNTIL_THEN = -0.8
"""What it weighs at most that pods were well until what shows long after as a rule."""
RESIZED = "EvictedByVPA"
"""What a vertical autoscaler says of a pod that it evicts for the next one to have what it recommends
(https://github.com/kubernetes/autoscaler/tree/master/vertical-pod-autoscaler/pkg/updater)."""
SLOT = timedelta(seconds=SLOT_SECONDS)
FOR_OTHERS = (("agent",), ("injected",), ("scheduling",), *BY_CALLING)
"""Ways to what a program does for other pods: that its own are well says nothing of that."""
CALLED = WORKLOADS | {"Service", "Ingress", "HTTPRoute"}
"""What can be called over the network."""


def _explains(kind: SignalKind, rule: str, factor: float) -> Rule:
    def explains(case: Case, facts: Facts) -> Evidence | None:
        if not facts.matches:  # most candidates have none
            return None
        scored = [
            (case.salience[id(m.signal)] * m.score, m)
            for m in facts.matches
            if m.signal.kind is kind and id(m.signal) in case.salience
        ]
        if not scored:
            return None
        scored.sort(key=lambda pair: -pair[0])
        best = scored[0][0]
        # What explains all that is bad is likelier than what explains one part of it.
        clear = [case.salience[id(s)] for s in case.signals if s.kind is kind and case.salience[id(s)] >= best / 2]
        explained = sum(score for score, m in scored if case.salience[id(m.signal)] >= best / 2) / sum(clear)
        weight = min(CAP, factor * best * (0.6 + 0.6 * explained) * (0.15 + 0.85 * case.quality))
        weight *= OWN if _is_own(facts.candidate, scored[0][1]) else 1.0
        if weight < 0.05:
            return None
        return say(rule, weight, _sentence(facts.candidate, scored[0][1]) + _but(facts.candidate, scored[0][1]))

    explains.__name__ = rule
    return explains


_RIGHTS = {"access": "It took away what this caller needs", "gained": "It allowed this caller what it began then"}


def _is_own(candidate: Candidate, match: Match) -> bool:
    """Whether a change leads to a complaint only for being of whom complains, who says that he is unwell, not why."""
    home, signal = candidate.change.resource, match.signal
    says_why = signal.cause is not None or signal.facts.get("reason") not in UNWELL or DELETER in signal.facts
    return not says_why and match.via == workload(home.namespace, home.name)


def _sentence(candidate: Candidate, match: Match) -> str:
    signal, change = match.signal, candidate.change
    since = f", {seconds(match.lag)} after this change" if match.lag else ", at once"
    if how := _how(candidate, match):
        return f"{how}: {signal.sentence}{since}."
    sentence = f"{signal.sentence}{since}."
    if said := signal.facts.get("says"):
        sentence = f'{signal.sentence}{since}: "{said}".'
    if signal.kind is SignalKind.LOAD and signal.by_pod and candidate.lacking and match.via[0] != "refuses":
        sentence += f" {percent(1.0 - without(candidate, signal))} of it comes from pods that have it in them."
    if match.via[0] == "workload" and match.via != workload(change.resource.namespace, change.resource.name):
        return f"{match.via[-1]} depends on it: {sentence}"
    return sentence if _begins_with_a_name(signal) else sentence[:1].upper() + sentence[1:]


_SAYS = {
    "takes": "Its pods take the same port of their nodes as those of {}",
    "fills": "Its pods take of what the quota leaves to namespace {}",
    "reads": "{} reads what is kept up by what depends on it",
    "unguarded": "Since then more pods of {} may be evicted at once, and some were",
    "asks": "What it changes calls {}",
    "occupies": "It is a new version of what calls {}",
    "uncleared": "It no longer takes away what {} keeps",
    "migrated": "It may change tables that {} reads, too",
    "beside": "It is a new version of what shares a server, or a topic, with {}",
}
"""How a change leads to whom, by the way that it does."""


def _how(candidate: Candidate, match: Match) -> str:
    """How the change leads to the signal, where that is not plain from what it is about; "" where it is."""
    signal, via = match.signal, match.via
    if via[0] == "named":
        return f'Error messages name "{via[1]}"'
    if via[0] in _SAYS:
        return _SAYS[via[0]].format(via[-1])
    if via[0] in ("spread", "churn"):
        return _how_many(candidate, match)
    if via[0] == "burdens":
        change = candidate.change
        is_guessed = change.verb is Verb.CREATE and change.resource.name.startswith(f"{via[-1]}-")
        return f"It may ask more of {via[-1]}, {'after which it is named' if is_guessed else 'which it calls'}"
    if via[0] in ("calls", "shares"):
        return f"{via[-1]} calls {_called(candidate, match)}"
    if via[0] in _RIGHTS:
        return _RIGHTS[via[0]]
    return _able(match) if "able" in signal.facts and via[0] in ("user", "workload") else ""


def _how_many(candidate: Candidate, match: Match) -> str:
    """Of a change that leads there by how many it acts on, or how many pods it moves."""
    signal, via = match.signal, match.via
    most = tuple(signal.facts.get("took_most", "").split("/"))
    if via[0] == "spread" and ("workload", *most) in candidate.reach:
        return f"It acts on {most[-1]}, which used most of what ran out"
    if via[0] == "spread":
        return f"It {_acts_on(match)}"
    if signal.kind is SignalKind.SYMPTOM:
        return f"It wants room for {candidate.added} more pods, most of those added then"
    return f"It moves {candidate.pods} pods, most of what moved then"


def _able(match: Match) -> str:
    """Whose calls a metric may count, of how many that the cluster's roles let make them (permitted.py)."""
    name = caller_name(match.via[1]) if match.via[0] == "user" else match.via[-1]
    others = int(match.signal.facts["able"]) - 1
    what = "write this" if match.signal.kind is SignalKind.FIGHT else "make these calls"
    return f"{name} may {what}, as {'no other program' if not others else many(others, 'other')} may"


def _but(candidate: Candidate, match: Match) -> str:
    """What the match was discounted for (explain.py): pods that do not have the change in them complain too."""
    share = without(candidate, match.signal) if match.signal.kind is not SignalKind.LOAD else 0.0
    return f" But {percent(share)} of these complaints are of pods that do not have it in them." if share >= TOO else ""


def _called(candidate: Candidate, match: Match) -> str:
    if match.via[0] == "shares":
        return candidate.crowds or "what it calls, too, and may ask more of"
    return "it, or what depends on it" if candidate.change.resource.kind in CALLED else "what depends on it"


def _acts_on(match: Match) -> str:
    """How many of those that complain alike a change acts on."""
    reached, all_of_them = match.via[1:]
    how_many = f"all {reached}" if reached == all_of_them else f"{reached} of the {all_of_them}"
    if "waited_for" in match.signal.facts:
        return f"is asked about {how_many} sorts of writes that wait"
    return f"acts on {how_many} that complain"


def _begins_with_a_name(signal: Signal) -> bool:
    """Whether a signal's sentence begins with who called: names of Kubernetes are written as they are."""
    return any(signal.sentence.startswith(caller_name(user)) for user in signal.users)


def time_before(case: Case, facts: Facts) -> Evidence | None:
    """Closer is likelier, both in minutes and in how many other changes came after it and before the onset."""
    at = began(facts.candidate, case.onset.high)
    in_time = before(at, case.onset.high)
    if in_time < 1.0:
        return None
    lag = max(timedelta(), case.onset.at - at)
    weight = _near(lag, TAU_ONSET, facts.between)
    if weight < 0 and (within := _shows_within(case, facts)):
        weight = min(0.0, _near(lag, within, 0))
    weight = min(weight, facts.keeps * weight)  # what speaks against it still does
    count = "one other change" if facts.between == 1 else f"{facts.between} other changes"
    rivals = f"; {count} came between" if facts.between else "; nothing came between"
    when = f"{seconds(lag)} before the onset" if lag >= CLOCK_SKEW else "At the onset"
    if at != facts.candidate.change.at:
        when = f"{facts.candidate.acts_as} {when[0].lower()}{when[1:]}"
    but = " But such a change hardly leads to what is complained of." if facts.keeps < 1.0 else ""
    return say("time", weight, f"{when}{rivals}.{but}")


def _shows_within(case: Case, facts: Facts) -> timedelta | None:
    """How long after a change it shows as a rule, where that is not soon: not in pods that another program has put into
    the place of those that are there since, with other room."""
    change = facts.candidate.change
    home = workload(change.resource.namespace, change.resource.name)
    if any(home in signal.about and signal.facts.get("reason") == RESIZED for signal in case.signals):
        return None
    return max((span for match in facts.matches if (span := shows_within(change, match.signal))), default=None)


def _near(lag: timedelta, tau: timedelta, between: int) -> float:
    return NEAR * (1.0 - math.log1p(lag / tau) - 0.25 * math.log1p(between))


def after_onset(case: Case, facts: Facts) -> Evidence | None:
    """What came after the trouble began did not begin it; less so if it explains a part that began later still."""
    in_time = before(facts.candidate.change.at, case.onset.high)
    if in_time == 1.0:
        return None
    late = facts.candidate.change.at - case.onset.high
    weight = -(1.0 - in_time) * (1.5 + 0.5 * min(1.0, late / TAU_ONSET)) * (1.0 - 0.7 * min(1.0, facts.explained))
    return say("after onset", weight, f"It came {seconds(late)} after the onset.")


def emptied(case: Case, facts: Facts) -> Evidence | None:
    """A Service without pods fails all its clients at once, wherever they are, and nothing else would show it; nor does
    what no longer runs, where the alert misses just that.

    Of a namespace that is deleted the clients inside go as well: it is about others alone.
    """
    if is_undone(case, facts):
        return None
    if facts.candidate.empties and not _goes_with_them(case, facts.candidate.change):
        return say("empties", 1.5, f"{facts.candidate.empties}.")
    scope = facts.scope if facts.candidate.stops else None
    if scope is not None and scope.weight >= NAMED * 2 / 3:
        return say("stops", 1.5, f"Since then {facts.candidate.change.resource.name} starts nothing any more.")
    return None


def _goes_with_them(case: Case, change: Change) -> bool:
    """Whether all that the alert is about is deleted with the namespace that it is in."""
    is_whole = change.resource.kind == "Namespace" and change.verb is Verb.DELETE
    return is_whole and set(case.incident.scope.namespaces) == {change.resource.name}


def is_undone(case: Case, facts: Facts) -> bool:
    """Whether it was undone before the onset, and no program acted because of it."""
    at = facts.candidate.undone_at
    return at is not None and at < case.onset.low and not facts.candidate.set_off


def undone(case: Case, facts: Facts) -> Evidence | None:
    """What was undone before the trouble began no longer stood then."""
    at = facts.candidate.undone_at
    if at is None or not is_undone(case, facts):
        return None
    return say("undone", UNDONE, f"It was undone, or overwritten, {seconds(case.onset.at - at)} before the onset.")


def set_off(_case: Case, facts: Facts) -> Evidence | None:
    """A program that does what it never did, after it was changed or told to."""
    acts = facts.candidate.set_off
    if not acts:
        return None
    kinds = sorted({act.resource.kind for act in acts})
    what = several(kinds[0]) if len(kinds) == 1 and len(acts) > 1 else ", ".join(kinds[:3])
    how_often = f"{len(acts)} writes" if len(acts) > 1 else "one write"
    who = acts[0].actor.name.rpartition(":")[2]
    sentence = f"{who} followed it: {how_often} of {what} since, the first: {excerpt(acts[0].summary)}."
    return say("set off", min(3.0, 0.85 + 0.65 * math.log1p(len(acts))), sentence)


def own_rollout(case: Case, facts: Facts) -> Evidence | None:
    """A rollout that failed or hangs is suspicious by itself; one that went through speaks a little for it."""
    rollout = facts.candidate.rollout
    if rollout is None:
        return None
    if rollout.outcome is Outcome.FAILED or rollout.reason == EXCEEDED:  # or was replaced or taken back since
        own = max((match.score for match in facts.matches if match.signal.kind is SignalKind.SYMPTOM), default=1.0)
        return say("rollout", own, f"Its rollout failed: {rollout.reason or 'progress deadline exceeded'}.")
    if rollout.outcome is Outcome.ROLLED_BACK:
        return say("rollout", 0.6, "It was rolled back.")
    running = (rollout.ended_at or case.now) - rollout.started_at
    if (still := rests(rollout, case.now)) > facts.candidate.patience and lacks(rollout):
        return say("rollout", 0.4, f"Its rollout hangs: for {seconds(still)} no pod more was updated or available.")
    if rollout.outcome is not Outcome.COMPLETE or rollout.ended_at is None:
        return None
    main = max(facts.matches, key=lambda m: case.salience.get(id(m.signal), 0.0) * m.score, default=None)
    well = (main.signal.low if main else case.onset.low) - rollout.ended_at
    if left(facts) or (main and (_is_of_room(facts.candidate, main) or _is_for_others(facts.candidate, main))):
        return None
    if well > max(running, SLOT):
        weight = -0.9 * math.log1p(well / max(running, SLOT))
        weight /= 2 if _may_harm_while_well(facts, main) else 1
        if main and shows_within(facts.candidate.change, main.signal):
            weight = max(weight, WELL_UNTIL_THEN)
        return say("rollout", weight, f"Its rollout went through and its pods were well for {seconds(well)} after.")
    if case.incident.scope.workloads:
        return say("rollout", -0.2, f"Its rollout finished in {seconds(running)}: the new pods are available.")
    return None


def _may_harm_while_well(facts: Facts, main: Match | None) -> bool:
    """Whether what is told is harm that pods which are well may do: who asks for too much, or for what cannot be, who
    answers others late or wrong, as these say, or who gives back nothing of what it took."""
    if any(match.via[0] in ("calls", "named") and BLAMES in match.signal.facts for match in facts.matches):
        return True
    if main is not None and (main.signal.users or main.via[0] == "calls" or _fills(main.signal)):
        return True
    return bool(facts.candidate.set_off)


def _is_of_room(candidate: Candidate, match: Match) -> bool:
    """Whether others, or later pods of its own, lack the room that its first pods found."""
    is_complaint = match.signal.kind is SignalKind.SYMPTOM
    return is_complaint and (match.via[:1] in ROOM or is_about_place(candidate, match.signal))


def _is_for_others(candidate: Candidate, match: Match) -> bool:
    return match.via[:1] in FOR_OTHERS and candidate.change.verb is Verb.UPDATE


def _fills(signal: Signal) -> bool:
    """Whether something ran out that is taken bit by bit."""
    return is_full(signal) or signal.cause is EXHAUSTED or signal.facts.get("reason") in {"OOMKilled", *SHORT}


def unexplained(case: Case, facts: Facts) -> Evidence | None:
    """Where much is measured and nothing, or little, of it leads to this change, that is said."""
    if not case.signals:
        return None
    weight = -UNEXPLAINED * case.quality * max(0.0, 1.0 - 2.0 * facts.explained)
    if weight > -0.05:
        return None
    how_much = "Little" if facts.matches else "Nothing"
    return say("unexplained", weight, f"{how_much} of what turned bad leads to it.")


def not_measured(case: Case, _facts: Facts) -> Evidence | None:
    if case.audited:
        return None
    return Evidence("callers", 0.0, "Who called the API is not measured: no audit log.", measured=False)


RULES: tuple[Rule, ...] = (
    _explains(SignalKind.FIGHT, "write fight", EXPLAINS),
    _explains(SignalKind.LOAD, "load", EXPLAINS),
    _explains(SignalKind.ERROR, "errors", EXPLAINS),
    _explains(SignalKind.SYMPTOM, "symptoms", COMPLAINED),
    _explains(SignalKind.METRIC, "metrics", 2.0),
    own_rollout,
    time_before,
    after_onset,
    in_scope,
    plane,
    chain,
    emptied,
    undone,
    set_off,
    by_itself,
    risk,
    novelty,
    unexplained,
    together,
    worded,
    lessened,
    more_often,
    overrun,
    not_measured,
)
