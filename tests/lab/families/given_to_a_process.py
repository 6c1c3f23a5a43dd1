"""What a process is given from without: a key, a variable, a password, and how long it may wait for others."""

from __future__ import annotations

import base64
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import restarts
from tests.lab.api import Json, now
from tests.lab.apps import App, Container, Problem
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.manifests import environment, uid_of
from tests.lab.network import backends
from tests.lab.scenario import family


def _process(container: Container) -> str:
    """Which process it is: each start of a container is another one."""
    told = container.pod.get("status", {}).get("containerStatuses", ())
    return f"{uid_of(container.pod)} {sum(one['restartCount'] for one in told)}"


@dataclass
class _Read:
    """What each process goes by: what its file said at its start, or says now; what is not as usual, a lag later."""

    lab: Lab
    usual: str
    is_once: bool
    had: dict[str, str] = field(default_factory=dict)
    since: dict[str, float] = field(default_factory=dict)

    def value(self, container: Container, told: str) -> str:
        process = _process(container)
        if self.is_once:
            told = self.had.setdefault(process, told)
        if told == self.usual:
            self.since.pop(process, None)
            return told
        since = self.since.setdefault(process, now().timestamp())
        return told if now().timestamp() - since >= self.lab.lag else self.usual


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _restarted() -> Json:
    """As kubectl rollout restart writes it."""
    at = {"kubectl.kubernetes.io/restartedAt": f"{now():%Y-%m-%dT%H:%M:%SZ}"}
    return {"spec": {"template": {"metadata": {"annotations": at}}}}


def _share(lab: Lab, app: App, found: Callable[[Container], float]) -> float:
    """The mean over the processes of an app."""
    there = [one.container for one in lab.kubelets.running() if one.app is app]
    return sum(map(found, there)) / max(1, len(there))


@family(
    "The key to a provider's API is replaced, as it is each half year, and what is pasted is not all of the new one, or"
    " is that of the provider's test system. Each call with it is refused, from when the app has read it.",
    joined=87,
)
async def key_mispasted(lab: Lab) -> AsyncIterator[None]:
    """As those tell who got 401 from a provider that was well."""
    namespace, name, host, front, neighbour = lab.rng.choice(
        (
            ("shop", "parcel-labels", "api.parcels.example", "sending-page", "parcel-prices"),
            ("payments", "identity-checks", "api.idcheck.example", "sign-up-page", "name-matches"),
            ("media", "speech-to-text", "api.transcribe.example", "dictation-page", "voice-clips"),
            ("search", "translations", "api.translate.example", "abroad-page", "word-lists"),
        )
    )
    by, held, is_once = lab.rng.choice((*TEAMS, "flux")), f"{name}-provider", lab.rng.random() < 0.5
    share, code, minor = lab.rng.uniform(0.4, 0.9), lab.rng.choice(("401", "403")), lab.rng.randrange(2, 50)
    key = f"sk_live_{lab.rng.getrandbits(128):032x}"
    fresh = f"sk_live_{lab.rng.getrandbits(128):032x}"
    wrong = lab.rng.choice((fresh[1:], fresh[: lab.rng.randrange(20, 34)], fresh.replace("live", "test"), f"{fresh}\n"))
    read = _Read(lab, _encoded(key), is_once)

    def fails(container: Container) -> float:
        is_right = read.value(container, container.secret.get("api-key", "")) == read.usual
        return 0.0 if is_right else share

    def calls(*, well: bool) -> Callable[[], float]:
        """Calls of the provider a second that it answers, or refuses."""

        def rate() -> float:
            refused = _share(lab, like, fails)
            return 22 * (share - refused if well else refused)

        return rate

    secret = {"kind": "Secret", "metadata": {"namespace": namespace, "name": held}, "data": {"api-key": read.usual}}
    await lab.apply(secret)
    await lab.app(namespace, neighbour, replicas=2, tag="1.3.0")
    await rolled(lab, namespace, neighbour, "1.3.0")
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", TIMEOUT_MS="2500"))
    like = App("", abroad=(host,), asked=lambda: 22.0, failing=fails, fails_with=lambda _: "502")
    await lab.app(namespace, name, like=like, replicas=3, tag=f"4.{minor}.0", config=name, secret=held)
    await rolled(lab, namespace, name, f"4.{minor}.0")
    await set_before(lab, namespace, front, name)
    for well, told in ((True, "200"), (False, code)):
        labels = {"namespace": namespace, "service": name, "host": host, "code": told}
        lab.measure("http_client_requests_total", lab.adding_up(calls(well=well)), "counter", **labels)
    lab.alert_errors(namespace, name)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"4.{minor}.1")
    await lab.pause(lab.rng.uniform(8, 13))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(2, 6))
    await lab.culprit(by, "update", "Secret", namespace, held, {"data": {"api-key": _encoded(wrong)}})
    if is_once:
        await lab.pause(lab.rng.uniform(1, 3))
        why = "of the same hand, so that the app reads the key that it was given"
        await lab.also(why, by, "update", "Deployment", namespace, name, _restarted())
    await lab.pause(lab.rng.uniform(1, 4))
    await lab.roll(lab.rng.choice(("ci", "flux")), namespace, neighbour, "1.3.1")


SAID = (
    "KeyError: '{0}'",
    "panic: required key {0} missing value",
    "Error: Missing required environment variable {0}",
    "Could not resolve placeholder '{0}' in value \"${{{0}}}\"",
)


@family(
    "A release reads a variable that is new. Its team has set it where they try things, and nobody has in production:"
    " each of the new processes ends as it starts.",
    joined=87,
)
async def never_set_here(lab: Lab) -> AsyncIterator[None]:
    """As next to everybody tells of a release that was fine on staging."""
    namespace, name, front, needed, other = lab.rng.choice(
        (
            ("shop", "gift-cards", "gift-page", "VOUCHER_SIGNING_ISSUER", "GIFT_MAX_AMOUNT"),
            ("payments", "chargebacks", "dispute-page", "DISPUTE_EVENTS_TOPIC", "DISPUTE_DAYS"),
            ("media", "watermarks", "preview-page", "OVERLAY_BUCKET", "OVERLAY_OPACITY"),
            ("search", "rankings", "best-page", "FEATURE_STORE_ENDPOINT", "RANKING_DEPTH"),
        )
    )
    by, minor, message = lab.rng.choice(("ci", "argocd", "flux")), lab.rng.randrange(3, 50), lab.rng.choice(SAID)
    sets_other, tells_before = lab.rng.random() < 0.5, lab.rng.random() < 0.5
    old, new = f"7.{minor}.2", f"7.{minor + 1}.0"

    def check(container: Container) -> Problem | None:
        is_lost = container.tag == new and needed not in environment(container.spec)
        return Problem("crash", message.format(needed), at_once=True) if is_lost else None

    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", TIMEOUT_MS="900"))
    env = [{"name": "REGION", "value": "eu-central-1"}, {"name": "WORKERS", "value": "4"}]
    like = App("", check=check, asked=lambda: 21.0)
    await lab.app(namespace, name, like=like, replicas=3, tag=old, config=name, env=env)
    await rolled(lab, namespace, name, old)
    await set_before(lab, namespace, front, name)
    crashes = lambda: restarts(lab.world, namespace, name) > 2  # noqa: E731
    summary = f"containers of {namespace}/{name} are restarted again and again"
    lab.alert("KubePodCrashLooping", crashes, summary, 3, namespace=namespace, deployment=name)
    lab.alert_stuck(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(2, 6))
        await change_page(lab, namespace, front)

    yield
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(3, 8))
    if tells_before:
        data = {"data": {"TIMEOUT_MS": lab.rng.choice(("600", "1200", "1500"))}}
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, name, data)
        await lab.pause(lab.rng.uniform(2, 7))
    further = {"env": [{"name": other, "value": str(lab.rng.randrange(3, 90))}]} if sets_other else {}
    await lab.roll(by, namespace, name, new, culprit=True, **further)
    lab.start(afterwards())


CONNECTED_SECONDS = 18.0
"""For how long a pool keeps a connection; who has one is not asked for the password again."""


@dataclass
class _Logins:
    """Apps log in at one database, some by a variable that a process has from its start."""

    lab: Lab
    database: App
    current: str
    had: dict[str, str] = field(default_factory=dict)
    since: dict[str, float] = field(default_factory=dict)

    def by_variable(self, container: Container) -> float:
        return self._fails(container, self.had.setdefault(_process(container), self.current))

    def by_file(self, container: Container) -> float:
        return self._fails(container, container.secret.get("password", ""))

    def _fails(self, container: Container, password: str) -> float:
        """The share of requests for which there is no connection any more."""
        there = (one for one in self.lab.kubelets.running() if one.app is self.database)
        taken, process = {one.container.secret.get("password", "") for one in there}, _process(container)
        if not taken or password in taken:
            self.since.pop(process, None)
            return 0.0
        seconds = now().timestamp() - self.since.setdefault(process, now().timestamp()) - self.lab.lag
        return 0.95 * min(1.0, max(0.0, seconds / CONNECTED_SECONDS))


@family(
    "A database's password is changed, in the database and in the Secret that two apps have it from. One of them reads"
    " the file again. The other has it in a variable from its start, and nobody starts it anew: each time that one of"
    " its connections has ended, it asks for the next one with the old password.",
    joined=87,
)
async def password_of_before(lab: Lab) -> AsyncIterator[None]:
    """As those tell who read that a Secret had been changed, and that the pods were older."""
    namespace, database, well, name, front = lab.rng.choice(
        (
            ("shop", "returns-db", "returns-worker", "returns-api", "returns-page"),
            ("payments", "mandates-db", "mandates-export", "mandates-api", "mandate-page"),
            ("media", "comments-db", "comments-filter", "comments-api", "comments-page"),
            ("search", "synonyms-db", "synonyms-import", "synonyms-api", "words-page"),
        )
    )
    by, held, minor = lab.rng.choice((*TEAMS, "flux")), f"{database}-credentials", lab.rng.randrange(2, 50)
    first, second = (_encoded(f"{lab.rng.getrandbits(80):020x}") for _ in range(2))
    store = App("", serves=False)
    logins = _Logins(lab, store, first)
    secret = {"kind": "Secret", "metadata": {"namespace": namespace, "name": held}, "data": {"password": first}}
    await lab.apply(secret)
    await lab.app(namespace, database, like=store, kind="StatefulSet", replicas=1, tag="16.4", secret=held)
    await lab.until(lambda: backends(lab.world, namespace, database))
    upstreams = ((namespace, database),)
    by_file = App("", upstreams=upstreams, asked=lambda: 12.0, failing=logins.by_file)
    await lab.app(namespace, well, like=by_file, replicas=2, tag="2.4.0", secret=held)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", POOL_SIZE="20"))
    source = {"secretKeyRef": {"name": held, "key": "password"}}
    env = [{"name": "DB_PASSWORD", "valueFrom": source}]
    like = App("", upstreams=upstreams, asked=lambda: 24.0, failing=logins.by_variable)
    await lab.app(namespace, name, like=like, replicas=3, tag=f"5.{minor}.0", config=name, env=env)
    await rolled(lab, namespace, well, "2.4.0")
    await rolled(lab, namespace, name, f"5.{minor}.0")
    await set_before(lab, namespace, front, name)
    lab.reserve(namespace, well, database)
    refused = lab.adding_up(lambda: 24 * _share(lab, like, logins.by_variable))
    told = {"namespace": namespace, "service": name, "reason": "invalid_password"}
    lab.measure("db_connection_failures_total", refused, "counter", **told)
    lab.alert_errors(namespace, name, 0.1)
    lab.alert_errors(namespace, well, 0.1)
    lab.alert_ingress_errors(namespace, namespace, 0.1)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 7))
        await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, well, "2.4.1")
        await lab.pause(lab.rng.uniform(2, 6))
        await change_page(lab, namespace, front)

    yield
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.culprit(by, "update", "Secret", namespace, held, {"data": {"password": second}})
    logins.current = second
    await lab.pause(lab.rng.uniform(1, 4))
    size = {"data": {"POOL_SIZE": lab.rng.choice(("15", "25", "30"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "argocd")), "ConfigMap", namespace, name, size)
    lab.start(afterwards())


def _beyond(shape: int, seconds: float, mean: float) -> float:
    """The share of answers that take longer, where they are spread as the sum of ``shape`` equal waits."""
    x = 4 * seconds / mean
    return math.exp(-x) * sum(x**count / math.factorial(count) for count in range(shape))


@family(
    "An app may wait less long for another one, so that its users do not. Nobody has looked at how long that one"
    " usually takes: a good part of the calls that have always come back are given up from now on.",
    joined=87,
)
async def less_patience(lab: Lab) -> AsyncIterator[None]:
    """As those tell who brought a timeout down to what they had read in an article."""
    namespace, name, called, front = lab.rng.choice(
        (
            ("shop", "delivery-dates", "carrier-quotes", "cart-page"),
            ("payments", "credit-offers", "score-lookup", "offer-page"),
            ("media", "home-rows", "taste-profiles", "home-page"),
            ("search", "did-you-mean", "spelling-model", "query-page"),
        )
    )
    by, is_once, minor = lab.rng.choice((*TEAMS, "flux", "argocd")), lab.rng.random() < 0.5, lab.rng.randrange(2, 50)
    mean, before, after = lab.rng.uniform(0.32, 0.45), "3000", lab.rng.choice(("200", "250", "300", "400"))
    key = f"{called.upper().replace('-', '_')}_TIMEOUT_MS"
    read = _Read(lab, before, is_once)

    def may(container: Container) -> float:
        return float(read.value(container, container.config.get(key, before))) / 1000

    def gives_up(container: Container) -> float:
        return _beyond(4, may(container), mean)

    def waits(container: Container) -> float:
        """Until the answer, and no longer than it may."""
        most = may(container)
        return mean * (1 - _beyond(5, most, mean)) + most * _beyond(4, most, mean)

    await lab.app(namespace, called, like=App("", answer_seconds=mean, asked=lambda: 25.0), replicas=3, tag="1.9.4")
    await rolled(lab, namespace, called, "1.9.4")
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", RETRIES="0", **{key: before}))
    like = App(
        "",
        upstreams=((namespace, called),),
        asked=lambda: 25.0,
        failing=gives_up,
        fails_with=lambda _: "504",
        latency=waits,
    )
    await lab.app(namespace, name, like=like, replicas=3, tag=f"3.{minor}.0", config=name)
    await rolled(lab, namespace, name, f"3.{minor}.0")
    await set_before(lab, namespace, front, name)
    lab.reserve(namespace, called)
    for told, well in (("200", True), ("timeout", False)):
        labels = {"namespace": namespace, "service": name, "host": f"{called}.{namespace}", "code": told}
        rate = lambda well=well: 25 * abs(well - _share(lab, like, gives_up))  # noqa: E731
        lab.measure("http_client_requests_total", lab.adding_up(rate), "counter", **labels)
    lab.alert_errors(namespace, name)
    lab.alert_errors(namespace, front)
    lab.alert_slow(namespace, name, 1.0)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, called, "1.9.5")
    await lab.pause(lab.rng.uniform(7, 12))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(2, 5))
    await lab.culprit(by, "update", "ConfigMap", namespace, name, {"data": {key: after}})
    if is_once:
        await lab.pause(lab.rng.uniform(0.5, 2))
        why = "of the same hand, so that the app reads how long it may wait"
        await lab.also(why, by, "update", "Deployment", namespace, name, _restarted())
    await lab.pause(lab.rng.uniform(1, 4))
    await change_page(lab, namespace, front)
