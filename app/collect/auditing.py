"""Whether a cluster's API server tells of its requests, as far as that can be known from outside.

https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

import msgspec

from app.collect.apiserver import ApiServer, RefusedError
from app.collect.diagnosis import Finding, Level, ok
from app.store.reach import AUDIT_LOG

LATELY = timedelta(hours=1)
"""An API server is asked something every second: where nothing was told for so long, nothing is being told."""
PODS = "/api/v1/namespaces/kube-system/pods"
STATIC = {"labelSelector": "component=kube-apiserver"}
"""How kubeadm, and what builds on it, labels the pod that its API server runs in."""
NOT_OURS = frozenset({401, 403, 404})
HOW = "docs/audit-webhook.md says how, flag by flag"
UNSEEN = (
    "who makes changes, but for field managers; who calls how often; what was refused; what came and went while a watch"
    " was interrupted"
)
MANAGED = {
    "EKS": "EKS sets the API server's flags itself and has no webhook. Switch the control plane's audit logs on (aws"
    " eks update-cluster-config --logging) and import what CloudWatch Logs exports of them, as it comes: foreshock"
    " import FILE; docs/import.md has the commands",
    "GKE": "GKE sets the API server's flags itself and has no webhook. Import what Cloud Logging has of its audit log"
    " (gcloud logging read --format=json), which lacks latencies and, unless Data Access logs are on, reads: foreshock"
    " import FILE; docs/import.md has the commands",
    "AKS": "AKS sets the API server's flags itself and has no webhook. Send kube-audit to a storage account with a"
    " diagnostic setting and import its blobs, as they are: foreshock import FILE; docs/import.md has the commands",
}


class _Container(msgspec.Struct):
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] | None = None


class _Spec(msgspec.Struct):
    containers: tuple[_Container, ...] = ()


class _Pod(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _Pods(msgspec.Struct):
    items: tuple[_Pod, ...] = ()


_pods = msgspec.json.Decoder(_Pods)


async def flags(api: ApiServer) -> dict[str, str] | None:
    """The flags that the API server was started with, where its pod can be read. Raises RefusedError, UnreachableError,
    msgspec.MsgspecError.
    """
    try:
        found = _pods.decode(await api.get(PODS, STATIC)).items
    except RefusedError as error:
        if error.status in NOT_OURS:
            return None
        raise
    words = [
        word for pod in found[:1] for one in pod.spec.containers for word in (*(one.command or ()), *(one.args or ()))
    ]
    return {name: value or "true" for name, _, value in (word.partition("=") for word in words)} if words else None


def managed_by(git_version: str, url: str) -> str:
    """Whose managed cluster it is: a key of MANAGED; "" where it does not look like one."""
    if "-eks-" in git_version:
        return "EKS"
    if "-gke." in git_version:
        return "GKE"
    return "AKS" if ".azmk8s.io" in url else ""


def look(
    flags: Mapping[str, str] | None, managed: str, recorded: Mapping[str, datetime] | None, *, now: datetime
) -> Iterator[Finding]:
    """What is to be said of the audit log and of Events. ``recorded`` as in doctor.examine."""
    heard = recorded.get(AUDIT_LOG) if recorded is not None else None
    if heard and now - heard < LATELY:
        yield ok("audit", f"audit events tell of it up to {heard:%Y-%m-%d %H:%M:%S} UTC")
    else:
        yield _of_audit(flags, managed, heard, is_asked=recorded is not None)
    if flags and flags.get("--audit-webhook-config-file"):
        yield from _of_webhook(flags)
    kept = (flags or {}).get("--event-ttl")
    yield ok("events", f"the cluster keeps Events for {kept or 'an hour by default; how long here cannot be asked'}")


def _of_audit(flags: Mapping[str, str] | None, managed: str, heard: datetime | None, *, is_asked: bool) -> Finding:
    last = f"the last one tells of {heard:%Y-%m-%d %H:%M} UTC" if heard else "none ever came"
    came = f"no audit events came lately: {last}" if is_asked else "whether audit events come is not known"
    if managed:
        return Finding("audit", Level.WARNING, came, UNSEEN, MANAGED[managed])
    if flags is None:
        said = f"{came}; the API server's flags cannot be read (a pod with component=kube-apiserver in kube-system)"
        return Finding("audit", Level.WARNING, said, UNSEEN, f"set up the audit webhook: {HOW}")
    lacking = [one for one in ("--audit-policy-file", "--audit-webhook-config-file") if not flags.get(one)]
    if lacking:
        said = f"the API server has no {' and no '.join(lacking)}: it sends its audit events to nobody"
        return Finding("audit", Level.WARNING, said, UNSEEN, f"set up the audit webhook: {HOW}")
    to = flags["--audit-webhook-config-file"]
    if not is_asked:
        return ok("audit", f"the API server sends audit events where {to} says; {came}: the database was not asked")
    fix = f"see whether that is this Foreshock, with a token of this cluster, and apiserver_audit_error_total; {HOW}"
    return Finding("audit", Level.WARNING, f"{came}, though the API server sends them where {to} says", UNSEEN, fix)


def _of_webhook(flags: Mapping[str, str]) -> Iterator[Finding]:
    if flags.get("--audit-webhook-truncate-enabled") != "true":
        yield Finding(
            "audit webhook",
            Level.WARNING,
            "--audit-webhook-truncate-enabled is not set: a batch may be of any size",
            "batches of more than 64 MiB, which are refused",
            f"--audit-webhook-truncate-enabled=true; {HOW}",
        )
    if (mode := flags.get("--audit-webhook-mode", "batch")) != "batch":
        yield Finding(
            "audit webhook",
            Level.WARNING,
            f"--audit-webhook-mode={mode}: every request to the API server waits for Foreshock",
            "",
            f"--audit-webhook-mode=batch; {HOW}",
        )
