"""What the ranking must beat: orderings of the same candidates by one simple idea each.

The most dangerous one is the loudest actor: it needs no change data at all.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta

from app.core.entities import workload
from app.core.evaluation.accuracy import Rank
from app.core.objects.actors import service_account
from app.core.ranking.candidates import Candidate
from app.core.ranking.priors import ADMISSION, CLUSTER_ACCESS
from app.core.ranking.suspects import Gathered

Score = Callable[[Candidate, Gathered], float]
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


def _loudest_actor(candidate: Candidate, gathered: Gathered) -> float:
    """The calls, since the window began, of the caller that the changed object is."""
    resource = candidate.change.resource
    loud: dict[tuple[str, ...], int] = defaultdict(int)
    for call in gathered.calls:
        account = service_account(call.key.user)
        if account:
            loud[workload(*account)] += call.count
    return float(loud.get(workload(resource.namespace, resource.name), 0))


BASELINES: dict[str, Score] = {
    "random": _random,
    "most recent": _most_recent,
    "most recent in scope": _most_recent_in_scope,
    "widest reach": _widest_reach,
    "type prior": _type_prior,
    "time × scope": _time_and_scope,
    "loudest actor": _loudest_actor,
}


def rank_among(scores: dict[str, float], culprit: str) -> Rank | None:
    """Where one of many scored things stands, ties told; None if it is not among them or ruled out."""
    own = scores.get(culprit, -math.inf)
    if own == -math.inf:
        return None
    above = sum(1 for value in scores.values() if value > own)
    return Rank(above, sum(1 for value in scores.values() if value == own))
