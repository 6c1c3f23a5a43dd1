"""What measurably turned bad, and when: the facts that a suspect must explain.

Load, errors, symptoms, metrics and write fights become one shape, a Signal: an interval in which it began, how
strong it is, and the entities it is about. Ranking never looks at raw calls or samples again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from app.core.edges.leads import Cause
from app.core.entities import Entity
from app.core.model import SLOT_SECONDS
from app.core.onset import Floats


class SignalKind(StrEnum):
    LOAD = "load"  # a caller began to call more
    ERROR = "error"  # calls began to fail
    SYMPTOM = "symptom"  # pods, nodes and controllers complain
    METRIC = "metric"  # a control-plane series rose
    FIGHT = "fight"  # a field is rewritten back and forth


@dataclass(frozen=True, slots=True)
class Place:
    """Nodes on which pods complain while pods like them elsewhere are well; ``said`` tells it to a person."""

    nodes: frozenset[str]
    said: str


@dataclass(frozen=True, slots=True, eq=False)
class Passed:
    """Calls like those that fail now and that did not fail before: how many in each slot from ``start`` (epoch seconds)
    on, up to the first failure. Of such calls the share ``failing`` fails since."""

    start: float
    counts: Floats
    failing: float

    def since(self, at: datetime) -> float:
        """The chance that so many would have passed since then, had what makes them fail been there already."""
        first = int((at.timestamp() - self.start) // SLOT_SECONDS) + 1
        calls = float(self.counts[max(0, first) :].sum())
        return float((1.0 - min(self.failing, 0.99)) ** calls)


@dataclass(frozen=True, slots=True)
class Signal:
    """Something that turned bad between ``low`` and ``high``.

    ``strength`` is 0 to 1 within its kind: the share of the extra load, of failing calls, of affected pods. ``about``
    maps entities to how specifically the signal is about them (1: exactly this). ``spread`` is given where many
    complain alike: each one's share of the complaints. ``others`` complain of the same at the same time, in other words
    or elsewhere; ``fellows`` complain at the same time and call the same server outside. ``sentence`` says it to a
    person, without a full stop. ``by_pod`` are the shares of the complaints, or of the rise, by pod, as (namespace,
    name). ``text`` is what error messages said, for names in them. ``place`` is given where only pods on some nodes
    complain, ``cause`` where all messages say what it is, ``passed`` where calls fail. ``active``: whoever calls more
    had called before, be it something else. ``came_up`` says between which times all pods of the workload that
    complains were last made, placed, started and ready before it did; ``until`` when it last complained, None where
    that goes on. ``rolled_out``: when what calls more, fights or complains was last rolled out before, where that is
    one program. ``room``: of what finds none and may run on some nodes only, who has pods there.
    """

    kind: SignalKind
    low: datetime
    high: datetime
    strength: float
    about: dict[Entity, float]
    sentence: str
    spread: dict[Entity, float] = field(default_factory=dict)
    others: frozenset[Entity] = frozenset()
    fellows: frozenset[Entity] = frozenset()
    by_pod: dict[tuple[str, str], float] = field(default_factory=dict)
    text: str = ""
    users: tuple[str, ...] = ()
    rate_before: float = 0.0
    rate_after: float = 0.0
    facts: dict[str, str] = field(default_factory=dict)
    place: Place | None = None
    cause: Cause | None = None
    passed: Passed | None = None
    active: bool = False
    came_up: tuple[datetime, datetime] | None = None
    until: datetime | None = None
    rolled_out: datetime | None = None
    room: frozenset[Entity] | None = None


def moment(epoch: float) -> datetime:
    return datetime.fromtimestamp(epoch, UTC)
