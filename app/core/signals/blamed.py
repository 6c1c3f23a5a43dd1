"""Complaints that name a server of the cluster: the client only suffers, and a new image of it is seldom to blame."""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import replace

from app.core.edges.causes import OUTSIDE
from app.core.edges.said import NO_CONNECTION
from app.core.edges.served import ASKED
from app.core.edges.topology import Named, Topology
from app.core.objects.dependencies import hosts
from app.core.phrases import names
from app.core.signals.signal import Signal, SignalKind

BLAMES = "blames"
"""The fact that says whom: the names of Services."""
OVERRUN = "overrun"
"""The fact that says who of them is asked for far more than before."""


_ANSWERS = re.compile(
    rf"{NO_CONNECTION.pattern}|maxmemory|\bMISCONF\b|\bREADONLY\b|\bLOADING\b|CLUSTERDOWN|MASTERDOWN|NOREPLICAS"
    r"|statement timeout|lock (?:wait )?timeout|deadlock (?:detected|found)|obtain lock|basic\.nack|resource.locked"
    r"|Not_?Leader|LEADER_NOT_AVAILABLE|COORDINATOR_\w+|no primary\b|not.?enough.?(?:in.?sync.?)?replicas"
    r"|Record_?Too_?Large|MESSAGE_TOO_LARGE|cluster_block_exception|es_rejected_execution|circuit_breaking_exception"
    r"|read.only (?:mode|transaction|replica)|in recovery mode|is (?:starting up|shutting down)|not yet accepting"
    r"|NotWritablePrimary|not primary|terminating connection due to|could not serialize access|low on memory"
    r"|etcdserver: |SERVER_ERROR|query_wait_timeout|server is not accepting|\bORA-0?(?:1033|1034|1089|12528)\b"
    r"|SQLSTATE.{0,2}(?:40|53|57)|maximum (?:bytes|messages|consumers) exceeded|insufficient (?:storage )?resources",
    re.IGNORECASE,
)
"""What databases, caches and brokers say of themselves (classes 40, 53 and 57 of PostgreSQL's error codes:
https://www.postgresql.org/docs/current/errcodes-appendix.html ; https://redis.io/docs/latest/develop/reference/ ;
https://kafka.apache.org/protocol#protocol_error_codes ; errors.json in
https://github.com/nats-io/nats-server/tree/main/server )."""


def with_blamed(signals: Iterable[Signal], top: Topology) -> list[Signal]:
    """The signals, those of one workload with the Services, not its own, that its messages say not to answer, or to
    answer that they cannot."""
    signals = list(signals)
    asked = [entity[1:] for one in signals if ASKED in one.facts for entity in one.about if entity[0] == "workload"]
    overrun = {service for home in asked for service in top.fronts.get((home[0], home[1]), ())}
    return [_told(one, top, overrun) for one in signals]


def _told(signal: Signal, top: Topology, overrun: AbstractSet[Named]) -> Signal:
    homes = [(entity[1], entity[2]) for entity in signal.about if entity[0] == "workload"]
    if signal.kind is not SignalKind.SYMPTOM or len(homes) != 1:
        return signal
    answers = _ANSWERS.search(signal.text) is not None
    if not (answers or OUTSIDE.told.search(signal.text)):
        return signal
    called = {service for server in top.upstream.get(homes[0], ()) for service in top.fronts.get(server, ())}
    named = {one for one in called if names(signal.text, one[1])}
    named |= set(hosts("", signal.text, homes[0][0], known=top.services))
    named = (named or (called if answers else set())) - top.fronts.get(homes[0], set())
    if not named:
        return signal
    facts = {BLAMES: named, OVERRUN: named & overrun}
    return replace(signal, facts=signal.facts | {key: _names(some) for key, some in facts.items() if some})


def _names(services: AbstractSet[Named]) -> str:
    return ", ".join(sorted(name for _, name in services))
