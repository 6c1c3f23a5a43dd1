"""What an oracle wrote, held against what the database says: everything once, in order, and nothing else.

It reads the tables by itself, in the order in which pages show changes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import psycopg

from app.core.objects.normalise import normalise
from app.store import codec
from tests.cluster.oracle import CREATE, DELETE, UPDATE, Write

VERBS = (CREATE, UPDATE, DELETE)
"""By their numbers in the database."""
GROUPS = {"ConfigMap": "", "Deployment": "apps", "Widget": "faults.example"}

_CHANGES = """
SELECT c.at, k.kind, o.name, o.uid, c.verb, c.resource_version, c.within_seconds
FROM changes c JOIN objects o ON o.id = c.object_id JOIN kinds k ON k.id = c.kind_id
JOIN clusters l ON l.id = c.cluster_id JOIN words n ON n.id = c.namespace_id
WHERE l.name = %s AND n.word = %s ORDER BY c.at, c.version_key
"""
_GAPS = """
SELECT g.kind, g.from_at, g.to_at, g.why FROM gaps g JOIN clusters l ON l.id = g.cluster_id
WHERE l.name = %s ORDER BY g.from_at, g.kind
"""
_STATES = """
SELECT o.uid, o.state FROM objects o JOIN clusters l ON l.id = o.cluster_id JOIN words n ON n.id = o.namespace_id
WHERE l.name = %s AND n.word = %s AND o.deleted_at IS NULL
"""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A change as it is stored."""

    at: datetime
    kind: str
    name: str
    uid: str
    verb: str
    resource_version: str
    within: timedelta

    @property
    def key(self) -> tuple[str, str, int]:
        """As Write.key."""
        return self.uid, self.verb, int(self.resource_version or 0) if self.verb == UPDATE else 0


@dataclass(frozen=True, slots=True)
class Blind:
    """A gap as it is stored; ``kind`` "" is all of them."""

    kind: str
    from_at: datetime
    to_at: datetime
    why: str

    def covers(self, write: Write) -> bool:
        """Whether a write may have been done in it."""
        return self.kind in ("", write.kind) and self.from_at <= write.after and write.before <= self.to_at


@dataclass(frozen=True, slots=True)
class Stored:
    """What the database says of one namespace of a cluster, and of all gaps of the cluster."""

    changes: Sequence[Recorded]
    gaps: Sequence[Blind]
    states: Mapping[str, dict[str, Any] | None]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong, each with what it takes to look for it. ``unseen`` are writes in recorded gaps: nothing wrong."""

    writes: int
    lost: list[Write]
    unseen: list[Write]
    doubled: list[Recorded]
    phantoms: list[Recorded]
    disordered: list[tuple[Recorded, Recorded]]
    differing: list[str]

    @property
    def is_complete(self) -> bool:
        """Whether everything that was written has been brought in."""
        return not self.lost and not self.differing

    @property
    def is_right(self) -> bool:
        return self.is_complete and not self.doubled and not self.phantoms and not self.disordered


def read(dsn: str, cluster: str, namespace: str) -> Stored:
    """Raises psycopg.Error."""
    with psycopg.connect(dsn) as conn:
        changes = [
            Recorded(at, kind, name, uid, VERBS[verb], version, timedelta(seconds=within))
            for at, kind, name, uid, verb, version, within in conn.execute(_CHANGES, (cluster, namespace))
        ]
        gaps = [Blind(*row) for row in conn.execute(_GAPS, (cluster,))]
        states = {
            uid: codec.unpack_state(packed) for uid, packed in conn.execute(_STATES, (cluster, namespace)) if packed
        }
    return Stored(changes, gaps, states)


def check(writes: Sequence[Write], there: Mapping[str, dict[str, Any]], stored: Stored) -> Verdict:
    """Hold what was written, and what the API server now has by uid, against what is stored."""
    kinds = {write.kind for write in writes} | set(GROUPS)
    changes = [one for one in stored.changes if one.kind in kinds]
    told = Counter(change.key for change in changes)
    real = {write.key: write for write in writes}
    missing = [write for write in writes if not told[write.key]]
    unseen = [write for write in missing if any(gap.covers(write) for gap in stored.gaps)]
    seen = Counter[tuple[str, str, int]]()
    doubled = []
    for change in changes:
        seen[change.key] += 1
        if seen[change.key] > 1:
            doubled.append(change)
    return Verdict(
        writes=len(writes),
        lost=[write for write in missing if write not in unseen],
        unseen=unseen,
        doubled=doubled,
        phantoms=[change for change in changes if change.key not in real],
        disordered=list(_disordered(changes, real)),
        differing=sorted(_differing(there, stored.states, writes)),
    )


def _disordered(
    changes: Iterable[Recorded], real: Mapping[tuple[str, str, int], Write]
) -> Iterable[tuple[Recorded, Recorded]]:
    """Changes to one name that are shown after one that was done later."""
    last: dict[tuple[str, str], tuple[int, Recorded]] = {}
    for change in changes:
        if change.key in real:
            place, name = real[change.key].place, (change.kind, change.name)
            if name in last and last[name][0] > place:
                yield last[name][1], change
            last[name] = max(last.get(name, (place, change)), (place, change), key=lambda one: one[0])


def _differing(
    there: Mapping[str, dict[str, Any]], states: Mapping[str, dict[str, Any] | None], writes: Iterable[Write]
) -> Iterable[str]:
    """The uids of objects that are not as they are stored to be."""
    ours = {write.uid for write in writes}
    for uid, obj in there.items():
        if states.get(uid) != normalise(obj, GROUPS[obj["kind"]], kind=obj["kind"]):
            yield uid
    yield from (uid for uid in states if uid in ours and uid not in there)


def blind_seconds(gaps: Iterable[Blind], *, since: datetime) -> dict[str, float]:
    """How long each kind was not seen in gaps that end after a moment."""
    seconds = defaultdict[str, float](float)
    for gap in gaps:
        if gap.to_at > since:
            seconds[gap.kind] += (gap.to_at - max(gap.from_at, since)).total_seconds()
    return dict(seconds)
