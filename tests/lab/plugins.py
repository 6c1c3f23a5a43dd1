"""The network's plugin on a node, which connects each new pod, and lets go of each that ends."""

from __future__ import annotations

from tests.lab.api import Json, World
from tests.lab.apps import Outside
from tests.lab.network import lacks_address


def refusal(world: World, outside: Outside, node: str, pod: Json) -> str:
    """Why it does not connect a pod; or ""."""
    if failure := outside.unplugged(node, pod):
        return failure
    most = outside.addresses.get(node)
    is_lacking = most is not None and lacks_address(world, pod, most)
    return "add cmd: failed to assign an IP address to container" if is_lacking else ""
