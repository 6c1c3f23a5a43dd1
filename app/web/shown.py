"""What REST answers of what pages show beside changes and incidents: what hurts, what moved, the control plane, how
good rankings were, and what is told where."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from app.core.metrics.measures import Measure
from app.web import shapes
from app.web.answers import Answer


class Problem(shapes.Shape):
    """What hurt an object for one reason: warnings of Kubernetes, and pods that fail. Of a pod its workload is named,
    where that is known."""

    cluster: str
    namespace: str | None
    kind: str
    name: str
    reason: str
    first_at: datetime
    last_at: datetime
    count: int


class Problems(Answer):
    """What hurt in a window, the most frequent first."""

    items: list[Problem]


class Move(shapes.Shape):
    """A line that was another one after a change: its means before and after, in ``unit``. ``who`` is the app or the
    caller, empty for the whole cluster; ``harm``: what rose is a failure, a delay or a load, or an app is not asked any
    more."""

    at: datetime
    title: str
    who: str
    unit: str
    before: float
    after: float
    harm: bool


class After(Answer):
    """What moved, and what hurt, within ten minutes after a change."""

    items: list[Move]
    looked_at: list[str] = Field(description="in what it was looked for: calls, metrics, requests of apps")
    problems: list[Problem]


class Panel(shapes.Shape):
    """One graph of a control plane; ``lines`` begin at ``start`` of the answer."""

    group: str
    title: str
    unit: str
    measure: Measure
    lines: list[shapes.Line]
    query: str = Field(description="asks the explorer the same, without the cluster and the time")


class ControlPlane(Answer):
    """The panels of a control plane of which anything is known in the window."""

    items: list[Panel]
    missing: list[str] = Field(description="titles of panels of which nothing is known")
    calls_left_out: bool = Field(description="calls are not looked at: the window is longer than a day")
    start: datetime
    step_seconds: float


class Share(shapes.Shape):
    """A share, with the 95 % interval that chance leaves it."""

    share: float
    low: float
    high: float


class Found(shapes.Shape):
    """In what share of ``cases`` the culprit was there, with the 95 % interval; null where there are no cases."""

    cases: int = Field(description="incidents of which it is known whether it was there")
    unnamed: int = Field(description="of these, those of which it is known only that it was not there")
    left_out: int = Field(description="others: nobody said what it was, and it may have been there")
    share: float | None
    low: float | None
    high: float | None


class Ranked(shapes.Shape):
    """Where the culprits stood, by ``when`` the ranking was made."""

    when: str
    first: Found
    among_three: Found


class Odds(shapes.Shape):
    """Of leaders that were said to be about as likely: how often that was right."""

    said: float
    cases: int
    right: Share


class SaidOf(shapes.Shape):
    """What one person said of one suspect; ``change_id`` null is "none of these", ``place`` where it stood at first."""

    incident_id: str
    title: str
    change_id: str | None
    name: str
    place: int | None
    opinion: str
    by: str
    at: datetime


class Accuracy(Answer):
    """How good rankings were here, by what people said of them."""

    items: list[SaidOf]
    judged: int = Field(description="incidents of which it is known what it was")
    without_culprit: int = Field(description="of these, those that no change began")
    none_led: int = Field(description='of those, the ones of which "none of these" led')
    unnamed: int = Field(description="further incidents, of which people said only what it was not")
    ranked: list[Ranked]
    odds: list[Odds]


class View(shapes.Shape):
    """A question of the explorer under a name; ``id`` null: it comes along."""

    id: int | None
    name: str
    query: str


class Views(Answer):
    """Saved views, those that come along first."""

    items: list[View]


class Undelivered(shapes.Shape):
    """A message that was given up, and why, with what to do. ``incident_id`` null: of changes; ``posted``: it is there,
    but not as it should be now; ``is_reply``: in a thread."""

    at: datetime = Field(description="when what it tells of began")
    message: str
    channel: str
    incident_id: str | None
    title: str
    is_reply: bool
    posted: bool
    error: str


class Late(shapes.Shape):
    """How many messages to a channel or a target are tried in vain for longer than a minute, the oldest since when, and
    why."""

    channel: str
    messages: int
    since: datetime
    why: str


class Deliveries(Answer):
    """How messages get through to Slack and other targets."""

    items: list[Undelivered]
    there: int
    waiting: int
    late: list[Late]


class QuietHours(shapes.Shape):
    """Hours of each day, as 22:00, in a time zone."""

    begins: str
    ends: str
    zone: str


class RouteTold(shapes.Shape):
    """One route of the file: what it ``tells`` in ``place``, a channel or a target (``of``: what sort), of what; empty
    is any. ``off`` says why the target is told nothing more, empty where it is; ``remarks`` what of the route can never
    come true, or not yet."""

    place: str
    of: str
    tells: list[str]
    clusters: list[str]
    namespaces: list[str]
    kinds: list[str]
    severities: list[str]
    labels: dict[str, str]
    quiet: QuietHours | None
    off: str
    remarks: list[str]


class Muted(shapes.Shape):
    """What somebody muted in a channel; an empty ``cluster``, ``namespace`` or ``kind`` is any: a ``name`` has
    both its ``kind`` and its ``api_group``, which is empty for the core group."""

    channel: str
    cluster: str
    namespace: str
    name: str
    api_group: str
    kind: str
    until: datetime
    said_by: str


class RoutesTold(Answer):
    """How Slack and other targets are told."""

    items: list[RouteTold]
    incidents: str | None = Field(description="the channel in which incidents are told, null for none")
    muted: list[Muted]
    file_error: str = Field(description="why the file of routes is not taken as it is now, else empty")


class Goes(shapes.Shape):
    """What one route does with a change: ``tells`` in ``place``, a channel or a target, unless ``why_not``; after
    ``quiet_until`` where that is not null, and not where ``muted_by`` somebody."""

    place: str
    tells: bool
    why_not: str
    quiet_until: datetime | None
    muted_by: str


class Routing(Answer):
    """Where a change or an incident goes, route by route."""

    items: list[Goes]
    places: list[str] | None = Field(description="who is told of an incident, in Slack one channel; null of a change")
    resource: shapes.Resource
    change_id: str | None
    never: str = Field(description="why no route tells of it, else empty")
