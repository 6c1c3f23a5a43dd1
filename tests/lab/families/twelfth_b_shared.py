"""What was told of what all share: a domain that DNS takes for its own, storage that fills, a node's resolvers."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab.apps import App
from tests.lab.company import COREFILE
from tests.lab.lab import Lab
from tests.lab.scenario import family

NEARLY_FULL, FULL = 0.85, 0.95
"""As Ceph has it: from here on it warns, and from here on it takes no write."""
DISKS, DISK_BYTES = 6, 2 * 2**40


@family(
    "The cluster's DNS gets the company's own domain as a zone, for the names of tools inside: what else that domain"
    " has is kept by somebody outside, and none of its names is found any more.",
    joined=14,
)
async def dns_zone(lab: Lab) -> AsyncIterator[None]:
    """As a user of Technitium's DNS server tells (2026)."""
    domain = "corp.example"
    callers = (
        ("shop", "login", f"accounts.{domain}"),
        ("payments", "statements", f"files.{domain}"),
        ("media", "player", f"video.{domain}"),
    )
    for namespace, name, host in lab.rng.sample(callers, 2):
        await lab.app(namespace, name, like=App("", abroad=(host,)), replicas=3)
        lab.alert_lacking(namespace, name)
    await lab.app("search", "importer", like=App("", abroad=("feeds.partner.example",)))
    yield
    inside = ("10.20.0.11 wiki", "10.20.0.12 grafana", "10.20.0.13 tickets")
    hosts = "\n".join(f"        {one}.{domain}" for one in lab.rng.sample(inside, 2))
    zone = f"{domain}:53 {{\n    errors\n    hosts {{\n{hosts}\n    }}\n}}\n"
    by = lab.rng.choice(("bob", "flux", "carol"))
    body = {"data": {"Corefile": f"{zone}{COREFILE}"}}
    await lab.culprit(by, "update", "ConfigMap", "kube-system", "coredns", body)
