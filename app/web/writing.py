"""What who is limited to a scope may change: what they may read, and nothing by which others would be told of it.

Writing takes a connection that sees everything; so a route that writes asks here first. Who is limited to nothing is
let through at once.
"""

from __future__ import annotations

from fastapi import Request

from app.core.findings import Incident, Said
from app.core.incidents.hands import unknown_cluster
from app.store import incidents
from app.web.problems import Problem
from app.web.reading import check_whole, reading, scope_of


def scope_texts(request: Request) -> list[str]:
    """The scope of who asks, for whose Idempotency-Key it is: nobody meets the keys of who reaches further."""
    scope = scope_of(request)
    return [] if scope is None else scope.texts


def check_opening(request: Request, cluster: str, said: Said) -> None:
    """Whether who asks may open an incident of which this is said. Raises CannotError for a cluster that is not there
    for them, Problem 403 where the incident would be about more than they reach."""
    scope = scope_of(request)
    if scope is not None and cluster not in scope.clusters:
        raise unknown_cluster(cluster, scope.clusters)
    _check_said(request, cluster, said, named=said.namespaces or ())


async def check_incident(request: Request, incident_id: str, said: Said | None = None) -> Incident | None:
    """Whether who asks may change an incident, and say this of it. The incident; None where they are limited to
    nothing, and nobody looked.

    Raises LookupError where it is not there for them, Problem 403 for what reaches further."""
    if scope_of(request) is None:
        return None
    async with reading(request) as conn:
        found = await incidents.read_incident(conn, incident_id)
    if found is None:
        raise LookupError(incident_id)
    if said is not None:
        _check_said(request, found[0].cluster, said, named=said.namespaces)
    return found[0]


async def check_judging(request: Request, incident_id: str) -> None:
    """Whether who asks may say which suspect it was. Raises LookupError and Problem as check_incident does, and 403
    where not all suspects are shown to them."""
    incident = await check_incident(request, incident_id)
    if incident is not None:
        check_whole(request, incident.cluster)


def check_sending(request: Request, cluster: str) -> None:
    """Whether who asks may send what is of a whole cluster ("": of all). Raises Problem 403."""
    scope = scope_of(request)
    if scope is not None and not scope.is_whole(cluster):
        raise Problem(403, "your token is limited: this takes a cluster that it reaches as a whole", "cluster")


def _check_said(request: Request, cluster: str, said: Said, *, named: tuple[str, ...] | None) -> None:
    """``named`` are the namespaces that the incident is about from now on: none of them is the whole cluster. None: as
    they were."""
    scope = scope_of(request)
    if scope is None or scope.is_whole(cluster):
        return
    spaces = (*(named or ()), *(name.partition("/")[0] for name in said.workloads or ()))
    wider = bool(said.nodes) or bool(said.control_plane) or named == ()
    if wider or not all(scope.holds(cluster, space) for space in spaces):
        mine = ", ".join(text for text in scope.texts if text.startswith(f"{cluster}/"))
        raise Problem(403, f"of this cluster your token reaches {mine}: name namespaces of these", "namespaces")
