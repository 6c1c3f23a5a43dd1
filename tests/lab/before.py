"""What was before an incident's own hour: days ago, or in a sibling cluster, with the alerts and the words of then."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from app.collect.shift import shift_times
from tests.lab import company
from tests.lab.alerts import Rule, payload
from tests.lab.api import KINDS, Answer, Json, now, stamp
from tests.lab.lab import Lab

TRIED = timedelta(days=30)
"""So long ago a sibling cluster's alerts were attached, which was tried with one."""


@dataclass
class Past:
    """A stretch of the time before, played on the same control plane: ``cluster`` is "" for the incident's own.

    It is told as if it had been ``ago``; what somebody said of a change of it is in ``said``.
    """

    lab: Lab
    cluster: str
    ago: timedelta
    start: datetime
    end: datetime = field(init=False)
    watched: list[str] = field(default_factory=list)
    alerts: Json | None = None
    said: list[tuple[Answer, str]] = field(default_factory=list)

    def see(self, at: str, kind: str, thing: Json) -> None:
        """Hear of an object."""
        self.watched.append(json.dumps({"at": at, "type": kind, "object": thing}))

    def judge(self, answer: Answer, opinion: Literal["it", "not it"]) -> None:
        """What people said of a change of it, of the incident that an alert began."""
        self.said.append((answer, opinion))

    async def fires(self) -> None:
        """Wait until an alert fires. Raises TimeoutError."""
        await self.lab.until(lambda: any(rule.fired for rule in self.lab.rules))

    async def is_well(self) -> None:
        """Wait until what alerts are about holds no longer, as somebody has mended it. Raises TimeoutError."""
        await self.lab.until(lambda: not any(rule.since for rule in self.lab.rules))

    def write(self, folder: Path, log: Sequence[str], named: Callable[[str], str], *, audit: bool) -> None:
        """``log`` are the lines of the whole audit log; ``named`` says what a webhook's Service is called."""
        begin, end = (f"{one:%Y-%m-%dT%H:%M:%S.%f}" for one in (self.start, self.end))
        events = {event["auditID"]: (event, line) for line in log for event in [json.loads(line)]}
        lines = [line for event, line in events.values() if begin <= event["requestReceivedTimestamp"] < end]
        verdicts = [{**_object(events[one.audit_id][0]), "opinion": opinion} for one, opinion in self.said]
        told: Json = {"cluster": self.cluster, "verdicts": verdicts}
        texts = {"watch.jsonl": self.watched, **({"audit.jsonl": lines} if audit else {})}
        folder.mkdir(parents=True, exist_ok=True)
        for name, kept in texts.items():
            moved = self._moved("".join(f"{named(line)}\n" for line in kept))
            (folder / f"{name}.gz").write_bytes(gzip.compress(moved, mtime=0))
        (folder / "past.json").write_bytes(self._moved(json.dumps(told, indent=1)))
        if self.alerts:
            (folder / "alerts.json").write_bytes(self._moved(json.dumps(self.alerts, indent=1)))

    def _moved(self, text: str) -> bytes:
        return shift_times(text.encode(), seconds=-int(self.ago.total_seconds()))


@asynccontextmanager
async def before(lab: Lab, *, days: float = 0, hours: float = 0, cluster: str = "") -> AsyncIterator[Past]:
    """What is done within is told as if it had been so long ago, in a sibling ``cluster`` or in the incident's own.

    The teams work meanwhile, rules are looked at, and all that is seen is kept; then the rules begin anew. Whoever
    plays it leaves all as it was, or as it should have been since.
    """
    past = Past(lab, cluster, timedelta(days=days, hours=hours), now())
    for thing in lab.world.everything():
        past.see(stamp(past.start), "ADDED", thing)
    heard, lab.world.told = lab.world.told, past.see
    work = [asyncio.create_task(company.work(lab)), asyncio.create_task(_look(lab))]
    try:
        yield past
    finally:
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        lab.world.told, past.end = heard, now()
    past.alerts = _over(lab, past)
    for rule in lab.rules:
        rule.forget()
    lab.past.append(past)


async def _look(lab: Lab) -> None:
    while True:
        await asyncio.sleep(1)
        for rule in lab.rules:
            rule.evaluate(now(), delay=0)


def _over(lab: Lab, past: Past) -> Json | None:
    """Whoever was called then was told that it was over; a sibling's alerts were tried once, long ago."""
    told = payload(lab.rules)
    if past.cluster and not told["alerts"]:
        told = payload([Rule("ReceiverTest", bool, {}, "is this read?", severity="info", fired=past.start - TRIED)])
    for alert in told["alerts"]:
        began = datetime.fromisoformat(alert["startsAt"])
        ended = past.end if began > past.start else began + timedelta(minutes=5)
        alert |= {"status": "resolved", "endsAt": ended.isoformat()}
    return {**told, "status": "resolved"} if told["alerts"] else None


def _object(event: Json) -> Json:
    """What a write was of, and when it was done."""
    meant = event["objectRef"]
    kind = next(one.name for one in KINDS.values() if one.plural == meant["resource"])
    name = meant.get("name") or event["responseObject"]["metadata"]["name"]
    return {"kind": kind, "namespace": meant.get("namespace"), "name": name, "at": event["stageTimestamp"]}
