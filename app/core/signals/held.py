"""Since when an alert's condition has held, by the Prometheus that evaluates it: before its ``for`` was over.

A Prometheus keeps, of each alert that is pending or fires, a series whose value is when that began
(ALERTS_FOR_STATE, by which it knows its alerts after a restart: rules/alerting.go of github.com/prometheus/prometheus).
Whatever the time that an alert tells, this one is measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from app.core.findings import Incident
from app.core.model import MetricSeries, Symptom
from app.core.signals.signal import moment

ALERTS_FOR_STATE = "ALERTS_FOR_STATE"
NEAR_SECONDS = 20 * 60.0
"""How far from the time that an alert tells its condition may have been seen to hold: told times are wrong, too."""


def with_held(incident: Incident, series: Sequence[MetricSeries]) -> Incident:
    """The incident as of when the first of its alerts' conditions began to hold; as it is where no Prometheus says so
    of any, and where a person said when it began."""
    told = [one for one in series if one.name == ALERTS_FOR_STATE]
    if not told or incident.said.started_at is not None:
        return incident
    since = [(alert, _since(alert, told)) for alert in incident.alerts]
    if all(began is None for _, began in since):
        return incident
    return replace(incident, started_at=min(alert.at if began is None else moment(began) for alert, began in since))


def _since(alert: Symptom, told: Iterable[MetricSeries]) -> float | None:
    """When the condition of an alert began to hold, in epoch seconds: of what was seen nearest to the time it tells."""
    at = alert.at.timestamp()
    near = [
        (max(first - at, at - last, 0.0), began)
        for one in told
        if _is_of(alert, one)
        for first, last, began in _runs(one)
    ]
    off, began = min(near, default=(NEAR_SECONDS, None))
    return began if off < NEAR_SECONDS else None


def _is_of(alert: Symptom, one: MetricSeries) -> bool:
    """An Alertmanager is told further labels, as external_labels, and no fewer."""
    labels = dict(one.labels)
    return labels.pop("alertname", "") == alert.reason and labels.items() <= dict(alert.labels).items()


def _runs(one: MetricSeries) -> Iterator[tuple[float, float, float]]:
    """First and last sample of each time that it held, and since when it did."""
    first = last = began = 0.0
    for time, value in zip(one.times, one.values, strict=True):
        if value != began:  # as is a NaN, by which Prometheus says that it ended
            if began:
                yield first, last, began
            first, began = time, value if value == value else 0.0  # noqa: PLR0124 - a NaN is not itself
        last = time
    if began:
        yield first, last, began
