"""With another key: sessions that were signed with the one before, and calls to a provider with its sandbox's."""

from __future__ import annotations

import base64
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.api import Json, now
from tests.lab.apps import App, Container
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.manifests import uid_of
from tests.lab.network import backends
from tests.lab.scenario import family


def _secret(namespace: str, name: str, **values: str) -> Json:
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    return {"kind": "Secret", "metadata": {"namespace": namespace, "name": name}, "data": data}


@dataclass
class _Keys:
    """What each process has of a Secret: it reads the file at its start, or whenever that is another one."""

    lab: Lab
    key: str
    follows: bool
    first: dict[str, str] = field(default_factory=dict)
    """By the uid of its pod."""

    def of(self, container: Container) -> str:
        held = container.secret.get(self.key, "")
        return held if self.follows else self.first.setdefault(uid_of(container.pod), held)

    def have_changed(self, like: App, before: str) -> float:
        """The share of an app's processes that have another one than before."""
        there = [self.of(one.container) != before for one in self.lab.kubelets.running() if one.app is like]
        return sum(there) / max(1, len(there))


async def _restart(lab: Lab, by: str, namespace: str, name: str) -> None:
    """So that a Secret is read anew: by hand, or by the digest of it that its chart has. Raises RefusedError."""
    mark = {"kubectl.kubernetes.io/restartedAt": f"{now():%Y-%m-%dT%H:%M:%SZ}"}
    if by not in TEAMS:
        mark = {"checksum/secret": f"{lab.rng.getrandbits(64):016x}"}
    body = {"spec": {"template": {"metadata": {"annotations": mark}}}}
    why = "of the same hand: it has the pods read the other key"
    await lab.also(why, by, "update", "Deployment", namespace, name, body)


# -- sessions

COMING, TELLS = 28.0, 0.85
"""Requests a second to an app, and the share of them that come with a session."""
ANEW_SECONDS = 70.0
"""In which about two in three of those who are refused log in anew."""


@dataclass
class _Sessions:
    """Who is logged in by a session of the key before, and is refused by who has the other one."""

    lab: Lab
    keys: _Keys
    before: str
    like: App
    since: float = 0.0

    def old(self) -> float:
        """Of all sessions, those that were signed before: from the first refusal on people log in anew."""
        if not self.since and self.keys.have_changed(self.like, self.before):
            self.since = now().timestamp() + self.lab.lag
        return math.exp(-max(0.0, now().timestamp() - self.since) / ANEW_SECONDS) if self.since else 1.0

    def refused(self, container: Container) -> float:
        old = self.old()
        is_felt = self.since and now().timestamp() >= self.since
        share = old if self.keys.of(container) != self.before else 1 - old
        return TELLS * share if is_felt else 0.0

    def logins(self) -> float:
        """How many a second log in: some at all times, and all who are refused, by and by."""
        old = self.old()
        return 1.2 + (COMING * 20 / ANEW_SECONDS * old if self.since and old < 1 else 0.0)


def _share_of(status: str, lab: Lab, namespace: str, name: str, *, ingress: bool) -> float:
    """Of what was answered in the last seconds."""
    counts = (lab.traffic.of_ingress if ingress else lab.traffic.of_app)(namespace, name, 10)
    return sum(n for code, n in counts.answers.items() if code.startswith(status)) / max(1, counts.answers.total())


@family(
    "The key by which an app signs its sessions is replaced by another one, and not put beside it. Whoever is logged in"
    " is not any more as soon as the app has it: each of their requests is refused with 401 until they log in anew.",
    joined=98,
)
async def signed_with_another_key(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had rotated what was in no calendar, and whose logins were ten times as many."""
    namespace, name, logins, other, key = lab.rng.choice(
        (
            ("shop", "customer-web", "customer-login", "customer-mails", "SESSION_SECRET"),
            ("payments", "banking-web", "banking-login", "banking-alerts", "JWT_SIGNING_KEY"),
            ("media", "member-web", "member-login", "member-digest", "SECRET_KEY_BASE"),
            ("search", "console-web", "console-login", "console-reports", "COOKIE_SECRET"),
        )
    )
    by, minor, follows = lab.rng.choice((*TEAMS, "flux", "argocd")), lab.rng.randrange(2, 40), lab.rng.random() < 0.35
    held, old, new = f"{name}-session", f"{lab.rng.getrandbits(128):032x}", f"{lab.rng.getrandbits(128):032x}"
    before, keys = base64.b64encode(old.encode()).decode(), _Keys(lab, key, follows)
    like = App("", upstreams=((namespace, logins),), asked=lambda: COMING, fails_with=lambda _: "401")
    sessions = _Sessions(lab, keys, before, like)
    await lab.apply(_secret(namespace, held, **{key: old}))
    await lab.apply(objects.config_map(namespace, logins, LOG_LEVEL="info", MAX_ATTEMPTS="5"))
    door = App("", asked=lambda: 3 * sessions.logins())
    await lab.app(namespace, logins, like=door, replicas=2, tag="3.9.1", config=logins)
    await rolled(lab, namespace, logins, "3.9.1")
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", PAGE_SIZE="50"))
    await lab.app(namespace, name, like=like, replicas=3, tag=f"6.{minor}.0", config=name, secret=held)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.4.0", config=other)
    await rolled(lab, namespace, name, f"6.{minor}.0")
    await rolled(lab, namespace, other, "1.4.0")
    like.failing = sessions.refused
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3)
    await publish(lab, namespace, name)
    lab.reserve(namespace, name, logins)
    for result, rate in (("success", sessions.logins), ("failure", lambda: 0.1 * sessions.logins())):
        counted, told = lab.adding_up(rate), {"namespace": namespace, "service": logins}
        lab.measure("login_attempts_total", counted, "counter", **told, result=result)
    unknown = lambda: _share_of("401", lab, namespace, name, ingress=False) > 0.2  # noqa: E731
    summary = f"more than 20% of the requests to {namespace}/{name} are answered with 401"
    lab.alert("HighUnauthorizedRate", unknown, summary, namespace=namespace, service=name)
    many = lambda: _share_of("4", lab, namespace, namespace, ingress=True) > 0.1  # noqa: E731
    summary = f"more than 10% of the requests to Ingress {namespace}/{namespace} are answered with 4xx"
    lab.alert("NginxHighHttp4xxErrorRate", many, summary, namespace=namespace, ingress=namespace)
    for one in (name, logins):
        lab.alert_errors(namespace, one)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 10))
        await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.4.1")

    yield
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, logins, {"data": {"MAX_ATTEMPTS": "6"}})
    await lab.pause(lab.rng.uniform(4, 9))
    size = {"data": {"PAGE_SIZE": lab.rng.choice(("40", "60"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, size)
    await lab.pause(lab.rng.uniform(4, 9))
    changed = _secret(namespace, held, **{key: new})
    await lab.culprit(by, "update", "Secret", namespace, held, {"data": changed["data"]})
    if not follows:
        await lab.pause(lab.rng.uniform(0.5, 4))
        await _restart(lab, by, namespace, name)
    lab.start(afterwards())


# -- a provider


@dataclass(frozen=True)
class _Provider:
    """Who is called outside, for which share of requests, and how keys begin there, and in its sandbox."""

    host: str
    share: float
    series: str
    key: str
    live: str
    sandbox: str


CARDS, MAILS = (0.4, "payment_attempts_total"), (0.5, "mail_deliveries_total")
PROVIDERS = {
    "card-payments": _Provider("api.payprovider.example", *CARDS, "API_KEY", "sk_live_", "sk_test_"),
    "payout-api": _Provider("api.payouts.example", *CARDS, "PROVIDER_KEY", "live_", "test_"),
    "invite-mails": _Provider("api.mailer.example", *MAILS, "MAIL_API_TOKEN", "SG.", "SG.sbx-"),
    "alert-mails": _Provider("send.postal.example", *MAILS, "MAIL_KEY", "key-", "sandbox-"),
}


@family(
    "The key for a provider outside is renewed, and what is put into the app's Secret is the one of the provider's"
    " sandbox. The API for real payments, or real mails, does not know it: each call is refused with 401.",
    joined=98,
)
async def key_of_the_sandbox(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had copied the upper of two lines on the provider's page."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "card-payments", "pay-page", "pay-reminders"),
            ("payments", "payout-api", "payout-page", "payout-report"),
            ("media", "invite-mails", "invite-page", "invite-stats"),
            ("search", "alert-mails", "alerts-form", "alerts-digest"),
        )
    )
    by, minor, follows = lab.rng.choice((*TEAMS, "flux", "argocd")), lab.rng.randrange(2, 40), lab.rng.random() < 0.4
    provider, held = PROVIDERS[name], f"{name}-provider"
    live, sandbox = (f"{begins}{lab.rng.getrandbits(96):024x}" for begins in (provider.live, provider.sandbox))
    before, asked = base64.b64encode(live.encode()).decode(), 20.0
    keys, status = _Keys(lab, provider.key, follows), lab.rng.choice(("500", "502"))
    since: list[float] = []

    def is_refused(container: Container) -> bool:
        if keys.of(container) in ("", before):
            return False
        since[:] = since or [now().timestamp()]
        return now().timestamp() - since[0] >= lab.lag

    def refused() -> float:
        there = [is_refused(one.container) for one in lab.kubelets.running() if one.app is like]
        return sum(there) / max(1, len(there))

    def ended(code: str) -> Callable[[], float]:
        """How many calls a second the provider answers so."""
        return lambda: asked * provider.share * (refused() if code == "401" else 1 - refused())

    await lab.apply(_secret(namespace, held, **{provider.key: live}))
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", TIMEOUT_MS="4000"))
    like = App("", abroad=(provider.host,), asked=lambda: asked, fails_with=lambda _: status)
    like.failing = lambda container: provider.share * is_refused(container)
    await lab.app(namespace, name, like=like, replicas=3, tag=f"4.{minor}.0", config=name, secret=held)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.8.0", config=other)
    await rolled(lab, namespace, name, f"4.{minor}.0")
    await rolled(lab, namespace, other, "1.8.0")
    await set_before(lab, namespace, front, name)
    told = {"namespace": namespace, "service": name}
    for code in ("200", "401"):
        counted = lab.adding_up(ended(code))
        lab.measure("http_client_requests_total", counted, "counter", **told, host=provider.host, code=code)
    lab.measure(provider.series, lab.adding_up(ended("200")), "counter", **told, result="success")
    what = provider.series.split("_")[0]
    summary = f"{namespace}/{name} has less than half of the usual {what}s"
    lab.alert(f"{what.title()}sBelowUsual", lambda: refused() > 0.5, summary, 8, **told)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await change_page(lab, namespace, front)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.8.1")
    await lab.pause(lab.rng.uniform(4, 9))
    size = {"data": {"TIMEOUT_MS": lab.rng.choice(("3000", "5000"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, size)
    await lab.pause(lab.rng.uniform(4, 9))
    data = {"data": _secret(namespace, held, **{provider.key: sandbox})["data"]}
    await lab.culprit(by, "update", "Secret", namespace, held, data)
    if not follows:
        await lab.pause(lab.rng.uniform(0.5, 4))
        await _restart(lab, by, namespace, name)
    lab.start(afterwards())
