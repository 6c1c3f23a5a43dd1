"""Who wants what an API server tells of itself is told, once a minute; nobody asks for what nobody wants."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest

from app.collect.api_metrics import EVERY, FIRST, REMARK, UNREADABLE, ApiMetrics
from app.collect.apiserver import CredentialsError, RefusedError, UnreachableError
from app.collect.scrape import UnreadableError
from app.collect.watch import Pace
from tests.collect.test_importer import T0

ADDRESS = "https://10.0.0.1:6443"


class Answers:
    """An API server whose /metrics says one thing after the other, and the clock that a look moves on by a minute."""

    url = ADDRESS

    def __init__(self, *said: bytes | Exception) -> None:
        self._said = iter(said)
        self.now = T0
        self.asked = 0

    async def connect(self) -> Any:
        return self

    async def close(self) -> None:
        pass

    async def get(self, path: str, _query: object, *, accept: str) -> bytes:
        assert (path, accept) == ("/metrics", "text/plain")
        self.asked += 1
        found = next(self._said)
        if isinstance(found, Exception):
            raise found
        return found

    def pace(self, looks: int) -> Pace:
        left = iter(range(looks))

        async def sleep(wait: timedelta) -> None:
            if next(left, None) is None:
                raise asyncio.CancelledError
            self.now += wait

        return Pace(clock=lambda: self.now, sleep=sleep)


@dataclass
class Listener:
    is_wanted: bool = True
    heard: list[tuple[str, datetime]] = field(default_factory=list)

    async def take(self, text: bytes, address: str, at: datetime) -> None:
        assert address == ADDRESS
        self.heard.append((text.decode(), at))

    async def miss(self, at: datetime) -> None:
        self.heard.append(("", at))


class Puzzled(Listener):
    """Who understands what is told a second time."""

    async def take(self, text: bytes, address: str, at: datetime) -> None:
        await super().take(text, address, at)
        if len(self.heard) == 1:
            raise UnreadableError("not Prometheus' text")


async def looked(answers: Answers, *listeners: Listener, looks: int) -> ApiMetrics:
    asking = ApiMetrics(answers.connect, *listeners, pace=answers.pace(looks))
    with pytest.raises(asyncio.CancelledError):
        await asking.run()
    return asking


async def test_who_wants_to_know_is_told_also_that_nobody_answered() -> None:
    wants, does_not = Listener(), Listener(is_wanted=False)
    await looked(Answers(b"a 1", UnreachableError("away"), CredentialsError("none"), b"a 2"), wants, does_not, looks=4)
    assert wants.heard == [(said, T0 + FIRST + n * EVERY) for n, said in enumerate(("a 1", "", "", "a 2"))]
    assert not does_not.heard


async def test_nothing_is_asked_for_where_nobody_wants_it() -> None:
    answers = Answers()
    await looked(answers, Listener(is_wanted=False), looks=3)
    assert answers.asked == 0


async def test_who_may_not_look_is_told_so_until_he_may() -> None:
    refused = Answers(UnreachableError("away"), RefusedError(403, "forbidden"))
    assert (await looked(refused, Listener(), looks=2)).remarks == (REMARK,)
    mended = Answers(RefusedError(403, "forbidden"), b"")
    assert (await looked(mended, Listener(), looks=2)).remarks == ()


async def test_what_cannot_be_read_is_a_remark_and_ends_nothing() -> None:
    puzzled, other = Puzzled(), Listener()
    once = await looked(Answers(b"a 1"), puzzled, other, looks=1)
    assert once.remarks == (f"{UNREADABLE}: not Prometheus' text",)
    assert (await looked(Answers(b"a 2"), puzzled, looks=1)).remarks == ()
    assert len(other.heard) == 1
