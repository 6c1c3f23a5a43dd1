"""Complaints that tell of a server outside the cluster which does not answer: not of what was rolled out just then."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from app.core.causes import OUTSIDE
from app.core.signals import Signal, SignalKind
from app.core.topology import Topology

_HOST = re.compile(
    r"(?:(?://|@|\btcp |\blookup |\bhost[ =]|\b(?:upstream|server|connect(?:ion)?|to|from|reach|contact) )|(?=\S+:\d))"
    r"((?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.){2,}[a-z]{2,})(?![\w.-])"
)
"""Where a message names a host of three words or more: in a URL, dialled, looked up or spoken of, or before a port."""
_INSIDE = frozenset({"local", "internal", "svc", "cluster"})
"""Last words of names that no public server of names knows."""


def with_outside(signals: Iterable[Signal], top: Topology) -> list[Signal]:
    """The signals, those with that cause whose messages name an unwell host outside."""
    inside = _INSIDE | {namespace for namespace, _ in top.labels}
    return [replace(one, cause=OUTSIDE) if _tells(one, inside) else one for one in signals]


def _tells(signal: Signal, inside: frozenset[str]) -> bool:
    if signal.kind is not SignalKind.SYMPTOM or signal.cause is not None or not OUTSIDE.told.search(signal.text):
        return False
    hosts = [host.split(".") for host in _HOST.findall(signal.text)]
    return any(words[-1] not in inside and "svc" not in words for words in hosts)
