"""What Slack shows of an incident's alerts: in the words of the worst of them, with where it says what to do. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from app.core.alerted import RUNBOOK
from app.core.findings import Incident
from app.core.incidents.bundles import worst_first
from app.notify.blocks import SENTENCE, Json, context, escape, link_out

LONGEST = 2000
"""Characters of a link that is shown: a text of a context block has 3,000
(https://docs.slack.dev/reference/block-kit/composition-objects/text-object)."""


def alerts_said(incident: Incident) -> Iterator[Json]:
    """One line, of the worst alert that says anything and of the worst with a runbook; none of those that only have a
    name, which is the incident's title."""
    alerts = worst_first(incident.alerts)
    words = next((alert.message for alert in alerts if alert.message.strip()), "")
    books = (value for alert in alerts for name, value in alert.annotations if name == RUNBOOK)
    links = (link for book in books if len(link := link_out(book, "Runbook")) <= LONGEST)
    parts = [part for part in (escape(words, SENTENCE), next(links, "")) if part]
    if parts:
        yield context(" · ".join(parts))
