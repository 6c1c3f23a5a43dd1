"""Which metrics are collected of a control plane: what ranking looks at, and what the control-plane page shows."""

from __future__ import annotations

from app.core.families import FAMILIES
from app.core.measures import Measure, SeriesQuery
from app.core.panels import METRICS, PANELS

_WATCHED = {name for family in FAMILIES for name in family.metrics} | {"process_start_time_seconds", "up"}
RANKED = frozenset(
    name for base in _WATCHED for name in (base, f"{base}_sum", f"{base}_count", base.removesuffix("_total"))
)
"""What ranking looks at: of histograms the sum and count, and counters also as OpenMetrics names them."""
NAMES = RANKED | frozenset(name for name in METRICS if not name.endswith("_bucket"))
"""What is collected as it is told."""
SUMMED = {
    metric: tuple(sorted({*panel.query.by, *(match.name for match in panel.query.where)}))
    for panel in PANELS.values()
    if isinstance(panel.query, SeriesQuery) and panel.query.measure is Measure.QUANTILE
    for metric in panel.query.metrics
}
"""Histograms whose buckets are collected as sums over all labels but these: of each label they are too many."""
