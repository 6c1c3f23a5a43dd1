"""The nouns of Foreshock: frozen values that travel unchanged from collector to page to JSON.

Changes are made to resources in clusters by actors; some start rollouts; actors make calls. Symptoms bundle
into incidents. Suspects are changes ranked against an incident, each with its evidence. docs/glossary.md says
each in a sentence. Every ``datetime`` is timezone-aware UTC; every duration is seconds unless the name says so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
else:
    Json = Any  # msgspec and pydantic read annotations at run time and cannot follow a recursive alias
Object = dict[str, Json]
"""A Kubernetes object, or a part of one, as decoded JSON."""

SLOT_SECONDS = 5
"""Resolution of call counts: fine enough to order two onsets, coarse enough to store (docs/decisions/0003)."""


class Verb(StrEnum):
    """What was done to the object, whatever HTTP method did it (an apply that made the object is a create)."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


class ActorSource(StrEnum):
    """How we know who did it, best first."""

    AUDIT = "audit log"
    MANAGED_FIELDS = "managedFields"
    UNKNOWN = "unknown"
    TOLD = "told"  # by who sent an external change: last, since places in this list are stored


class DiffSource(StrEnum):
    """What a change's field diffs were made from."""

    STATES = "states"  # two full states were compared
    PATCH = "patch"  # the state before is unknown: the request itself is shown
    NONE = "none"  # no body was recorded (Metadata level): only that it was written


class Resource(Struct, frozen=True, order=True, gc=False, cache_hash=True):
    """One named thing in one cluster. ``namespace`` is None for cluster-scoped kinds; ``api_group`` "" is core.

    Nouns are msgspec.Structs: made in a fifth of the time of a frozen dataclass, and hashed once where they are keys.
    """

    cluster: str
    api_group: str
    kind: str
    namespace: str | None
    name: str

    def __str__(self) -> str:
        where = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {where}{self.name}"


class Actor(Struct, frozen=True, gc=False):
    """Who wrote: an audit user name (``source`` audit log) or a field manager (``source`` managedFields).

    Of an external change it is whom its sender names (``source`` told), and ``user_agent`` is the sender.
    ``pod`` is the caller's pod where its token says so; ``user_agent`` is the family without version numbers;
    ``impersonator`` is the real user behind an impersonated one.
    """

    name: str
    source: ActorSource = ActorSource.UNKNOWN
    user_agent: str = ""
    pod: str | None = None
    impersonator: str | None = None


NOBODY = Actor("", ActorSource.UNKNOWN)

Segment = str | int | tuple[tuple[str, str], ...]
"""A step in a path: a map key, a list index, or the merge key of a list item, e.g. (("name", "app"),)."""
Path = tuple[Segment, ...]
_ODD = re.compile(r"[./\[\] ]")


@lru_cache(maxsize=10_000)  # the same few fields are written all the time
def path_text(path: Path) -> str:
    """A path as a person writes it: ``spec.template.spec.containers[app].image``."""
    text = ""
    for step in path:
        if isinstance(step, tuple):
            text += "[" + ",".join(value for _, value in step if value) + "]"
        elif isinstance(step, int):
            text += f"[{step}]"
        elif not step or _ODD.search(step):
            text += f'["{step}"]'
        else:
            text += f".{step}" if text else step
    return text


class FieldDiff(Struct, frozen=True, gc=False):
    """One field before and after. ``op`` is add, remove or replace; a whole object is the empty path."""

    path: Path
    op: str
    old: Json = None
    new: Json = None

    @property
    def path_text(self) -> str:
        """The path as a person writes it."""
        return path_text(self.path)


def version_key(cluster: str, uid: str, version: str) -> int:
    """The 63-bit key on which a watch event and an audit event of the same write meet.

    ``version`` is the resourceVersion the write made, or "deleted" (a uid is deleted once). Signed 64-bit safe.
    """
    digest = blake2b(f"{cluster}\0{uid}\0{version}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


@lru_cache(maxsize=10_000)  # a ranking asks for that of each of its changes many times
def change_id(at: datetime, key: int) -> str:
    """A change's public name: its millisecond and its version key, 28 hex digits. Sorts by time."""
    return f"{int(at.timestamp() * 1000):012x}{key:016x}"


def parse_change_id(text: str) -> tuple[datetime, int]:
    """The inverse of change_id: (start of the millisecond, version key). Raises ValueError on anything else."""
    if len(text) != 28:
        raise ValueError("a change id has 28 hexadecimal digits")
    at, key = datetime.fromtimestamp(int(text[:12], 16) / 1000, UTC), int(text[12:], 16)
    if key >> 63:
        raise ValueError("the key of a change has 63 bits")
    return at, key


class Change(Struct, frozen=True, gc=False):
    """One write that altered the desired state of one object.

    ``at`` is when the API server took the request (audit) or sent the event (watch): the first seen is kept. Of a write
    that only a LIST or a dump shows it is their time, and ``summary`` says since when it may have been.
    ``begun_by`` is the id of the change this one was derived from (a controller's edit), else None.
    ``sources`` says who told us: a subset of {"audit", "watch", "state", "history", "external"}.
    ``since``: nobody knows when exactly; it was written after that, and not after ``at``. ``found_in`` names what a
    cluster remembers it by ("ReplicaSet web-5d4f"), in whole seconds, where nobody told of the write itself.
    An external change (core/changes/external.py) may say where more of it can be read, ``url``, and which workload of
    its namespace it concerns, ``workload``; of any other both are "".
    """

    resource: Resource
    at: datetime
    verb: Verb
    key: int
    actor: Actor = NOBODY
    uid: str = ""
    resource_version: str = ""
    generation: int | None = None
    diffs: tuple[FieldDiff, ...] = ()
    diff_source: DiffSource = DiffSource.STATES
    summary: str = ""
    sources: frozenset[str] = frozenset()
    begun_by: str | None = None
    audit_id: str = ""
    since: datetime | None = None
    found_in: str = ""
    url: str = ""
    workload: str = ""

    @property
    def id(self) -> str:
        return change_id(self.at, self.key)


class ObjectState(Struct, frozen=True, gc=False):
    """The last known normalised, redacted state of one object; ``deleted_at`` once it is gone.

    ``state`` is None when only its existence is known (Metadata-level audit).
    """

    resource: Resource
    uid: str
    resource_version: str
    seen_at: datetime
    state: Object | None
    generation: int | None = None
    owner_kind: str = ""
    owner_name: str = ""
    deleted_at: datetime | None = None


class Outcome(StrEnum):
    """How a rollout stands. Complete only when observedGeneration, updated and available replicas agree."""

    RUNNING = "running"
    COMPLETE = "complete"
    FAILED = "failed"  # ProgressDeadlineExceeded; aborted, of an Argo Rollout
    SUPERSEDED = "superseded"
    ROLLED_BACK = "rolled back"


class Progress(Struct, frozen=True, gc=False):
    """A workload's replica counts at one moment of a rollout."""

    at: datetime
    desired: int
    updated: int
    available: int


class Rollout(Struct, frozen=True, gc=False):
    """A workload moving from one pod template to another. ``change_id`` began it (None: it began unseen).

    ``templates`` are fingerprints of its pod template and of those before it, the newest first.
    """

    resource: Resource
    uid: str
    generation: int
    started_at: datetime
    outcome: Outcome
    ended_at: datetime | None = None
    change_id: str | None = None
    images: tuple[str, ...] = ()
    images_before: tuple[str, ...] = ()
    progress: tuple[Progress, ...] = ()
    reason: str = ""
    templates: tuple[str, ...] = ()

    @property
    def percent(self) -> int:
        """How much of it is through: pods that are of the new template, and as many available. 100 only when it is
        complete: an old pod may still have to go."""
        if self.outcome is Outcome.COMPLETE:
            return 100
        now = self.progress[-1] if self.progress else None
        return min(99, 100 * min(now.updated, now.available) // now.desired) if now and now.desired > 0 else 0


class ListClass(StrEnum):
    """What a LIST asked of the API server: the cache ("0"), a quorum read (none) or a version (exact); of a watch, that
    it begins with all there is, as a stream in place of a LIST (sendInitialEvents)."""

    NOT_A_LIST = ""
    CACHE = "0"
    QUORUM = "none"
    EXACT = "exact"
    CONTINUE = "continue"
    STREAM = "stream"


class CallKey(Struct, frozen=True, gc=False, cache_hash=True):
    """What calls are counted by. ``resource`` is plural, with its subresource: "pods/status".

    ``error`` is the redacted message of a failed call with names and numbers of single objects taken out.
    ``waited_for`` is what took most of a slow call, as the API server says: one of core.waits.PARTS, else "".
    """

    user: str
    pod: str
    user_agent: str
    verb: str
    api_group: str
    resource: str
    namespace: str
    code: int
    list_class: ListClass = ListClass.NOT_A_LIST
    error: str = ""
    waited_for: str = ""


class CallCount(Struct, frozen=True, gc=False):
    """Calls of one key in one slot of SLOT_SECONDS that starts at ``slot`` (epoch seconds)."""

    key: CallKey
    slot: int
    count: int
    latency_us: int


class Request(Struct, frozen=True, gc=False):
    """One write request of the audit log, as a row: who, what, when, how long; never a body."""

    key: CallKey
    at: datetime
    event_key: int
    name: str
    latency_us: int


class SymptomSource(StrEnum):
    ALERT = "alert"
    EVENT = "event"
    POD = "pod"
    NODE = "node"
    CONDITION = "condition"


class Symptom(Struct, frozen=True, gc=False):
    """Something that hurts: an alert, a Warning event, a pod that cannot run, a custom resource that is not ready.

    ``reason`` is the alert name, the event's reason or the pod state (CrashLoopBackOff, OOMKilled, Unready ...).
    ``resource`` is what hurts, ``workload`` the owner at the top of its chain where known. ``fingerprint`` makes
    a repeat of the same symptom harmless: (fingerprint, at) is unique in a cluster. ``group`` is what an alert was
    grouped by where it was sent, "" for nothing. A Warning event ended when it was last told. ``told_at`` is when the
    API server was told of it, by the clock of the changes: it began no later, while ``at`` is often a whole second of
    the clock of a node. ``active_at`` is when Alertmanager was last told that an alert fires, as far as it lists
    it; ``later_ends`` are those that were told beside ``ended_at``. ``annotations`` are what the rule of an alert tells
    people beside ``message``: for them alone, no ranking looks at it.
    """

    source: SymptomSource
    reason: str
    at: datetime
    fingerprint: str
    resource: Resource | None = None
    workload: Resource | None = None
    message: str = ""
    severity: str = ""
    count: int = 1
    ended_at: datetime | None = None
    labels: tuple[tuple[str, str], ...] = ()
    group: str = ""
    told_at: datetime | None = None
    active_at: datetime | None = None
    later_ends: tuple[datetime, ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()


class MetricSeries(Struct, frozen=True, gc=False):
    """Samples of one Prometheus series. ``labels`` sorted, without __name__. Gaps are absent, never zero."""

    name: str
    labels: tuple[tuple[str, str], ...]
    kind: str  # counter, gauge, unknown
    times: tuple[float, ...]  # epoch seconds, ascending
    values: Sequence[float]  # where stored ones are read, an array: no number of it is made before it is asked for


class Evaluated(Struct, frozen=True):
    """What a Prometheus answers to a query, and what it warns of: that some of its stores did not answer, say."""

    series: Sequence[MetricSeries] = ()
    warnings: tuple[str, ...] = ()


class CallEdge(Struct, frozen=True, gc=False):
    """That a workload calls a Service or a workload (``kind``), as a service mesh counts it, and from when until when
    that was seen. Both are (namespace, name): meshes do not say of which kind a workload is."""

    caller: tuple[str, str]
    kind: str
    callee: tuple[str, str]
    first_seen: datetime
    last_seen: datetime


class Gap(Struct, frozen=True, gc=False):
    """An interval in which something was not seen, and why. ``kind`` "" means every kind."""

    cluster: str
    kind: str
    from_at: datetime
    to_at: datetime
    why: str


class Reject(Struct, frozen=True, gc=False):
    """A piece of input that could not be used: where it stood, what is wrong, a redacted excerpt.

    ``again``: once its file has grown it is read again, since the file ended within it.
    """

    source: str
    line: int
    column: int
    reason: str
    excerpt: str
    again: bool = False


class Position(Struct, frozen=True, gc=False):
    """How far a file has been read: bytes of its decompressed content, and the lines that end before them.

    ``size`` is how many bytes the file itself had, of which ``file_hash`` is; 0 where nobody noted it.
    """

    file_hash: str
    path: str
    offset: int
    lines: int
    done: bool = False
    size: int = 0


class Batch(Struct, frozen=True, gc=False):
    """What one collector learned in one go: recorded in one transaction, harmless to record twice.

    ``improvements`` are second tellings of writes: merged into the change where one is stored, else passed over.
    ``read_to`` is up to when logs were read, by what they are: also what leaves no row was seen till then.
    ``grown`` are files, by their hash, that have grown since their import: what is read again of them is told anew.
    ``read_at`` is when it was read.
    """

    cluster: str
    changes: tuple[Change, ...] = ()
    improvements: tuple[Change, ...] = ()
    objects: tuple[ObjectState, ...] = ()
    rollouts: tuple[Rollout, ...] = ()
    calls: tuple[CallCount, ...] = ()
    requests: tuple[Request, ...] = ()
    symptoms: tuple[Symptom, ...] = ()
    series: tuple[MetricSeries, ...] = ()
    edges: tuple[CallEdge, ...] = ()
    gaps: tuple[Gap, ...] = ()
    rejects: tuple[Reject, ...] = ()
    positions: tuple[Position, ...] = ()
    grown: tuple[str, ...] = ()
    read_to: tuple[tuple[str, datetime], ...] = ()
    read_at: datetime | None = None
