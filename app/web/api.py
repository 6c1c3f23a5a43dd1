"""REST, version 1: the same rows that the pages show, as JSON, tables and lines."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import PlainTextResponse, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.changes.recipe import Known
from app.core.changes.report import COUNTED, LINES, what_changed
from app.core.findings import Incident
from app.core.model import SLOT_SECONDS, Resource
from app.core.roles import Role
from app.core.screen.elsewhere import elsewhere
from app.core.screen.incident_report import incident_report
from app.core.screen.talkers import WEIGHTS, talkers
from app.store import calls, history, incidents, objects, search, surroundings, timeline
from app.store.called import calls_of
from app.store.namespaces import check_namespace
from app.store.seen import Seen, read_seen
from app.web import answers, examples, params, problems, shapes
from app.web.accept import NDJSON, TEXT
from app.web.auth import Needs
from app.web.change_report import change_report
from app.web.cursors import Listing, history_of
from app.web.deps import deps_of
from app.web.follow_changes import follow_changes
from app.web.follow_incidents import follow_incidents
from app.web.objects_named import unknown_kind
from app.web.problems import Problem
from app.web.reading import check_whole, narrowed, reading
from app.web.representations import Negotiated, chosen, kind_of

router = APIRouter(
    prefix="/api/v1",
    dependencies=[Depends(Needs(Role.VIEWER, limited=True)), Depends(params.once)],
    responses=problems.described(400, 401, 404, 406, 422, 429, 503),
    route_class=Negotiated,
)
ROLLOUTS_BY_DEFAULT = timedelta(days=1)


async def _connection(request: Request) -> AsyncIterator[AsyncConnection]:
    async with reading(request) as conn:
        yield conn


Conn = Annotated[AsyncConnection, Depends(_connection, scope="function")]
"""Let go before the answer is sent, which takes as long as its reader takes: eight hold all that there are."""
Nothing = Annotated[params.NoParameters, Query()]
IncidentId = Annotated[str, Path(max_length=40, examples=[examples.INCIDENT.id])]


@router.get("/changes", summary="Changes, newest first", response_model=answers.Changes)
async def list_changes(
    request: Request, asked: Annotated[params.ChangesFollowed, Query()]
) -> Response | answers.Changes:
    """All parameters narrow; ``next`` continues behind the last one, also while new changes arrive.

    With ``text``, ``actor`` or ``verb`` a page looks at some hundred thousand changes at most, so it may hold fewer
    than ``limit``, or none, and yet have a ``next``. With ``follow`` the answer is application/x-ndjson, and does not
    end: the newest ``limit``, the oldest first, and then each change as it is recorded.
    """
    deps = deps_of(request)
    wanted = narrowed(request, asked.filter(deps.clock()))
    asked.check_following()
    if asked.follow:
        chosen(request, (NDJSON,))
        return await follow_changes(request, wanted, since=asked.since, limit=asked.limit)
    before = asked.listing.cursor(asked.after)
    async with reading(request) as conn:
        found = await search.find_changes(conn, wanted, before=before, limit=asked.limit, within=search.FURTHER)
        seen = await read_seen(conn, asked.cluster, from_at=asked.from_at, to_at=asked.to_at)
        if not found.changes and before is None:
            await _check_namespace(conn, asked, seen)
            if seen.recorded and (said := unknown_kind(asked.kind, seen.kinds)):
                raise Problem(404, said, "kind")
    return answers.Changes(
        items=[shapes.Change.of(change) for change in found.changes],
        next=asked.listing.next(found.next),
        **answers.context(seen),
    )


@router.get(
    "/changes/{change_id}",
    summary="One change and what it began",
    responses={200: {"content": {TEXT: {"schema": {"type": "string"}}}}},
    response_model=answers.OneChange,
)
async def read_change(
    change_id: Annotated[str, Path(examples=[examples.CULPRIT.id])], _: Nothing, conn: Conn, request: Request
) -> PlainTextResponse | answers.OneChange:
    """404 for an id that is not known, or that is none."""
    try:
        change = await timeline.read_change(conn, change_id)
    except (ValueError, OverflowError):
        change = None
    if change is None:
        raise Problem(404, "there is no change of this id", "change_id")
    began = await timeline.list_begun_by(conn, change)
    last = (await objects.load_states(conn, change.resource.cluster, [change.resource])).get(change.resource)
    links = elsewhere(change, Known(last), deps_of(request).neighbours)
    seen = await read_seen(
        conn, change.resource.cluster, from_at=change.at - timedelta(hours=1), to_at=change.at + timedelta(hours=1)
    )
    answer = answers.OneChange(
        change=shapes.Change.of(change),
        began=[shapes.Change.of(one) for one in began],
        links=[shapes.Link.model_validate(one) for one in links],
        **answers.context(seen),
    )
    return PlainTextResponse(change_report(change, answer)) if kind_of(request) == TEXT else answer


@router.get("/objects/{cluster}/{api_group}/{kind}/{namespace}/{name:rest}", summary="One object's history")
async def read_object(
    cluster: str,
    api_group: Annotated[str, Path(description="core for the group without a name", examples=["apps"])],
    kind: Annotated[str, Path(examples=["Deployment"])],
    namespace: Annotated[str, Path(description="- for cluster-scoped kinds")],
    name: Annotated[str, Path(max_length=253)],
    asked: Annotated[params.HistoryPage, Query()],
    conn: Conn,
) -> answers.History:
    """Its last known state, redacted and normalised, and its changes, newest first."""
    resource = Resource(
        cluster, "" if api_group == "core" else api_group, kind, None if namespace == "-" else namespace, name
    )
    listing = history_of(resource)
    found = await history.read_history(conn, resource, before=listing.cursor(asked.after), limit=asked.limit)
    if found is None:
        raise Problem(404, "there is no object of this name")
    seen = await read_seen(conn, cluster, from_at=None, to_at=None)
    return answers.History(
        resource=shapes.Resource.model_validate(resource),
        state=found.state.state,
        deleted_at=found.state.deleted_at,
        items=[shapes.Change.of(change) for change in found.changes],
        next=listing.next_of(found.changes, asked.limit),
        **answers.context(seen),
    )


@router.get("/rollouts", summary="Rollouts, newest first")
async def list_rollouts(
    asked: Annotated[params.RolloutsPage, Query()], conn: Conn, request: Request
) -> answers.Rollouts:
    """Those that began in [from, to); without from, in the day before to; without to, until now. ``next`` continues
    behind the last one."""
    to_at = asked.to_at or deps_of(request).clock()
    from_at = asked.from_at or to_at - ROLLOUTS_BY_DEFAULT
    asked.model_copy(update={"from_at": from_at}).check(to_at)
    listing = Listing("rollouts", (asked.cluster,))
    at, key = listing.decode(asked.after) if asked.after is not None else (None, "")
    found, last = await surroundings.list_rollouts(
        conn,
        asked.cluster,
        from_at=from_at,
        to_at=to_at,
        limit=asked.limit,
        behind=None if at is None else (at, int(key, 16)),
    )
    seen = await read_seen(conn, asked.cluster, from_at=from_at, to_at=to_at)
    return answers.Rollouts(
        items=[shapes.Rollout.of(rollout) for rollout in found],
        next=listing.encode(last[0], f"{last[1]:x}") if last else None,
        **answers.context(seen),
    )


@router.get("/calls", summary="Top callers of the API server, now against before")
async def list_calls(asked: Annotated[params.CallsAsked, Query()], conn: Conn, request: Request) -> answers.Calls:
    """Now is the ``minus`` before ``at``, before is as long again before that. Those that rose most come first.

    Calls that are alike in ``by`` are added up; what is not asked for there is null. 422 for a ``resource`` that is
    neither known nor was ever called.
    """
    check_whole(request, asked.cluster)
    to_at = asked.at or deps_of(request).clock()
    now_from, before_from = to_at - asked.minus, to_at - 2 * asked.minus
    if asked.minus < timedelta(seconds=SLOT_SECONDS):
        raise Problem(422, f"minus: must not be shorter than the {SLOT_SECONDS} s in which calls are counted", "minus")
    seen = (await read_seen(conn, asked.cluster, from_at=before_from, to_at=to_at)).unheard(before_from, to_at)
    counts = await calls.read(conn, asked.cluster, before_from, to_at)
    found = talkers(
        await calls_of(conn, asked.cluster, counts, asked.resource, seen=seen),
        boundary=now_from.timestamp(),
        seconds=asked.minus.total_seconds(),
        most=asked.limit,
        by=asked.by.split(","),
        weight=WEIGHTS[asked.order],
    )
    return answers.Calls(
        items=[shapes.Call.of(talker) for talker in found],
        now_from=now_from,
        before_from=before_from,
        to=to_at,
        **answers.context(seen),
    )


@router.get("/incidents", summary="Incidents, newest first", response_model=answers.Incidents)
async def list_incidents(
    request: Request, asked: Annotated[params.IncidentsFollowed, Query()]
) -> Response | answers.Incidents:
    """``next`` continues behind the last one. With ``follow`` the answer is application/x-ndjson, and does not end: the
    newest ``limit``, at most a hundred, the oldest first, and then each of the newest hundred as it stands when it was
    opened, ended, was merged or corrected, or is ranked otherwise."""
    asked.check_following()
    if asked.follow:
        chosen(request, (NDJSON,))
        return await follow_incidents(request, asked.cluster, since=asked.since, limit=asked.limit)
    listing = Listing("incidents", (asked.cluster, asked.status))
    before = listing.decode(asked.after) if asked.after is not None else None
    async with reading(request) as conn:
        found = await incidents.list_incidents(
            conn, cluster=asked.cluster, status=asked.status, before=before, limit=asked.limit
        )
        first = await incidents.first_suspects(conn, [incident.id for incident in found])
        earliest = min((incident.started_at for incident in found), default=None)
        seen = await read_seen(conn, asked.cluster, from_at=earliest, to_at=None)
    return answers.Incidents(
        items=[shapes.Incident.listed(incident, first.get(incident.id)) for incident in found],
        next=listing.encode(found[-1].started_at, found[-1].id) if len(found) == asked.limit else None,
        **answers.context(seen),
    )


@router.get(
    "/incidents/{incident_id}",
    summary="One incident",
    responses={200: {"content": {TEXT: {"schema": {"type": "string"}}}}},
    response_model=answers.OneIncident,
)
async def read_incident(
    incident_id: IncidentId, _: Nothing, conn: Conn, request: Request
) -> PlainTextResponse | answers.OneIncident:
    """Its alerts, scope and onset, and what its newest ranking puts first; as text, with every suspect's row."""
    found = await one_incident(conn, incident_id)
    if kind_of(request) == TEXT:
        suspects = await _suspects(conn, incident_id)
        return PlainTextResponse(incident_report(found.model_dump(mode="json"), suspects.model_dump(mode="json")))
    return found


@router.get("/incidents/{incident_id}/suspects", summary="What preceded an incident, ranked")
async def list_suspects(incident_id: IncidentId, _: Nothing, conn: Conn) -> answers.Suspects:
    """The newest ranking, each suspect with its evidence. The shares and ``none_of_these`` sum to at most 1."""
    return await _suspects(conn, incident_id)


async def _suspects(conn: AsyncConnection, incident_id: str) -> answers.Suspects:
    found = await incidents.read_incident(conn, incident_id)
    if found is None:
        raise Problem(404, "there is no incident of this id", "incident_id")
    incident, ranking = found
    return answers.Suspects(
        items=[shapes.Suspect.of(suspect) for suspect in (ranking.suspects if ranking else ())],
        none_of_these=ranking.none_of_these if ranking else None,
        ranked_at=incident.ranked_at,
        candidates=ranking.candidates if ranking else 0,
        findings=[shapes.Evidence.model_validate(one) for one in (ranking.findings if ranking else ())],
        not_measured=list(ranking.not_measured) if ranking else [],
        **await _around(conn, incident),
    )


async def one_incident(conn: AsyncConnection, incident_id: str) -> answers.OneIncident:
    """An incident as it is answered. Raises Problem 404."""
    found = await incidents.read_incident(conn, incident_id)
    if found is None:
        raise Problem(404, "there is no incident of this id", "incident_id")
    incident, ranking = found
    shown = shapes.Incident.of(incident, incidents.FirstSuspect.of(ranking))
    return answers.OneIncident(incident=shown, **await _around(conn, incident))


async def _around(conn: AsyncConnection, incident: Incident) -> dict[str, Any]:
    end = incident.resolved_at or incident.started_at + timedelta(hours=1)
    seen = await read_seen(conn, incident.cluster, from_at=incident.started_at - timedelta(hours=1), to_at=end)
    return answers.context(seen)


@router.get("/gaps", summary="What was not seen")
async def list_gaps(asked: Annotated[params.Window, Query()], conn: Conn, request: Request) -> answers.Gaps:
    """Gaps that touch [from, to), the newest hundred, oldest first."""
    asked.check(deps_of(request).clock())
    seen = await read_seen(conn, asked.cluster, from_at=asked.from_at, to_at=asked.to_at)
    said = answers.context(seen)
    return answers.Gaps(items=said["gaps"], **said)


@router.get("/clusters", summary="Clusters, and how well each is followed")
async def list_clusters(_: Nothing, conn: Conn) -> answers.Clusters:
    """Those that are followed live, and those that are only told of by imports, alerts or their audit log."""
    seen = await read_seen(conn, None, from_at=None, to_at=None)
    return answers.Clusters(
        items=[shapes.Cluster.of(one.cluster, seen) for one in seen.freshness], **answers.context(seen)
    )


@router.get(
    "/what-changed",
    summary="What changed before a moment, for curl",
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    response_model=answers.Changes,
)
async def list_what_changed(
    asked: Annotated[params.WhatChanged, Query()], conn: Conn, request: Request
) -> PlainTextResponse | answers.Changes:
    """A table of at most 20 lines of 80 columns, or the same changes as JSON or lines, as ``format`` or else Accept
    says. The table's head counts to 1000."""
    to_at = asked.at or deps_of(request).clock()
    from_at = to_at - asked.minus
    wanted = timeline.ChangeFilter(cluster=asked.cluster, namespace=asked.namespace, from_at=from_at, to_at=to_at)
    wanted = narrowed(request, wanted)
    as_text = kind_of(request) == TEXT
    found = await timeline.list_changes(conn, wanted, limit=LINES if as_text else COUNTED)
    seen = await read_seen(conn, asked.cluster, from_at=from_at, to_at=to_at)
    if not found:
        await _check_namespace(conn, asked, seen)
    if not as_text:
        return answers.Changes(
            items=[shapes.Change.of(change) for change in found],
            next=Listing("changes").next_of(found, COUNTED),  # `changes` takes it, whatever its time is called
            **answers.context(seen),
        )
    total = await search.count_changes(conn, wanted, most=COUNTED)
    return PlainTextResponse(
        what_changed(found, from_at=from_at, to_at=to_at, gaps=seen.gaps, total=total, recorded=seen.recorded)
    )


async def _check_namespace(conn: AsyncConnection, asked: params.ChangesAsked | params.WhatChanged, seen: Seen) -> None:
    """Raises UnknownNamespaceError. Before the first change of all, that there is none says more."""
    if seen.recorded:
        await check_namespace(conn, asked.cluster, asked.namespace)
