"""Which time a graph shows, as its address says it: two ends, or how long before now or before its end."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from app.core.screen.axis import Axis
from app.web import params
from app.web.problems import Problem

USUAL = timedelta(hours=1)
RANGES = {"15m": "15 min", "1h": "1 h", "6h": "6 h", "1d": "1 day", "7d": "7 days"}
"""Lengths of time that are one click away."""


class Range(params.Asked):
    """From ``from`` to ``to``; where one of them is missing, ``minus`` before ``to``, which is else now."""

    from_at: Annotated[params.Time | None, BeforeValidator(params.blank)] = Field(
        None, alias="from", description="ISO 8601 with a zone; minus before to", json_schema_extra=params.or_empty
    )
    to_at: Annotated[params.Time | None, BeforeValidator(params.blank)] = Field(
        None, alias="to", description="now", json_schema_extra=params.or_empty
    )
    minus: Annotated[params.Duration | None, BeforeValidator(params.blank)] = Field(
        None, description="30m, 2h, 1d: instead of from; an hour", examples=["30m"], json_schema_extra=params.or_empty
    )

    def axis(self, now: datetime) -> Axis:
        """The window. Raises Problem for one that is empty, too long, or told twice."""
        if self.from_at is not None and self.minus is not None:
            raise Problem(422, "from and minus both say where it begins: leave one out", "minus")
        to_at = self.to_at or whole_second(now)
        from_at = self.from_at or to_at - (self.minus or USUAL)
        if from_at >= to_at:
            raise Problem(422, "from must be before to", "from")
        if to_at - from_at > params.LONGEST:
            raise Problem(422, "the time between from and to is longer than 400 days", "to")
        return Axis(from_at, to_at)

    def named(self, text: str | None) -> dict[str, Any]:
        """What the address says of the time; ``text`` is ``minus`` as it was written."""
        return {"from": self.from_at, "to": self.to_at, "minus": text}


def whole_second(at: datetime) -> datetime:
    """The next one, which people can read and write: nothing that is there by now lies behind it."""
    return at if not at.microsecond else at.replace(microsecond=0) + timedelta(seconds=1)


def beside(axis: Axis, now: datetime) -> dict[str, dict[str, datetime] | None]:
    """The windows of the same length before and after; the later one is None where it would lie in the future."""
    length = axis.to_at - axis.from_at
    later = {"from": axis.to_at, "to": axis.to_at + length}
    return {
        "earlier": {"from": axis.from_at - length, "to": axis.from_at},
        "later": later if axis.to_at < now else None,
    }
