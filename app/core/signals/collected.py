"""Which metrics are collected of a cluster: what ranking looks at, and what the control-plane page shows."""

from __future__ import annotations

from app.core.edges.served import FAMILIES_SERVED, SERVED, TOLD_APART
from app.core.metrics.families import FAMILIES
from app.core.metrics.measures import Measure, SeriesQuery
from app.core.metrics.panels import METRICS, PANELS
from app.core.signals.held import ALERTS_FOR_STATE

_WATCHED = {name for family in FAMILIES for name in family.metrics} | {"process_start_time_seconds", "up"}
RANKED = frozenset(
    name
    for base in _WATCHED | {ALERTS_FOR_STATE}
    for name in (base, f"{base}_sum", f"{base}_count", base.removesuffix("_total"))
)
"""What ranking looks at besides the requests that apps served: of histograms the sum and count, and counters also as
OpenMetrics names them."""
_OF_APPS = SERVED | FAMILIES_SERVED
NAMES = RANKED | _OF_APPS | frozenset(name for name in METRICS if not name.endswith("_bucket"))
"""What is collected as it is told."""
SUMMED = {
    f"{metric}_bucket": tuple(sorted({"le", *panel.query.by, *(match.name for match in panel.query.where)}))
    for panel in PANELS.values()
    if isinstance(panel.query, SeriesQuery) and panel.query.measure is Measure.QUANTILE
    for metric in panel.query.metrics
}
"""Buckets of histograms, collected as sums over all labels but these: of each label they are too many."""
ASKED = NAMES - _OF_APPS - {ALERTS_FOR_STATE}
"""What a Prometheus is asked of the control plane, as it was scraped."""
ASKED_OF_APPS = frozenset({ALERTS_FOR_STATE})
"""The same of what it keeps beside: its own alerts."""
SUMMED_OF_APPS = dict.fromkeys(sorted(SERVED), TOLD_APART)
"""Likewise of apps: of each path and method they are too many."""
