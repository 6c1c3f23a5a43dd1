"""Symptoms -> signals: what began to complain, how widely, and what its messages name."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np

from app.core.changes.audit import error_template
from app.core.edges.causes import (
    NO_IMAGE,
    NODES_MADE,
    NODES_TAKEN,
    PROGRAM,
    PULLING,
    REGISTRY,
    RUNTIME,
    VOLUMES,
    cause_of,
)
from app.core.edges.leads import Cause
from app.core.edges.mechanism import refused_by, refuser
from app.core.edges.program_causes import EXHAUSTED, FILE, KEPT_IN, NAMES
from app.core.edges.said import UNREACHED
from app.core.entities import NODES, Entity, altered, of_resource, pods_in
from app.core.model import SLOT_SECONDS, ObjectState, Outcome, Rollout, Symptom, SymptomSource
from app.core.objects.pod_states import DIED, EVICTED, PREEMPTED, TAKEN
from app.core.objects.revisions import pod_of
from app.core.objects.stalls import lacks, patience, rests
from app.core.objects.starting import PASSED
from app.core.onset import beginning
from app.core.phrases import excerpt
from app.core.signals.failed_calls import failed_calls
from app.core.signals.last_words import NO_NODES, last_words, with_last_words
from app.core.signals.newborn import Newborn, is_newborn
from app.core.signals.signal import Signal, SignalKind
from app.core.signals.usage import others_took, shares, tolls, took_most, without_use

WEIGHTS = {
    "CrashLoopBackOff": 0.9,
    "BackOff": 0.85,
    "OOMKilled": 0.9,
    "ImagePullBackOff": 0.9,
    "ErrImagePull": 0.9,
    "InvalidImageName": 0.9,
    "CreateContainerConfigError": 0.9,
    "FailedMount": 0.9,
    "FailedAttachVolume": 0.9,
    "FailedCreate": 0.9,
    "FailedCreatePodSandBox": 0.9,
    "NodeNotReady": 0.9,
    "MemoryPressure": 0.8,
    "DiskPressure": 0.8,
    "PIDPressure": 0.8,
    "NetworkUnavailable": 0.8,
    "Evicted": 0.8,
    "FailedScheduling": 0.8,
    "Unschedulable": 0.8,
    "Pending": 0.6,
    "Error": 0.8,
    "Failed": 0.7,
    "Unhealthy": 0.6,
    "Unready": 0.5,
    "BackoffLimitExceeded": 0.8,
    EVICTED: 0.6,
    PREEMPTED: 0.7,
    "ProvisioningFailed": 0.8,
    "RunContainerError": 0.9,
    "CreateContainerError": 0.9,
    "MultiplePodDisruptionBudgets": 0.15,
    "DNSConfigForming": 0.15,
}
"""How much a reason says that something is broken: the last ones are remarks on a configuration with which pods run.
Reasons that are not listed count OTHER."""
OTHER = 0.4
NOT_SO = 0.7
"""A condition that should be true and is not, whatever its reason: those of custom resources are their operators'."""
OF_NODES = 0.8
"""How much evictions are about what runs on nodes beside, where those that were put out took next to nothing."""
STARTING = timedelta(seconds=5)
SPAM = 25
"""From so many Events of one object on, one in five minutes is told: maxBurst of client-go's spam filter for Events."""
AT_ONCE = timedelta(minutes=1)
"""Complaints that began within this time of one another may have one cause."""
REST = timedelta(seconds=30)
"""What is not complained of for three probes (every 10 s, Kubernetes' default) is over."""
LASTING = frozenset({"Unhealthy", "Unready", "Pending", "Unschedulable"})
"""Reasons that are told as long as it is so, by each probe or by a pod's state; others are told less and less often."""
WIDE = 3
"""From this many workloads on, the same complaint is one wide signal and not several narrow ones."""
MAKES_PODS: Entity = ("api", "", "pods", "create")
_DEVICE = re.compile(r"Insufficient ([a-z0-9.-]+\.[a-z0-9-]+)/")
"""Whose plugin gives nodes a resource that no pod finds: by convention it is called after the resource's domain
(https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/)."""
_WHOLE_SECOND = timedelta(seconds=1)
"""How exact the times are that objects hold (metav1.Time)."""


def symptom_signals(
    symptoms: Iterable[Symptom], *, start: datetime, end: datetime, new: Newborn | None = None
) -> list[Signal]:
    """One signal for each (reason, cause or message) that began between ``start`` and ``end``, split by workload unless
    it is wide. Of what was complained of long before, and then not any more, only the later counts.

    A complaint that was there from the window's first slots on is chronic, and says little. What is ``new`` complains
    for itself alone.
    """
    spoken: dict[tuple[str, Entity], list[Symptom]] = defaultdict(list)
    for symptom in symptoms:
        if symptom.source is not SymptomSource.ALERT and not _passing(symptom):
            spoken[(symptom.reason, _home(symptom))].append(symptom)
    lately = [symptom for told in spoken.values() for symptom in _lately(told, start, end=end)]
    groups: dict[tuple[str, str], list[Symptom]] = defaultdict(list)
    causes = {message: cause_of((message,)) for message in {symptom.message for symptom in lately}}
    for symptom in lately:
        said = causes[symptom.message]
        groups[(symptom.reason, said.of if said else _template(symptom))].append(symptom)
    found: list[Signal] = []
    by_reason: dict[str, list[Symptom]] = defaultdict(list)
    turns = (
        (reason, members)
        for (reason, _), alike in groups.items()
        for some in _by_beginning(alike, start=start)
        for members in _by_turns(reason, some)
    )
    for reason, members in turns:
        # Objects that were never well complain each for itself: autoscalers that nobody measures for, say.
        homes = {home for s in members if (home := _home(s))[0] != "object" or not is_newborn(home, s.at, new or {})}
        if len(homes) >= WIDE:
            found.append(_signal(reason, members, start=start))
        else:
            by_reason[reason] += members
    for reason, members in by_reason.items():
        narrow: dict[Entity, list[Symptom]] = defaultdict(list)
        for symptom in members:
            narrow[_home(symptom)].append(symptom)
        for own, left in zip(narrow.values(), shares(list(narrow.values())), strict=True):
            signal = _signal(reason, own, start=start)
            found.append(replace(signal, strength=signal.strength * left))
    found = with_last_words(found)
    return sorted((_beside(signal, found, new or {}) for signal in found), key=lambda s: -s.strength)


def _by_beginning(alike: list[Symptom], *, start: datetime) -> Iterable[list[Symptom]]:
    """Those of one complaint that made it from the window's first slots on, and those that began to later: some always
    do, and say nothing of when the others began."""
    first: dict[Entity, datetime] = {}
    for symptom in alike:
        first[_home(symptom)] = min(symptom.at, first.get(_home(symptom), symptom.at))
    parts: dict[bool, list[Symptom]] = {True: [], False: []}
    for symptom in alike:
        parts[_is_chronic(first[_home(symptom)], start)].append(symptom)
    return filter(None, parts.values())


def _is_chronic(first: datetime, start: datetime) -> bool:
    """Whether it was there from the window's first slots on."""
    return first - start < timedelta(seconds=2 * SLOT_SECONDS)


def _by_turns(reason: str, alike: list[Symptom]) -> Iterator[list[Symptom]]:
    """Those of one complaint that are one: what all had ended of, as probes tell, before others began is another."""
    told: dict[Entity, list[Symptom]] = defaultdict(list)
    for symptom in alike:
        told[_home(symptom)].append(symptom)
    turn: list[Symptom] = []
    until: datetime | None = None
    for own in sorted(told.values(), key=lambda some: min(one.at for one in some)):
        if turn and until and reason in LASTING and min(one.at for one in own) > until + REST:
            yield turn
            turn = []
        ends = None if _goes_on(own) else max(one.ended_at or one.at for one in own)
        until = ends if not turn else max(until, ends) if until and ends else None
        turn += own
    yield turn


def _lately(told: list[Symptom], start: datetime, *, end: datetime) -> list[Symptom]:
    """One workload's complaints of one reason since they began for the last time."""
    counts = Counter[int]()
    start = min(start, *(symptom.at for symptom in told))
    for symptom in told:
        counts[_slot(symptom.at, start)] += symptom.count
    slots = sorted(counts)
    first = slots[beginning(np.array(slots), np.array([float(counts[s]) for s in slots]), end=_slot(end, start) + 1)]
    return [symptom for symptom in told if _slot(symptom.at, start) >= first]


def _slot(at: datetime, start: datetime) -> int:
    return int((at - start).total_seconds()) // SLOT_SECONDS


def rollout_signals(
    rollouts: Iterable[Rollout], complaints: Iterable[Signal], *, states: Iterable[ObjectState], now: datetime
) -> list[Signal]:
    """One signal for each rollout that failed, or hangs, without a word from its pods: what calls it may feel it."""
    known = {state.resource: state.state for state in states}
    said = {home for signal in complaints for home in (*signal.about, *signal.spread)}
    return [
        Signal(
            kind=SignalKind.SYMPTOM,
            low=rollout.started_at,
            high=rollout.started_at + timedelta(seconds=1),
            strength=WEIGHTS["Unready"],
            about={home: 1.0, ("ns", rollout.resource.namespace or ""): 0.4},
            sentence=f"the rollout of {rollout.resource.name} {how}",
            facts={"reason": "Rollout", "chronic": "False", "refused": ""},
        )
        for rollout in rollouts
        if rollout.started_at <= now and (how := _how_it_fares(rollout, patience(known.get(rollout.resource)), now=now))
        for home in of_resource(rollout.resource)
        if home not in said
    ]


def _how_it_fares(rollout: Rollout, given: timedelta, *, now: datetime) -> str:
    """In words, what is wrong with a rollout; nothing where nothing is."""
    if rollout.outcome is Outcome.FAILED:
        return "failed"
    last = lacks(rollout)
    if last is None or rests(rollout, now) <= given:
        return ""
    return f"hangs: {last.available} of {last.desired} pods are available"


def is_over(signal: Signal, at: datetime) -> bool:
    """Whether all was well again for REST by then, of what is told as long as it is so."""
    lasts = signal.facts.get("reason") in LASTING
    return lasts and signal.until is not None and signal.until + REST < at


def _beside(signal: Signal, found: list[Signal], new: Newborn) -> Signal:
    """With the workloads, but for new ones, that began to complain of the same reason at about the same time, and had
    not ended when this did."""
    reason = signal.facts["reason"]
    near = (o for o in found if o.facts["reason"] == reason and abs(o.low - signal.low) <= AT_ONCE)
    alike = [o for o in near if not is_over(o, signal.low)]
    homes = {h for other in alike for h in other.about if h[0] == "workload" and not is_newborn(h, other.low, new)}
    return replace(signal, others=frozenset(homes - signal.about.keys()))


def _passing(symptom: Symptom) -> bool:
    """Whether a pod failed probes only before it was ready (starting.py), or only took as long as pods take to start:
    the SLO of Kubernetes gives it five seconds
    (https://github.com/kubernetes/community/blob/master/sig-scalability/slos/pod_startup_latency.md)."""
    if symptom.severity == PASSED:
        return True
    waited = symptom.reason in ("Unschedulable", "Pending", "Unready")
    return waited and symptom.ended_at is not None and symptom.ended_at - symptom.at < STARTING


_LOOKED_UP = re.compile(r"\blookup \S+")
"""Whoever does not get one name resolved gets none."""
_OF_ITS_OWN = frozenset({"BackOff", "CrashLoopBackOff"})
"""Reasons that say of each program alike that it ends, and not why."""
_OWN = re.compile(
    r'^(?:Readiness|Liveness|Startup)(?: (probe \w+: (?:Get|command timed out:)) "[^"]*")?'
    r'|(?<=\bcontainer )(?:"[^"]*"|\S+(?= in pod))|(?<=\bkube-api-access-)\w+'
)
"""Which probe it was, and what it asks for, as each program has a path, or a command, of its own for that; what a
container is called, and a volume with a token."""


def _template(symptom: Symptom) -> str:
    """A message without what names the one that complains: equal complaints of many are one."""
    if symptom.reason in _OF_ITS_OWN:
        return str(_home(symptom))
    message, pod = without_use(symptom.message), symptom.resource
    if pod is not None:
        message = message.replace(pod.name, "*").replace(f"_{pod.namespace}(", "(")
    message = message.replace(_home(symptom)[-1], "*")
    return error_template(_OWN.sub(lambda told: f"{told[1] or ''}*", _LOOKED_UP.sub("lookup *", message)))[:120]


def _home(symptom: Symptom) -> Entity:
    resource = symptom.workload or symptom.resource
    home = of_resource(resource)[0] if resource else ("cluster",)
    return ("loses", *home[1:]) if symptom.reason in TAKEN else home


def _signal(reason: str, members: list[Symptom], *, start: datetime) -> Signal:
    members.sort(key=lambda s: s.at)
    homes = Counter[Entity]()
    took: dict[Entity, float] = defaultdict(float)
    namespaces = Counter[str]()
    by_pod = Counter[tuple[str, str]]()
    for symptom, toll in zip(members, tolls(members), strict=True):
        homes[_home(symptom)] += symptom.count
        took[_home(symptom)] += toll
        if pod := pod_of(symptom):
            by_pod[pod] += symptom.count
        resource = symptom.workload or symptom.resource
        if resource and resource.namespace:
            namespaces[resource.namespace] += symptom.count
    total, all_of_it = sum(homes.values()), sum(took.values())
    first = members[0].at
    sort = _sort(reason, members[0].message)
    # The scheduler says that there is no room, and who makes room why not.
    cause = cause_of((s.message for s in members), of_those_that_say=reason in ("FailedScheduling", "Unschedulable"))
    cause = NODES_MADE if reason in NO_NODES else cause
    begun = min((s.told_at for s in members if s.told_at), default=first + _WHOLE_SECOND)
    chronic = _is_chronic(first, start)
    how_many = float(min(1.0, 0.4 + np.log1p(total) / np.log(60)))
    about: dict[Entity, float] = {}
    for home, _ in homes.most_common(40):
        about[home] = 1.0 if len(homes) < WIDE else 0.1 + 0.6 * took[home] / all_of_it
    for namespace, count in namespaces.items():
        about[("ns", namespace)] = 0.4 * count / total
        about[pods_in(namespace)] = 0.3 * count / total
    of_pods = members[0].source is not SymptomSource.CONDITION
    if of_pods and reason in ("FailedCreate", "FailedScheduling", "Unschedulable", "Pending", PREEMPTED):
        about[("scheduling",) if reason != "FailedCreate" else MAKES_PODS] = 0.7
    kind = refused_by(" ".join(s.message for s in members[:20])) if reason == "FailedCreate" else None
    for namespace in namespaces if kind else ():
        about[refuser(kind or "", namespace)] = 0.95
    for domain in _DEVICE.findall(members[0].message):
        about |= dict.fromkeys((("device", label) for label in domain.split(".")[:-1]), 0.95)
    about |= dict.fromkeys(failed_calls(members[0].message), 0.95)
    about |= _node_agents(reason, members[0].message, cause)
    if others_took(members):
        about[NODES] = OF_NODES
    where = _where(homes)
    texts = sorted({s.message for s in members if s.message})
    return Signal(
        kind=SignalKind.SYMPTOM,
        low=min(first - _WHOLE_SECOND, begun),
        high=min(first + _WHOLE_SECOND, begun),
        strength=_weight(sort, members[0]) * how_many * (0.15 if chronic else 1.0),
        about=about,
        spread={home: part / all_of_it for home, part in took.items()} if len(homes) >= WIDE else {},
        by_pod={pod: count / total for pod, count in by_pod.items()},
        sentence=f"{reason} {'×' + str(total) + ' ' if total > 1 else ''}on {where}",
        text=" | ".join(texts[:20])[:2000],
        facts={"reason": sort, "chronic": str(chronic), "refused": kind or ""}
        | _says(reason, members)
        | took_most(members, took),
        cause=cause,
        until=None if _goes_on(members) else max(s.ended_at or s.at for s in members),
    )


def _goes_on(members: list[Symptom]) -> bool:
    """Whether it is not known to have ended: a state that holds, or Events told so often that they are held back."""
    states = (s for s in members if s.source is not SymptomSource.EVENT)
    return any(s.ended_at is None for s in states) or sum(s.count for s in members) >= SPAM


def _weight(reason: str, symptom: Symptom) -> float:
    return WEIGHTS.get(reason, NOT_SO if symptom.source is SymptomSource.CONDITION else OTHER)


_PLAIN = frozenset({"Unhealthy", "BackOff", "CrashLoopBackOff", "Unready"})
"""Reasons whose messages tell no more than the reason does."""


def _says(reason: str, members: list[Symptom]) -> dict[str, str]:
    """The message that is told most often, for who asks why; nothing where it says no more than the reason."""
    told = Counter[str]()
    for symptom in members:
        told[symptom.message] += symptom.count
    message = told.most_common(1)[0][0]
    if reason in DIED:
        message = last_words(message)
    return {} if not message or reason in _PLAIN else {"says": excerpt(message)}


_MOUNTING = frozenset({"FailedMount", "FailedAttachVolume", "FailedMapVolume"})


def _sort(reason: str, message: str) -> str:
    """The reason by which the kubelet's pod states call what its events only call Failed."""
    if reason != "Failed":
        return reason
    if "pull" in message:
        return "ErrImagePull"
    return (
        "CreateContainerConfigError" if re.match(r"Error: (?:configmap|secret|couldn't find key)", message) else reason
    )


_TOO_MANY_VOLUMES = "exceed max volume count"
"""A node's driver says how many (https://kubernetes.io/docs/concepts/storage/storage-limits/)."""


def _node_agents(reason: str, message: str, cause: Cause | None) -> dict[Entity, float]:
    """The programs that every pod needs and that did not do what the complaint says; the network, where packets do not
    arrive."""
    if cause is NAMES:
        return {("agent", "dns"): 0.9}
    if cause is VOLUMES or (reason in _MOUNTING and "csi" in message.lower()) or _TOO_MANY_VOLUMES in message:
        return {("agent", "csi"): 0.9}
    if cause in (RUNTIME, KEPT_IN):
        return {("agent", "runtime" if cause is RUNTIME else "mesh"): 0.9}
    if cause in (NODES_MADE, NODES_TAKEN) or (cause is PROGRAM and "exec format" in message):  # of another architecture
        return {("agent", "nodes"): 0.9}
    if cause in (REGISTRY, PULLING):
        return {("agent", "registry"): 0.9}
    if cause is NO_IMAGE:  # it may be gone from there
        return {("agent", "registry"): 0.6}
    if cause is EXHAUSTED:
        return {("agent", "kernel"): 0.8}
    if cause is FILE:  # others may have been to write it, or a container with it was to be put in
        return {altered("", "pods", "create"): 0.7}
    if reason == "FailedCreatePodSandBox" and "network" in message.lower():
        return {("agent", "cni"): 0.9}
    return {("agent", "cni"): 0.5} if UNREACHED.search(message) else {}


def _where(homes: Counter[Entity]) -> str:
    names = [home[-1] for home, _ in homes.most_common(2)]
    more = len(homes) - len(names)
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")
