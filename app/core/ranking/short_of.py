"""What complains that there is too little, of what a change leaves less or uses up bit by bit; and how long it takes
until that, and other things that come later as a rule, shows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import timedelta

from app.core.edges.amounts import KILLED, SIZES, left_of
from app.core.edges.burdens import clears_no_more
from app.core.edges.causes import NODES_TAKEN, RECORDS, RIGHTS
from app.core.edges.leads import POLICIES, keeps_records, makes_nodes, scales_no_more, tunes_kernel
from app.core.edges.mechanism import BEFORE_RUNNING, SERVING
from app.core.edges.program_causes import DISK, EXHAUSTED, TRACKED
from app.core.edges.references import is_custom
from app.core.edges.said import NO_CONNECTION
from app.core.edges.settings import differing
from app.core.edges.topology import Topology
from app.core.entities import ACCESS, WORKLOADS, workload
from app.core.findings import Incident
from app.core.model import Change, FieldDiff, Verb
from app.core.objects.normalise import amount_of
from app.core.ranking.ways import FULL_STORE, SCARCE
from app.core.signals.signal import Signal, SignalKind

HALF = 0.5
"""What is left of it at most."""
AT_MOST = frozenset({"TooManyReplicas"})
"""An autoscaler says so that would make more pods than it may."""
_HOLDS = re.compile(r"heap|-Xmx|RAMPercentage|max-old-space|cache|buffer|prefetch|batch|in.?flight", re.IGNORECASE)
"""Settings of how much a program keeps in its memory."""
_SAYS_HOW_MUCH = re.compile(r"(?<![:.\d])\d+(?:\.\d+)? ?(?:[kmgt]i?b?|%)?(?:\s|\Z)|\A(?:true|on|yes)\Z", re.IGNORECASE)
"""An amount at the end of a word, or a switch: not the port of an address."""
_FOR_HOW_LONG = (
    r"retain|retention|(?-i:(?:\b|_)ttl|Ttl|(?<![A-Z])TTL(?![A-Z]))|time.?to.?live|expire.?after|evict|image.?gc"
    r"|keep.?(?:days|hours|last)"
)
_LEVEL = r"log.?level|verbosity|log.?format"
_KEEPS = re.compile(
    rf"{_HOLDS.pattern}|(?<![a-z])log(?:s|ging)?(?![a-z])|{_LEVEL}|verbos|debug|trace"
    rf"|maxmemory|max.?(?:bytes|age|size)|{_FOR_HOW_LONG}",
    re.IGNORECASE,
)
"""The same, or of how much is written down, and kept for how long."""
_KEPT_FOR = re.compile(_FOR_HOW_LONG, re.IGNORECASE)
_OF_ITS_OWN = re.compile(rf"{_LEVEL}|{_FOR_HOW_LONG}", re.IGNORECASE)
"""What of that a workload's own variables are believed to say: others speak of caches, logs and traces elsewhere."""
_OF_OTHERS = re.compile(r"cors|jwt|token|cookie|cert|oidc|auth|login|passw|header", re.IGNORECASE)
"""What is kept by clients, or good for so long, and fills nothing."""
_NO_ROOM = re.compile(
    r"local (?:ephemeral )?storage (?:usage|limit)|usage of EmptyDir|low on resource: ephemeral-storage|too many parts"
    rf"|maximum (?:normal )?shards open|{FULL_STORE.pattern}",
    re.IGNORECASE,
)
_TOO_LARGE = re.compile(
    r"too.?(?:large|big|long)\b|TooLarge|larger than (?:the )?(?:configured )?(?:max|limit|allow)"
    r"|(?:exceed\w*|greater than|over) (?:the |its )?(?:configured )?(?:max|limit|allowed)\w*.{0,30}"
    r"(?:size|bytes|length)|(?:size|length|bytes)\b.{0,40}(?:exceeds?|larger than|greater than)|\b413\b",
    re.IGNORECASE,
)
FULL = re.compile(
    r"connection is not available|pool (?:is )?(?:exhausted|timed out)|pool ?(?:limit|timeout)|get a connection after"
    r"|obtain jdbc connection|tim(?:ed|e) ?out.{0,40}acquir|acquir.{0,40}tim(?:ed|e) ?out"
    rf"|{_NO_ROOM.pattern}|{NO_CONNECTION.pattern}",
    re.IGNORECASE,
)
"""How it is said that something is used up which is taken bit by bit."""
_ROOM = r"(?:memory|maxmemory|disk|space|storage|volume|filesystem|capacity|inodes?)"
_MOST = r"\b(?:9\d|100)(?:\.\d+)? ?%"
_TOLD = re.compile(
    rf"OutOf\w{{0,20}}(?:Memory|Space|Disk)|FillingUp|{_MOST} (?:used|full)\b|{_ROOM} usage\b.{{0,20}}{_MOST}"
    rf"|{_ROOM}\b[^.;,]{{0,30}}(?<!not )(?<!yet )\b(?:full|filling up|exhausted)\b(?! (?:gc|backup|scan|sync))"
    rf"|{_MOST} (?:of )?(?:its |the )?(?:used |full )?{_ROOM}"
    rf"|\b\d(?:\.\d+)?% (?:available|free) (?:space|left)|out of (?:disk|memory|space|storage)|{_NO_ROOM.pattern}",
    re.IGNORECASE,
)
"""How alerts say that something has no more room."""
ALERTED = "alerted"
"""The fact that an alert says so of what somebody complains of."""
_SILENT = frozenset({"Unhealthy", "Unready", *SERVING})
"""Complaints that say nothing of why, so that it may be what the alert says."""
_NEXT = BEFORE_RUNNING | {"FailedCreatePodSandBox"}
"""What pods complain of that are made."""
_PROVIDED = frozenset({"ProvisioningFailed", "VolumeResizeFailed"})
_TELLS = frozenset({"env", "args", "command"})
_REFUSES = re.compile(
    r"Policy\Z|Constraint|ResourceQuota|LimitRange|WebhookConfiguration|\A(?:Storage|Priority|Runtime)Class"
)
"""Kinds of what lets something be made, or does not."""
LATER, FILLED, INTERVALS = timedelta(hours=1), timedelta(hours=4), timedelta(days=1)
"""In the next hour in which more is asked; as what a program takes and does not give back is used up, or with
the next peak; the next time that it is gone by, or as what a day brings fills it."""
_AT_INTERVALS = re.compile(
    r"SecretStore\Z|Issuer\Z|\AVault(?:Auth|Connection)\Z|AuthEngine\w+\Z|\AVerticalPodAutoscaler\Z"
)
"""Kinds that are gone by as the next secret is fetched, certificate signed or recommendation made: each hour, or day
(https://external-secrets.io/latest/api/externalsecret/#update-behavior)."""


def is_short(change: Change, signal: Signal) -> bool:
    """Whether a change leaves half, or less, of what a signal may say there is too little of."""
    left = left_of(change) if signal.kind is SignalKind.SYMPTOM else None
    if left is None or left[0] > HALF:
        return False
    if left[1].path[-1] == "memory":
        return _of_memory(signal)
    return is_too_large(signal) if SIZES.search(str(left[1].path[-1])) else _of_anything(signal)


def is_too_large(signal: Signal) -> bool:
    """Whether it says that one thing is larger than it may be."""
    return _TOO_LARGE.search(signal.text) is not None


def shows_within(change: Change, signal: Signal) -> timedelta | None:
    """How long after a change it shows as a rule, where that is not soon: as more is asked of what it left less, as
    what its new program takes, and does not give back, is used up, with the next one that is made by it, as a right
    that it took away is needed, or as connections are made anew; None where it is soon."""
    of_nodes = makes_nodes(change) and (signal.facts.get("reason") in _NEXT or signal.cause is NODES_TAKEN)
    kept = (_has_no_room(signal) and clears_no_more(change)) or (
        (_has_no_room(signal) or _of_memory(signal)) and _keeps(change, _KEPT_FOR)
    )
    if of_nodes or kept or _AT_INTERVALS.search(change.resource.kind) or _is_named_by_what_is_refused(change, signal):
        return INTERVALS
    if _fills(change, signal) or _scales_no_more(change, signal):
        return FILLED
    ways = (
        is_short,
        _fills_by_setting,
        _waits_for_the_next,
        _is_asked_for_later,
        _lets_go_on,
        _is_known_still,
        _works_on,
    )
    return LATER if any(way(change, signal) for way in ways) else None


def _fills(change: Change, signal: Signal) -> bool:
    home = workload(change.resource.namespace, change.resource.name)
    if change.resource.kind not in WORKLOADS or (home not in signal.about and not NO_CONNECTION.search(signal.text)):
        return False
    is_new = change.verb is Verb.UPDATE and any(map(_is_program, change.diffs))
    return is_new and (is_full(signal) or signal.cause is EXHAUSTED or _of_memory(signal))


def _fills_by_setting(change: Change, signal: Signal) -> bool:
    """Whether configuration says how much is written down or kept, and what is full is that."""
    what = _OF_ITS_OWN if change.resource.kind in WORKLOADS else _KEEPS
    return _keeps(change, what) and _has_no_room(signal)


def _keeps(change: Change, what: re.Pattern[str]) -> bool:
    """Whether a setting is changed that is called so, and where it says for how long, not to a shorter time."""
    is_workload = change.resource.kind in WORKLOADS
    if not (is_workload or change.resource.kind == "ConfigMap" or is_custom(change.resource)):
        return False
    told = (diff for diff in change.diffs if not is_workload or not _TELLS.isdisjoint(map(str, diff.path)))
    longer = (diff for diff in told if not (_is_less(diff) and _KEPT_FOR.search(str(diff.path))))
    said = (f"{diff.path} {part}" for diff in longer for part in differing(diff))
    return any(what.search(one) and not _OF_OTHERS.search(one) for one in said)


def _is_less(diff: FieldDiff) -> bool:
    """Whether a number became a smaller one: none at all may mean for ever."""
    old, new = amount_of(str(diff.old)), amount_of(str(diff.new))
    return old is not None and new is not None and 0 < new < old


def _has_no_room(signal: Signal) -> bool:
    """Whether it says that something has no more room, or the alert does."""
    return signal.cause is DISK or _NO_ROOM.search(signal.text) is not None or ALERTED in signal.facts


def is_full(signal: Signal) -> bool:
    """Whether it says that something has no more room, or no more connections; or the alert does."""
    return _has_no_room(signal) or FULL.search(signal.text) is not None


def with_alerted(signals: Iterable[Signal], incident: Incident, top: Topology) -> list[Signal]:
    """The signals; where an alert says that something is full, what the workloads complain of that it names, and those
    that call these, is told to be of that, where they do not say why themselves."""
    if not any(_TOLD.search(f"{alert.reason} {alert.message}") for alert in incident.alerts):
        return list(signals)
    named = set(incident.scope.workloads)
    is_of = {key: f"{key[0]}/{key[1]}" in named for key in top.labels}
    homes = {workload(*key) for key, own in is_of.items() if own or any(map(is_of.get, top.upstream.get(key, ())))}
    told = {ALERTED: "full"}
    return [
        replace(one, facts=one.facts | told)
        if one.cause is None and one.facts.get("reason") in _SILENT and not homes.isdisjoint(one.about)
        else one
        for one in signals
    ]


def _is_program(diff: FieldDiff) -> bool:
    """Whether it is another program, or how much that may hold."""
    if diff.path[-1:] == ("image",):
        return True
    return _HOLDS.search(f"{diff.path} {diff.new}") is not None and _SAYS_HOW_MUCH.search(str(diff.new)) is not None


def _waits_for_the_next(change: Change, signal: Signal) -> bool:
    """Whether it says how the next pods are made, placed or given what they need, and these are what fails; what a
    kernel lets them have is met by those that begin to ask for it, too."""
    is_met = change.resource.kind not in WORKLOADS and signal.facts.get("reason") in _NEXT
    return is_met or (tunes_kernel(change) and signal.cause in (EXHAUSTED, TRACKED))


def _is_named_by_what_is_refused(change: Change, signal: Signal) -> bool:
    """Whether what cannot be made says by which object: a policy, a quota or a class refuses nothing until the next
    one comes, whenever that is."""
    refuses = _REFUSES.search(change.resource.kind) is not None and signal.facts.get("reason") in _NEXT | _PROVIDED
    return refuses and any(_says(name, signal.text) for name in (change.resource.name, *_rules(change)))


def _rules(change: Change) -> Iterator[str]:
    """The names of what it changed within an object, as of a policy's rules."""
    for diff in change.diffs:
        yield from (value for step in diff.path if isinstance(step, tuple) for key, value in step if key == "name")


def _says(name: str, text: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) is not None


def _is_asked_for_later(change: Change, signal: Signal) -> bool:
    """Whether it is of who may do what, and somebody is refused: that shows as he asks for it the next time."""
    return change.resource.kind in ACCESS and (signal.cause is RIGHTS or signal.facts.get("code") == "403")


def _lets_go_on(change: Change, signal: Signal) -> bool:
    """Whether it is of who may call whom, and somebody who called already fails: what is open stays open with most
    that go by such policies
    (https://kubernetes.io/docs/concepts/services-networking/network-policies/#networkpolicy-and-pod-lifecycle)."""
    is_met = POLICIES(change) or change.resource.kind == "PeerAuthentication"
    return is_met and signal.kind is SignalKind.SYMPTOM


def _scales_no_more(change: Change, signal: Signal) -> bool:
    """Whether there are to be no more pods, and too few answer: that shows with what is asked next."""
    return scales_no_more(change) and signal.kind is SignalKind.SYMPTOM and _of_anything(signal)


def _is_known_still(change: Change, signal: Signal) -> bool:
    """Whether it is of who keeps the records of names, of which resolvers know the old ones until these end."""
    return signal.cause is RECORDS and keeps_records(change)


def _works_on(change: Change, signal: Signal) -> bool:
    """Whether a Job was made that may work still, and others suffer: the longer it works, the more it takes."""
    is_made = change.resource.kind == "Job" and change.verb is Verb.CREATE
    home = workload(change.resource.namespace, change.resource.name)
    return is_made and signal.kind is SignalKind.SYMPTOM and home not in signal.about


def _of_memory(signal: Signal) -> bool:
    return signal.facts.get("reason") == "OOMKilled" or KILLED.search(signal.text) is not None


def _of_anything(signal: Signal) -> bool:
    return signal.facts.get("reason") in AT_MOST or SCARCE.search(signal.text) is not None
