"""What the ranking must beat: orderings of the same candidates by one simple idea each.

The most dangerous one is the loudest actor: it needs no change data at all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

from app.core.edges.indexing import topology
from app.core.entities import READ, Entity, workload, workload_of_pod
from app.core.evaluation.accuracy import Rank
from app.core.objects.actors import service_account
from app.core.ranking.candidates import Candidate
from app.core.ranking.priors import ADMISSION, CLUSTER_ACCESS
from app.core.ranking.suspects import Gathered

Baseline = Callable[[Gathered], Callable[[Candidate], float]]
TAU = timedelta(minutes=5)

TYPE_PRIOR = {
    "Deployment": 0.37,
    "StatefulSet": 0.37,
    "DaemonSet": 0.37,
    "ConfigMap": 0.31,
    "Secret": 0.31,
    "Node": 0.07,
}


def _random(_candidate: Candidate, _gathered: Gathered) -> float:
    return 0.0


def _most_recent(candidate: Candidate, gathered: Gathered) -> float:
    lag = (gathered.incident.started_at - candidate.change.at).total_seconds()
    return -lag if lag >= 0 else -math.inf


def _in_scope(candidate: Candidate, gathered: Gathered) -> bool:
    scope, resource = gathered.incident.scope, candidate.change.resource
    return not scope.namespaces or resource.namespace is None or resource.namespace in scope.namespaces


def _most_recent_in_scope(candidate: Candidate, gathered: Gathered) -> float:
    return _most_recent(candidate, gathered) if _in_scope(candidate, gathered) else -math.inf


def _widest_reach(candidate: Candidate, _gathered: Gathered) -> float:
    return float(len(candidate.reach))


def _type_prior(candidate: Candidate, _gathered: Gathered) -> float:
    kind = candidate.change.resource.kind
    return 0.31 if kind in ADMISSION | CLUSTER_ACCESS else TYPE_PRIOR.get(kind, 0.05)


def _time_and_scope(candidate: Candidate, gathered: Gathered) -> float:
    lag = gathered.incident.started_at - candidate.change.at
    near = 1.0 / (1.0 + abs(lag / TAU)) if lag >= timedelta(0) else 0.0
    return near * (1.0 if _in_scope(candidate, gathered) else 0.3)


def _loudest_actor(gathered: Gathered) -> Callable[[Candidate], float]:
    """The calls, since the window began, of the loudest caller of which a change is: of its workload, of what that
    reads, or of its account. Of two changes of one caller the later is likelier.

    Who a caller is, is known as well as ranking knows it: by the pod that the audit log names, else by which workloads
    run as its account, and by its name only where none is known to.
    """
    running_as = topology(gathered.states, gone=gathered.gone).by_account
    loud: Counter[Entity] = Counter()
    for call, count in gathered.calls.sums():
        account = service_account(call.user)
        if account is None:
            continue
        loud["user", call.user] += count
        named = workload(account[0], workload_of_pod(call.pod)) if call.pod else None
        homes = [named] if named else [workload(*one) for one in running_as.get(account, ())]
        for home in homes or [workload(*account)]:
            loud[home] += count

    def score(candidate: Candidate) -> float:
        own = (count for caller, count in loud.items() if candidate.reach.get(caller, math.inf) <= READ)
        lag = (gathered.incident.started_at - candidate.change.at).total_seconds()
        return float(max(own, default=0)) + (1.0 / (2.0 + lag) if lag >= 0 else 0.0)

    return score


def _each(score: Callable[[Candidate, Gathered], float]) -> Baseline:
    return lambda gathered: lambda candidate: score(candidate, gathered)


BASELINES: dict[str, Baseline] = {
    "random": _each(_random),
    "most recent": _each(_most_recent),
    "most recent in scope": _each(_most_recent_in_scope),
    "widest reach": _each(_widest_reach),
    "type prior": _each(_type_prior),
    "time × scope": _each(_time_and_scope),
    "loudest actor": _loudest_actor,
}
"""Each makes, of what is gathered, what scores a candidate."""


def rank_among(scores: dict[str, float], culprit: str) -> Rank | None:
    """Where one of many scored things stands, ties told; None if it is not among them or ruled out."""
    own = scores.get(culprit, -math.inf)
    if own == -math.inf:
        return None
    above = sum(1 for value in scores.values() if value > own)
    return Rank(above, sum(1 for value in scores.values() if value == own))
