"""What probes say of pods that have not been ready yet: no harm, where they soon are.

A pod is not asked whether it is ready before it could be, so that nearly every rollout's pods fail some probes:
https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes/ . Liveness probes are another
thing: a container that fails them is killed.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from app.core.bounded import put
from app.core.model import Resource, Symptom

PASSED = "info"
"""The severity of what was no harm."""
SOON = timedelta(minutes=2)
"""A pod that fails its probes for longer before it is ready was missed, though it is well now."""
_PROBES = ("Readiness probe", "Startup probe")
_LATELY = timedelta(minutes=5)
"""An Event about a pod's start is told within this time after it."""
_LIMIT = 5_000
"""Pods that start, or were ready for the first time, lately."""


class Starting:
    """Failed probes of pods that start, by pod. ``heard`` and ``ready`` may come in either order."""

    def __init__(self) -> None:
        self._said: dict[Resource, dict[tuple[str, datetime], Symptom]] = {}
        self._ready: dict[Resource, datetime] = {}

    def heard(self, symptom: Symptom, *, was_ready: bool) -> Symptom:
        """A warning as it is to be told; ``was_ready``: its pod has been, as far as is known."""
        pod = symptom.resource
        if pod is None or symptom.reason != "Unhealthy" or not symptom.message.startswith(_PROBES):
            return symptom
        if was_ready:
            return _passed(symptom, self._ready[pod]) if pod in self._ready else symptom
        said = self._said.get(pod, {})
        said[symptom.fingerprint, symptom.at] = symptom
        put(self._said, pod, said, limit=_LIMIT)
        return symptom

    def ready(self, pod: Resource, since: datetime, *, at: datetime) -> list[Symptom]:
        """The pod is ready for the first time: what was said of it before was no harm."""
        if at - since <= _LATELY:
            put(self._ready, pod, since, limit=_LIMIT)
        said = (_passed(symptom, since) for symptom in self._said.pop(pod, {}).values())
        return [symptom for symptom in said if symptom.severity == PASSED]

    def forget(self, pod: Resource) -> None:
        """The pod is gone."""
        self._said.pop(pod, None)
        self._ready.pop(pod, None)


def _passed(symptom: Symptom, since: datetime) -> Symptom:
    soon = (symptom.ended_at or symptom.at) <= since <= symptom.at + SOON
    return replace(symptom, severity=PASSED) if soon else symptom
