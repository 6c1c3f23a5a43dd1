"""What stands between who asks and who answers: an Ingress, a label of a namespace, a cache."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tests.lab.company import APPS
from tests.lab.lab import Lab
from tests.lab.network import INGRESS_CLASS, unserved
from tests.lab.scenario import family


@family(
    "An Ingress is moved to the class of a new gateway that nobody has set up yet: the old controller lets go of it,"
    " and whoever asks for its host gets 404.",
    joined=5,
)
async def ingress_class(lab: Lab) -> AsyncIterator[None]:
    hosts = {"shop": "frontend", "payments": "checkout", "search": "query", "media": "uploads"}
    for namespace, name in hosts.items():
        _probe_from_outside(lab, await publish(lab, namespace, name))
    yield
    moved = lab.rng.choice(sorted(hosts))
    by = lab.rng.choice(("bob", "flux", "ci"))
    await lab.culprit(by, "update", "Ingress", moved, moved, {"spec": {"ingressClassName": "gateway"}})


async def publish(lab: Lab, namespace: str, name: str, *, by_class: str = INGRESS_CLASS) -> str:
    """An Ingress of the namespace's own public name, which is returned, to one of its apps. Raises RefusedError."""
    host, service = f"{namespace}.corp.example", {"service": {"name": name, "port": {"number": 80}}}
    paths = [{"path": "/", "pathType": "Prefix", "backend": service}]
    spec = {"ingressClassName": by_class, "rules": [{"host": host, "http": {"paths": paths}}]}
    meta = {"namespace": namespace, "name": namespace}
    await lab.apply({"kind": "Ingress", "metadata": meta, "spec": spec})
    lab.reserve(namespace, name)
    return host


def _probe_from_outside(lab: Lab, host: str) -> None:
    """As a blackbox exporter at another place."""
    holds = lambda: bool(unserved(lab.world, host))  # noqa: E731
    lab.alert("ProbeFailed", holds, f"https://{host} is not answered", 6, job="blackbox", instance=f"https://{host}")


@family(
    "A namespace loses a label that nobody seemed to need: a NetworkPolicy of another team let in by it, and calls from"
    " there time out.",
    joined=5,
)
async def namespace_label(lab: Lab) -> AsyncIterator[None]:
    lab.reserve("shop", "frontend", "cart", "catalog")
    lab.reserve("payments", "checkout", "ledger")
    label = {"tier.corp.example/customer": "true"}
    await lab.edit("admin", "Namespace", "", "shop", {"metadata": {"labels": label}})
    callers = [{"namespaceSelector": {"matchLabels": label}}, {"podSelector": {}}]
    spec = {
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "checkout"}},
        "policyTypes": ["Ingress"],
        "ingress": [{"from": callers}],
    }
    meta = {"namespace": "payments", "name": "checkout"}
    await lab.apply({"kind": "NetworkPolicy", "metadata": meta, "spec": spec})
    lab.alert_lacking("shop", "cart")
    yield
    by = lab.rng.choice(("alice", "flux", "ci"))
    labels = {"metadata": {"labels": {"tier.corp.example/customer": None, "owner": "storefront"}}}
    await lab.culprit(by, "update", "Namespace", "", "shop", labels)


@family(
    "What a caller keeps of answers is kept for a second or two in place of ten minutes, so that prices are fresh: all"
    " of its traffic arrives at another app, which does not stand it.",
    joined=5,
)
async def cache_lifetime(lab: Lab) -> AsyncIterator[None]:
    caller, called, calls = lab.rng.choice(
        (("frontend", "catalog", 330.0), ("frontend", "cart", 290.0), ("cart", "catalog", 270.0))
    )
    lab.reserve("shop", *APPS["shop"])
    lab.reserve("payments", *APPS["payments"])
    app = lab.apps[f"registry.corp.example/shop/{called}"]
    await lab.edit("admin", "ConfigMap", "shop", caller, {"data": {"CACHE_SECONDS": "600"}})

    async def traffic() -> None:
        """The longer an answer is kept, the fewer of the calls are made."""
        while True:
            kept = int(lab.world["ConfigMap"]["shop", caller]["data"].get("CACHE_SECONDS", "600"))
            app.load = calls / (1 + kept / 20)
            await asyncio.sleep(0.5)

    lab.start(traffic())
    lab.alert_lacking("shop", called)
    yield
    seconds = lab.rng.choice(("0", "1", "2"))
    await lab.culprit("bob", "update", "ConfigMap", "shop", caller, {"data": {"CACHE_SECONDS": seconds}})
