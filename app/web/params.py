"""Query parameters as people write them: checked, named in the error when wrong, never ignored."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import Request
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)
from starlette.convertors import Convertor, register_url_convertor

from app.core.model import Verb
from app.core.objects.kind_names import called
from app.core.phrases import iso_duration
from app.core.screen.told_apart import BY, USUAL
from app.store.timeline import ChangeFilter
from app.web import cursors
from app.web.cursors import OLDEST, Listing
from app.web.problems import Problem

NEWEST = datetime(2100, 1, 1, tzinfo=UTC)
LONGEST = timedelta(days=400)


def _length(value: object, parsed: ValidatorFunctionWrapHandler) -> Any:
    """A length of time as people write it, or as ISO 8601 does."""
    try:
        return parsed(iso_duration(value) if isinstance(value, str) else value)
    except ValidationError:
        raise ValueError("must be a length of time like 30s, 30m, 2h or 1d") from None


def _iso_time(value: object) -> object:
    """Refuses numbers, which pydantic takes for seconds or milliseconds since 1970, by their size."""
    if isinstance(value, str) and not re.match(r"\d{4}-\d\d-\d\d[Tt ]", value):
        raise ValueError("must be ISO 8601 with a zone, like 2026-11-20T14:03:45Z")
    if isinstance(value, str) and re.search(r":\d\d(\.\d+)? \d\d:?\d\d$", value):
        raise ValueError("must have %2B for the + of its zone: in an address + is a space; Z is UTC")
    return value


def _thinkable(at: datetime) -> datetime:
    if not OLDEST <= at <= NEWEST:
        raise ValueError("must be between the years 2000 and 2100")
    return at.astimezone(UTC)


def _positive(duration: timedelta) -> timedelta:
    if not timedelta(0) < duration <= LONGEST:
        raise ValueError("must be more than nothing and at most 400 days")
    return duration


def blank(value: object) -> object:
    """An empty field of a form asks for nothing."""
    return None if value == "" else value


def _kind(word: str | None) -> str | None:
    return word and called(word)


def or_empty(schema: dict[str, Any]) -> None:
    """Says of a parameter that goes through ``blank`` that it may be empty."""
    schema["anyOf"].append({"type": "string", "const": ""})


def printable(text: str) -> str:
    if "\x00" in text:
        raise ValueError("must not hold the character U+0000")
    return text


Time = Annotated[AwareDatetime, BeforeValidator(_iso_time), AfterValidator(_thinkable)]
Duration = Annotated[timedelta, WrapValidator(_length), AfterValidator(_positive)]
Text = Annotated[str, Field(max_length=253), AfterValidator(printable)]
Limit = Annotated[int, Field(ge=1, le=1000)]
SINCE = rf"^[0-9a-f]{{1,10}}(_[0-9a-f]{{1,7}}\.[0-9a-f]{{1,15}}\.[0-9a-f]{{1,7}})*(~{cursors.PATTERN[1:-1]})?$"
WATCHED = 100
"""Incidents of which who follows is told what becomes of them: the newest."""
INCIDENTS_SINCE = rf"^[0-9a-f]{{1,10}}_([0-9a-f]{{8}}){{0,{WATCHED}}}$"
After = Annotated[
    str | None,
    Field(max_length=64, description="``next`` of the page before"),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": cursors.PATTERN}, {"type": "null"}]}),
]


def _mark(pattern: str) -> AfterValidator:
    """Refuses in words what is no ``after`` of a line of what is followed."""

    def checked(text: str | None) -> str | None:
        if text is not None and not re.fullmatch(pattern, text):
            raise ValueError("must be the after of a line that was read: begin again without since")
        return text

    return AfterValidator(checked)


class Asked(BaseModel):
    """Parameters of a request: one that is not listed is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Window(Asked):
    """A cluster and a time; both may be left out."""

    cluster: Annotated[Text | None, BeforeValidator(blank)] = Field(None, description="a cluster's name; all clusters")
    from_at: Annotated[Time | None, BeforeValidator(blank)] = Field(
        None, alias="from", description="ISO 8601 with a zone; included", json_schema_extra=or_empty
    )
    to_at: Annotated[Time | None, BeforeValidator(blank)] = Field(
        None, alias="to", description="not included", json_schema_extra=or_empty
    )

    def check(self, now: datetime) -> None:
        """Raises Problem when the window is empty or too long; one without an end goes on until ``now``."""
        if self.from_at is None:
            return
        if self.to_at is not None and self.from_at >= self.to_at:
            raise Problem(422, "from must be before to", "from")
        if (self.to_at or now) - self.from_at > LONGEST:
            raise Problem(422, "from is more than 400 days before to, or before now where there is no to", "from")


class ChangesAsked(Window):
    """Which changes: complete in the address, so that it can be shared."""

    namespace: Annotated[Text | None, BeforeValidator(blank)] = None
    kind: Annotated[Text | None, BeforeValidator(blank), AfterValidator(_kind)] = Field(None, examples=["Deployment"])
    actor: Annotated[Text | None, BeforeValidator(blank)] = Field(None, examples=["alice@example.com"])
    verb: Annotated[Verb | None, BeforeValidator(blank)] = Field(None, json_schema_extra=or_empty)
    text: Annotated[Text | None, BeforeValidator(blank)] = Field(
        None, description="looked for in the summary, which names the object"
    )
    derived: str = Field("hidden", pattern="^(hidden|shown)$", description="controllers' edits made because of another")

    def filter(self, now: datetime) -> ChangeFilter:
        """The same, as the store asks. Raises Problem for an empty or overlong window."""
        self.check(now)
        return ChangeFilter(**self.model_dump(include=set(ChangeFilter.__dataclass_fields__)))

    @property
    def listing(self) -> Listing:
        """Where it goes on, on pages and in REST."""
        verb = self.verb and self.verb.value
        of = (self.cluster, self.namespace, self.kind, self.actor, verb, self.text, self.derived)
        return Listing("changes", of)


class ChangesPage(ChangesAsked):
    """A page of them."""

    after: After = None
    limit: Limit = 100


class ChangesFollowed(ChangesPage):
    """A page of them; or, with ``follow``, those that are recorded from then on, too."""

    follow: bool = Field(False, description="goes on with each change as it is recorded, a line each")
    since: Annotated[str | None, Field(max_length=8000), _mark(SINCE)] = Field(
        None,
        description="with follow: ``after`` of the last line that was read",
        json_schema_extra={"pattern": SINCE},
    )

    def check_following(self) -> None:
        """Raises Problem where pages and following are mixed."""
        _check_following(follow=self.follow, since=self.since, after=self.after)


def _check_following(*, follow: bool, since: str | None, **of_pages: str | None) -> None:
    for name, value in of_pages.items():
        if follow and value is not None:
            raise Problem(422, f"{name} is of pages: leave it out with follow, which goes on from since", name)
    if not follow and since is not None:
        raise Problem(422, "since is of what is followed: with follow=1, or after without", "since")


class RolloutsPage(Window):
    """Rollouts of a window; the newest day when no time is given."""

    after: After = None
    limit: Limit = 100


class HistoryPage(Asked):
    """A page of one object's changes."""

    after: After = None
    limit: Limit = 100


class IncidentsPage(Asked):
    """Incidents, newest first."""

    cluster: Annotated[Text | None, BeforeValidator(blank)] = None
    status: str | None = Field(None, pattern="^(open|resolved|suspected|merged)$")
    after: After = None
    limit: Limit = 100


class IncidentsFollowed(IncidentsPage):
    """A page of them; or, with ``follow``, what becomes of them from then on, too."""

    follow: bool = Field(
        False, description="goes on with each that is opened, ends or is ranked otherwise, a line each"
    )
    since: Annotated[str | None, Field(max_length=1000), _mark(INCIDENTS_SINCE)] = Field(
        None,
        description="with follow: ``after`` of the last line that was read",
        json_schema_extra={"pattern": INCIDENTS_SINCE},
    )

    def check_following(self) -> None:
        """Raises Problem where pages and following are mixed."""
        _check_following(follow=self.follow, since=self.since, after=self.after, status=self.status)


class Before(Asked):
    """The time before a moment; now when it is left out."""

    at: Time | None = Field(None, description="ISO 8601 with a zone; now")
    minus: Duration = Field(timedelta(minutes=30), description="30s, 30m, 2h, 1d or ISO 8601", examples=["30m"])


class WhatChanged(Before):
    """What changed before a moment."""

    cluster: Annotated[Text | None, BeforeValidator(blank)] = Field(None, description="a cluster's name; all clusters")
    namespace: Text | None = None
    format: str | None = Field(
        None, pattern="^(text|json)$", description="text is made for a terminal: 20 lines of 80; else as Accept says"
    )


_BY = f"({'|'.join(BY)})"
_ALL_BY = f"^{_BY}(,{_BY}){{0,{len(BY) - 1}}}$"


def _told_apart(by: str) -> str:
    """What tells calls apart. Raises ValueError, with all that can."""
    if not re.fullmatch(_ALL_BY, by):
        raise ValueError(f"must be one of {', '.join(BY)}, or several with commas and no spaces between")
    return by


class CallsAsked(Before):
    """Callers of one cluster."""

    cluster: Text = Field(examples=["demo"])
    minus: Duration = Field(timedelta(minutes=5), description="the time that counts as now")
    resource: Annotated[Text | None, BeforeValidator(blank)] = Field(
        None,
        description="only calls of this resource, as kubectl names it: pods, deploy, pods/status, deployments.apps",
        examples=["pods"],
    )
    by: Annotated[str, AfterValidator(_told_apart)] = Field(
        ",".join(USUAL),
        json_schema_extra={"pattern": _ALL_BY},
        description="what to tell calls apart by, with commas; the others are added up",
        examples=["user,pod,code"],
    )
    order: str = Field(
        "calls", pattern="^(calls|latency)$", description="whose number, or whose summed latency, rose most"
    )
    limit: Limit = 20


class NoParameters(Asked):
    """An address without parameters."""


def once(request: Request) -> None:
    """Refuses a parameter that is given twice: one of the two would be ignored."""
    for name, times in Counter(name for name, _ in request.query_params.multi_items()).items():
        if times > 1:
            raise Problem(422, f"{name} is given {times} times", name)


class _Rest(Convertor[str]):
    """The rest of a path, whatever it is: names of external changes hold slashes. (``path`` ends at a newline.)"""

    regex = r"[\s\S]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("rest", _Rest())
