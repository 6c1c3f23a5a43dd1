"""Not as the other side has it: the name of a host, and a field of an answer."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.api import Json, now
from tests.lab.apps import App, Container, Problem
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.manifests import uid_of
from tests.lab.network import backends, unreachable
from tests.lab.scenario import family

# -- the name of a host

ASKED, FILE = 22.0, "application.yaml"
SLIPS = ("left out", "doubled", "swapped", "one of many", "comma")


def _misspelt(slip: str, host: str) -> str:
    """As a hand writes it that thinks of what stands behind."""
    name, _, rest = host.partition(".")
    where = name.index("-") - 2
    return {
        "left out": f"{name[:where]}{name[where + 1 :]}.{rest}",
        "doubled": f"{name[:where]}{name[where]}{name[where:]}.{rest}",
        "swapped": f"{name[:where]}{name[where + 1]}{name[where]}{name[where + 2 :]}.{rest}",
        "one of many": f"{name[:-1]}.{rest}",
        "comma": f"{name},{rest}",
    }[slip]


def _settings(client: str, url: str, *, timeout: int, further: str) -> Json:
    lines = (
        f"server:\n  port: 8080\n  shutdown: graceful\nhttp:\n  client-timeout: {timeout}ms\n"
        f"clients:\n  {client}:\n    url: {url}\n    retries: 1\n  {further}:\n    url: http://{further}/v1\n"
    )
    return {"data": {FILE: lines}}


@dataclass
class _Caller:
    """An app that has the address of what it calls from its file: as that was at its start, or as it is now."""

    lab: Lab
    client: str
    is_once: bool
    is_probed: bool
    """Whether it is ready only once it was answered there."""
    share: float
    """Of its requests, for which it calls there."""
    had: dict[str, str] = field(default_factory=dict)
    since: dict[str, float] = field(default_factory=dict)

    def trouble(self, container: Container) -> str:
        """Why it does not get there, or ""."""
        told = container.config.get(FILE, "")
        text = self.had.setdefault(uid_of(container.pod), told) if self.is_once else told
        found = re.search(rf"^  {self.client}:\n    url: http://([^/\s]+)", text, re.MULTILINE)
        name, _, rest = (found[1] if found else "").partition(".")
        return unreachable(self.lab.world, container.pod, rest.partition(".")[0], name)

    def check(self, container: Container) -> Problem | None:
        if not (self.is_probed and (why := self.trouble(container))):
            return None
        return Problem("unready", f"probe failed: HTTP probe failed with statuscode: 503 ({why})", at_once=True)

    def fails(self, container: Container) -> float:
        uid = uid_of(container.pod)
        if not self.trouble(container):
            self.since.pop(uid, None)
            return 0.0
        since = self.since.setdefault(uid, now().timestamp())
        return self.share if now().timestamp() - since >= self.lab.lag else 0.0


@family(
    "Somebody changes the ConfigMap of an app so that it asks the next version of an API, and writes a letter too many"
    " or too few into its host: there is no such name, and whatever the app needs from there fails.",
    joined=100,
)
async def one_letter_off(lab: Lab) -> AsyncIterator[None]:
    """As those tell of whom three had approved it."""
    namespace, name, front, home, called, client = lab.rng.choice(
        (
            ("shop", "basket-api", "basket-page", "payments", "tax-rates", "tax"),
            ("payments", "refund-api", "refund-page", "shop", "order-lines", "orders"),
            ("media", "chapter-api", "chapter-view", "search", "topic-labels", "topics"),
            ("search", "store-finder", "finder-page", "shop", "branch-hours", "branches"),
        )
    )
    by, minor, slip = lab.rng.choice((*TEAMS, "ci", "argocd", "flux")), lab.rng.randrange(2, 40), lab.rng.choice(SLIPS)
    is_once = lab.rng.random() < 0.6
    client_of = _Caller(lab, client, is_once, is_once and lab.rng.random() < 0.4, lab.rng.uniform(0.3, 0.8))
    host, further = f"{called}.{home}.svc.cluster.local", f"{name}-audit.{namespace}"
    await lab.app(home, called, like=App("", asked=lambda: 12.0), replicas=2, tag="2.3.1")
    await rolled(lab, home, called, "2.3.1")
    settings = _settings(client, f"http://{host}/v1", timeout=800, further=further)
    await lab.apply({"kind": "ConfigMap", "metadata": {"namespace": namespace, "name": name}, **settings})
    like = App("", asked=lambda: ASKED, failing=client_of.fails, check=client_of.check)
    like.fails_with = lambda _: "502"
    await lab.app(namespace, name, like=like, replicas=3, tag=f"6.{minor}.0", config=name)
    await rolled(lab, namespace, name, f"6.{minor}.0")
    await set_before(lab, namespace, front, name)
    lab.reserve(home, called)

    def unknown() -> float:
        """Names a second that the DNS of the cluster does not have: some are asked for at all times."""
        there = [one.container for one in lab.kubelets.running() if one.app is like]
        lost = sum(bool(client_of.trouble(one)) for one in there) / max(1, len(there))
        return 3.0 + 4 * ASKED * client_of.share * lost

    answers = lab.adding_up(unknown)
    told = {"namespace": "kube-system", "service": "kube-dns", "rcode": "NXDOMAIN"}
    lab.measure("coredns_dns_responses_total", answers, "counter", **told)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_stuck(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await change_page(lab, namespace, front)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), home, called, "2.4.0")
    await lab.pause(lab.rng.uniform(5, 10))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"6.{minor}.1")
    await lab.pause(lab.rng.uniform(11, 16))
    wrong = f"http://{_misspelt(slip, host)}/v2"
    body = _settings(client, wrong, timeout=lab.rng.choice((800, 800, 1200)), further=further)
    await lab.culprit(by, "update", "ConfigMap", namespace, name, body)
    if is_once:
        await lab.pause(lab.rng.uniform(0.2, 2))
        note = {"checksum/config": f"{lab.rng.getrandbits(64):016x}"}
        if by in TEAMS:
            note = {"kubectl.kubernetes.io/restartedAt": f"{now():%Y-%m-%dT%H:%M:%SZ}"}
        again = {"spec": {"template": {"metadata": {"annotations": note}}}}
        why = "of the same hand, so that the app reads what was written"
        await lab.also(why, by, "update", "Deployment", namespace, name, again)
    lab.start(afterwards())


# -- a field of an answer


@family(
    "A new version of an app tidies its answer up and gives a field another name. It is well itself. Another team's app"
    " that calls it reads the field by the old name, finds nothing there, and fails whatever it needs it for.",
    joined=100,
)
async def read_by_its_old_field(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose own last change was three weeks ago."""
    namespace, name, home, reader, front, other = lab.rng.choice(
        (
            ("shop", "availability", "search", "result-cards", "cards-page", "availability-feed"),
            ("payments", "customer-limits", "shop", "pay-options", "options-view", "limits-report"),
            ("media", "episode-info", "media", "player-start", "start-page", "episode-mails"),
            ("search", "category-tree", "shop", "menu-builder", "menu-page", "category-sync"),
        )
    )
    by, minor = lab.rng.choice(("ci", "argocd", "flux")), lab.rng.randrange(2, 40)
    old, new, share = f"3.{minor}.2", f"3.{minor + 1}.0", lab.rng.uniform(0.2, 0.9)
    is_counted = lab.rng.random() < 0.5

    def changed() -> float:
        """The share of the answers that come from the new version."""
        there = {uid_of(pod) for pod in backends(lab.world, namespace, name)}
        found = [one.container for one in lab.kubelets.running() if uid_of(one.container.pod) in there]
        return sum(one.tag == new and one.seconds >= lab.lag for one in found) / max(1, len(found))

    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", BATCH="20"))
    await lab.app(namespace, name, like=App("", asked=lambda: 24.0), replicas=3, tag=old, config=name)
    await rolled(lab, namespace, name, old)
    await lab.apply(objects.config_map(home, reader, LOG_LEVEL="info", TIMEOUT_MS="900"))
    like = App("", upstreams=((namespace, name),), asked=lambda: 20.0, failing=lambda _: share * changed())
    await lab.app(home, reader, like=like, replicas=3, tag="8.0.4", config=reader)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    beside = App("", upstreams=((namespace, name),), asked=lambda: 5.0)
    await lab.app(namespace, other, like=beside, replicas=2, tag="1.7.0", config=other)
    await rolled(lab, home, reader, "8.0.4")
    await rolled(lab, namespace, other, "1.7.0")
    await set_before(lab, home, front, reader)
    lab.reserve(namespace, name)
    if is_counted:
        unread = lab.adding_up(lambda: 20.0 * share * changed())
        lab.measure("unhandled_exceptions_total", unread, "counter", namespace=home, service=reader, type="KeyError")
    for where, one in ((home, reader), (home, front), (namespace, name)):
        lab.alert_errors(where, one)
    lab.alert_ingress_errors(home, home)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await change_page(lab, home, front)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.7.1")
    await lab.pause(lab.rng.uniform(4, 9))
    if lab.rng.random() < 0.5:
        await lab.roll(lab.rng.choice(("ci", "argocd")), home, reader, "8.0.5")
    else:
        timeout = {"data": {"TIMEOUT_MS": lab.rng.choice(("700", "1200"))}}
        await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", home, reader, timeout)
    await lab.pause(lab.rng.uniform(6, 12))
    await lab.roll(by, namespace, name, new, culprit=True)
    lab.start(afterwards())
