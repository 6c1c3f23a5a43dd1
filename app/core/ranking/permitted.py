"""What rights tell where no audit log tells who calls: whose calls a metric may count, and who acts on what.

The API server's own metrics have no client (https://kubernetes.io/docs/reference/instrumentation/metrics/). But in a
cluster with RBAC few programs may list Deployments, or ask for tokens, and the cluster's roles say which; and it is
its operator that a role lets watch a custom resource by name.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from app.core.edges.references import FEW, Reading, Watched
from app.core.edges.topology import Topology
from app.core.entities import Entity, only_reacts, workload
from app.core.metrics.families import VERBS
from app.core.objects.actors import service_account
from app.core.objects.grants import Grant, rules_of
from app.core.objects.kinds import plural_of
from app.core.objects.pod_states import EVICTED
from app.core.ranking.bare import Makers
from app.core.signals.evictions import EVICTION
from app.core.signals.signal import Signal, SignalKind

Rights = Mapping[str, frozenset[Grant]]
"""What each user may do."""
_READS = frozenset({"get", "list", "watch", "*"})
_MAKE_PODS: frozenset[Grant] = frozenset({("", "pods", "create"), ("", "pods", "*")})
CAN = 0.9
"""How sure it is that a rise of calls is by one of those who may make them, where one alone may."""


def rights(top: Topology, *, reacting: bool = False) -> Rights:
    """What each ServiceAccount may do that something runs as, less those of Kubernetes' own controllers and the like,
    but where those that are ``reacting`` count."""
    found: dict[str, frozenset[Grant]] = defaultdict(frozenset)
    for role, state in top.states.items():
        if role.kind in ("Role", "ClusterRole"):
            where = (role.namespace or "") if role.kind == "Role" else ""
            for user in top.subjects.get((role.kind, where, role.name), ()):
                if service_account(user) in top.by_account and (reacting or not only_reacts(user)):
                    found[user] |= rules_of(state)
    return found


def may_watch(of: Rights, top: Topology) -> Watched:
    """Who may list or watch which custom resources, as references.watched tells who does: who may watch anything acts
    on none in particular."""
    found: Watched = defaultdict(set)
    kinds = [(group, plural_of(group, kind)) for group, kind in top.customs]
    for user, grants in of.items():
        named = [grant for grant in grants if grant[0] != "*"]
        seen = [
            kind
            for kind in kinds
            if any(_covers(grant, (*kind, verb)) for grant in named for verb in ("list", "watch"))
        ]
        for kind in seen if len(seen) <= FEW else ():
            found[kind].add(user)
    return found


def may_read(top: Topology) -> Reading:
    """Which programs may read what, as references.reading tells which do."""
    kinds: dict[str, set[tuple[str, str, str]]] = defaultdict(set)
    for role, state in top.states.items():
        if role.kind in ("Role", "ClusterRole"):
            where = role.namespace or ""
            for user in top.subjects.get((role.kind, where, role.name), ()):
                if service_account(user) in top.by_account and not only_reacts(user):
                    kinds[user] |= {(group, plural, where) for group, plural, verb in rules_of(state) if verb in _READS}
    found: Reading = defaultdict(set)
    for user, seen in kinds.items():
        for kind in seen if len({plural for _, plural, _ in seen}) <= FEW else ():
            found[kind].add(user)
    return found


def pod_makers(top: Topology) -> Makers:
    """Which programs may make pods, by the namespace of the role that lets them; who may make anything, as what applies
    manifests may, makes none in particular."""
    found: dict[str, frozenset[str]] = defaultdict(frozenset)
    for role, state in top.states.items():
        if role.kind in ("Role", "ClusterRole") and not rules_of(state).isdisjoint(_MAKE_PODS):
            where = role.namespace or ""
            users = top.subjects.get((role.kind, where, role.name), set())
            found[where] |= {one for one in users if service_account(one) in top.by_account and not only_reacts(one)}
    return found


def with_callers(signals: Iterable[Signal], of: Rights, top: Topology) -> list[Signal]:
    """The signals; metrics of calls, evictions, and fights with an unknown writer are about the programs that may make
    such calls as well, and say how many may (``able``).

    The likelier, the fewer of the cluster's accounts may: that one may which has nothing to do with it says less the
    more there are that may, log(all/those) as of any evidence.
    """
    return [_with_callers(one, of, top) for one in signals]


def _with_callers(signal: Signal, of: Rights, top: Topology) -> Signal:
    calls = _calls(signal)
    able = [
        user
        for user, grants in of.items()
        if user not in signal.users and any(_covers(grant, call) for grant in grants for call in calls)
    ]
    if not able:
        return signal
    everybody = max(2, len(top.by_account))
    told = CAN * math.log(everybody / len(able)) / math.log(everybody)
    homes = [home for user in able if (account := service_account(user)) for home in top.by_account[account]]
    callers: list[Entity] = [*(("user", user) for user in able), *(workload(*home) for home in homes)]
    return replace(
        signal, about=dict.fromkeys(callers, told) | signal.about, facts=signal.facts | {"able": str(len(able))}
    )


def _calls(signal: Signal) -> tuple[Grant, ...]:
    """The call that a signal counts, or one of those that somebody made for it; none where it does not say."""
    if signal.facts.get("reason") == EVICTED:
        return (EVICTION,)
    if written := signal.facts.get("written"):
        return tuple((signal.facts["group"], written, verb) for verb in ("update", "patch"))
    verb, resource = VERBS.get(signal.facts.get("verb", "")), signal.facts.get("resource")
    if signal.kind is not SignalKind.METRIC or not verb or not resource:
        return ()
    below = signal.facts.get("subresource")
    return ((signal.facts.get("group", ""), f"{resource}/{below}" if below else resource, verb),)


def _covers(grant: Grant, call: Grant) -> bool:
    return all(have in ("*", want) for have, want in zip(grant, call, strict=True))
