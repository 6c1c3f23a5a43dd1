"""POST /api/v1/changes: what Kubernetes does not see, told by those who know. The same request twice is one change."""

from __future__ import annotations

import secrets

from fastapi import APIRouter, Depends, Request, Response

from app.core.changes.external import External, change_of, digest, redacted
from app.core.model import Change
from app.store import external
from app.store.idempotency import OtherRequestError
from app.store.redaction import read_redactor
from app.web import examples, params, shapes
from app.web.auth import NeedsTeller
from app.web.deps import deps_of
from app.web.idempotency import IdempotencyKey, key_of
from app.web.problems import Problem, described
from app.web.requests import KIB, read_json
from app.web.telling import ToldChange, check_time, schema
from app.web.writing import check_sending, scope_texts

LIMIT = 64 * KIB
router = APIRouter(
    prefix="/api/v1",
    dependencies=[Depends(NeedsTeller()), Depends(params.once)],
    responses=described(400, 401, 403, 408, 413, 415, 422, 429, 503),
)


@router.post(
    "/changes",
    summary="Tell of a change that Kubernetes does not see",
    status_code=201,
    responses={
        201: {"headers": {"Location": {"description": "the (first) change", "schema": {"type": "string"}}}},
        200: {"model": shapes.ToldChanges, "description": "This request came before; nothing was done"},
    },
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": schema(ToldChange), "examples": {"flag": {"value": examples.TELLING}}}
            },
        }
    },
)
async def tell(request: Request, response: Response, idempotency_key: IdempotencyKey = None) -> shapes.ToldChanges:
    """A deploy, a feature flag, Terraform, DNS, a console: a change of one cluster, or one in each that is known.

    It is redacted, stands on the timeline and is ranked like any other. With `Idempotency-Key` a request may be sent
    again: the same answer with 200, and 422 where the body is another one.
    """
    asked = await read_json(request, ToldChange, most=LIMIT)
    changes, before = await take(request, asked.noun(), key=idempotency_key)
    if before:
        response.status_code = 200
    if changes:
        response.headers["location"] = f"/api/v1/changes/{changes[0].id}"
    return shapes.ToldChanges(items=[shapes.Change.of(change) for change in changes])


async def take(request: Request, told: External, *, key: str | None) -> tuple[list[Change], bool]:
    """Records what is told, once for each ``key`` of its source; the changes, and whether they were told before.

    Raises Problem 403 for a cluster that the token is not for, 422 for a time that is not kept, a cluster that is not
    known, or a key that came with something else.
    """
    deps = deps_of(request)
    now = deps.clock()
    bound: str = getattr(request.state, "tells_of", "")
    if bound and told.cluster not in (None, bound):
        raise Problem(403, f"this token tells of the cluster {bound} and of no other", "cluster")
    if told.at is not None:
        check_time(told.at, now=now, kept=deps.changes_kept)
    mine: list[str] = []
    if hasattr(request.state, "role"):  # else it is a sender's own token, or its signature
        check_sending(request, told.cluster or "")
        mine = scope_texts(request)
    # An owner and a source have keys of their own: two systems that number their runs do not meet.
    whose = key_of(key, bound, told.source, *mine)
    async with deps.write.begin() as conn:
        clean = redacted(told, await read_redactor(conn))
        if whose is not None:
            try:
                before = await external.told_before(conn, whose, digest(clean), now=now)
            except OtherRequestError as error:
                raise Problem(422, f"Idempotency-Key: {error}", "Idempotency-Key") from None
            if before is not None:
                return before, True
        name = whose.hex() if whose else secrets.token_hex(16)
        clusters = _touched(told.cluster or bound, bound=bound, known=await external.list_clusters(conn))
        changes = [change_of(clean, cluster, request=name, now=now) for cluster in clusters]
        await external.tell(conn, changes, digest=whose, now=now)
    return changes, False


def _touched(wanted: str, *, bound: str, known: list[str]) -> list[str]:
    """The clusters that a change is of: the one that is wanted, or all. Only a token of its own makes one known."""
    if not wanted and not known:
        raise Problem(422, "cluster: nothing is recorded of any cluster yet: connect or import one first", "cluster")
    if wanted and wanted != bound and wanted not in known:
        raise Problem(
            422, "cluster: nothing is recorded of a cluster of this name: leave it out to tell of all", "cluster"
        )
    return [wanted] if wanted else known
