"""Who goes by flags that a program of their own hands out: what is set there is a setting of whoever asks it."""

from __future__ import annotations

import re

from app.core.edges.topology import Named, Topology

_HANDS_OUT = re.compile(
    r"flagd|unleash|flipt|growthbook|flagsmith|featurehub|(?:ld|launchdarkly)-relay|feature-?flags?"
)
"""What programs that hand out flags are called: https://openfeature.dev/ecosystem lists most of them."""


def goes_by(providers: set[Named], top: Topology) -> set[Named]:
    """The workloads that ask those of ``providers`` that hand out flags."""
    fronts = {front for key in providers if _HANDS_OUT.search(key[1]) for front in top.fronts.get(key, ())}
    return {client for front in fronts for client in top.clients.get(front, ())} - providers
