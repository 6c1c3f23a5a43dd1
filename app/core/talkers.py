"""Who talks to the API server: rates of two stretches of time side by side."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from app.core.model import CallCount


@dataclass(frozen=True, slots=True)
class Talker:
    """One user's calls of one verb on one resource: calls per second now and before, of now's the failed ones."""

    user: str
    verb: str
    api_group: str
    resource: str
    per_second: float
    before_per_second: float
    errors_per_second: float
    mean_latency_ms: float


def talkers(counts: Iterable[CallCount], *, boundary: float, seconds: float, most: int) -> list[Talker]:
    """The ``most`` that rose most, then the loudest. Slots from ``boundary`` (epoch seconds) on are now.

    ``seconds`` is how long each of the two stretches is.
    """
    totals: dict[tuple[str, str, str, str], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0, 0.0])
    for call in counts:
        key = call.key
        total = totals[key.user, key.verb, key.api_group, key.resource]
        if call.slot < boundary:
            total[1] += call.count
            continue
        total[0] += call.count
        total[2] += call.count if key.code >= 400 else 0
        total[3] += call.latency_us
    found = [
        Talker(
            *who,
            per_second=now / seconds,
            before_per_second=before / seconds,
            errors_per_second=failed / seconds,
            mean_latency_ms=latency_us / now / 1000 if now else 0.0,
        )
        for who, (now, before, failed, latency_us) in totals.items()
    ]
    found.sort(key=lambda t: (t.before_per_second - t.per_second, -t.per_second, t.user, t.verb, t.resource))
    return found[:most]
