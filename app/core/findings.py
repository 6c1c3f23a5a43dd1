"""The nouns of what is found: incidents, and changes ranked against them, each with its evidence."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from app.core.model import Change, Resource, Symptom


class Scope(Struct, frozen=True):
    """What an incident is about, as far as labels and measurements tell. Empty means the whole cluster."""

    namespaces: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    control_plane: bool = False


class Onset(Struct, frozen=True):
    """When it began to go wrong, from the data: ``at`` within [low, high]; ``found_in`` says in what."""

    at: datetime
    low: datetime
    high: datetime
    found_in: str


class Origin(StrEnum):
    """Where an incident came from: what opened it, whatever joined it later."""

    ALERTS = "alerts"
    HAND = "by hand"
    ITSELF = "by itself"


class Opinion(StrEnum):
    """What somebody says of a suspect."""

    IT = "it"
    NOT_IT = "not it"


NONE = "none"
"""In the place of a change's id: none of the changes was it."""


class Verdict(Struct, frozen=True):
    """What somebody said of a change, or of NONE, when, and under which name."""

    change_id: str
    opinion: Opinion
    by: str
    at: datetime


class Said(Struct, frozen=True):
    """What people said of an incident: it stays, whatever its alerts say. None: nobody said.

    ``status`` is open or resolved, ``resolved_at`` since when it is the latter.
    """

    title: str | None = None
    severity: str | None = None
    started_at: datetime | None = None
    namespaces: tuple[str, ...] | None = None
    workloads: tuple[str, ...] | None = None
    nodes: tuple[str, ...] | None = None
    control_plane: bool | None = None
    status: str | None = None
    resolved_at: datetime | None = None


class Unlisted(Symptom, frozen=True, gc=False, tag_field="end", tag="unlisted"):
    """An alert whose end nobody told: its Alertmanager lists it no longer. Told again, it fires on."""


class Incident(Struct, frozen=True):
    """A bundle of symptoms that a person was, or should be, called for. ``id`` is short and stable.

    ``opened_by`` is who opened it by hand, "" for nobody; ``merged_into`` the incident that it became a part of,
    ``verdicts`` what people said of its suspects, one of each.
    """

    id: str
    cluster: str
    title: str
    status: str  # open, resolved, suspected, merged
    severity: str
    started_at: datetime  # the earliest alert's start, or what a person said
    resolved_at: datetime | None = None
    scope: Scope = Scope()
    onset: Onset | None = None
    alerts: tuple[Symptom, ...] = ()
    ranked_at: datetime | None = None
    origin: Origin = Origin.ALERTS
    opened_by: str = ""
    said: Said = Said()
    merged_into: str | None = None
    verdicts: tuple[Verdict, ...] = ()


class Evidence(Struct, frozen=True, gc=False):
    """One reason for (weight > 0), against (< 0) or not measured (weight 0, ``measured`` False)."""

    rule: str
    weight: float
    sentence: str
    measured: bool = True


class Also(Struct, frozen=True):
    """The same edit of another object, another part of what was installed, or what was written with it."""

    change_id: str
    at: datetime
    resource: Resource


class Suspect(Struct, frozen=True):
    """A change ranked against an incident. ``would_flip`` is the rule of the weakest evidence for it without which the
    next one shown, or for the first "none of these", would come before it; "" where no single one would (flips).
    ``also`` is the same edit of other objects, or the other parts of what was installed, made in one go with it;
    ``beside`` is what the same actor wrote with it, each of which by itself explains less (same_edit.releases)."""

    rank: int
    probability: float
    score: float
    change: Change
    evidence: tuple[Evidence, ...]
    derived: tuple[str, ...] = ()
    t_minus: timedelta = timedelta()
    would_flip: str = ""
    also: tuple[Also, ...] = ()
    beside: tuple[Also, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """Of all changes that it stands for, its own first."""
        return self.change.id, *(one.change_id for one in (*self.also, *self.beside))


class WriteFight(Struct, frozen=True):
    """One field of some objects rewritten back and forth by different writers."""

    api_group: str
    kind: str
    path_text: str
    objects: tuple[Resource, ...]
    writers: tuple[str, ...]
    writes: int
    began_at: datetime
    ended_at: datetime
    per_second: float
    values: tuple[str, ...] = ()


class Spark(Struct, frozen=True):
    """A control-plane line for the page: one value per slot (None: not measured)."""

    title: str
    unit: str
    start: float  # epoch seconds
    step: float
    values: tuple[float | None, ...]
    bad_from: float | None = None


class CallerRow(Struct, frozen=True):
    """One caller's calls per slot, for the heat lane. ``step`` is calls/s after over before the onset."""

    user: str
    verb: str
    resource: str
    start: float
    step: float
    counts: tuple[int, ...]
    before_per_second: float
    after_per_second: float


class Ranking(Struct, frozen=True):
    """The answer for one incident at one moment: what preceded it, why, and what else was found."""

    incident_id: str
    ranked_at: datetime
    onset: Onset
    suspects: tuple[Suspect, ...]
    none_of_these: float
    candidates: int
    window: tuple[datetime, datetime]
    fights: tuple[WriteFight, ...] = ()
    sparks: tuple[Spark, ...] = ()
    callers: tuple[CallerRow, ...] = ()
    findings: tuple[Evidence, ...] = ()
    not_measured: tuple[str, ...] = ()
    scope: Scope = Scope()

    @property
    def leader(self) -> tuple[str, float]:
        """What is likeliest, a change's id or NONE, and how likely it is."""
        first = self.suspects[0] if self.suspects else None
        if first is None or self.none_of_these > first.probability:
            return NONE, self.none_of_these
        return first.change.id, first.probability

    @property
    def leaders(self) -> tuple[str, ...]:
        """The ids of all changes that what is likeliest stands for, its own first; NONE alone."""
        return (NONE,) if self.none_leads else self.suspects[0].ids

    @property
    def none_leads(self) -> bool:
        """Whether "none of these" is likelier than every change."""
        return self.leader[0] == NONE

    @property
    def places(self) -> dict[str, int]:
        """Of each change that a suspect is or stands for, the suspect's rank."""
        return {change_id: one.rank for one in self.suspects for change_id in one.ids}
