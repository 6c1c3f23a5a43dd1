"""POST /intake/audit/{cluster}: where kube-apiserver's audit webhook sends to. Answered before anything is read of it.

The API server repeats whatever is not answered with 200, a 4xx too, and then drops a whole batch: what is wrong in a
body is therefore no matter of this answer.
"""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Depends, Request
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from app.web.auth import NeedsCluster
from app.web.deps import NoRoomError, TooLargeError, deps_of
from app.web.guard import OF_CLUSTERS
from app.web.problems import Problem

WITHIN_SECONDS = 30
"""kube-apiserver itself gives a request up after 30 s."""
RETRY_AFTER_SECONDS = 1
"""The API server holds in memory what waits: short pauses, while the spool is full."""
router = APIRouter(include_in_schema=False, dependencies=[Depends(NeedsCluster())])


@router.post(OF_CLUSTERS + "{cluster}")
async def audit(request: Request, cluster: str) -> Response:
    """Puts an EventList (audit.k8s.io/v1) into the cluster's spool; 200 when it is on the disk."""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise Problem(415, "send the body as it is, without Content-Encoding: no API server packs what it audits")
    try:
        async with asyncio.timeout(WITHIN_SECONDS):
            await deps_of(request).take_audit(cluster, request.stream(), _declared(request))
    except TooLargeError as error:
        raise Problem(413, f"{error}: set --audit-webhook-truncate-enabled=true (docs/audit-webhook.md)") from None
    except NoRoomError as error:
        raise Problem(503, str(error), retry_after=RETRY_AFTER_SECONDS) from None
    except TimeoutError:
        raise Problem(408, f"the body did not come within {WITHIN_SECONDS} s") from None
    except ClientDisconnect:
        raise Problem(400, "the body ended before it was whole") from None
    return JSONResponse({"status": "taken"})


def _declared(request: Request) -> int:
    """The body's bytes as its head says; 0 where it does not."""
    said = request.headers.get("content-length", "")
    return int(said) if said.isascii() and said.isdigit() else 0
