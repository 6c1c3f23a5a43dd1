"""What stands between a caller and an app: selectors, policies, names, probes."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab.lab import Lab
from tests.lab.scenario import family


@family("The Service of cart selects a label that no pod has after a clean-up of labels: what calls it is not ready.")
async def service_selector(lab: Lab) -> AsyncIterator[None]:
    lab.reserve("shop", "cart", "frontend")
    lab.alert_lacking("shop", "frontend")
    yield
    await lab.culprit(
        "bob", "update", "Service", "shop", "cart", {"spec": {"selector": {"app.kubernetes.io/part-of": "shop"}}}
    )


@family("A NetworkPolicy meant to protect the ledger lets only pods with a label in: checkout times out.")
async def network_policy(lab: Lab) -> AsyncIterator[None]:
    lab.reserve("payments", "checkout", "ledger")
    lab.reserve("shop", "cart")
    lab.alert_lacking("payments", "checkout")
    yield
    spec = {
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "ledger"}},
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [{"podSelector": {"matchLabels": {"access": "ledger"}}}]}],
    }
    await lab.culprit(
        "carol",
        "create",
        "NetworkPolicy",
        "payments",
        "ledger-only",
        {"metadata": {"name": "ledger-only"}, "spec": spec},
    )


@family("The Corefile loses its kubernetes plugin in an edit for a new forwarder: no name of a Service is resolved.")
async def coredns_corefile(lab: Lab) -> AsyncIterator[None]:
    lab.alert_lacking("shop", "frontend")
    lab.alert_lacking("search", "query")
    for namespace, name in (("shop", "frontend"), ("search", "query")):
        lab.reserve(namespace, name)
    yield
    corefile = ".:53 {\n    errors\n    health\n    forward corp.example 10.2.0.53\n    cache 30\n}\n"
    await lab.culprit("alice", "update", "ConfigMap", "kube-system", "coredns", {"data": {"Corefile": corefile}})


@family("A rollout asks for readiness on a path that the app does not have: the new pods are never ready.")
async def readiness_path(lab: Lab) -> AsyncIterator[None]:
    lab.reserve("search", "indexer")
    lab.alert_stuck("search", "indexer")
    yield
    probe = {"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 5}
    await lab.roll("flux", "search", "indexer", "1.1.0", culprit=True, readinessProbe=probe)
