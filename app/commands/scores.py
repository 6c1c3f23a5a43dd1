"""How an evaluation is told: a table a person reads, or JSON."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

import msgspec
import orjson

from app.commands.evaluate import Result, Verdict
from app.commands.evaluate_ablation import Ablated
from app.core.changes.report import WIDTH
from app.core.evaluation.accuracy import Accuracy
from app.core.evaluation.verdicts import Found, Own, own
from app.core.phrases import many
from app.store.database import Database
from app.store.verdicts import read_judged

HEADING = f"{'':34s}{'AC@1':>18s}{'AC@3':>18s}{'MRR':>18s}"


def as_json(result: Result) -> str:
    """The whole result, for programs."""
    return orjson.dumps(msgspec.to_builtins(result), option=orjson.OPT_INDENT_2).decode()


def as_table(result: Result) -> Iterator[str]:
    """Each incident, those that could not be judged, then the methods side by side with their 95 % intervals."""
    for verdict in result.verdicts:
        yield from _incident(verdict)
    for remark in result.remarks:
        yield f"{remark.name}: {remark.said}"
    for left_out in result.not_judged:
        yield f"{left_out.name}: not judged: {left_out.reason}"
    if result.accuracy:
        yield from _methods(result)
    if result.none_told is not None:
        without = sum(verdict.when == "alert" for verdict in result.verdicts) - _cases(result)
        yield ""
        yield f'"None of these" tells the {without} without a culprit from the others: AUROC {result.none_told:.2f}'
    if result.surprise:
        yield ""
        told = f"{result.surprise.at_alert:.3f} at the alert, {result.surprise.later:.3f} later"
        yield f"How surprising the right answers were (mean of -ln p): {told}"
    if result.reliability:
        yield ""
        yield 'What led at the alert, a change or "none of these": its probability, and how often that was right'
        for one in result.reliability:
            low, high = one.right_interval
            yield f"said {one.said:.2f} ({one.cases}): right {one.right:.2f} [{low:.2f} {high:.2f}]"
    if result.ablation:
        yield from _ablation(result.ablation)


def _ablation(ablation: dict[str, Ablated]) -> Iterator[str]:
    yield ""
    yield "At the alert, without one rule; surprise at the alert and later"
    yield f"{HEADING}   AUROC   -ln p   later"
    for name, left in ablation.items():
        none_told = "" if left.none_told is None else f"{left.none_told:.2f}"
        surprise = f"{left.surprise.at_alert:8.3f}{left.surprise.later:8.3f}"
        yield f"{_row(f'without {name}', left.accuracy)}{none_told:>8s}{surprise}"


def _methods(result: Result) -> Iterator[str]:
    yield ""
    yield f"{_cases(result)} incidents with a known culprit; in brackets the 95 % interval"
    yield HEADING
    for name, figures in result.accuracy.items():
        yield _row(name, figures)
    yield ""
    yield "First at the alert where the other is not, and the other way round (McNemar, exact)"
    for name, told in result.compared.items():
        yield f"{name:34s}{told.won:>4d} : {told.lost:<4d} p {told.p:.2g}"


def _cases(result: Result) -> int:
    """How many incidents have a known culprit."""
    return next((figures.cases for figures in result.accuracy.values()), 0)


async def read_own(database: Database) -> Own:
    """How good this installation's rankings were, by what people said of them."""
    async with database.read.connect() as conn:
        return own(await read_judged(conn))


def own_as_json(told: Own) -> str:
    """The whole, for programs."""
    return orjson.dumps(msgspec.to_builtins(told), option=orjson.OPT_INDENT_2).decode()


def own_as_table(told: Own) -> Iterator[str]:
    """How many there are, where the culprits stood, and whether the odds hold."""
    yield f"{many(told.judged, 'incident')} of which it is known what it was, {told.without_culprit} of them no change"
    if told.few and (told.ranked or told.reliability):
        yield "these are few: chance decides more than the ranking"
    if told.without_culprit:
        yield f'"none of these" led in {told.none_led} of these {told.without_culprit}'
    for when, ranked in told.ranked.items():
        yield f"AC@1 {when}: {_found(ranked.first)}"
        yield f"AC@3 {when}: {_found(ranked.among_three)}"
    yield from wrap(told.of_unnamed, WIDTH)
    for one in told.reliability:
        low, high = one.right_interval
        yield f"said {one.said:.2f} ({one.cases}): right {one.right:.2f} [{low:.2f} {high:.2f}]"


def _found(one: Found) -> str:
    """A share with its interval, of how many, and how many are left out."""
    left_out = f", {one.left_out} left out" if one.left_out else ""
    if one.share is None or one.interval is None:
        return f"of no incident it is known{left_out}"
    low, high = one.interval
    return f"{one.share:.2f} [{low:.2f} {high:.2f}] of {one.cases}{left_out}"


def _incident(verdict: Verdict) -> Iterator[str]:
    place = f"rank {verdict.rank:g}" if verdict.rank else "not in the list"
    odds = f"p {verdict.probability:.2f}, none of these {verdict.none_of_these:.2f}"
    yield f"{verdict.name} ({verdict.when}): {place} of {verdict.candidates} changes, {odds}"
    if (verdict.rank and verdict.rank > 1) or not verdict.rank:
        for above in verdict.above:
            yield f"    above it: {above}"
    if verdict.when == "later":
        yield f"    {verdict.why}"


def _row(name: str, figures: Accuracy) -> str:
    cells = (
        (figures.ac1, figures.ac1_interval),
        (figures.ac3, figures.ac3_interval),
        (figures.mrr, figures.mrr_interval),
    )
    return f"{name:34s}" + "".join(f"{f'{v:.2f} [{low:.2f} {high:.2f}]':>18s}" for v, (low, high) in cells)
