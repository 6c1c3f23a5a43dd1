"""What turned bad is told in the words of the very setting that was changed: who cuts proxy-body-size reads of a body
that is too large."""

from __future__ import annotations

import re
from functools import lru_cache

from app.core.edges.settings import parts
from app.core.findings import Evidence
from app.core.model import Change, FieldDiff, Verb
from app.core.objects.values import name_of
from app.core.phrases import excerpt
from app.core.ranking.case import Case, Facts, say
from app.core.signals.signal import Signal, SignalKind

WORDED = 1.0
"""What it weighs where the change leads fully to what is clearest. Of the 587 culprits of twelve tables of mechanisms
that lead to complaints 26 % changed a setting of which a word is in these, of 1,520 others 2 %: that would be ln 13,
most of which other rules say as well."""
LEAST = 0.05
"""Less is not told."""
_TOLD = frozenset({SignalKind.SYMPTOM, SignalKind.ERROR})
_END = re.compile(r"[:=\s]")
"""What comes after the name of a setting, in a text of several."""
_WORD = re.compile(r"[A-Z]?[a-z]{3,}|[A-Z]{4,}")
_COMMON = {
    *("template", "spec", "container", "metadata", "data", "annotation", "label", "volume", "image", "name", "value"),
    *("type", "config", "conf", "replica", "http", "https", "client", "server", "kubernete", "example", "failed"),
    *("with", "from", "only", "true", "false", "probe", "readiness", "liveness", "startup", "unschedulable"),
}
"""Words of most objects, and of most complaints."""


def worded(case: Case, facts: Facts) -> Evidence | None:
    """A word of a setting that was changed is in what is complained of, as far as the change leads there."""
    if facts.candidate.change.verb is not Verb.UPDATE:
        return None
    told = [m for m in facts.matches if m.signal.kind in _TOLD and id(m.signal) in case.salience]
    keys = settings(facts.candidate.change) if told else []
    best, sentence = 0.0, ""
    for match in told:
        weight = WORDED * min(1.0, match.score * case.salience[id(match.signal)])
        said = _said(match.signal)
        for key, its in keys:
            if weight > best and (shared := sorted(its & said)):
                best, sentence = weight, f'It changed {excerpt(key)}, and "{shared[0]}" is in what is complained of.'
    return say("worded", best, sentence) if best >= LEAST else None


def _said(signal: Signal) -> frozenset[str]:
    """What a complaint says, less the names of whom it is about."""
    about = " ".join(str(step) for entity in signal.about for step in entity[1:])
    return words(f"{signal.facts.get('says', '')} {signal.text}") - words(about)


@lru_cache(maxsize=10_000)  # of each complaint once, not for each change that leads to it
def words(text: str) -> frozenset[str]:
    """The words of a text or a name, one by one whatever it joins them by, without the s of many."""
    found = (word.lower() for word in _WORD.findall(text))
    one = (word[:-1] if len(word) > 4 and word.endswith("s") and not word.endswith("ss") else word for word in found)
    return frozenset(word for word in one if len(word) >= 4 and word not in _COMMON)


def settings(change: Change) -> list[tuple[str, frozenset[str]]]:
    """The names of the settings that an update changed, with their words."""
    own = words(f"{change.resource.name} {change.resource.namespace} {change.resource.kind}")
    return [(key, words(key) - own) for diff in change.diffs for key in _keys(diff)]


def _keys(diff: FieldDiff) -> list[str]:
    """What a field is called, each step of its path; and of a text of settings, what begins those that differ."""
    return [*map(name_of, diff.path), *(_END.split(part.strip(), maxsplit=1)[0] for part in sorted(parts(diff)))]
