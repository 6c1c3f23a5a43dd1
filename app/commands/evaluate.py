"""`foreshock evaluate`: rank recorded incidents whose answer is known, and say honestly how good that was.

Each recording goes into a database of its own. What happened after the moment of ranking is not even imported, and
the answer is read only when the ranking is done.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from msgspec.structs import replace

from app.collect import itbench
from app.collect.files import DamagedError, UnreadableError
from app.collect.inputs import LABEL, InputKind
from app.commands.evaluate_ablation import Ablated, Surprise, ablation
from app.commands.evaluate_cases import LATER, Answer, Case, recording
from app.commands.evaluate_snapshots import snapshot
from app.commands.labels import NotJudgedError
from app.core.edges.indexing import topology
from app.core.evaluation.accuracy import (
    Accuracy,
    Comparison,
    Rank,
    Reliability,
    accuracy,
    auroc,
    compare,
    reliability,
    surprise,
)
from app.core.evaluation.baselines import BASELINES, rank_among
from app.core.findings import Ranking
from app.core.ranking.candidates import Candidate, candidates
from app.core.ranking.same_edit import releases
from app.core.ranking.suspects import Gathered
from app.core.signals.fights import write_fights

AT_ALERT = "foreshock, at the alert"


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one ranking did. ``rank`` None: the culprit was not among the candidates shown."""

    name: str
    when: str
    rank: float | None
    top: str
    why: str
    probability: float
    none_of_these: float
    leader: float
    """The probability of what led, a change or "none of these"."""
    right: bool
    """Whether that was the culprit, or "none of these" where there is none."""
    above: tuple[str, ...]
    candidates: int
    has_culprit: bool
    said: float
    """The probability of what is right: of all suspects that are the culprit, or of "none of these"."""


@dataclass(frozen=True, slots=True)
class NotJudged:
    """A recording that could not be judged, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Remark:
    """What else should be known of a recording that was judged."""

    name: str
    said: str


@dataclass(frozen=True, slots=True)
class Result:
    verdicts: tuple[Verdict, ...]
    not_judged: tuple[NotJudged, ...]
    remarks: tuple[Remark, ...]
    ranks: dict[str, tuple[Rank | None, ...]]
    """Of each incident with a culprit, in the order of ``verdicts``, by method: what ``accuracy`` is made of."""
    accuracy: dict[str, Accuracy]
    """By method: ours at the alert, also without what is beside suspects, ours later, and each baseline."""
    compared: dict[str, Comparison]
    """Ours at the alert with each baseline."""
    none_told: float | None
    """AUROC of P("none of these") at the alert."""
    surprise: Surprise | None
    """None where nothing was judged."""
    reliability: tuple[Reliability, ...]
    """Of the leaders at the alert, with or without a culprit."""
    ablation: dict[str, Ablated]


def recordings(folder: Path) -> list[Path]:
    """The folders with a label, and those with an ITBench snapshot, under ``folder`` (or itself). Raises
    UnreadableError where there is none."""
    found = {
        Path(where)
        for where, _, names in os.walk(folder, followlinks=True)
        if not {LABEL, *itbench.NAMES}.isdisjoint(names)
    }
    if not found:
        raise UnreadableError(
            f"{folder}: no recording in it (a folder with a {LABEL}), and no ITBench snapshot ({itbench.OBJECTS})"
        )
    return sorted(found)


async def evaluate(
    dsn: str,
    folders: list[Path],
    *,
    now: datetime,
    leave_out: frozenset[InputKind] = frozenset(),
    shift: timedelta = timedelta(0),
    ablate: bool = False,
) -> Result:
    """Import, rank and only then compare. ``leave_out`` imports a recording without some of its inputs, ``shift`` tells
    the start of its alert wrong by so much.

    A recording that cannot be judged is told among the others' verdicts.
    """
    labelled: list[tuple[Case, Answer]] = []
    not_judged = []
    for folder in folders:
        try:
            if (folder / LABEL).exists():
                labelled.append(await recording(dsn, folder, now=now, leave_out=leave_out, shift=shift))
            else:
                labelled.append(await snapshot(dsn, folder, now=now))
        except (NotJudgedError, UnreadableError, DamagedError) as error:
            not_judged.append(NotJudged(folder.name, str(error)))
    verdicts = [
        verdict
        for case, answer in labelled
        for verdict in (
            _verdict(case.name, "alert", case.first, answer),
            _verdict(case.name, "later", case.second, answer),
        )
    ]
    with_culprit = [(case, answer) for case, answer in labelled if answer.has_culprit]
    methods = {
        AT_ALERT: [answer.rank_in(c.first) for c, answer in with_culprit],
        "the same, without what is beside": [answer.rank_in(_alone(c.first)) for c, answer in with_culprit],
        f"foreshock, +{LATER.seconds // 60} min or the end": [answer.rank_in(c.second) for c, answer in with_culprit],
    }
    for name in BASELINES:
        methods[name] = [_baseline_rank(name, c.later, answer) for c, answer in with_culprit]
    return summed(
        verdicts,
        not_judged,
        [Remark(case.name, said) for case, _ in labelled for said in case.remarks],
        {name: tuple(ranks) for name, ranks in methods.items()},
        ablation(labelled) if ablate and with_culprit else {},
    )


def summed(
    verdicts: Sequence[Verdict],
    not_judged: Sequence[NotJudged],
    remarks: Sequence[Remark],
    ranks: Mapping[str, tuple[Rank | None, ...]],
    ablation: dict[str, Ablated],
) -> Result:
    """What follows from how each ranking did: the same whether they were made now or read from files."""
    at_alert = [verdict for verdict in verdicts if verdict.when == "alert"]
    later = [verdict for verdict in verdicts if verdict.when == "later"]
    known = {name: of for name, of in ranks.items() if of}
    return Result(
        verdicts=tuple(verdicts),
        not_judged=tuple(not_judged),
        remarks=tuple(remarks),
        ranks=dict(ranks),
        accuracy={name: accuracy(of) for name, of in known.items()},
        compared={name: compare(known[AT_ALERT], known[name]) for name in BASELINES if name in known},
        none_told=auroc(
            [verdict.none_of_these for verdict in at_alert if verdict.has_culprit],
            [verdict.none_of_these for verdict in at_alert if not verdict.has_culprit],
        ),
        surprise=Surprise(*(surprise([one.said for one in of]) for of in (at_alert, later))) if verdicts else None,
        reliability=tuple(reliability([(verdict.leader, verdict.right) for verdict in at_alert])),
        ablation=ablation,
    )


def _alone(ranking: Ranking) -> Ranking:
    """Each suspect without what was written in one go with it: a culprit that is only beside one counts as missed."""
    return replace(ranking, suspects=tuple(replace(one, beside=()) for one in ranking.suspects))


def _baseline_rank(name: str, gathered: Gathered, answer: Answer) -> Rank | None:
    found: list[Candidate] = candidates(
        gathered.changes,
        gathered.rollouts,
        write_fights(gathered.changes),
        topology=topology(gathered.states, gone=gathered.gone, edges=gathered.edges),
        until=gathered.now,
    )
    score = BASELINES[name](gathered)
    firsts = releases(c.change for c in found)
    scores: dict[str, float] = {}
    for one in found:
        release = firsts.get(one.change.id, one.change.id)
        scores[release] = max(score(one), scores.get(release, -math.inf))
    ranks = [rank_among(scores, firsts.get(c.change.id, c.change.id)) for c in found if answer.is_in(c)]
    return min(filter(None, ranks), key=lambda rank: rank.mean, default=None)


def _verdict(name: str, when: str, ranking: Ranking, answer: Answer) -> Verdict:
    position = answer.rank_in(ranking)
    top = ranking.suspects[0] if ranking.suspects else None
    mine = next((s for s in ranking.suspects if answer.is_in(s)), None)
    none_leads = ranking.none_of_these > (top.probability if top else 0.0)
    above = [str(s.change.resource) for s in ranking.suspects if position is None or s.rank <= position.above][:3]
    return Verdict(
        name=name,
        when=when,
        rank=position.mean if position else None,
        top=f"{top.change.resource}: {top.change.summary}" if top else "",
        why=" ".join(e.sentence for e in (mine or top).evidence[:3]) if mine or top else "",  # type: ignore[union-attr]
        probability=mine.probability if mine else 0.0,
        none_of_these=ranking.none_of_these,
        leader=max(ranking.none_of_these, top.probability if top else 0.0),
        right=not none_leads and mine is not None and mine is top if answer.has_culprit else none_leads,
        above=tuple(above),
        candidates=ranking.candidates,
        has_culprit=answer.has_culprit,
        said=answer.said_in(ranking),
    )
