"""What a client would rather read: the header Accept, weighed as RFC 9110 says (section 12.5.1)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from python_multipart.multipart import parse_options_header

_RANGE = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*+(?:"|\\?\Z))+', re.DOTALL)
"""What stands between two commas, of which those in quotes are none; a quote that is not closed goes to the end."""
JSON, TEXT, NDJSON = "application/json", "text/plain", "application/x-ndjson"
INFINITY = "application/json;q=0.9,text/plain"
"""What Grafana's plugin Infinity sends with each question of its type JSON, and can read JSON alone: by text/plain it
means JSON of servers that call it that. ApplyAcceptHeader of
https://github.com/grafana/grafana-infinity-datasource/blob/main/pkg/infinity/headers.go ."""


def preferred(accept: str, offered: Sequence[str]) -> str | None:
    """The one of ``offered`` that weighs most, of equals the first; None where none will do. An empty ``accept``, as
    of who sends no such header, takes anything, and INFINITY is JSON."""
    if accept == INFINITY:
        accept = JSON
    if not accept.strip():
        return offered[0]
    ranges = list(_ranges(accept))
    weights = [_weight(kind, ranges) for kind in offered]
    most = max(weights)
    return offered[weights.index(most)] if most > 0 else None


def _ranges(accept: str) -> Iterator[tuple[str, float]]:
    """Each media range with its q. One whose q is no weight is passed over."""
    for part in _RANGE.findall(accept):
        name, parameters = parse_options_header(part.strip())
        try:
            q = float(parameters.get(b"q", b"1"))
        except ValueError:
            continue
        if 0 <= q <= 1:
            yield name.decode("latin-1").lower(), q


def _weight(kind: str, ranges: Sequence[tuple[str, float]]) -> float:
    """What the most specific range that fits says of ``kind``, 0 where none fits."""
    for fitting in (kind, f"{kind.partition('/')[0]}/*", "*/*"):
        said = [q for name, q in ranges if name == fitting]
        if said:
            return max(said)
    return 0
