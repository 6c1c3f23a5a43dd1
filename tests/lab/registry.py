"""Where images come from: a registry that is up or not, and takes only so many requests from one address."""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta
from hashlib import sha256
from zlib import crc32

from tests.lab.api import now
from tests.lab.apps import Outside

WINDOW_SECONDS = 20.0
"""For which requests count; all nodes are behind one address."""


class Registry:
    """As kubelets ask it."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self._asked: deque[datetime] = deque()

    def refusal(self, image: str, node: str = "") -> str:
        """Why it does not give an image out to a node; or ""."""
        if node in self._outside.nameless:
            return _unresolved(image)
        if not self._outside.registry_up:
            return "dial tcp 10.0.9.4:443: connect: connection refused"
        if why := self._outside.broken.get(image.partition("/")[0]):
            return why
        if self._is_beyond():
            return "429 Too Many Requests - Server message: toomanyrequests: too many requests from your address"
        if image in self._outside.missing:
            return "manifest unknown"
        return _not_unpacked(image) if node in self._outside.unpacking_none else ""

    def _is_beyond(self) -> bool:
        """Whether there were too many requests already; this one counts too, if it is answered or not."""
        most = self._outside.pulls
        if most is None:
            return False
        since = now() - timedelta(seconds=WINDOW_SECONDS)
        while self._asked and self._asked[0] < since:
            self._asked.popleft()
        self._asked.append(now())
        return len(self._asked) > most


def _not_unpacked(image: str) -> str:
    """As containerd says it that does not find the layer below, where it keeps what it has unpacked."""
    number = crc32(image.encode())
    layer = f"extract-{number % 10**9}-k3Xw sha256:{sha256(image.encode()).hexdigest()}"
    lost = f"stat /var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/{number % 400}/fs"
    prepared = f'failed to prepare extraction snapshot "{layer}": failed to stat parent: {lost}'
    return f'failed to pull and unpack image "{image}": {prepared}: no such file or directory'


def _unresolved(image: str) -> str:
    """As a runtime says it that has no resolver to ask: it asks its own machine, where there is none."""
    host, _, rest = image.partition("/")
    name, _, tag = rest.rpartition(":")
    asked = f'failed to do request: Head "https://{host}/v2/{name}/manifests/{tag}"'
    nobody = "read udp [::1]:47116->[::1]:53: read: connection refused"
    failed = f'failed to pull and unpack image "{image}": failed to resolve reference "{image}"'
    return f"{failed}: {asked}: dial tcp: lookup {host} on [::1]:53: {nobody}"
