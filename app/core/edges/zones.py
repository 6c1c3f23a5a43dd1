"""Zones of names, as a Corefile serves them: who is told a host in one has it asked of whom its block says.

https://coredns.io/2017/07/23/corefile-explained/ : a server block begins with its zones, each perhaps with a scheme and
a port.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.core.edges.leads import NAME_SERVERS
from app.core.edges.topology import Named, Topology
from app.core.model import Change

_ROOTS = frozenset({"", "cluster.local", "in-addr.arpa", "ip6.arpa"})
"""Of these all that runs asks: they say nothing of who is hurt."""
_COMMENT = re.compile(r"#[^\n]*")
_SCHEME = re.compile(r"\A\w+://")
_PORT = re.compile(r":\d+\Z")


def told_of_zones(change: Change, top: Topology) -> set[Named]:
    """The workloads that are told a host in a zone of which a change says otherwise who is asked."""
    if change.resource.kind != "ConfigMap" or not NAME_SERVERS.search(change.resource.name):
        return set()
    zones = {zone for diff in change.diffs for zone in _changed(diff.old, diff.new)} - _ROOTS
    if not zones:
        return set()
    hosts = re.compile(rf"[\w-]\.(?:{'|'.join(map(re.escape, sorted(zones)))})\.?(?![\w.-])", re.IGNORECASE)
    return {key for text, keys in top.told.items() if hosts.search(text) for key in keys}


def _changed(old: object, new: object) -> set[str]:
    """The zones whose blocks are not in both texts."""
    before, after = (set(_blocks(text)) if isinstance(text, str) else set() for text in (old, new))
    return {zone for zone, _ in before ^ after}


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """(zone, what its server block says) of a Corefile."""
    depth, begins, named = 0, 0, ""
    text = _COMMENT.sub("", text)
    for brace in re.finditer(r"[{}]", text):
        depth += 1 if brace[0] == "{" else -1
        if depth == 1 and brace[0] == "{":
            named, begins = text[begins : brace.start()], brace.end()
        elif depth == 0:
            said = " ".join(text[begins : brace.start()].split())
            for zone in re.split(r"[\s,]+", named.strip()):
                yield _PORT.sub("", _SCHEME.sub("", zone)).strip(".").lower(), said
            begins = brace.end()
