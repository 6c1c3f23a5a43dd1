"""Alerts that follow from what happened: rules over the objects and over what clients were answered."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tests.lab.api import Json, World
from tests.lab.manifests import is_ready
from tests.lab.scraping import labelled

FRESH_SECONDS = 3.0
"""For which what a rule was seen to be holds: while nobody looks, it has no series."""
NEVER = "0001-01-01T00:00:00Z"


@dataclass
class Rule:
    """An alert as a monitoring team has it: it fires once ``holds`` is true for so many seconds without a break."""

    alertname: str
    holds: Callable[[], bool]
    labels: Mapping[str, str]
    summary: str
    seconds: float = 5.0
    severity: str = "critical"
    pending: datetime | None = None
    fired: datetime | None = None
    since: datetime | None = None
    """As Prometheus has it now: since when it holds, whether it is firing, and when that was looked at."""
    is_firing: bool = False
    looked: datetime | None = None

    def evaluate(self, at: datetime, *, delay: float) -> None:
        """Look once; ``delay`` are further seconds for which it has to hold."""
        self.look(at, delay=delay)
        self.pending = self.since
        if self.is_firing:
            self.fired = self.fired or at

    def look(self, at: datetime, *, delay: float) -> None:
        """As it is now, for its series; who was told, and of when, stays as it was."""
        self.looked = at
        self.since = (self.since or at) if self.holds() else None
        self.is_firing = self.since is not None and at - self.since >= timedelta(seconds=self.seconds + delay)

    def forget(self) -> None:
        """As if nobody had ever looked."""
        self.pending = self.fired = self.since = self.looked = None
        self.is_firing = False

    def alert(self, shift: float) -> Json:
        """As Alertmanager tells it; its start is ``shift`` seconds off."""
        assert self.fired
        labels = {"alertname": self.alertname, "severity": self.severity, **self.labels}
        mark = hashlib.sha256(repr(sorted(labels.items())).encode()).hexdigest()[:16]
        return {
            "status": "firing",
            "labels": labels,
            "annotations": {"summary": self.summary},
            "startsAt": (self.fired + timedelta(seconds=shift)).isoformat(),
            "endsAt": NEVER,
            "generatorURL": "",
            "fingerprint": mark,
        }


def payload(rules: Sequence[Rule], *, shift: float = 0.0) -> Json:
    """The webhook of version 4 with every alert that fired."""
    return {
        "version": "4",
        "groupKey": "{}:{}",
        "truncatedAlerts": 0,
        "status": "firing",
        "receiver": "foreshock",
        "groupLabels": {},
        "commonLabels": {"cluster": "lab"},
        "commonAnnotations": {},
        "externalURL": "",
        "alerts": [rule.alert(shift) for rule in rules if rule.fired],
    }


def series(rules: Sequence[Rule], at: datetime) -> str:
    """ALERTS and ALERTS_FOR_STATE as Prometheus keeps them of each rule that is pending or firing."""
    states: dict[str, tuple[str, datetime]] = {}
    for rule in sorted(rules, key=lambda one: one.is_firing):
        if rule.since and rule.looked and at - rule.looked < timedelta(seconds=FRESH_SECONDS):
            told = labelled(alertname=rule.alertname, severity=rule.severity, **rule.labels)
            states[told] = ("firing" if rule.is_firing else "pending", rule.since)
    lines = ["# TYPE ALERTS gauge", "# TYPE ALERTS_FOR_STATE gauge"]
    for told, (state, since) in states.items():
        lines += [f'ALERTS{{alertstate="{state}",{told}}} 1', f"ALERTS_FOR_STATE{{{told}}} {since.timestamp():.0f}"]
    return "\n".join(lines)


def pods(world: World, namespace: str, name: str) -> list[Json]:
    """The pods of an app."""
    return [
        pod
        for pod in world["Pod"].values()
        if pod["metadata"]["namespace"] == namespace
        and pod["metadata"].get("labels", {}).get("app.kubernetes.io/name") == name
    ]


def restarts(world: World, namespace: str, name: str) -> int:
    """Of all containers of an app's pods that are there."""
    found = pods(world, namespace, name)
    return sum(one["restartCount"] for pod in found for one in pod.get("status", {}).get("containerStatuses", ()))


def lacking(world: World, namespace: str, name: str) -> bool:
    """Fewer pods of an app are ready than its Deployment, StatefulSet or DaemonSet wants."""
    ready = sum(is_ready(pod) and "deletionTimestamp" not in pod["metadata"] for pod in pods(world, namespace, name))
    for kind in ("Deployment", "StatefulSet"):
        if (namespace, name) in world[kind]:
            return ready < int(world[kind][namespace, name]["spec"]["replicas"])
    wanted: Any = world["DaemonSet"].get((namespace, name), {}).get("status", {}).get("desiredNumberScheduled", 1)
    return ready < int(wanted)


def stuck(world: World, namespace: str, name: str) -> bool:
    """A pod of an app waits, crashes, or a rollout is not through."""
    status = world["Deployment"].get((namespace, name), {}).get("status", {})
    spec = world["Deployment"].get((namespace, name), {}).get("spec", {})
    return bool(status.get("unavailableReplicas")) or status.get("updatedReplicas", 0) < spec.get("replicas", 1)


def pending(world: World, namespace: str = "") -> bool:
    """A pod has no node, there or anywhere."""
    return any(
        not pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
        for (where, _), pod in world["Pod"].items()
        if not namespace or where == namespace
    )


def is_lost(world: World, node: str) -> bool:
    """Whether a node is there and not ready, or nothing is heard of it."""
    conditions = world["Node"].get(("", node), {}).get("status", {}).get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] != "True" for one in conditions)


def was_out_of_memory(world: World, node: str) -> bool:
    """Whether the kubelet of a node has told of it."""
    events = world["Event"].values()
    return any(one["reason"] == "SystemOOM" and one["involvedObject"]["name"] == node for one in events)
