"""Errors in words: problem+json (RFC 9457) for programs, the same sentence on a page for people."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

import orjson
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import DBAPIError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from app.core.phrases import refusal
from app.store.called import UnknownResourceError
from app.store.database import UNAVAILABLE
from app.store.namespaces import UnknownNamespaceError
from app.store.seen import UnknownClusterError
from app.web import headers, numbered, templates
from app.web.deps import deps_of
from app.web.unanswered import unanswered

_CHOICE = re.compile(r"\^\((\w+(?:\|\w+)+)\)\$")
"""A pattern that is nothing but words of which one is to be chosen."""
HEADINGS = {
    400: "This address cannot be read",
    401: "You are not signed in",
    403: "You may not do this",
    404: "Not found",
    409: "Something else is in the way",
    412: "It was changed since",
    422: "This request cannot be answered",
    429: "Too much at once",
    500: "Something broke",
    503: "Not at the moment",
}
"""What a person reads above the sentence; programs get HTTP's own phrase."""
_UNKNOWN: dict[type[Exception], tuple[int, str]] = {
    UnknownClusterError: (404, "cluster"),
    UnknownNamespaceError: (404, "namespace"),
    UnknownResourceError: (422, "resource"),
}
"""What names something that is not known: the status it is answered with, and the parameter."""


@dataclass(slots=True)
class Problem(Exception):  # noqa: N818 - RFC 9457 calls it a problem
    """A request that cannot be answered as asked. ``field`` names the parameter that is to blame.

    ``retry_after`` is in seconds, of a 429 and a 503. ``onward`` is the address of a page where it can be done.
    """

    status: int
    detail: str
    field: str | None = None
    retry_after: int = 5
    onward: str = ""

    @property
    def is_passing(self) -> bool:
        """Whether the same may be answered later."""
        return self.status in (429, 503)


def described(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """These answers for an OpenAPI description, each a problem."""
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {
                "application/problem+json": {
                    "schema": {
                        "type": "object",
                        "required": ["type", "title", "status", "detail", "request_id"],
                        "properties": {
                            "type": {"type": "string"},
                            "title": {"type": "string"},
                            "status": {"type": "integer"},
                            "detail": {"type": "string"},
                            "field": {"type": "string"},
                            "request_id": {"type": "string"},
                        },
                    }
                }
            },
        }
        for status in statuses
    }


def wants_json(scope: Scope) -> bool:
    """Programs ask under /api/ and the health checks, and for the figures of a graph; everything else is a page, as is
    what a browser is to show."""
    path = scope["path"]
    if path == "/explore" and "text/html" not in Headers(scope=scope).get("accept", ""):
        asked = parse_qs(scope["query_string"].decode("latin-1"))
        return not {"csv", "json"}.isdisjoint(asked.get("format", ()))
    return path.startswith(("/api/", "/intake/")) or path in {"/healthz", "/readyz", "/openapi.json"}


def members(problem: Problem, request_id: str) -> dict[str, object]:
    """A problem of this request, as RFC 9457 names its parts."""
    title = HTTPStatus(problem.status).phrase
    found = {"type": "about:blank", "title": title, "status": problem.status, "detail": problem.detail}
    if problem.field is not None:
        found["field"] = problem.field
    return found | {"request_id": request_id}


def note(problem: Problem, request_id: str) -> None:
    """Of what is no fault of who asks the log tells. What is wrong with a field may repeat what was asked."""
    if problem.status == 503:
        unanswered.note(request_id, problem.field or problem.detail)


def answer(problem: Problem, scope: Scope) -> Response:
    """The problem as the asker can read it."""
    title = HTTPStatus(problem.status).phrase
    note(problem, numbered.id_of(scope))
    if not wants_json(scope):
        response: Response = templates.page(
            "error.html",
            problem.status,
            heading=HEADINGS.get(problem.status, title),
            title=title,
            problem=problem,
            is_sent=scope["method"] not in ("GET", "HEAD"),
            request_id=numbered.id_of(scope),
        )
    else:
        response = Response(
            orjson.dumps(members(problem, numbered.id_of(scope))), problem.status, media_type="application/problem+json"
        )
    if problem.status == 401:
        response.headers["www-authenticate"] = "Bearer"
    if problem.is_passing:
        response.headers["retry-after"] = str(problem.retry_after)
    return response


def _of_validation(error: RequestValidationError) -> Problem:
    first = error.errors()[0]
    return mistyped(first, ".".join(str(step) for step in first["loc"][1:]) or None)


def mistyped(first: Mapping[str, Any], field: str | None) -> Problem:
    """What pydantic finds wrong with a field, in words; without one, with the body."""
    if first["type"] == "extra_forbidden":
        return Problem(422, f"there is no parameter {field!r}", field)
    said = _in_words(first)
    if field is None:
        return Problem(422, "the body is no JSON object" if first["type"] == "model_type" else f"the body {said}")
    return Problem(422, f"{field}: {said}", field)


def _in_words(first: Mapping[str, Any]) -> str:
    """What is wrong with a value, in words and not in patterns: what is one of several is named."""
    if first["type"] == "missing":
        return "must be given"
    choice = _CHOICE.fullmatch(str(first.get("ctx", {}).get("pattern", "")))
    if choice is None:
        return refusal(first["msg"])
    *others, last = (repr(one) for one in choice[1].split("|"))
    return f"must be {', '.join(others)} or {last}"


def of_database(error: Exception) -> Problem:
    """What is UNAVAILABLE, in words."""
    state = getattr(error.orig, "sqlstate", "") if isinstance(error, DBAPIError) else ""
    if state == "57014":
        return Problem(503, "this took longer than the database may take: ask for a shorter time or fewer things")
    if state == "25006":
        return Problem(503, "the database takes no writes at the moment; nothing is lost, try again shortly")
    return Problem(503, "the database cannot be reached at the moment; nothing is lost, try again shortly")


def _of_http(error: HTTPException) -> Problem:
    if error.status_code == 404:
        return Problem(404, "there is nothing at this address")
    if error.status_code == 405:
        return Problem(405, "this address does not take that method")
    return Problem(error.status_code, str(error.detail))


def install(app: FastAPI) -> None:
    """Every expected failure gets its words; a bug stays a bug and answers 500 without its insides."""

    async def problem(request: Request, error: Exception) -> Response:
        if isinstance(error, RequestValidationError):
            found = _of_validation(error)
        elif isinstance(error, HTTPException):
            found = _of_http(error)
        elif isinstance(error, Problem):
            found = error
        elif type(error) in _UNKNOWN:
            status, field = _UNKNOWN[type(error)]
            found = Problem(status, str(error), field)
        else:
            found = of_database(error)
        response = answer(found, request.scope)
        if isinstance(error, HTTPException) and error.headers:
            response.headers.update(error.headers)
        if response.headers.get("allow") == "GET":
            response.headers["allow"] = "GET, HEAD"  # which web.head makes of every GET
        return response

    async def bug(request: Request, _error: Exception) -> Response:
        response = answer(
            Problem(500, "this is a fault of ours; the log says more, with this request's id"), request.scope
        )
        response.headers.update(headers.of(deps_of(request).public_url))  # the guard is passed by
        response.headers[numbered.HEADER] = numbered.id_of(request.scope)
        return response

    of_ours: tuple[type[Exception], ...] = (Problem, *_UNKNOWN, RequestValidationError, HTTPException)
    for expected in (*of_ours, *UNAVAILABLE):
        app.add_exception_handler(expected, problem)
    app.add_exception_handler(Exception, bug)
