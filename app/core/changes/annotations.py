"""What the API server says of a request in its audit event, beside the event's own fields.

Of a call of over half a second it says how long each part took:
https://pkg.go.dev/k8s.io/apiserver/pkg/endpoints/request#AuditAnnotationsFromLatencyTrackers .
"""

from __future__ import annotations

import re

import msgspec

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(h|ms|µs|us|ns|m|s)")
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6, "us": 1e-6, "ns": 1e-9}


class RawAnnotations(msgspec.Struct, gc=False):
    """The annotations that are read; durations as Go writes them, "" where the call was not slow."""

    truncated: str = msgspec.field(default="", name="audit.k8s.io/truncated")
    total: str = msgspec.field(default="", name="apiserver.latency.k8s.io/total")
    validating: str = msgspec.field(default="", name="apiserver.latency.k8s.io/validating-webhook")
    mutating: str = msgspec.field(default="", name="apiserver.latency.k8s.io/mutating-webhook")
    queued: str = msgspec.field(default="", name="apiserver.latency.k8s.io/apf-queue-wait")
    etcd: str = msgspec.field(default="", name="apiserver.latency.k8s.io/etcd")


def waited_for(told: RawAnnotations) -> str:
    """The part of a slow call that took at least half of it, a key of core.waits.PARTS; "" where none did."""
    if not told.total:
        return ""
    parts = {
        "validating-webhook": told.validating,
        "mutating-webhook": told.mutating,
        "apf-queue-wait": told.queued,
        "etcd": told.etcd,
    }
    longest = max(parts, key=lambda part: seconds(parts[part]))
    return longest if 2 * seconds(parts[longest]) >= seconds(told.total) > 0 else ""


def seconds(duration: str) -> float:
    """A duration as Go writes it ("1m2.5s", "812.3ms") in seconds; 0 for what is none."""
    return sum(float(number) * _UNITS[unit] for number, unit in _DURATION.findall(duration))
