"""`foreshock evaluate --ablate`: what is left of a ranking without one piece of its evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from app.commands.evaluate_cases import Answer, Case
from app.core.evaluation.accuracy import Accuracy, accuracy, auroc, surprise
from app.core.findings import Ranking
from app.core.ranking.case import Rule
from app.core.ranking.evidence import RULES
from app.core.ranking.precedents import RECALLS, Memory, Recall, remembered
from app.core.ranking.suspects import Gathered, rank
from app.core.signals.loads import APART, Apart

Labelled = Sequence[tuple[Case, Answer]]


@dataclass(frozen=True, slots=True)
class Surprise:
    """The mean of -ln p of the right answers, a change or "none of these"."""

    at_alert: float
    later: float


@dataclass(frozen=True, slots=True)
class Ablated:
    """What is left without one piece of evidence, at the alert, and how surprising right answers are, later too."""

    accuracy: Accuracy
    none_told: float | None
    surprise: Surprise


def ablation(labelled: Labelled) -> dict[str, Ablated]:
    """By what is left out: a rule, something that is told apart in a rise of calls, or a memory."""
    ways: dict[str, Callable[[Gathered, Memory], Ranking]] = {}
    for rule in RULES:
        ways[_named(rule)] = partial(_without, rules=tuple(other for other in RULES if other is not rule))
    for part in Apart:
        ways[f"load: {part}"] = partial(_without, apart=APART - {part})
    for recall in RECALLS:
        ways[_named(recall)] = partial(_without, recalls=tuple(other for other in RECALLS if other is not recall))
    return {name: _ablated(labelled, way) for name, way in ways.items()}


def _named(rule: Rule | Recall) -> str:
    return rule.__name__.replace("_", " ")


def _without(
    gathered: Gathered,
    memory: Memory,
    *,
    rules: tuple[Rule, ...] = RULES,
    apart: frozenset[Apart] = APART,
    recalls: tuple[Recall, ...] = RECALLS,
) -> Ranking:
    return remembered(rank(gathered, rules=rules, apart=apart), memory, recalls=recalls)


def _ablated(labelled: Labelled, way: Callable[[Gathered, Memory], Ranking]) -> Ablated:
    ranked = [(way(case.at_alert, case.memory), way(case.later, case.memory), answer) for case, answer in labelled]
    none_of_these = [(first.none_of_these, answer.has_culprit) for first, _, answer in ranked]
    return Ablated(
        accuracy([answer.rank_in(first) for first, _, answer in ranked if answer.has_culprit]),
        auroc(
            [said for said, has_culprit in none_of_these if has_culprit],
            [said for said, has_culprit in none_of_these if not has_culprit],
        ),
        Surprise(
            surprise([answer.said_in(first) for first, _, answer in ranked]),
            surprise([answer.said_in(later) for _, later, answer in ranked]),
        ),
    )
