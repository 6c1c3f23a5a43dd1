"""What of a route can never come true, or not yet, in words: it is taken all the same, and would only be silent."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from difflib import get_close_matches

from app.core.objects import kinds
from app.core.objects.kind_names import SHORT, built_in
from app.core.objects.kinds import Policy
from app.core.routes import Route, What, fits, fits_kind
from app.core.severities import KNOWN, is_known

ALIKE = 0.75
"""So much alike are a word and the one that is meant by it: urgent, which is nobody's, is no slip."""
_TOLD = sorted({info.kind for info in kinds.BUILT_IN.values() if info.policy is Policy.TOLD})
_OTHERS = sorted({info.kind for info in kinds.BUILT_IN.values()} - set(_TOLD))
_OF_HELM = frozenset({"Secret", "ConfigMap"})
"""What Helm keeps its releases in, which are told."""


def remarks(route: Route, clusters: Collection[str]) -> list[str]:
    """``clusters`` are those of which anything is recorded."""
    return [*_of_clusters(route, clusters), *_of_kinds(route), *_of_severities(route)]


def _of_clusters(route: Route, clusters: Collection[str]) -> Iterator[str]:
    for asked in route.clusters if clusters else ():
        if not any(fits(name, (asked,)) for name in clusters):
            known = ", ".join(sorted(clusters)[:5])
            yield f"nothing is recorded yet of a cluster {asked}; known are {known}"


def _of_kinds(route: Route) -> Iterator[str]:
    if What.CHANGES not in route.tell:
        if route.kinds:
            yield "kinds are asked of changes alone, which it does not tell"
        return
    yield from filter(None, map(_of_kind, route.kinds))


def _of_kind(asked: str) -> str:
    """Why no change is of this kind that is told; "" where one may be."""
    if any(fits_kind(kind, (asked,)) for kind in _TOLD):
        return ""
    if known := [kind for kind in _OTHERS if fits_kind(kind, (asked,))]:
        return _untold(known)
    if short := SHORT.get(asked.lower()):
        kind = built_in(short, None)[0].kind
        return f"a kind is named in full: {asked} is {kind}" + ("" if kind in _TOLD else f", and {_untold([kind])}")
    if meant := _nearest(asked, _TOLD):
        return f"no kind is called {asked}: is {meant} meant?"
    if asked.islower():  # those are somebody else's (kinds.EXTERNAL)
        return ""
    return f"no kind of Kubernetes' own that is told is called {asked}; custom ones are on the timeline alone"


def _untold(known: list[str]) -> str:
    if _OF_HELM & set(known):
        return f"of {' and '.join(known)} only releases of Helm are told; other changes are on the timeline alone"
    return f"changes of {', '.join(known[:3])} are on the timeline alone"


def _of_severities(route: Route) -> Iterator[str]:
    """An alert may have any severity, so only what looks like a slip is remarked."""
    if route.severities and What.INCIDENTS not in route.tell:
        yield "severities are asked of incidents alone, which it does not tell"
        return
    for asked in route.severities:
        if is_known(asked) or any(fits(one, (asked.lower(),)) for one in KNOWN):
            continue
        if meant := _nearest(asked, KNOWN):
            yield f"a severity {asked} is unusual: is {meant} meant?"


def _nearest(word: str, known: Collection[str]) -> str:
    """Of those that are known the one that is meant, whatever the case; "" where none is."""
    by_small = {one.lower(): one for one in known}
    found = get_close_matches(word.lower(), by_small, n=1, cutoff=ALIKE)
    return by_small[found[0]] if found else ""
