"""How an evaluation is told: a table a person reads, or JSON."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import orjson

from app.commands.evaluate import Result, Verdict
from app.core.accuracy import Accuracy

HEADING = f"{'':34s}{'AC@1':>18s}{'AC@3':>18s}{'MRR':>18s}"


def as_json(result: Result) -> str:
    """The whole result, for programs."""
    return orjson.dumps(msgspec.to_builtins(result), option=orjson.OPT_INDENT_2).decode()


def as_table(result: Result) -> Iterator[str]:
    """Each incident, those that could not be judged, then the methods side by side with their 95 % intervals."""
    for verdict in result.verdicts:
        yield from _incident(verdict)
    for one in result.not_judged:
        yield f"{one.name}: not judged: {one.reason}"
    if result.accuracy:
        cases = next(iter(result.accuracy.values())).cases
        yield ""
        yield f"{cases} incidents with a known culprit; in brackets the 95 % interval"
        yield HEADING
        for name, figures in result.accuracy.items():
            yield _row(name, figures)
    if result.reliability:
        yield ""
        yield 'What led at the alert, a change or "none of these": its probability, and how often that was right'
        for told in result.reliability:
            low, high = told.right_interval
            yield f"said {told.said:.2f} ({told.cases}): right {told.right:.2f} [{low:.2f} {high:.2f}]"
    if result.ablation:
        yield ""
        yield "Without one rule (later ranking)"
        yield HEADING
        for name, figures in result.ablation.items():
            yield _row(f"without {name}", figures)


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
