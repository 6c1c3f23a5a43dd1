"""What several have to agree on: who signs tokens, what a kind has beside its fields, which taint is tolerated."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.apps import App, Container, Problem
from tests.lab.families.between import publish
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family

WITH_TOKEN = 0.9
"""The share of the requests to an API that come with a user's token."""
MADE_EVERY, KEPT, WAITS_SECONDS = 2.5, 14, 6.0
"""Seconds between two that are ordered, how many of them are left, and for how long whoever ordered one waits."""
ORDERED = 0.5
"""The share of the requests to an app that order one."""


@family(
    "The settings that several apps share name who signs tokens, and get its new name: those that read them anew take"
    " only its tokens from now on, and the one that signs has read the old name at its start.",
    joined=20,
)
async def shared_issuer(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: it is the plainest that there is."""
    namespace, apis, page = lab.rng.choice(
        (
            ("shop", ("orders", "wishlist"), "account"),
            ("payments", ("mandates", "limits"), "wallet"),
            ("media", ("playlists", "history"), "profile"),
        )
    )
    config = lab.rng.choice((f"{namespace}-common", "shared-settings", "common"))
    old, new = lab.rng.choice(
        (
            ("https://login.corp.example", "https://id.corp.example"),
            ("https://sso.corp.example", "https://login.corp.example"),
        )
    )
    signs_as: dict[str, str] = {}
    """By uid, what each process that signs has read at its start."""

    def sign(container: Container) -> Problem | None:
        signs_as.setdefault(container.pod["metadata"]["uid"], container.config["AUTH_ISSUER"])
        return None

    def refused(container: Container) -> float:
        """The share of the requests whose token is of another issuer than it takes."""
        there = [signs_as.get(pod["metadata"]["uid"], "") for pod in backends(lab.world, namespace, "login")]
        others = sum(issuer != container.config["AUTH_ISSUER"] for issuer in there)
        return WITH_TOKEN * others / len(there) if there else 0.0

    await lab.apply(objects.config_map(namespace, config, AUTH_ISSUER=old, LOG_FORMAT="json", CURRENCY="EUR"))
    await lab.app(namespace, "login", like=App("", check=sign), replicas=2, config=config)
    for api in apis:
        like = App("", failing=refused, fails_with=lambda _: "401")
        await lab.app(namespace, api, like=like, replicas=3, config=config)
    calls = tuple((namespace, one) for one in apis)
    await lab.app(namespace, page, like=App("", upstreams=calls), replicas=3)
    await lab.until(lambda: backends(lab.world, namespace, page))
    await publish(lab, namespace, page)
    lab.alert_errors(namespace, page)
    lab.alert_ingress_errors(namespace, namespace)
    yield
    by = lab.rng.choice(("alice", "argocd", "flux"))
    await lab.culprit(by, "update", "ConfigMap", namespace, config, {"data": {"AUTH_ISSUER": new}})
