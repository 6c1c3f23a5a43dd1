"""What a kubelet does when its node's disk is full: who used most goes first, and each is told how much it used.

Its words: pkg/kubelet/eviction/helpers.go of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from zlib import crc32

from tests.lab.api import Json

FULL = "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 9Gi. "


def kibibytes(pod: Json, written: Mapping[str, float]) -> int:
    """What a pod has on its node's disk: what it wrote, in MiB by uid, beside the few files that each has."""
    uid = pod["metadata"]["uid"]
    return int(written.get(uid, 0) * 1024) + 40 + crc32(uid.encode()) % 900


def by_use(pods: Iterable[Json], written: Mapping[str, float]) -> list[Json]:
    """The order in which pods that ask for no room of their own are evicted."""
    return sorted(pods, key=lambda pod: -kibibytes(pod, written))


def words(pod: Json, written: Mapping[str, float]) -> str:
    """Why a pod is evicted."""
    name = pod["spec"]["containers"][0]["name"]
    used = f"was using {kibibytes(pod, written)}Ki, request is 0, has larger consumption of ephemeral-storage"
    return f"{FULL}Container {name} {used}. "
