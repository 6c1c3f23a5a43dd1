"""By which ways what is complained of can be led back to a change: of whom it is about, to whom that depends on."""

from __future__ import annotations

import re

from app.core.edges.causes import PORTS, QUOTA
from app.core.edges.mechanism import WHILE_RUNNING
from app.core.edges.program_causes import DISK, SCHEMA, UNFIT, UNREADABLE
from app.core.edges.said import NO_CONNECTION
from app.core.edges.served import ASKED
from app.core.entities import NODES, POD_MAKING, Entity, pods_in
from app.core.signals.signal import Signal, SignalKind

SCARCE = re.compile(
    r"too many|limit|exhaust|overload|busy|slow|timed? ?out|timeout|deadline|refused|reset|\b(?:429|50[234])\b"
    r"|not available|no (?:free|idle|more) |slots are reserved|saturat|queue (?:is )?full|throttl|still waiting"
    r"|too (?:big|large)\b|\bqueued for|\bbacklog|\bfall(?:s|ing|en)? behind",
    re.IGNORECASE,
)
"""What a client says of a server that more call than it can serve."""
FULL_STORE = re.compile(r"maxmemory|used memory >|maximum (?:bytes|messages) exceeded", re.IGNORECASE)
"""What a store says that may hold no more."""
_PRESSED = re.compile(r"Pressure|Insufficient|Eviction|OOM|PLEG|Conntrack")
"""Of one node, what programs that run on all of them may bring about: a machine may be ill by itself."""


def ways(entity: Entity, signal: Signal) -> tuple[Entity, ...]:
    """A node that is short of something is touched by what runs on all nodes. A workload is touched itself or, while it
    runs, by what becomes of what it calls and of who keeps up what it reads; where its complaints say that there is not
    enough for all, by others that call, or take, the same."""
    if entity[0] == "node" and _PRESSED.search(signal.facts.get("reason", "")):
        return entity, NODES
    if entity[0] != "workload" or signal.kind is not SignalKind.SYMPTOM:
        return (entity,)
    if signal.cause is PORTS:
        return (entity, ("takes", *entity[1:]))
    if signal.cause is QUOTA:
        return (entity, ("fills", entity[1]))
    if signal.facts.get("reason") == "OOMKilled":
        return entity, ("burdens", *entity[1:])
    if signal.facts.get("reason") not in WHILE_RUNNING:
        return (entity,)
    return (entity, *((way, *entity[1:]) for way in ("calls", "reads", "unguarded", "migrated", *_by_others(signal))))


def _by_others(signal: Signal) -> tuple[str, ...]:
    """The ways by which a workload is touched by who calls it, or calls what it calls."""
    if signal.cause is SCHEMA:
        return ("shares",)
    if signal.cause in (UNREADABLE, UNFIT):
        return ("beside",)
    if ASKED in signal.facts:
        return ("asks", "shares", "burdens")
    if NO_CONNECTION.search(signal.text):
        return ("occupies", "shares", "burdens")
    if signal.cause is DISK:
        return ("uncleared",)
    if FULL_STORE.search(signal.text):
        return ("uncleared", "shares", "burdens")
    return ("shares", "burdens") if signal.cause is None and SCARCE.search(signal.text) else ()


def widely(home: Entity) -> tuple[Entity, ...]:
    """By what one of many that complain alike is touched together with the others."""
    if home[0] == "workload":
        return pods_in(home[1]), POD_MAKING, NODES
    return (NODES, POD_MAKING) if home[0] == "node" else (POD_MAKING,)
