"""Which changes are of an app that does nothing for others: it has no rights at the API server, and no part in how pods
are made, placed or connected. What they do shows at the app itself, and at whoever calls it.
"""

from __future__ import annotations

from collections.abc import Iterable

from app.core.edges.topology import Topology, before_and_after, pod_spec
from app.core.entities import WORKLOADS, Entity
from app.core.model import Change

_OF_APPS = (WORKLOADS - {"DaemonSet"}) | {
    *("ConfigMap", "Secret", "Service", "Ingress", "HorizontalPodAutoscaler", "PodDisruptionBudget"),
    *("PersistentVolumeClaim",),
}
_WITHIN = frozenset(
    {
        *("workload", "object", "written", "named", "ns", "manager", "prefix", "user"),
        *("calls", "asks", "occupies", "uncleared", "burdens", "shares", "beside"),
        *("reads", "takes", "fills", "joins", "evictions", "unguarded"),
    }
)
"""Ways to an app itself, to its namespace, and to those that it calls or that call it."""
_NOBODYS = "default"
"""The ServiceAccount of pods that name none; that of a namespace is bound to roles for all of its apps, if at all
(https://kubernetes.io/docs/concepts/security/service-accounts/#default-service-accounts)."""


def is_apart(change: Change, reached: Iterable[Entity], top: Topology) -> bool:
    """Whether a change, of all that it reaches, is of apps that do nothing for others. What no known pod reads or runs
    may be anything."""
    if any("resources" in diff.path for diff in change.diffs):
        return False  # room that is taken is missing elsewhere
    ways = {entity[0] for entity in reached}
    if change.resource.kind not in _OF_APPS or "workload" not in ways or not ways <= _WITHIN:
        return False
    keys = {(entity[1], entity[2]) for entity in reached if entity[0] == "workload"}
    named = {(key[0], account) for key in keys if (account := top.accounts.get(key))}
    for state in before_and_after(change, top) if change.resource.kind in WORKLOADS else ():
        account = str(pod_spec(state).get("serviceAccountName") or _NOBODYS)
        named.add((change.resource.namespace or "", account))
    return not any(account != _NOBODYS and top.is_bound((ns, account)) for ns, account in named)
