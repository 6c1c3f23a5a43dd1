"""Bodies of requests, read within bounds."""

from __future__ import annotations

from fastapi import Request

from app.web.problems import Problem

KIB, MIB = 1 << 10, 1 << 20


async def read_body(request: Request, *, most: int) -> bytes:
    """The body of a request. Raises Problem 413 once it is larger than ``most`` bytes, without reading the rest."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            size = f"{most // MIB} MiB" if most >= MIB else f"{most // KIB} KiB"
            raise Problem(413, f"the body is larger than {size}")
    return bytes(body)
