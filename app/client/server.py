"""REST as commands ask it: what is refused becomes an error in the server's own words, with what to do about it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from app.client.environment import TOKEN, TOKEN_FILE, URL
from app.client.transport import IN_ALL, PREFIX, WITHIN, Answer, Transport, UnreachableError
from app.core.changes.report import tame
from app.failures import Exit, Expected

JSON, TEXT, NDJSON, YAML = "application/json", "text/plain", "application/x-ndjson", "application/yaml"
PROBLEM = "application/problem+json"
PAGE = 1000
"""Items of a page, where all pages are read."""
_MOST_OF_A_REFUSAL = 10_000
"""Bytes of it that are read."""
_SAID_BY_ALL = frozenset({"freshness", "gaps"})
"""What each answer of REST says beside its content."""
_SAID = 300
"""Characters of what is refused in other words than ours that are told on."""


class RefusedError(Expected):
    """The server refuses what is asked; the message has its words. ``field`` is the parameter to blame, if any."""

    def __init__(self, message: str, *, status: int = 0, field: str = "") -> None:
        super().__init__(message)
        self.status, self.field = status, field


class DeniedError(RefusedError):
    """The token is not known there, or may not do this."""

    code = Exit.DENIED


class BusyError(RefusedError):
    """The server cannot answer now. ``retry_after`` is in seconds."""

    code = Exit.NOT_NOW
    retry_after: int = 5


class _Told(dict[str, Any]):
    """An object of an answer. Raises RefusedError, in words, where what is read of it is not there."""

    def __init__(self, members: Mapping[str, Any], where: str) -> None:
        super().__init__(members)
        self._where = where

    def __missing__(self, key: str) -> Any:
        raise _of_another(self._where, f"JSON without {key!r}")


class Server:
    """The REST interface of one Foreshock.

    Everything here raises UnreachableError, or RefusedError for an answer that is none.
    """

    def __init__(self, transport: Transport, *, silent: float = WITHIN, in_all: float = IN_ALL) -> None:
        self._transport, self._silent, self._in_all = transport, silent, in_all

    def json(self, *path: str, **asked: object) -> dict[str, Any]:
        """What is answered to a GET; ``asked`` are its parameters, of which None and "" are left out, and ``from_`` is
        called ``from``."""
        return self._object(self._get(path, asked, JSON))

    def text(self, *path: str, **asked: object) -> str:
        """The same, as a table or another text for a terminal."""
        return self._read(self._get(path, asked, TEXT))

    def yaml(self, *path: str, **asked: object) -> str:
        """The same, of what is YAML."""
        return self._read(self._get(path, asked, YAML))

    def pages(self, *path: str, **asked: object) -> Iterator[dict[str, Any]]:
        """The answers of a list, one page after the other, to its end."""
        after = None
        while True:
            page = self.json(*path, **asked, limit=PAGE, after=after)
            yield page
            after = page["next"]
            if after is None:
                return

    def lines(self, *path: str, silent: float, **asked: object) -> Iterator[dict[str, Any]]:
        """What stands in each line of an answer that does not end, until nothing comes for ``silent`` seconds."""
        answer = self._get(path, asked, NDJSON, silent=silent, in_all=None)
        return map(self._parsed, answer.lines())

    def send(self, method: str, *path: str, body: Mapping[str, object], key: str | None = None) -> dict[str, Any]:
        """The answer to a write, which ``key`` makes harmless to send again."""
        headers = {"Accept": JSON, "Content-Type": JSON, **({} if key is None else {"Idempotency-Key": key})}
        answer = self._transport.ask(
            method, _address(path), headers, json.dumps(body).encode(), silent=self._silent, in_all=self._in_all
        )
        return self._object(self._checked(answer, JSON))

    def only_cluster(self, named: str | None, *, called: str = "--cluster") -> str:
        """``named``, or the cluster there is, where there is one alone. Raises RefusedError, with the names, else.

        ``called`` is what it is named with."""
        if named:
            return named
        known = self.clusters()
        if len(known) == 1:
            return known[0]
        there_are = f"there are {', '.join(known)}" if known else "none is recorded yet"
        raise RefusedError(f"{called} says of which cluster: {there_are}", field="cluster")

    def clusters(self) -> list[str]:
        """The names of those that are known."""
        return [str(one["name"]) for one in self.json("clusters")["items"]]

    def _get(self, path: tuple[str, ...], asked: Mapping[str, object], kind: str, **limits: float | None) -> Answer:
        given: dict[str, Any] = {"silent": self._silent, "in_all": self._in_all, **limits}
        answer = self._transport.ask("GET", _address(path, asked), {"Accept": kind}, **given)
        return self._checked(answer, kind)

    def _checked(self, answer: Answer, kind: str) -> Answer:
        """The answer, if it is one of this media type."""
        if answer.status in (200, 201) and answer.kind == kind:
            return answer
        name, problem = self._transport.name, _problem(answer)
        said = tame(problem["detail"]).rstrip(".")
        if answer.status in range(300, 400):
            to = tame(answer.headers.get("location", "elsewhere"))
            raise RefusedError(
                f"{name} redirects to {to}, and no token is sent there: is that the {URL} that is meant?"
            )
        if answer.status == 401:
            raise DeniedError(
                f"{name} does not know the token: {said}. On the server, `foreshock token create --role viewer` makes"
                f" one; a file that {TOKEN_FILE} names holds it, or {TOKEN}",
                status=401,
            )
        if answer.status == 403:
            raise DeniedError(f"{name} refuses that: {said}", status=403)
        if answer.status == 429 or answer.status >= 500:
            busy = BusyError(f"{name} cannot answer now ({answer.status}): {said}", status=answer.status)
            after = answer.headers.get("retry-after", "")
            busy.retry_after = int(min(float(after), 60)) if after.isdecimal() else BusyError.retry_after
            raise busy
        if answer.kind == PROBLEM:
            raise RefusedError(said, status=answer.status, field=str(problem.get("field", "")))
        what = f"{answer.status}, {answer.kind or 'without a type'}"
        raise _of_another(name, what, status=answer.status)

    def _read(self, answer: Answer) -> str:
        """What is answered as a text: whole, as a manifest is applied as it is read."""
        try:
            return answer.body().decode()
        except UnicodeDecodeError:
            raise UnreachableError(f"what {self._transport.name} answers is no UTF-8: was it altered?") from None

    def _object(self, answer: Answer) -> dict[str, Any]:
        found = self._parsed(answer.body())
        if not found.keys() >= _SAID_BY_ALL:
            raise _of_another(self._transport.name, "JSON, and nothing of how fresh it is", status=answer.status)
        items = found.get("items", [])
        if not isinstance(items, list) or not all(isinstance(one, dict) for one in items):
            raise _of_another(self._transport.name, "JSON, whose 'items' are no list of objects", status=answer.status)
        return found

    def _parsed(self, text: bytes) -> dict[str, Any]:
        try:
            found = json.loads(text, object_hook=lambda members: _Told(members, self._transport.name))
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise UnreachableError(f"what {self._transport.name} answers is no JSON object: was it cut off?")
        return found


def _of_another(name: str, what: str, *, status: int = 0) -> RefusedError:
    return RefusedError(
        f"what is at {name} is no Foreshock, or something before it answers in its place: {what}. Is {URL} right?",
        status=status,
    )


def _problem(answer: Answer) -> dict[str, Any]:
    """What a refusal says: as REST does (RFC 9457), or in somebody else's words, in short."""
    body = b""
    for part in answer.parts:
        body += part
        if len(body) > _MOST_OF_A_REFUSAL:
            break
    if answer.kind == PROBLEM:
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = {}
        if isinstance(found, dict) and isinstance(found.get("detail"), str):
            return found
    words = " ".join(body.decode("utf-8", "replace").split())[:_SAID] if answer.kind == TEXT else ""
    return {"detail": words or f"it answers {answer.status}"}


def _address(path: tuple[str, ...], asked: Mapping[str, object] | None = None) -> str:
    given = {
        name.rstrip("_"): value if isinstance(value, str) else str(value)
        for name, value in (asked or {}).items()
        if value not in (None, "")
    }
    query = f"?{urlencode(given)}" if given else ""
    return "/".join([PREFIX, *(quote(part, safe="") for part in path)]) + query
