"""What carries a request to a Foreshock and its answer back: over HTTP, or within this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from app.failures import Exit, Expected

PREFIX = "/api/v1"
"""Where REST is, behind the URL of a Foreshock."""
WITHIN = 15.0
"""Seconds of silence after which nobody is there: while connecting, and before each part of an answer."""
IN_ALL = 60.0
"""Seconds that a whole answer may take."""


class UnreachableError(Expected):
    """Nobody answers, or not to the end; the message says where, why, and what to look at."""

    code = Exit.NOT_NOW


@dataclass(frozen=True, slots=True)
class Answer:
    """``kind`` is its media type, ``headers`` have names in small letters, ``parts`` are its body as it comes.

    To take a part may raise UnreachableError.
    """

    status: int
    kind: str
    headers: Mapping[str, str]
    parts: Iterator[bytes]

    def body(self) -> bytes:
        """All of it. Raises UnreachableError."""
        return b"".join(self.parts)

    def lines(self) -> Iterator[bytes]:
        """Line by line, as they come; what is left of a line that has no end is none. Raises UnreachableError."""
        left = b""
        for part in self.parts:
            *whole, left = (left + part).split(b"\n")
            yield from whole


class Transport(Protocol):
    """One Foreshock. ``name`` is what it is called to a person: its URL, mostly."""

    name: str

    def ask(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes = b"",
        *,
        silent: float = WITHIN,
        in_all: float | None = IN_ALL,
    ) -> Answer:
        """The answer to a request; ``path`` has its query with it. Raises UnreachableError.

        ``silent`` and ``in_all`` are seconds, as WITHIN and IN_ALL; ``in_all`` None: the answer need not end.
        """
        ...
