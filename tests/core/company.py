"""A busy company of four teams, into which a test puts one incident and, mostly, its culprit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.core.counted import Calls
from app.core.findings import Incident, Ranking
from app.core.model import CallCount, CallEdge, Change, MetricSeries, ObjectState, Rollout, Symptom
from app.core.ranking.suspects import Gathered, rank
from tests.core.factories import a_change, a_resource, after, calls

TEAMS = ("checkout", "search", "billing", "media")


def noise() -> list[Change]:
    """Two minutes of a company at work: an image or a setting somewhere every four seconds."""
    changes = []
    for i, second in enumerate(range(-118, 58, 4)):
        team = TEAMS[i % 4]
        if i % 3:
            changes.append(
                a_change(
                    a_resource("Deployment", f"{team}-{i % 5}", team), at=after(second), old=f"a:{i}", new=f"a:{i + 1}"
                )
            )
        else:
            changes.append(
                a_change(
                    a_resource("ConfigMap", f"{team}-{i % 5}-config", team),
                    at=after(second),
                    path=("data", "pool_size"),
                    old=str(i),
                    new=str(i + 1),
                )
            )
    return changes


def background(start: float = -120) -> list[CallCount]:
    return calls("system:node:a", "get", "pods", rate=4, start=start) + calls(
        "kubectl-user", "list", "pods", rate=2, start=start
    )


def gathered(
    *culprit: Change,
    incident: Incident,
    symptoms: Sequence[Symptom] = (),
    load: list[CallCount] | None = None,
    states: Sequence[ObjectState] = (),
    rollouts: Sequence[Rollout] = (),
    gone: Sequence[ObjectState] = (),
    series: Sequence[MetricSeries] = (),
    edges: Sequence[CallEdge] = (),
) -> Gathered:
    """As of a minute after noon."""
    return Gathered(
        incident=incident,
        start=after(-120),
        now=after(60),
        changes=(*noise(), *culprit),
        symptoms=tuple(symptoms),
        calls=Calls.of(load if load is not None else background()),
        states=tuple(states),
        gone=tuple(gone),
        series=tuple(series),
        rollouts=tuple(rollouts),
        edges=tuple(edges),
    )


def ranked(*culprit: Change, **recorded: Any) -> Ranking:
    """What is ``gathered``, ranked."""
    return rank(gathered(*culprit, **recorded))


def first(ranking: Ranking) -> tuple[str, str]:
    top = ranking.suspects[0]
    return top.change.resource.kind, top.change.resource.name


def rules(ranking: Ranking) -> set[str]:
    return {evidence.rule for evidence in ranking.suspects[0].evidence if evidence.weight > 0}
