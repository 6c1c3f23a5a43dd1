"""Hosts that are asked for from outside and not answered, while what stands behind complains of nothing: it is on the
way there.

A probe (https://github.com/prometheus/blackbox_exporter) knows a public name: whoever keeps its record, serves its
Ingress or shows its certificate comes before the workload.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import timedelta

from app.core.edges import front_doors, said
from app.core.edges.causes import RECORDS
from app.core.edges.program_causes import NAMES
from app.core.edges.topology import Topology
from app.core.entities import Entity, workload
from app.core.findings import Incident
from app.core.phrases import many
from app.core.signals.signal import Signal, SignalKind

NOT_ANSWERED = "HostsNotAnswered"
SEVERAL = 2
"""Of so many Services at once not the own Ingress of each is to blame, but what is before all."""
ON_THE_WAY = 0.7
"""How much it is about that."""
BEFORE_ALL = 0.35
"""How much it is about what is before all where one host alone is not answered."""
LOOKS_BACK = timedelta(minutes=5)
"""So long before it tells, what an alert is about may have begun, where its record does not say since when."""
STRENGTH = 0.6
NOT_FOUND = re.compile(rf"{said.NO_NAME.pattern}|\bdns\b.{{0,30}}(?:fail|error)", re.IGNORECASE)
"""How an alert says that nobody knows the address of a host."""


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
    what they answer, and do. Where they say that a host is not found by its name, whoever is behind
    it was not asked.
    """
    signals = [_recorded(one, top) for one in signals] if top.doors else list(signals)
    text = front_doors.said(incident)
    hosts = front_doors.named(text, top.doors)
    if hosts and NOT_FOUND.search(text):
        names: dict[Entity, float] = {("agent", "records"): ON_THE_WAY, ("agent", "dns"): BEFORE_ALL}
        return [*signals, _signal(incident, hosts, names, "not found", is_held=is_held)]
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
    way = ON_THE_WAY if several else BEFORE_ALL
    own: dict[Entity, float] = {} if several else {("entrance", *key[1:]): ON_THE_WAY for key in behind}
    beyond = "nothing behind complains" if several else "what is behind answers"
    about = {("agent", "doors"): way, ("agent", "records"): way, **own}
    return [*signals, _signal(incident, hosts, about, f"not answered, while {beyond}", is_held=is_held)]


def _recorded(signal: Signal, top: Topology) -> Signal:
    """A complaint that a name is not found, of one that Ingresses or routes serve, with who keeps its record."""
    if signal.cause is not NAMES or not front_doors.named(signal.text, top.doors):
        return signal
    return replace(signal, cause=RECORDS, about=signal.about | {("agent", "records"): ON_THE_WAY})


def _signal(
    incident: Incident, hosts: AbstractSet[str], about: dict[Entity, float], how: str, *, is_held: bool
) -> Signal:
    began = incident.started_at
    return Signal(
        kind=SignalKind.SYMPTOM,
        low=began if is_held else began - LOOKS_BACK,
        high=began,
        strength=STRENGTH,
        about=about,
        sentence=f"from outside {many(len(hosts), 'host')} {'is' if len(hosts) == 1 else 'are'} {how}",
        facts={"reason": NOT_ANSWERED, "chronic": "False", "refused": ""},
    )
