"""Who keeps writing what others read: credentials, certificates and configuration that an operator renews.

Where it ends, those who read them feel it later, when what they have is over.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from app.core.model import Change
from app.core.objects.actors import service_account
from app.core.objects.dependencies import Named

AGAIN = 2
"""Who wrote an object so often keeps it up; who wrote it once may just have made it."""
_READ_BY_PODS = frozenset({"Secret", "ConfigMap"})


def kept_up(
    changes: Iterable[Change],
    *,
    running_as: dict[Named, set[Named]],
    read_by: dict[tuple[str, str, str], set[Named]],
) -> dict[Named, set[Named]]:
    """The workloads that read what a workload keeps up, by that one.

    ``running_as`` has the workloads of each ServiceAccount, ``read_by`` those of each (kind, namespace, name).
    """
    wrote = Counter(
        (change.actor.name, change.resource)
        for change in changes
        if change.resource.kind in _READ_BY_PODS and service_account(change.actor.name)
    )
    found: dict[Named, set[Named]] = defaultdict(set)
    for (user, resource), often in wrote.items():
        readers = read_by.get((resource.kind, resource.namespace or "", resource.name), set())
        account = service_account(user)
        for writer in running_as.get(account, ()) if account and often >= AGAIN else ():
            found[writer] |= readers - {writer}
    return found
