"""What a sender tells of an external change: how it must be, in words, and as a JSON schema."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Annotated, Any, Self, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from app.core.changes import external
from app.core.clusters import LONGEST, cluster_name
from app.core.model import Verb
from app.web import params
from app.web.problems import Problem

FIELDS = 100
"""More fields than this are no change that a person can read."""
LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
"""What a namespace may be called: RFC 1123, as Kubernetes has it."""


def like(pattern: str, words: str, **more: Any) -> Any:
    """A string of this pattern; ``words`` say what else is refused."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(words)
        return text

    return Annotated[str, Field(json_schema_extra={"pattern": f"^{pattern}$"}, **more), AfterValidator(check)]


def line(text: str) -> str:
    """The text, if it is a line that says something. Raises ValueError."""
    if not text.strip() or not text.isprintable():
        raise ValueError("must be one line that can be printed, and hold more than spaces")
    return text


def written(value: object) -> object:
    """A time as it is written, for what reads it. Raises ValueError for a number."""
    if not isinstance(value, str):
        raise ValueError("must be ISO 8601 with a zone, like 2026-11-20T14:03:45Z")  # noqa: TRY004 - pydantic's way
    return value


def _of(parse: Callable[[str], object]) -> AfterValidator:
    """The text as it is, if it can be read so."""

    def check(text: str) -> str:
        parse(text)
        return text

    return AfterValidator(check)


_T = TypeVar("_T")
_Optional = Annotated[_T | None, BeforeValidator(params.blank)]
"""Templates write an empty string for what they do not know."""


def _optional(description: str) -> Any:
    return Field(None, description=description, json_schema_extra=params.or_empty)


class _Told(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Where(_Told):
    """What an external change touches."""

    cluster: _Optional[Annotated[str, Field(max_length=LONGEST), AfterValidator(cluster_name)]] = _optional(
        "the cluster that it touches; every one, or the token's own"
    )
    namespace: _Optional[
        like(LABEL, "must be the name of a namespace")  # type: ignore[valid-type]
    ] = _optional("the namespace that it touches")
    workload: _Optional[
        like(  # type: ignore[valid-type]
            rf"(?=.{{1,253}}$){LABEL}(?:\.{LABEL})*", "must be the name of a workload, like checkout-api"
        )
    ] = _optional("the Deployment, StatefulSet, ... of that namespace that it touches")

    @model_validator(mode="after")
    def _is_somewhere(self) -> Self:
        if self.workload is not None and self.namespace is None:
            raise ValueError("a workload is found by its namespace: say that too")
        return self


class ToldField(_Told):
    """One field before and after; what was not there before has no ``old``, what is gone has no ``new``."""

    path: Annotated[str, Field(min_length=1, max_length=300, examples=["rules[0].rollout"]), _of(external.path_of)]
    old: Any = None
    new: Any = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.old is None and self.new is None:
            raise ValueError("a field needs old, new or both")
        return self


class ToldChange(Where):
    """A change that Kubernetes does not see."""

    source: like(  # type: ignore[valid-type]
        "[a-z0-9](?:[a-z0-9.-]{0,38}[a-z0-9])?",
        "must be 1 to 40 small letters, digits, dots and dashes, like launchdarkly",
        description="who tells of it",
        examples=["launchdarkly"],
    )
    kind: like(  # type: ignore[valid-type]
        "[a-z](?:[a-z0-9 _-]{0,38}[a-z0-9])?",
        "must be 1 to 40 small letters, digits, spaces and dashes, like feature flag",
        description="what sort of thing was changed",
        examples=["feature flag"],
    )
    name: Annotated[
        str,
        Field(min_length=1, max_length=253, description="which one", examples=["new-checkout"]),
        AfterValidator(line),
    ]
    verb: Verb = Field(Verb.UPDATE, description="what was done to it")
    at: _Optional[Annotated[params.Time, BeforeValidator(written)]] = _optional("when, as ISO 8601 with a zone; now")
    actor: _Optional[Annotated[str, Field(max_length=253), AfterValidator(line)]] = _optional("who did it; the source")
    summary: _Optional[Annotated[str, Field(max_length=1000)]] = _optional(
        "what was done, in a line: what is longer than 120 characters is cut"
    )
    url: _Optional[
        like(  # type: ignore[valid-type]
            r"https?://[^\s/?#]+[^\s]*", "must begin with http:// or https:// and hold no space", max_length=2000
        )
    ] = _optional("where more of it can be read")
    fields: list[ToldField] = Field([], max_length=FIELDS, description="what of it changed")

    def noun(self) -> external.External:
        """The same as core has it."""
        return external.External(
            source=self.source,
            kind=self.kind,
            name=self.name,
            verb=self.verb,
            cluster=self.cluster,
            namespace=self.namespace,
            workload=self.workload or "",
            at=self.at,
            actor=self.actor or "",
            summary=self.summary or "",
            url=self.url or "",
            fields=tuple(external.field(one.path, one.old, one.new) for one in self.fields),
        )


def check_time(at: datetime, *, now: datetime, kept: timedelta) -> None:
    """Raises Problem for a time that is to come, or that is older than what is kept."""
    if at > now + external.AHEAD:
        minutes = external.AHEAD // timedelta(minutes=1)
        raise Problem(422, f"at: it is more than {minutes} minutes ahead of our clock; is the sender's right?", "at")
    if at < now - kept:
        raise Problem(422, f"at: changes are kept for {kept.days} days, and this is older", "at")


def schema(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of a body, in one piece."""
    whole = model.model_json_schema()
    defined = whole.pop("$defs", {})

    def resolved(part: Any) -> Any:
        if isinstance(part, list):
            return [resolved(one) for one in part]
        if not isinstance(part, dict):
            return part
        if "$ref" in part:
            rest = {key: value for key, value in part.items() if key != "$ref"}
            return resolved(defined[part["$ref"].rpartition("/")[2]]) | rest
        return {key: resolved(value) for key, value in part.items()}

    return dict(resolved(whole))
