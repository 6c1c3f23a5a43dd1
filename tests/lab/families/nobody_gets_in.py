"""Nobody gets in: a provider of identities outside that does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial

from tests.lab import objects
from tests.lab.apps import App, Container, Problem
from tests.lab.families.by_annotation import rolled
from tests.lab.families.more_than_was_meant import Lately
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.scenario import family

ASKED, LOGINS = 19.0, 0.45
"""Requests a second to what signs people in, and the share for which the provider is asked: others have a session."""
PATIENCE_SECONDS = 5.0


@dataclass
class _Provider:
    """Of identities, outside: from its hour on it answers later and later, or nobody gets a connection."""

    lab: Lab
    host: str
    is_slow: bool
    is_asked_by_probes: bool
    late: float = 0.0
    """Seconds that an answer takes beside the usual."""
    _felt: Lately = field(init=False)

    def __post_init__(self) -> None:
        self._felt = Lately(self.lab, lambda: self.late > 0)

    def lost(self) -> float:
        """The share of logins that are given up."""
        return min(0.95, self.late / (self.late + 0.6 * PATIENCE_SECONDS)) if self._felt() else 0.0

    def fails(self, _: Container) -> float:
        return LOGINS * self.lost()

    def ends(self, result: str) -> float:
        """How many logins a second end so."""
        return ASKED * LOGINS * (self.lost() if result == "failure" else 1 - self.lost())

    def waits(self, _: Container) -> float:
        return LOGINS * min(PATIENCE_SECONDS, self.late) if self._felt() else 0.0

    def check(self, _: Container) -> Problem | None:
        if not (self.is_asked_by_probes and self.late >= PATIENCE_SECONDS):
            return None
        asked = f"https://{self.host}/.well-known/openid-configuration"
        return Problem("unready", f'probe failed: HTTP probe failed with statuscode: 503 (Get "{asked}": i/o timeout)')

    async def fall(self) -> None:
        """Slow by and by, or gone at once."""
        rng = self.lab.kubelets.rng
        while self.is_slow and self.late < 9:
            self.late = self.late * rng.uniform(1.1, 1.4) + 0.15
            await asyncio.sleep(1)
        self.late = max(self.late, 30.0) if not self.is_slow else self.late


@family(
    "No culprit. The identity provider outside, by which customers log in, answers slowly and then hardly at all, or is"
    " gone from one minute to the next: whoever has a session goes on, and nobody else gets in.",
    culprit=False,
    joined=94,
)
async def nobody_logs_in(lab: Lab) -> AsyncIterator[None]:
    """As those tell who waited for the page of its status to turn from green."""
    namespace, name, front, other, host = lab.rng.choice(
        (
            ("shop", "sign-in", "account-view", "account-mails", "corp-example.idp.example"),
            ("payments", "bank-login", "overview-page", "overview-export", "login.bankid.example"),
            ("media", "member-login", "members-page", "member-mails", "accounts.social.example"),
            ("search", "sso-gateway", "console-page", "console-jobs", "sso.directory.example"),
        )
    )
    minor, provider = lab.rng.randrange(2, 40), _Provider(lab, host, lab.rng.random() < 0.6, lab.rng.random() < 0.3)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", SESSION_MINUTES="60"))
    like = App("", abroad=(host,), asked=lambda: ASKED, failing=provider.fails, latency=provider.waits)
    like.fails_with, like.check = lambda _: "504" if provider.is_slow else "502", provider.check
    await lab.app(namespace, name, like=like, replicas=3, tag=f"4.{minor}.0", config=name)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.2.2", config=other)
    await rolled(lab, namespace, name, f"4.{minor}.0")
    await rolled(lab, namespace, other, "1.2.2")
    await set_before(lab, namespace, front, name)
    for result in ("success", "failure"):
        counted = lab.adding_up(partial(provider.ends, result))
        lab.measure("login_attempts_total", counted, "counter", namespace=namespace, service=name, result=result)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_slow(namespace, name)
    lab.alert_lacking(namespace, name, seconds=8)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"4.{minor}.1")
    await lab.pause(lab.rng.uniform(8, 14))
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, other, {"data": {"EVERY": "45s"}})
    await lab.pause(lab.rng.uniform(3, 8))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(3, 10))
    lab.start(provider.fall())
