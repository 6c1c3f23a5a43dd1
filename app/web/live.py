"""How a page that is open stays current: what it was made from, whether more will come, what moved meanwhile.

A page asks every 15 seconds with the version it shows; as long as that is the newest, the answer is 204. There is no
push: a tick of the database would only tell a page when to ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from hashlib import blake2b

from app.core.findings import Incident, Ranking
from app.core.screen.first_ranking import at_first
from app.store.incidents import Standing

LAST_RANKING_AFTER = timedelta(minutes=10)
"""By the clock an incident is ranked for the last time this long after it began; later only when something of it is
recorded late (docs/architecture.md)."""
VERSION = r"^(0|[1-9a-f][0-9a-f]{0,15})\.(open|resolved|suspected|merged)(\.ended)?(\.over)?$"
LIST_VERSION = r"^[0-9a-f]{16}$"


def is_over(incident: Incident | Standing, now: datetime) -> bool:
    """Whether nothing new is expected: it has ended, and was ranked by the clock for the last time. What is recorded
    late shows when the page is opened again."""
    has_ended = incident.status in ("resolved", "merged") or incident.resolved_at is not None
    return has_ended and now - incident.started_at > LAST_RANKING_AFTER


def version(incident: Incident | Standing, now: datetime) -> str:
    """What a page of the incident is made from: its newest ranking (microseconds), its status, whether it ended (what
    is only suspected keeps its status then), whether nothing new is expected."""
    ranked = 0 if incident.ranked_at is None else round(incident.ranked_at.timestamp() * 1_000_000)
    ended = ".ended" if incident.resolved_at is not None else ""
    return f"{ranked:x}.{incident.status}{ended}" + (".over" if is_over(incident, now) else "")


def list_version(incidents: Sequence[Incident | Standing], now: datetime) -> str:
    """The same of a list of incidents, in 16 hex digits."""
    whole = " ".join(f"{incident.id}.{version(incident, now)}" for incident in incidents)
    return blake2b(whole.encode(), digest_size=8).hexdigest()


def order(ranking: Ranking | None) -> tuple[str, ...]:
    """The change ids of the suspects, first one first."""
    return tuple(suspect.change.id for suspect in ranking.suspects) if ranking else ()


def moved(ranking: Ranking | None, opened: Sequence[str]) -> dict[str, str]:
    """Change id → ``was #3`` or ``new`` of each suspect that stands elsewhere than in ``opened``.

    ``opened`` is the order when the page was opened; where there was none yet, nothing has moved.
    """
    before = {change_id: rank for rank, change_id in enumerate(opened, start=1)}
    if not before or ranking is None:
        return {}
    found = {}
    for suspect in ranking.suspects:
        was = min((before[change_id] for change_id in suspect.ids if change_id in before), default=None)
        if was != suspect.rank:
            found[suspect.change.id] = f"was #{was}" if was else "new"
    return found


def since_first(ranking: Ranking | None, first: Ranking | None) -> dict[str, str]:
    """Change id → ``3rd at first`` or ``new since the first ranking`` of each suspect that stood elsewhere then."""
    places = first.places if first else {}
    told = {one.change.id: at_first(one, places) for one in ranking.suspects} if ranking else {}
    return {change_id: said for change_id, said in told.items() if said}
