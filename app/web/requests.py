"""Bodies of requests, read within bounds."""

from __future__ import annotations

from typing import TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from app.core.objects.redact import decode
from app.web.problems import Problem

KIB, MIB = 1 << 10, 1 << 20
M = TypeVar("M", bound=BaseModel)


async def read_body(request: Request, *, most: int) -> bytes:
    """The body of a request. Raises Problem 413 once it is larger than ``most`` bytes, without reading the rest."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            size = f"{most // MIB} MiB" if most >= MIB else f"{most // KIB} KiB"
            raise Problem(413, f"the body is larger than {size}")
    return bytes(body)


def parsed(body: bytes, model: type[M]) -> M:
    """A JSON body. Raises Problem 400 for what is none, RequestValidationError for what is not as ``model`` says."""
    try:
        found = decode(body)
    except ValueError:
        raise Problem(400, "the body is not JSON") from None
    try:
        return model.model_validate(found)
    except ValidationError as error:
        mistakes = error.errors(include_url=False, include_input=False)
        raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in mistakes]) from None
