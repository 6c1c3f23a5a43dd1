"""What apps stand on: a Service that many call."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab.apps import App
from tests.lab.lab import Lab
from tests.lab.scenario import family


@family(
    "A Service may be reached on the caller's own node only, so that no call pays for its way between zones: it has"
    " fewer pods than there are nodes, and callers on the other ones wait in vain.",
    joined=9,
)
async def traffic_policy(lab: Lab) -> AsyncIterator[None]:
    home, callee = lab.rng.choice((("platform", "sessions"), ("platform", "flags"), ("search", "geocoder")))
    namespace, name = lab.rng.choice((("shop", "addresses"), ("media", "profiles"), ("payments", "wallet")))
    await lab.app(home, callee, replicas=2)
    await lab.app(namespace, name, like=App("", upstreams=((home, callee),)), replicas=5)
    lab.alert_lacking(namespace, name)
    yield
    body = {"spec": {"internalTrafficPolicy": "Local"}}
    await lab.culprit(lab.rng.choice(("bob", "flux", "ci")), "update", "Service", home, callee, body)
