"""Call counts -> calls that began to fail: since when, how many, and what the messages blame.

Whether failures are new is decided on who failed at what with which code; a caller that always failed and is only
told so in other words is no news. The messages say whom to blame: those that are new tell what is new.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict

import numpy as np

from app.core.counted import Calls
from app.core.edges.causes import cause_of
from app.core.edges.mechanism import refused_by, refuser
from app.core.edges.throttling import throttled
from app.core.entities import NODE_PORTS, Entity
from app.core.model import SLOT_SECONDS, CallKey
from app.core.objects.actors import service_account
from app.core.objects.dependencies import Named
from app.core.onset import MIN_SURPRISE, Floats, beginning, count_step
from app.core.phrases import times
from app.core.signals.calls import Loads, Slots, caller_name, grouped, program
from app.core.signals.signal import Passed, Signal, SignalKind, moment

REGULAR = 3
"""From so many pauses on, their length says how regular failures are."""
MIN_EXTRA_PER_SECOND = 0.1
ORDINARY = {404: 0.5, 409: 0.3}
"""Not found is often an answer, and conflicts are how optimistic locking works: a rise of them weighs less."""
MALFORMED = frozenset({400, 413, 415, 422})
"""What is asked is wrong in itself: whoever asks has changed, or what the kind may be has."""
ENOUGH = 3
"""Calls of a pod from which on it is known whether they fail."""
MOST_TEXTS = 10
"""Messages that are looked at for whom they blame: the most frequent ones."""
NAMED = 0.2
"""From this share of the messages on, what they name may be to blame."""
SEVERAL = "*"
"""What stands in a message for what few of them name."""
_PORTS_USED_UP = re.compile(r"allocate a nodePort: .*range is full")
"""https://kubernetes.io/docs/concepts/services-networking/service/#type-nodeport ."""
_WORD = re.compile(r"[\w.-]+")

Failure = tuple[str, str, str, str, int]  # user, verb, group, resource, code
Said = Counter[tuple[str, str]]
"""How often a message was said in a namespace ("" for none)."""


def _failure(key: CallKey) -> Failure | None:
    return None if key.code < 400 else (key.user, key.verb, key.api_group, key.resource, key.code)


def error_signals(calls: Calls, slots: Slots, made: Loads) -> list[Signal]:
    """Failures that were not there before, or became many: one signal for each caller, call and code."""
    failed = calls.where(lambda key: key.code >= 400)
    failures = grouped(failed, slots, _failure)
    begun = {key: first for key, counts in failures.items() if (first := failure_onset(counts)) is not None}
    said = _said(failed, {key: slots.epoch(first) for key, first in begun.items()})
    there = _there(calls, failed, slots, said)
    wanted = {key[:4] for key in begun}
    by_pods = calls.where(lambda one: bool(one.pod) and _call(one) in wanted)
    found = []
    for key, first in begun.items():
        user, verb, group, resource, code = key
        counts = failures[key]
        after, before = counts[first:], counts[:first]
        everyone = made.get((user, verb, group, resource), counts)
        low = slots.epoch(first)
        share = float(min(1.0, after.sum() / (everyone[first:].sum() or 1.0)))
        # What worked before and fails now is worse than what never worked.
        worked = (1.0 if (everyone[:first] - before).sum() > 0 else 0.4) * ORDINARY.get(code, 1.0)
        text = " ".join(_texts(said[key]))
        found.append(
            Signal(
                kind=SignalKind.ERROR,
                low=moment(low),
                high=moment(low + SLOT_SECONDS),
                strength=share * float(min(1.0, np.log1p(after.sum()) / np.log(100))) * worked,
                about={  # what the server fails at says little of who calls
                    ("user", user): 0.9 if code in MALFORMED else 0.2 if code >= 500 else 0.6,
                    **(program(user) if code in MALFORMED else {}),
                    ("access", user, group, resource, verb): 1.0 if code == 403 else 0.0,
                    ("api", group, resource.split("/")[0], verb): 0.5,
                    **(dict.fromkeys(throttled(user), 0.8) if code == 429 and resource != "pods/eviction" else {}),
                    **_where(key, said[key]),
                    **refusers(said[key]),
                    **_shared(said[key]),
                },
                sentence=f"{caller_name(user)} got {code} on {verb.upper()} {resource or 'the API'}"
                f" {times(after.sum())}, {f'{times(before.sum())} before' if before.sum() else 'never before'}",
                by_pod=_by_pod(by_pods.during(low), key),
                text=text,
                users=(user,),
                rate_before=float(before.mean()) / SLOT_SECONDS if len(before) else 0.0,
                rate_after=float(after.mean()) / SLOT_SECONDS,
                facts={"code": str(code), "error": text},
                passed=_passed(slots, *there.get(key, (everyone, counts)), first=first),
                cause=cause_of(text for text, _ in said[key] if text),
            )
        )
    return sorted(found, key=lambda s: -s.strength)


def _passed(slots: Slots, made: Floats, failed: Floats, *, first: int) -> Passed:
    """Of ``made``, those that did not fail before, and the share that fails since."""
    share = float(min(1.0, failed[first:].sum() / (made[first:].sum() or 1.0)))
    return Passed(slots.epoch(0), made[:first] - failed[:first], share)


def _by_pod(since: Calls, failure: Failure) -> dict[Named, float]:
    """How often calls of each pod fail like this, as shares: those of an old one fail as often as those of a new one,
    only not for long. Not of conflicts, which take two."""
    account, code = service_account(failure[0]), failure[4]
    if account is None or code == 409:
        return {}
    made, failed = Counter[Named](), Counter[Named]()
    for key, count in since.where(lambda one: _call(one) == failure[:4]).sums():
        made[account[0], key.pod] += count
        failed[account[0], key.pod] += count if key.code == code else 0
    often = {pod: failed[pod] / count for pod, count in made.items() if count >= ENOUGH and failed[pod]}
    total = sum(often.values())
    return {pod: share / total for pod, share in often.items()}


def _there(
    calls: Calls, failed: Calls, slots: Slots, said: dict[Failure, Said]
) -> dict[Failure, tuple[Floats, Floats]]:
    """Calls like those that fail, and those that fail, in the namespaces where they fail now: elsewhere they may pass
    whatever refuses these. Not of what has no namespace."""
    places = {failure: {namespace for _, namespace in told} for failure, told in said.items()}
    failing: dict[tuple[str, ...], list[Failure]] = defaultdict(list)
    for failure, namespaces in places.items():
        if "" not in namespaces:
            failing[failure[:4]].append(failure)
    made = grouped(calls, slots, lambda key: (call, key.namespace) if (call := _call(key)) in failing else None)
    fails = grouped(failed, slots, lambda key: (one, key.namespace) if (one := _failure(key)) in places else None)
    return {
        failure: (
            np.sum([made[call, place] for place in places[failure] if (call, place) in made], axis=0),
            np.sum([fails[failure, place] for place in places[failure] if (failure, place) in fails], axis=0),
        )
        for call, some in failing.items()
        for failure in some
    }


def _call(key: CallKey) -> tuple[str, ...]:
    return key.user, key.verb, key.api_group, key.resource


def _said(failed: Calls, since: dict[Failure, int]) -> dict[Failure, Said]:
    """What each kind of failure said from its onset (epoch seconds) on, where: what it did not say before.

    If all of it was said before, all of it counts.
    """
    after: dict[Failure, Said] = defaultdict(Counter)
    before: dict[Failure, set[str]] = defaultdict(set)
    failed = failed.where(lambda key: _failure(key) in since)
    of = [failure for key in failed.keys if (failure := _failure(key))]
    begun = failed.slot >= np.array([since[failure] for failure in of], dtype=np.int64)[failed.key]
    for key, count in failed.at(begun).sums():
        if failure := _failure(key):
            after[failure][_general(key.error), key.namespace] += count
    for key, _ in failed.at(~begun).sums():
        if failure := _failure(key):
            before[failure].add(_general(key.error))
    for failure, said in after.items():
        fresh = Counter({at: n for at, n in said.items() if at[0] not in before[failure]})
        after[failure] = fresh or said
    return after


def _general(error: str) -> str:
    """The part of an error that does not depend on the namespace it struck in."""
    return error.split(" in the namespace ", maxsplit=1)[0]


def _texts(said: Said) -> list[str]:
    """The messages, the most frequent first, without the words that few of them say: who is named once is not it."""
    texts: Counter[str] = Counter()
    words: Counter[str] = Counter()
    for (text, _), n in said.items():
        texts[text] += n if text else 0
        for word in set(_WORD.findall(text)):
            words[word] += n
    enough = NAMED * texts.total()
    told = (
        _WORD.sub(lambda word: word.group() if words[word.group()] >= enough else SEVERAL, text)
        for text, _ in texts.most_common(MOST_TEXTS)
    )
    return [text for text in dict.fromkeys(told) if text.strip('*" ')]


def _where(failure: Failure, said: Said) -> dict[Entity, float]:
    """The namespaces in which calls failed. Evictions are refused (429) by a namespace's disruption budgets, and fail
    (500) where several are of one pod:
    https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/#how-api-initiated-eviction-works ."""
    counts: Counter[str] = Counter()
    for (_, namespace), n in said.items():
        if namespace:
            counts[namespace] += n
    total = counts.total() or 1
    found: dict[Entity, float] = {("ns", namespace): 0.4 * n / total for namespace, n in counts.items()}
    if failure[3] == "pods/eviction" and failure[4] in (429, 500):
        found |= {("evictions", namespace): 0.2 + 0.75 * n / total for namespace, n in counts.items()}
    return found


def refusers(said: Said) -> dict[Entity, float]:
    """What refused, in each of the namespaces in which calls were refused."""
    counts: Counter[tuple[str, str]] = Counter()
    for (text, namespace), n in said.items():
        if namespace and (kind := refused_by(text)):
            counts[kind, namespace] += n
    total = sum(n for (_, namespace), n in said.items() if namespace) or 1
    return {refuser(kind, namespace): 0.95 * n / total for (kind, namespace), n in counts.items()}


def _shared(said: Said) -> dict[Entity, float]:
    """What all Services take from that was used up, by how many of the messages say so."""
    used_up = sum(n for (text, _), n in said.items() if _PORTS_USED_UP.search(text))
    return {NODE_PORTS: 0.95 * used_up / said.total()} if used_up else {}


def failure_onset(counts: Floats) -> int | None:
    """The first slot of a new kind of failure, or of its rise. A handful spread thin is background."""
    failed = np.flatnonzero(counts)
    if len(failed) == 0:
        return None
    first = int(failed[beginning(failed, counts[failed], end=len(counts))])
    pauses = np.diff(failed[failed >= first])
    # What fails every half minute was silent for as long before the record began.
    regular = len(pauses) >= REGULAR and first <= np.median(pauses)
    if counts[first:].mean() * first >= MIN_SURPRISE and not regular:
        return first
    step = count_step(counts)
    return step.index if step and (step.after - step.before) / SLOT_SECONDS >= MIN_EXTRA_PER_SECOND else None
