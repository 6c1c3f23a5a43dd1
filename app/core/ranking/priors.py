"""What a change is likely to do before anything is measured: where it acts, how often its sort begins incidents, how
usual it is here."""

from __future__ import annotations

import math
import re
from functools import lru_cache

from app.core.edges.amounts import only_first_amounts, only_words
from app.core.edges.causes import EXPIRED, ROOTS
from app.core.edges.loglevels import only_levels, only_quieter
from app.core.edges.mechanism import by_schedule, only_reacts_to, only_restarts, wakes
from app.core.edges.program_causes import TRUST
from app.core.edges.references import is_custom
from app.core.edges.said import NO_CONNECTION
from app.core.entities import WORKLOADS
from app.core.findings import Evidence
from app.core.model import Change, FieldDiff, Path, Verb
from app.core.objects.actors import acts_by_itself, service_account
from app.core.objects.grants import accepts_more, only_allows_more
from app.core.objects.values import is_for_another, is_major, is_patch, is_rebuilt
from app.core.ranking.case import Case, Facts, say
from app.core.ranking.lessened import left
from app.core.ranking.scoped import is_untied
from app.core.ranking.short_of import is_full
from app.core.signals.signal import SignalKind

SYSTEM_NAMESPACES = frozenset({"kube-system", "calico-system", "cilium", "istio-system", "tigera-operator"})
ADMISSION = frozenset(
    {
        "ValidatingWebhookConfiguration",
        "MutatingWebhookConfiguration",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "CustomResourceDefinition",
        "APIService",
        "FlowSchema",
        "PriorityLevelConfiguration",
    }
)
FLOW_CONTROL = frozenset({"FlowSchema", "PriorityLevelConfiguration"})
"""They queue or refuse calls, which shows as 429 where it happens: of anything else they are seldom the cause."""
CLUSTER_ACCESS = frozenset({"ClusterRole", "ClusterRoleBinding"})
SELECTING = ("labels", "selector", "matchLabels", "ownerReferences", "podSelector", "namespaceSelector")
"""Fields that tie objects together: 51 % of injected cluster-wide failures were in one of these (Mutiny, DSN'24)."""
NAMING = frozenset({"service", "serviceName", "ingressClassName", "storageClassName", "secretName", "subjects"})
"""Fields that name another object, beside those called ...Ref."""

BY_ITSELF = -1.8
"""Of 151 culprits of the laboratory three (2 %) were written by such a program, of all candidates 26 %: as log-odds,
-2.5. Less is taken, as the laboratory decides how much its programs write (docs/decisions/0043)."""

ADDED = frozenset(
    {
        *("Deployment", "StatefulSet", "ReplicaSet", "Service", "Ingress", "ServiceAccount", "ConfigMap", "Secret"),
        *("PersistentVolume", "PersistentVolumeClaim", "PodDisruptionBudget", "HorizontalPodAutoscaler"),
    }
)
"""Kinds of which one more does nothing to those that were there, mostly. Others act on what is there by themselves, as
webhooks, policies, quotas and custom resources do, or ask much at once, as Jobs and DaemonSets."""
ADDITION = -2.6
"""What sorts of change weigh beforehand is counted among the suspects that reach what an alert names: 97 culprits and
1,086 others of 209 recordings (docs/decisions/0040). One was such an addition, and 27 % of the others: as log-odds
-2.9; of 130 culprits of before -2.3. Less is taken, as the laboratory decides how much is made (0043)."""
ALLOWS = -2.2
"""What it weighs that a change only allows more: no culprit, and 7 % of the others (-2.6)."""
PROGRAM = 0.5
"""What a new image weighs."""
ELSEWHERE = 1.0
"""What it weighs that an image that said it is for production is followed by one for a test. Not counted: no harmless
release of the laboratory does that."""
AGAIN = -0.4
"""What it weighs that pods are made anew with what they had."""
PATCH = -0.5
"""What it weighs that a program goes to another patch of the same version, which changes nothing that others rely on
(https://semver.org/): in 1,152 cases of the tables of mechanisms 11 of 356 such were to blame, and 103 of 396 minor
ones. Less is taken: in 53 recordings, whose harmless releases are minor ones mostly, it was 3 of 89 and 10 of 469."""
LIMITS = 1.0
"""What it weighs that it changes what others may do: 13 culprits, and 0.6 % of the others (3.1)."""
TIES = 1.1
"""What it weighs that it changes which objects are meant: six culprits, and 0.3 % of the others (3.0)."""
OUTGROWS = 1.5
"""What it weighs that a heap may take more than its container, where that is killed for it: as much as a scale to zero,
which is as plain. Not counted: no harmless change of the laboratory does so."""
TEMPLATE = 0.8
"""What it weighs that it changes the template of pods in something else than images: three culprits, no other (4.4)."""
APART = -1.5
"""What it weighs that a change is of an app, and nothing is known that ties it to the incident. Of 39 culprits of tests
that were met first to which nothing led one was such a change, of the others of that sort about half
(docs/decisions/0044)."""
RENEWED = -1.2
"""What a certificate that is renewed weighs where nobody speaks of certificates: of 347 culprits of those tests none,
and 7 % of the others (0044)."""
MAJOR = 0.7
"""What it weighs that a program goes to another major version, which may break who used the one before
(https://semver.org/): 24 of 113 culprits that were new images, and 7 of 4,868 others. Less is taken, as the
laboratory's harmless releases are minor ones (0044)."""
_CERTIFICATE = re.compile(r"(?:\A|[-.])(?:tls|certs?|certificate|crt)\Z")
"""How Secrets are called that hold a certificate."""
_AMOUNT = re.compile(r"(?<![\w.:-])-?\d{1,15}(?:\.\d{1,15})?(?=[a-zA-Zµ%]*(?:[\s,;\"')}\]]|\Z))")
"""A number within a text: no port, no part of a version, a date or an address."""
_NO_AMOUNT = re.compile(r"(?:\A|[._-])port\Z", re.IGNORECASE)
"""Settings whose numbers only say which one is meant."""
_IDLE = dict.fromkeys(("ConfigMap", "Secret"), "It is read as pods start, and none has started since")
ROOM = (("takes",), ("fills",), ("churn",))
"""Ways to those whose room something new takes."""


def plane(case: Case, facts: Facts) -> Evidence | None:
    """What kind of thing breaks what: cluster-wide trouble seldom comes from one namespaced object, and back."""
    change = facts.candidate.change
    kind, namespace = change.resource.kind, change.resource.namespace
    if facts.candidate.inert or facts.candidate.cosmetic:
        return None
    wide = case.incident.scope.control_plane or not case.incident.scope.namespaces
    system = not SYSTEM_NAMESPACES.isdisjoint(case.incident.scope.namespaces)
    if facts.candidate.apart and is_untied(case, facts):
        return say("plane", APART, f"{change.resource.name} is of an app, and nothing known leads from it to there.")
    if kind in ADMISSION or kind in CLUSTER_ACCESS:
        weight = 1.0 if (wide or system) and kind not in FLOW_CONTROL else 0.3
        return say("plane", weight, f"Each {kind} acts on the whole cluster.")
    if kind == "DaemonSet":
        return say("plane", 0.9 if wide or system else 0.3, "A DaemonSet acts from every node.")
    if kind in WORKLOADS and facts.candidate.pods >= 10 * case.typical_pods:
        ratio = facts.candidate.pods / max(1.0, case.typical_pods)
        return say(
            "plane",
            min(2.0, 0.6 * math.log(ratio)) * (1.0 if wide or system else 0.5),
            f"It moves {facts.candidate.pods} pods; a rollout here usually moves {case.typical_pods:.0f}.",
        )
    if (wide or system) and namespace and kind not in WORKLOADS and not facts.matches and is_untied(case, facts):
        return say("plane", -0.7, f"A namespaced {kind} seldom reaches beyond {namespace}.")
    return None


def by_itself(_case: Case, facts: Facts) -> Evidence | None:
    """A program that writes with an account of its own acts on what it sees: what it saw began it. Not those that apply
    what people wrote elsewhere."""
    change = facts.candidate.change
    account = service_account(facts.candidate.user)
    if account is None or not acts_by_itself(facts.candidate.user) or only_reacts_to(change):
        return None
    return say("by itself", BY_ITSELF, f"{account[1]} wrote it by itself: such a program acts on what it sees.")


def risk(_case: Case, facts: Facts) -> Evidence | None:
    """How often changes of this sort are what began an incident (triggers: Google SRE Workbook, appendix C)."""
    change = facts.candidate.change
    kind = change.resource.kind
    if reacts := only_reacts_to(change):
        return say("kind of change", -3.0, reacts)
    if told := _idle(facts) or _outgrown(facts):
        return say("kind of change", *told)
    if change.verb is Verb.CREATE and kind in ADDED and not facts.candidate.set_off and not _is_of_new(facts):
        return say("kind of change", ADDITION, f"The {kind} is new: what was there before did without it.")
    if kind in WORKLOADS and (told := _of_program(change)):
        return say("kind of change", *told)
    renewed = kind == "Secret" and _CERTIFICATE.search(change.resource.name) and service_account(facts.candidate.user)
    if renewed and not _speaks_of_certificates(facts):
        return say("kind of change", RENEWED, "A program renewed a certificate, and nobody complains of one.")
    if kind in ADMISSION | CLUSTER_ACCESS | {"Role", "RoleBinding", "NetworkPolicy", "ResourceQuota", "LimitRange"}:
        gains = any(match.via[0] == "gained" for match in facts.matches)
        if accepts_more(change) or (only_allows_more(change) and not gains):
            return say("kind of change", ALLOWS, "It only allows more than before.")
        return say("kind of change", LIMITS, f"It changes what others may do ({kind}).")
    if change.verb is Verb.DELETE and kind not in WORKLOADS and not facts.candidate.fleeting:
        return say("kind of change", 0.6, f"It deletes the {kind}.")
    return _by_field(facts)


def _idle(facts: Facts) -> tuple[float, str] | None:
    """What brings nothing that is new."""
    if facts.candidate.cosmetic:
        return -0.7, "Only labels or annotations changed."
    if facts.candidate.inert:
        return -0.7, f"{_IDLE.get(facts.candidate.change.resource.kind, 'No pod changes')}."
    if by_schedule(facts.candidate.change):
        return -0.4, "Its CronJob's schedule made it, with nothing new in it."
    return None


def _outgrown(facts: Facts) -> tuple[float, str] | None:
    """What lets a heap grow beyond its container, where containers are killed for that."""
    killed = any(match.signal.facts.get("reason") == "OOMKilled" for match in facts.matches)
    return (OUTGROWS, f"{facts.candidate.outgrows}.") if killed and facts.candidate.outgrows else None


def _speaks_of_certificates(facts: Facts) -> bool:
    return any(match.signal.cause in (TRUST, ROOTS, EXPIRED) for match in facts.matches)


def _is_of_new(facts: Facts) -> bool:
    """Whether something new can lead there by being there: it takes room, stands beside others behind their Service, is
    one of the few things that are complained of, or makes by itself the calls that are most of the trouble."""
    own = (("user",), ("workload",))
    calls = any(match.signal.kind is SignalKind.LOAD and match.via[:1] in own for match in facts.matches)
    return (
        ("joins",) in facts.candidate.reach
        or (calls and facts.explained >= 0.5)
        or any(
            match.via[:1] in ROOM
            or (match.signal.cause is not None and match.signal.cause.few and match.possible == 1.0)
            for match in facts.matches
        )
    )


def _of_program(change: Change) -> tuple[float, str] | None:
    """What a workload's pods run, and with what."""
    if any(map(is_major, change.diffs)):
        return PROGRAM + MAJOR, "It brings a new major version, which may break who used the one before."
    images = [diff for diff in change.diffs if diff.path[-1:] == ("image",)]
    if any(map(is_for_another, images)):
        return PROGRAM + ELSEWHERE, "It brings a build whose tag says that it is for another environment."
    if images and all(map(is_rebuilt, images)):
        return AGAIN, "It brings the same version, built anew."
    if images and change.verb is Verb.UPDATE and all(map(is_patch, images)):
        return PROGRAM + PATCH, "It brings a patch release, which is to mend what the one before had wrong."
    if images or change.verb is Verb.CREATE:
        return PROGRAM, "It brings a new image: new programs begin 37 % of incidents."
    if only_restarts(change):
        return AGAIN, "It only has pods made anew, with nothing new in them."
    if only_first_amounts(change):
        return FIRST_AMOUNT, "It only says how much, of what nothing was said before."
    if any("template" in diff.path for diff in change.diffs):
        return TEMPLATE, "It changes the pod template: new configuration begins 31 % of incidents."
    return None


def _by_field(facts: Facts) -> Evidence | None:
    change = facts.candidate.change
    if change.resource.kind == "Namespace" and any("labels" in diff.path for diff in change.diffs):
        return say("kind of change", 0.4, "A namespace's labels decide which policies and webhooks apply to its pods.")
    if any(_ties(diff.path) for diff in change.diffs):
        return say("kind of change", TIES, "It changes a field that ties objects together.")
    if any(d.path == ("spec", "replicas") and d.new == 0 and d.old for d in change.diffs):
        return say("kind of change", 1.5, "It scales the workload to zero: nothing is left to answer.")
    if _is_tuned(change):
        return say("kind of change", SLIGHT, "It only changes numbers, by a factor of two at most.")
    if only_quieter(change):
        return say("kind of change", SLIGHT, "It only has a program log less.")
    if only_words(change):
        return say("kind of change", SLIGHT, "It only changes words for people.")
    if _is_few_replicas(facts) and left(facts) is None:
        weight = MORE if facts.candidate.added else -0.4
        return say("kind of change", weight, "Only the number of replicas changed, by a few.")
    if _lets_more(facts):
        return say("kind of change", MORE, "It only lets an autoscaler make more pods.")
    return None


def _is_no_news(facts: Facts) -> bool:
    """Whether it does nothing, tunes something, or adds a few pods."""
    change = facts.candidate.change
    if facts.candidate.cosmetic or facts.candidate.inert:
        return True
    if _is_tuned(change) or (is_custom(change.resource) and _is_slightly(change)) or only_first_amounts(change):
        return True
    if only_words(change) or (only_levels(change) and not any(is_full(match.signal) for match in facts.matches)):
        return True
    return (bool(facts.candidate.added) and _is_few_replicas(facts)) or _lets_more(facts)


def _lets_more(facts: Facts) -> bool:
    """Whether only the most pods that an autoscaler may make are more, and nobody lacks what each of them takes."""
    change = facts.candidate.change
    is_most = change.resource.kind == "HorizontalPodAutoscaler" and bool(change.diffs)
    return is_most and all(map(_is_more_at_most, change.diffs)) and not _is_scarce(facts)


def _is_more_at_most(diff: FieldDiff) -> bool:
    amounts = isinstance(diff.old, int) and isinstance(diff.new, int)
    return diff.path[-1:] == ("maxReplicas",) and amounts and diff.new > diff.old  # type: ignore[operator]


def _is_scarce(facts: Facts) -> bool:
    """Whether others lack what pods take of a quota, or a database lets nobody in any more: each opens a pool."""
    return any(match.via[:1] == ("fills",) or NO_CONNECTION.search(match.signal.text) for match in facts.matches)


def _is_few_replicas(facts: Facts) -> bool:
    """Whether only the number of replicas was changed, by a few, and neither to nor from none; where it is scarce what
    they take, a few are many."""
    change = facts.candidate.change
    counts = [diff.new for diff in change.diffs if diff.path == ("spec", "replicas")]
    replicas_alone = bool(counts) and len(counts) == len(change.diffs) and all(counts)
    return replicas_alone and facts.candidate.pods <= 10 and not wakes(change) and not _is_scarce(facts)


def _is_tuned(change: Change) -> bool:
    """Whether it changes slightly what is tuned."""
    return change.resource.kind in TUNED and _is_slightly(change)


def _is_slightly(change: Change) -> bool:
    """Whether only settings that are numbers were changed, by a factor of two at most."""
    return bool(change.diffs) and all(map(_is_slight, change.diffs))


def _is_slight(diff: FieldDiff) -> bool:
    """Whether only numbers became others of the same unit and sign, written alike: half as much to twice as much."""
    old, new = str(diff.old), str(diff.new)
    if (
        _NO_AMOUNT.search(str(diff.path[-1]) if diff.path else "")
        or old == new
        or _AMOUNT.sub("#", old) != _AMOUNT.sub("#", new)
    ):
        return False
    amounts = zip(map(float, _AMOUNT.findall(old)), map(float, _AMOUNT.findall(new)), strict=True)
    return all(one == other or (one != 0 and 0.5 <= other / one <= 2.0) for one, other in amounts)


@lru_cache(maxsize=10_000)  # the same few fields are written all the time
def _ties(path: Path) -> bool:
    """Whether a field says which other objects are meant: by a selector or by name. An object's own labels do not."""
    words = [step for step in path if isinstance(step, str)]
    refers = any(word in NAMING or word.endswith(("Ref", "Refs")) for word in words)
    return path[:2] != ("metadata", "labels") and (refers or not set(SELECTING).isdisjoint(words))


TUNED = frozenset({"ConfigMap", "Ingress"})
"""Kinds of which a number is a setting, mostly: of an Ingress by its annotations."""
SLIGHT = -1.6
"""What a setting that is tuned a little weighs: in 209 recordings none of the 22 ConfigMaps that were to blame was, and
one in five of 4,334 others; with one more of each for what was not seen yet that is -1.6."""
FIRST_AMOUNT = -0.4
"""What it weighs that a program is told an amount for the first time, in place of TEMPLATE: in 22 tables of mechanisms
none of the 40 such changes was to blame, and 45 of the 70 that changed a variable's value."""
MORE = -1.0
"""What a few more replicas weigh: they answer to what is asked, and of 445 that stood before an alert four began it
(docs/decisions/0043)."""
NOVEL = 1.2
"""What the first change of its sort weighs at most; of the first few of a window hardly any was there before."""
USUAL = 0.4
"""Times ln(1 + n), what n changes before it tell: for it where none was of its sort, against it where all were."""
ROUTINE = 0.6
"""Times ln(1 + n), what it weighs against a change that the same actor made the same n times before."""


def novelty(_case: Case, facts: Facts) -> Evidence | None:
    """Changes like this one that did no harm speak for it; the first of its sort speaks against it, but what is tuned
    every day, each for its own app, is easily the first of its sort."""
    alike, times = facts.candidate.alike, facts.candidate.routine + facts.candidate.unread
    if times >= 2:
        said = f"The same actor wrote it {times} times before in this window."
        return say("routine", -ROUTINE * math.log1p(times), said)
    if alike == 0 and facts.candidate.earlier and not _is_no_news(facts):
        weight = facts.keeps * min(NOVEL, USUAL * math.log1p(facts.candidate.earlier))
        return say("novelty", weight, "No change of this sort came before it in this window.")
    if alike >= 3:
        return say("novelty", -USUAL * math.log1p(alike), f"{alike} changes of the same sort came before it.")
    return None
