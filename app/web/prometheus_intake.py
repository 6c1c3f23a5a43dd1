"""POST /intake/prometheus/{cluster}: where Prometheus' remote-write sends to. Answered once it is committed.

Prometheus repeats what is answered with 5xx and drops what is answered with 4xx.
"""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Depends, Request
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from app.web.auth import NeedsCluster
from app.web.deps import NoRoomError, TooLargeError, deps_of
from app.web.guard import OF_METRICS
from app.web.problems import Problem
from app.web.requests import read_all

LIMIT = 12 << 20
"""Of the packed body; what it may be unpacked is said by who takes it."""
WITHIN_SECONDS = 30
"""As Prometheus itself waits: remote_timeout, by default."""
PROTO = "application/x-protobuf"
router = APIRouter(include_in_schema=False, dependencies=[Depends(NeedsCluster())])


@router.post(OF_METRICS + "{cluster}", status_code=204)
async def remote_write(request: Request, cluster: str) -> Response:
    """Stores the samples of a WriteRequest (remote-write 1.0); 204 when they are committed.

    400 says what was left out of it: all else is stored.
    """
    _refuse_others(request.headers)
    try:
        async with asyncio.timeout(WITHIN_SECONDS):
            body = await read_all(request, most=LIMIT)
        await deps_of(request).take_samples(cluster, body)
    except TooLargeError as error:
        raise Problem(413, str(error)) from None
    except NoRoomError as error:
        raise Problem(503, str(error)) from None
    except ValueError as error:
        raise Problem(400, str(error)) from None
    except TimeoutError:
        raise Problem(503, f"the body did not come within {WITHIN_SECONDS} s") from None
    except ClientDisconnect:
        raise Problem(400, "the body ended before it was whole") from None
    return Response(status_code=204)


def _refuse_others(sent: Headers) -> None:
    """Raises Problem 415 for what is not remote-write 1.0: then Prometheus knows that 2.0 is not spoken here."""
    kind, *parameters = (part.strip().lower() for part in sent.get("content-type", "").split(";"))
    proto = next((one.removeprefix("proto=") for one in parameters if one.startswith("proto=")), "")
    version = sent.get("x-prometheus-remote-write-version", "0.1.0")
    if proto not in {"", "prometheus.writerequest"} or not version.startswith("0.1."):
        raise Problem(415, "this is remote-write 2.0, and 1.0 is taken: set protobuf_message: prometheus.WriteRequest")
    if kind != PROTO:
        raise Problem(415, f"send Content-Type: {PROTO}")
    if sent.get("content-encoding", "").lower() != "snappy":
        raise Problem(415, "send Content-Encoding: snappy, one block of it")
