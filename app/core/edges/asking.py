"""Webhooks: what they are asked about, and can refuse, alter or hold up; and what makes them answer, or not."""

from __future__ import annotations

from app.core.edges.topology import Named, State, Topology
from app.core.entities import NODES, Add, altered, asked, of_injected, pods_in
from app.core.objects.selectors import selects
from app.core.objects.untyped import objects, texts


def answered(key: Named, top: Topology, add: Add, hops: float) -> None:
    """Add what is asked of a workload by the API server, as it answers webhooks."""
    for kind, hook in top.answers.get(key, ()):
        asked_about(kind, hook, top, add, hops)


def asked_about(kind: str, hook: State, top: Topology, add: Add, hops: float) -> None:
    """What a webhook is asked about, and can refuse, alter or hold up."""
    add(("named", str(hook.get("name", ""))), hops)
    part = "mutating-webhook" if kind == "MutatingWebhookConfiguration" else "validating-webhook"
    if kind == "MutatingWebhookConfiguration":
        _made_otherwise(hook, top, add, hops + 1)
    if _holds_up_heartbeats(hook, top):
        add(NODES, hops + 1)
    for rule in objects(hook.get("rules")):
        for group in texts(rule.get("apiGroups")) or ["*"]:
            for plural in texts(rule.get("resources")) or ["*"]:
                operations = texts(rule.get("operations")) or ["*"]
                for verb in (verb for operation in operations for verb in _verbs_of(operation)):
                    add(("api", group, plural, verb), hops + 1)
                    add(asked(part, group, plural.replace("*/*", "*"), verb), hops)
                    if kind == "MutatingWebhookConfiguration":
                        add(altered(group, plural.replace("*/*", "*"), verb), hops)


def _holds_up_heartbeats(hook: State, top: Topology) -> bool:
    """Whether nodes are not ready where a webhook does not answer: their heartbeats are updates of Leases
    (https://kubernetes.io/docs/reference/node/node-status/#heartbeats)."""
    home = {"kubernetes.io/metadata.name": "kube-node-lease", **top.namespace_labels.get("kube-node-lease", {})}
    if hook.get("failurePolicy") == "Ignore" or not selects(hook.get("namespaceSelector") or {}, home):
        return False
    return any(
        {"coordination.k8s.io", "*"} & set(texts(rule.get("apiGroups")))
        and {"leases", "*", "*/*"} & set(texts(rule.get("resources")))
        and {"UPDATE", "*"} & set(texts(rule.get("operations")))
        for rule in objects(hook.get("rules"))
    )


def _made_otherwise(hook: State, top: Topology, add: Add, hops: float) -> None:
    """The namespaces whose new pods a mutating webhook may alter."""
    touched = {plural for rule in objects(hook.get("rules")) for plural in texts(rule.get("resources")) or ["*"]}
    if not touched & {"pods", "*", "*/*", "deployments", "replicasets", "statefulsets", "daemonsets", "jobs"}:
        return
    for namespace in {namespace for namespace, _ in top.labels}:
        labels = {"kubernetes.io/metadata.name": namespace, **top.namespace_labels.get(namespace, {})}
        if selects(hook.get("namespaceSelector") or {}, labels):
            add(pods_in(namespace), hops)
            add(of_injected(namespace), hops - 1)


def _verbs_of(operation: str) -> tuple[str, ...]:
    """The verbs of requests that are an operation to admission: a patch is an update."""
    verbs = {"CREATE": ("create",), "UPDATE": ("update", "patch"), "DELETE": ("delete",), "CONNECT": ("connect",)}
    return verbs.get(operation, ("*",))
