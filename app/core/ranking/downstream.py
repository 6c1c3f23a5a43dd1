"""What merely follows from something else that is complained of: whom a client calls, the nodes that are lost, what
these were short of, the object that a complaint names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from app.core.edges import said
from app.core.edges.causes import ROOTS
from app.core.edges.leads import MAKES_NODES, MESHES, NAME_SERVERS, NETWORKS
from app.core.edges.mechanism import BEFORE_RUNNING, SERVING
from app.core.edges.operators import users_of
from app.core.edges.program_causes import TRUST
from app.core.edges.references import is_custom
from app.core.edges.topology import Topology
from app.core.entities import WORKLOADS, Entity
from app.core.model import Resource
from app.core.objects.dependencies import Named, closure, hosts
from app.core.phrases import names
from app.core.ranking.consequences import SHORT, lacks_room
from app.core.signals.blamed import BLAMES
from app.core.signals.complaints import REST
from app.core.signals.errors import SEVERAL
from app.core.signals.signal import Signal, SignalKind

DEPTH = 3
HPA = "HorizontalPodAutoscaler"
TOGETHER = timedelta(seconds=5)
"""So much later what is called may complain: a call fails at once, a probe by its next turn (every 10 s by default)."""
GRACE = timedelta(seconds=50)
"""So late a node is found to be lost, and what it had to tell is heard later still: --node-monitor-grace-period of
kube-controller-manager (https://kubernetes.io/docs/reference/command-line-tools-reference/kube-controller-manager/)."""


_AGENTS = re.compile(rf"kube-proxy|{NETWORKS.pattern}|{NAME_SERVERS.pattern}|{MESHES.pattern}")
_DENIED = "denied the request"
"""What the API server says where a webhook answered (apiserver/pkg/admission/plugin/webhook/errors/statuserror.go)."""
_NETWORK = re.compile(
    rf"{said.UNREACHED.pattern}|{said.NO_NAME.pattern}|connection (?:refused|reset)|ECONNREFUSED|ECONNRESET"
    r"|context deadline exceeded",
    re.IGNORECASE,
)
"""What is said of the network, or of names, whoever is called."""


@dataclass(frozen=True, slots=True)
class _Told:
    """One complaint: the workloads and the nodes that make it, or the one object, by name ("" for none) and ``whole``,
    as Flux writes it (GitRepository/flux-system/apps), with the workloads that call what is made of that. ``taken``: it
    only says that their pods are taken away."""

    signal: Signal
    workloads: set[Named]
    nodes: set[Entity]
    object: str
    whole: str
    felt_by: set[Named]
    taken: bool


def roots(signals: Sequence[Signal], top: Topology) -> Iterator[tuple[int, list[int]]]:
    """The signals that others may be behind, with those: by their places in ``signals``."""
    told = {n: one for n, signal in enumerate(signals) if (one := _told(signal, top))}
    # A webhook's pods that it does not let in itself are not behind what it lets in no more.
    behind = {n: one for n, one in told.items() if not one.workloads & _asked(one.signal, top)}
    lost = {n: _felt(one, top) for n, one in told.items() if one.nodes and one.signal.facts.get("reason") not in SHORT}
    served = {key for key in top.labels if _AGENTS.search(key[1])}
    makers = {key for key in top.labels if MAKES_NODES.search(key[1])}
    for n, one in told.items():
        if one.taken:
            if found := [m for m, other in behind.items() if _is_refused(other, one)]:
                yield n, found
            continue
        below = {home: _below(home, one.signal, top, served, makers) for home in one.workloads}
        found = [m for m, other in behind.items() if m != n and _is_behind(other, one, below)]
        if one.signal.facts.get("reason") in SERVING:  # who is not let in, or not placed, answers nothing
            found += [m for m, other in behind.items() if _is_kept_out(other, one) or _says_why(other, one)]
            found += [m for m, failed in enumerate(signals) if _scales(failed, one) and _is_before(failed, one.signal)]
            own = _autoscalers(one, top)
            found += [m for m, blind in enumerate(signals) if _is_blind(blind, own) and _is_before(blind, one.signal)]
        called, scalers = _called(one, top), _scalers(one, top)
        for m, other in behind.items() if called or scalers else ():
            if (other.workloads & called or other.whole in scalers) and _is_before(other.signal, one.signal):
                found.append(m)
        if len(below) == 1:
            felt_here = {home for found in below.items() for home in (found[0], *found[1])}
            found += [m for m, felt in lost.items() if felt & felt_here and _missed(told[m].signal, one.signal)]
        if found:
            yield n, found
    yield from _of_webhooks(signals, behind, top)


def _is_kept_out(other: _Told, one: _Told) -> bool:
    """Whether pods of the very workload that fails its clients do not come to run."""
    is_out = other.signal.facts.get("reason") in BEFORE_RUNNING and bool(one.workloads) and not other.object
    return is_out and one.workloads <= other.workloads and _is_before(other.signal, one.signal)


def _says_why(other: _Told, one: _Told) -> bool:
    """Whether pods of the very workload that fails its clients say whom they do not reach themselves."""
    says = BLAMES in other.signal.facts or any(entity[0] == "agent" for entity in other.signal.about)
    is_own = bool(one.workloads) and one.workloads == other.workloads
    return says and is_own and other.signal.facts.get("reason") not in SERVING and _is_before(other.signal, one.signal)


def _is_refused(other: _Told, taken: _Told) -> bool:
    """Whether pods that are taken away are not let in again: that does more harm than that they moved."""
    is_refused = other.signal.facts.get("reason") == "FailedCreate" and bool(other.workloads & taken.workloads)
    return is_refused and _is_before(other.signal, taken.signal)


def _of_webhooks(signals: Sequence[Signal], behind: dict[int, _Told], top: Topology) -> Iterator[tuple[int, list[int]]]:
    """Calls that fail at a webhook, with what its own pods complained of before."""
    for n, signal in enumerate(signals):
        if signal.kind in (SignalKind.ERROR, SignalKind.METRIC) and (asked := _asked(signal, top)):
            found = [m for m, one in behind.items() if one.workloads & asked and _is_before(one.signal, signal)]
            if found:
                yield n, found


def _scales(failed: Signal, one: _Told) -> bool:
    """Whether calls fail by which somebody wanted to scale the one workload that complains, or several in its
    namespace."""
    is_scale = any(entity[0] == "access" and entity[3].endswith("/scale") for entity in failed.about)
    return is_scale and any(
        ("ns", namespace) in failed.about and (names(failed.text, name) or SEVERAL in failed.text)
        for namespace, name in (one.workloads if len(one.workloads) == 1 else ())
    )


def _scalers(one: _Told, top: Topology) -> set[str]:
    """The custom resources that scale the one workload that fails its clients (KEDA's ScaledObject), written whole."""
    is_served = one.signal.facts.get("reason") in SERVING
    customs = (other for other in _referers(one, top) if is_custom(other) and "Scale" in other.kind)
    return {f"{other.kind}/{other.namespace or ''}/{other.name}" for other in customs} if is_served else set()


def _autoscalers(one: _Told, top: Topology) -> set[Entity]:
    """The autoscalers of the one workload that complains."""
    return {("object", HPA, other.namespace or "", other.name) for other in _referers(one, top) if other.kind == HPA}


def _referers(one: _Told, top: Topology) -> Iterator[Resource]:
    """What refers to the one workload that complains."""
    for namespace, name in one.workloads if len(one.workloads) == 1 else ():
        for kind in ("", *WORKLOADS):
            yield from top.referers.get((kind, namespace, name), ())


def _is_blind(signal: Signal, own: set[Entity]) -> bool:
    """Whether an autoscaler gets no figures, as the API that has them does not answer: not for what is wrong with the
    pods that it scales. They are as few as they were then."""
    asked = signal.kind is SignalKind.SYMPTOM and any(entity[0] == "api" for entity in signal.about)
    return asked and not own.isdisjoint(signal.about)


def _called(one: _Told, top: Topology) -> set[Named]:
    """The workloads behind the Services that a custom resource says not to reach."""
    if not one.object or not _NETWORK.search(one.signal.text):
        return set()
    named = set(hosts("", one.signal.text, one.whole.split("/")[1], known=top.services))
    return {key for key, services in top.fronts.items() if services & named}


def _told(signal: Signal, top: Topology) -> _Told | None:
    """An autoscaler that cannot measure a workload complains, not the workload; that pods are taken from a node is no
    complaint of that node's."""
    entities = {*signal.about, *signal.spread}
    of_others = any(entity[1:2] == (HPA,) for entity in entities)
    if signal.kind is not SignalKind.SYMPTOM or of_others:
        return None
    objects = [entity for entity in entities if entity[0] == "object"]
    nodes = {entity for entity in entities if entity[0] == "node"}
    felt_by = (
        {client for one in objects for client in users_of(one[1], one[2], one[3], top)} if len(objects) == 1 else set()
    )
    workloads = {(entity[1], entity[2]) for entity in entities if entity[0] in ("workload", "loses")}
    taken = any(entity[0] == "loses" for entity in entities)
    return _Told(
        signal,
        set() if objects else workloads,
        set() if taken else nodes,
        objects[0][3] if len(objects) == 1 else "",
        "/".join(objects[0][1:]) if len(objects) == 1 else "",
        felt_by,
        taken,
    )


def _is_behind(other: _Told, one: _Told, below: dict[Named, set[Named]]) -> bool:
    """Whether a complaint may be what another one comes of, ``below`` being what each workload of that one rests on.

    One that is rested on may complain with the others: a webhook of its own pods.
    """
    rest = [some for home, some in below.items() if len(below) == 1 or home not in other.workloads]
    if rest and all(other.workloads & some for some in rest) and _is_before(other.signal, one.signal):
        return True
    if other.felt_by >= one.workloads and below and _is_before(other.signal, one.signal):
        return True
    if other.object and other.whole != one.whole and len(below) <= 1 and _is_before(other.signal, one.signal):
        is_meant = other.object != one.object and names(one.signal.text, other.object)
        return is_meant or names(one.signal.text, other.whole)
    is_short = other.signal.facts.get("reason") in SHORT and bool(other.nodes & one.nodes)
    return is_short and other.signal.low <= one.signal.low + GRACE


def _felt(lost: _Told, top: Topology) -> set[Named]:
    """The workloads with pods on nodes that are lost."""
    return {home for node in lost.nodes for home in top.by_node.get(node[1], ())}


def _missed(lost: Signal, client: Signal) -> bool:
    """Whether nodes were found to be lost at about the time of a complaint, or were so already and still are."""
    return lost.low - GRACE <= client.low and (lost.until is None or lost.until + REST >= client.low)


def _below(home: Named, signal: Signal, top: Topology, served: set[Named], makers: set[Named]) -> set[Named]:
    """What a workload that complains rests on: whom it calls, who keeps up what it reads, who answers a webhook that it
    complains of and, where it complains of the network or of names, or just fails its clients and does not say why, the
    programs that serve pods with these; where it finds no room, those that make nodes for it."""
    may_be = signal.cause in (TRUST, ROOTS) or signal.facts.get("reason") in SERVING or _NETWORK.search(signal.text)
    beside = (served if may_be else set()) | (makers if lacks_room(signal) else set())
    return {*closure([home], top.rests_on, depth=DEPTH), *beside, *_asked(signal, top)} - {home}


def _asked(signal: Signal, top: Topology) -> set[Named]:
    """Who answers a webhook that a signal names: not where that answered, and refused."""
    failed = " ".join(text for text in signal.text.split(" | ") if _DENIED not in text)
    said = f"{failed} {signal.facts.get('name', '')}"
    return {key for key, hooks in top.answers.items() if any(names(said, str(hook.get("name"))) for _, hook in hooks)}


def _is_before(signal: Signal, client: Signal) -> bool:
    """Whether it began before the client's complaint, and was not over by then."""
    is_over = signal.until is not None and signal.until + REST < client.low
    return signal.low <= client.low + TOGETHER and not is_over
