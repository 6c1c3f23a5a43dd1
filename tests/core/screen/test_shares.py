"""A probability in a table is said as its page says it: neither impossible nor certain where it is not."""

from __future__ import annotations

import pytest

from app.core.phrases import percent
from app.core.screen.tables import TABLES, as_row


@pytest.mark.parametrize(
    ("share", "said"),
    [(0.0, "0%"), (0.004, "<1%"), (0.005, "<1%"), (0.37, "37%"), (0.99, "99%"), (0.996, ">99%"), (1.0, "100%")],
)
def test_a_share_is_said_as_on_its_page(share: float, said: str) -> None:
    incident = {
        "id": "5f0a1c22d3e4",
        "cluster": "shop",
        "title": "Checkout errors high",
        "status": "open",
        "started_at": "2026-11-20T14:03:14Z",
        "first_suspect": {"kind": "Deployment", "name": "web", "probability": share},
        "none_of_these": None,
    }
    assert as_row(incident, TABLES["Incidents"], clusters=False).rstrip().endswith(f"  {said} web")
    assert percent(share).replace(" ", "") == said
    odds = next(column for column in TABLES["Suspects"].columns if column.title == "ODDS")
    assert odds.cell({"probability": share}) == said
    assert len(said) <= odds.width
