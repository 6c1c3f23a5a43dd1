"""Hosts that are asked for from outside and not answered, while what stands behind complains of nothing: it is on the
way there.

A probe (https://github.com/prometheus/blackbox_exporter) knows a public name: whoever keeps its record, serves its
Ingress or shows its certificate comes before the workload.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from datetime import timedelta

from app.core.edges import front_doors
from app.core.edges.topology import Topology
from app.core.entities import Entity, workload
from app.core.findings import Incident
from app.core.phrases import many
from app.core.signals.signal import Signal, SignalKind

UNREACHED = "HostsNotAnswered"
SEVERAL = 2
"""Of so many Services at once not the own Ingress of each is to blame, but what is before all."""
ON_THE_WAY = 0.7
"""How much it is about that."""
BEFORE_ALL = 0.35
"""How much it is about what is before all where one host alone is not answered."""
LOOKS_BACK = timedelta(minutes=5)
"""So long before it tells, what an alert is about may have begun, where its record does not say since when."""
STRENGTH = 0.6


def with_probed(
    signals: Sequence[Signal],
    incident: Incident,
    top: Topology,
    *,
    answering: Callable[[], AbstractSet[Entity]],
    is_held: bool,
) -> list[Signal]:
    """The signals; where the alerts name hosts that Ingresses or routes serve, and nobody behind these, or before them,
    complains, with one of that.

    What is behind a single host need not complain to be to blame: it has to be among ``answering``, those that count
    what they answer, and do.
    """
    hosts = front_doors.named(front_doors.said(incident), top.doors)
    services = {service for host in hosts for service in top.doors[host]}
    behind = {workload(*key) for key, fronts in top.fronts.items() if fronts & services}
    before = {workload(*key) for key in top.labels if front_doors.PROXIES.search(key[1])}
    is_told = any(
        one.kind is SignalKind.SYMPTOM and not (behind | before).isdisjoint({*one.about, *one.spread})
        for one in signals
    )
    several = len(services) >= SEVERAL
    if not hosts or is_told or not (several or (behind and behind <= answering())):
        return list(signals)
    began, way = incident.started_at, ON_THE_WAY if several else BEFORE_ALL
    own: dict[Entity, float] = {} if several else {("entrance", *key[1:]): ON_THE_WAY for key in behind}
    verb, beyond = (
        "is" if len(hosts) == 1 else "are",
        "nothing behind complains" if several else "what is behind answers",
    )
    return [
        *signals,
        Signal(
            kind=SignalKind.SYMPTOM,
            low=began if is_held else began - LOOKS_BACK,
            high=began,
            strength=STRENGTH,
            about={("agent", "doors"): way, ("agent", "records"): way, **own},
            sentence=f"from outside {many(len(hosts), 'host')} {verb} not answered, while {beyond}",
            facts={"reason": UNREACHED, "chronic": "False", "refused": ""},
        ),
    ]
