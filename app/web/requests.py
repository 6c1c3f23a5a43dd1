"""Bodies of requests, read within bounds: none before it is known who sends it, none for long, none unpacked."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any, TypeVar
from urllib.parse import parse_qs

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from app.core.objects.redact import decode
from app.web.problems import Problem

JSON = "application/json"
KIB, MIB = 1 << 10, 1 << 20
WITHIN_SECONDS = 10
"""So long a body may take: a sender of a megabyte has that by any line."""
M = TypeVar("M", bound=BaseModel)


async def read_body(request: Request, *, most: int) -> bytes:
    """The body of a request. Raises Problem 413 where it is larger than ``most`` bytes, without reading the rest, 415
    for one that is packed, and 408 where it takes too long: to senders 503, which they repeat."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem(415, "send the body as it is, without Content-Encoding")
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared) > most:
        raise _too_large(most)
    try:
        async with asyncio.timeout(WITHIN_SECONDS):
            return await read_all(request, most=most)
    except TimeoutError:
        status = 503 if request.url.path.startswith("/intake/") else 408
        raise Problem(status, f"the body did not come within {WITHIN_SECONDS} s") from None
    except ClientDisconnect:
        raise Problem(400, "the body ended before it was whole") from None


async def read_all(request: Request, *, most: int) -> bytes:
    """As ``read_body``, for who bounds the time and knows how it is packed."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise _too_large(most)
    return bytes(body)


def _too_large(most: int) -> Problem:
    size = f"{most // MIB} MiB" if most >= MIB else f"{most // KIB} KiB"
    return Problem(413, f"the body is larger than {size}")


async def read_form(request: Request, *needed: str) -> dict[str, str]:
    """The fields of a form. Raises as ``read_body``; Problem 400 for what is no form, 422 for a field that is told
    twice, or needed and missing."""
    body = await read_body(request, most=16 * KIB)
    try:
        told = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=10)
    except ValueError:
        raise Problem(400, "the body is not a form (application/x-www-form-urlencoded)") from None
    for field in (*needed, *told):
        if len(told.get(field, ())) != 1:
            raise Problem(422, f"{field} must be told once", field)
    return {field: values[0] for field, values in told.items()}


async def read_json(request: Request, model: type[M], *, most: int) -> M:
    """A JSON body that says that it is one: another site's page can send forms, and what says nothing, unasked.

    Raises as ``read_body``; Problem 415 for another type, 400 for what is no JSON, 422 for a name that stands in an
    object twice, of which one would be ignored; RequestValidationError for what is not as ``model`` says.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise Problem(415, f"send Content-Type: {JSON}")
    body = await read_body(request, most=most)
    try:
        found = decode(body)
        json.loads(body, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise Problem(400, "the body is not JSON") from None
    try:
        return model.model_validate(found)
    except ValidationError as error:
        mistakes = error.errors(include_url=False, include_input=False)
        raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in mistakes]) from None


def _once(pairs: list[tuple[str, Any]]) -> None:
    for name, times in Counter(name for name, _ in pairs).items():
        if times > 1:
            raise Problem(422, f"{name!r} stands in the body {times} times", name if name.isprintable() else None)
