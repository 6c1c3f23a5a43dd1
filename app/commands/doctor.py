"""`foreshock doctor`: what is found out about clusters, for people or as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime

import orjson
from msgspec import to_builtins

from app.collect.contexts import ContextsError, WantedCluster
from app.collect.diagnosis import Finding, Level, worst
from app.collect.doctor import examine
from app.failures import Exit

Found = Mapping[str, list[Finding]]
"""By the name of the cluster."""
Recorded = Mapping[str, Mapping[str, datetime]]
CODES = {Level.OK: Exit.DONE, Level.WARNING: Exit.WARNED, Level.PROBLEM: Exit.BLIND}
_INDENT = 25


async def examined(
    clusters: Iterable[WantedCluster], *, clock: Callable[[], datetime], recorded: Recorded | None
) -> Found:
    """Look at one after the other; ``recorded`` by cluster as in collect.doctor.examine. Raises ContextsError."""
    found = {
        one.name: await examine(one, clock=clock, recorded=None if recorded is None else recorded.get(one.name, {}))
        for one in clusters
    }
    if not found:
        raise ContextsError("no cluster to look at: name a kubeconfig with --kubeconfig, and a context with --context")
    return found


def as_text(found: Found) -> Iterator[str]:
    """Line by line."""
    for cluster, findings in found.items():
        yield _printable(cluster)
        for one in findings:
            yield f"  {one.level:<8} {one.check:<15} {_printable(one.said)}".rstrip()
            for label, text in (("not seen", one.unseen), ("fix", one.fix)):
                if text:
                    yield f"{'':<{_INDENT}}  {label}: {_printable(text)}"


def as_json(found: Found) -> str:
    """``{cluster: [{check, level, said, unseen, fix}]}``."""
    return orjson.dumps(to_builtins(found), option=orjson.OPT_INDENT_2).decode()


def exit_code(found: Found) -> Exit:
    """By the gravest finding."""
    return CODES[worst([one for findings in found.values() for one in findings])]


def _printable(text: str) -> str:
    """What an API server says, without what would drive a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
