"""The page of clusters: what is recorded of each, how well it is followed, what was not seen of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fastapi import APIRouter, Depends, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from app.core.model import Gap
from app.core.roles import Role
from app.core.unseen import GapGroup, grouped
from app.core.watching import Followed
from app.store import audit
from app.store.seen import Freshness, Seen, read_seen
from app.web import templates
from app.web.auth import Needs, has
from app.web.deps import deps_of
from app.web.reading import reading

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
GAPS_OF = timedelta(days=7)
MOST_GAPS = 20


@dataclass(frozen=True, slots=True)
class ClusterCard:
    """One cluster. ``followed`` None: it is only told of, by imports or by its API server. ``gaps`` newest first."""

    name: str
    freshness: Freshness
    followed: Followed | None
    unseen: tuple[GapGroup, ...]
    gaps: tuple[GapGroup, ...]

    @property
    def state(self) -> str:
        if self.followed is None:
            return "recorded"
        return "blind" if self.unseen else "followed"


def cards(seen: Seen) -> tuple[ClusterCard, ...]:
    """Those of which something is not seen first, then those that are followed, then the others."""
    followed = {one.cluster: one for one in seen.followed}
    order = ("blind", "followed", "recorded")
    found = [
        ClusterCard(
            name=fresh.cluster,
            freshness=fresh,
            followed=followed.get(fresh.cluster),
            unseen=grouped(_of(fresh.cluster, seen.unseen)),
            gaps=grouped(gap for gap in reversed(_of(fresh.cluster, seen.gaps)) if gap not in seen.unseen),
        )
        for fresh in seen.freshness
    ]
    return tuple(sorted(found, key=lambda card: (order.index(card.state), card.name)))


def _of(cluster: str, gaps: Sequence[Gap]) -> tuple[Gap, ...]:
    return tuple(gap for gap in gaps if gap.cluster == cluster)


@router.get("/clusters", dependencies=[Depends(Needs(Role.VIEWER, limited=True))])
async def list_clusters(request: Request) -> HTMLResponse:
    """Every cluster, with the gaps of a week."""
    now: datetime = deps_of(request).clock()
    async with reading(request) as conn:
        seen = await read_seen(conn, None, from_at=now - GAPS_OF, to_at=None, each=True)
    around = {"most_gaps": MOST_GAPS, "may_manage": has(request, Role.ADMIN), "seen": seen, "now": now}
    return templates.page("clusters.html", cards=cards(seen), **around)


@router.post("/demo", dependencies=[Depends(Needs(Role.ADMIN))])
async def replay_demo(request: Request) -> Response:
    """Replays the recorded incident, unless it is there, and leads to it."""
    deps = deps_of(request)
    path = await deps.replay_demo()
    async with deps.write.begin() as conn:
        await audit.note(conn, audit.Action.DEMO_REPLAYED, path, now=deps.clock())
    return RedirectResponse(path, 303)
