"""How a suspect moved since an incident was ranked first, in the words of pages and of Slack."""

from __future__ import annotations

from collections.abc import Mapping

import humanize

from app.core.findings import Suspect


def at_first(suspect: Suspect, places: Mapping[str, int]) -> str:
    """``3rd at first`` or ``new since the first ranking``; "" where it stands as it did.

    ``places`` are the first ranking's (findings.Ranking.places); where there are none, nothing has moved.
    """
    if not places:
        return ""
    place = min((places[one] for one in suspect.ids if one in places), default=None)
    if place is None:
        return "new since the first ranking"
    return "" if place == suspect.rank else f"{humanize.ordinal(place)} at first"
