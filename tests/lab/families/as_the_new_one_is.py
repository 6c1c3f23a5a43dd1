"""As the new version is: without the path at which it is asked how it is, and without roots by which to trust."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from tests.lab import objects
from tests.lab.alerts import restarts
from tests.lab.api import Json
from tests.lab.apps import App, Container, Problem
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family

NOT_THERE = "probe failed: HTTP probe failed with statuscode: 404"
GIVEN_UP = {"startupProbe": ("Startup", 8.0), "livenessProbe": ("Liveness", 5.0)}
"""Of the probes by which a kubelet ends a container: how it calls them, and the seconds after which it gives up."""


def _crash_looping(lab: Lab, namespace: str, name: str) -> None:
    """As most have it from kube-prometheus."""
    holds = lambda: restarts(lab.world, namespace, name) >= 3  # noqa: E731
    summary = f"a pod of {namespace}/{name} is in a crash loop"
    lab.alert("KubePodCrashLooping", holds, summary, 3, namespace=namespace, container=name)


def _probes(path: str, further: str) -> Json:
    """All ask at one path, as it is copied from the first of them."""
    get = {"path": path, "port": 8080}
    found: Json = {"probe": get}
    if further == "startupProbe":
        found["startup"] = {"httpGet": get, "periodSeconds": 2, "failureThreshold": 4}
    if further == "livenessProbe":
        found["liveness"] = {"httpGet": get, "periodSeconds": 5, "failureThreshold": 3}
    return found


@family(
    "A new version of an app has been tidied up, or stands on a newer framework, and the path is gone at which its"
    " probes have asked for years. Its pods run and never become ready, and the rollout does not go on.",
    joined=96,
)
async def asked_where_nothing_is(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose log is full of GET and 404 by kube-probe."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "delivery-times", "delivery-page", "delivery-sync"),
            ("payments", "payee-names", "payee-page", "payee-export"),
            ("media", "episode-lists", "episodes-page", "episode-feed"),
            ("search", "filter-counts", "filters-view", "filter-warmup"),
        )
    )
    asked = lab.rng.choice(("/health", "/healthz", "/ping", "/api/status", "/actuator/health/readiness"))
    further = lab.rng.choice(("", "", "livenessProbe", "startupProbe"))
    by, minor, replicas = lab.rng.choice(("ci", "argocd", "flux")), lab.rng.randrange(2, 40), lab.rng.choice((3, 4))
    old, new = f"3.{minor}.4", lab.rng.choice((f"3.{minor + 1}.0", "4.0.0"))

    def check(container: Container) -> Problem | None:
        if container.tag != new or container.spec["readinessProbe"]["httpGet"]["path"] != asked:
            return None
        for probe, (called, seconds) in GIVEN_UP.items():
            if probe in container.spec and container.seconds >= seconds:
                return Problem("killed", NOT_THERE, called, at_once=True)
        return Problem("starting" if "startupProbe" in container.spec else "unready", NOT_THERE, at_once=True)

    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", TIMEOUT_MS="800"))
    like = App("", path=asked, asked=lambda: 18.0, check=check)
    await lab.app(namespace, name, like=like, replicas=replicas, tag=old, config=name, **_probes(asked, further))
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.3.1", config=other)
    await rolled(lab, namespace, name, old)
    await rolled(lab, namespace, other, "1.3.1")
    await set_before(lab, namespace, front, name)
    lab.alert_stuck(namespace, name)
    lab.alert_lacking(namespace, name, seconds=15)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    if further:
        _crash_looping(lab, namespace, name)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await change_page(lab, namespace, front)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.3.2")
    await lab.pause(lab.rng.uniform(4, 9))
    size = {"data": {"TIMEOUT_MS": lab.rng.choice(("600", "1000"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, size)
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.roll(by, namespace, name, new, culprit=True)
    lab.start(afterwards())


# -- roots

UNTRUSTED = (
    "tls: failed to verify certificate: x509: certificate signed by unknown authority",
    "PKIX path building failed: unable to find valid certification path to requested target",
    "unable to get local issuer certificate",
)
"""As Go, Java and Node say that they have no root by which to trust whom they call."""
ASKED = 22.0


@family(
    "A new version of an app is built on a smaller base image, which has no root certificates. Whatever its pods call"
    " outside of the cluster by HTTPS they do not trust: each request that needs it fails, or they end at their start,"
    " where they fetch something from there first.",
    joined=96,
)
async def without_its_roots(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had made an image of 900 MB one of 20."""
    namespace, name, front, other, host = lab.rng.choice(
        (
            ("shop", "parcel-labels", "shipping-view", "parcel-tracking", "api.parcels.example"),
            ("payments", "card-tokens", "cards-page", "card-reports", "vault.acquirer.example"),
            ("media", "rights-check", "licence-page", "rights-report", "api.rightsholders.example"),
            ("search", "address-lookup", "address-view", "address-import", "geo.mapdata.example"),
        )
    )
    by, minor, share = lab.rng.choice(("ci", "argocd", "flux")), lab.rng.randrange(2, 40), lab.rng.uniform(0.3, 0.8)
    why, at_start, status = lab.rng.choice(UNTRUSTED), lab.rng.random() < 0.25, lab.rng.choice(("500", "502"))
    old, new = f"2.{minor}.3", f"2.{minor + 1}.0" + lab.rng.choice(("", "", "-slim", "-distroless"))

    def check(container: Container) -> Problem | None:
        """It may fetch a partner's keys before all else."""
        is_out = at_start and container.tag == new and container.seconds >= 1
        return Problem("crash", f'Get "https://{host}/.well-known/jwks.json": {why}', at_once=True) if is_out else None

    def fails(container: Container) -> float:
        is_asked = container.tag == new and not at_start
        return share if is_asked and container.seconds >= lab.lag else 0.0

    def calls(*, well: bool) -> Callable[[], float]:
        """How often a second the partner is called, and answers, or is not trusted."""

        def rate() -> float:
            there = [fails(one.container) > 0 for one in lab.kubelets.running() if one.app is like]
            return ASKED * share * sum(one is not well for one in there) / max(1, len(there))

        return rate

    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", TIMEOUT_MS="2000"))
    like = App("", abroad=(host,), asked=lambda: ASKED, check=check, failing=fails, fails_with=lambda _: status)
    await lab.app(namespace, name, like=like, replicas=3, tag=old, config=name)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.7.2", config=other)
    await rolled(lab, namespace, name, old)
    await rolled(lab, namespace, other, "1.7.2")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3)
    await set_before(lab, namespace, front, name)
    for code, well in (("200", True), ("IO_ERROR", False)):
        counted, told = lab.adding_up(calls(well=well)), {"namespace": namespace, "service": name}
        lab.measure("http_client_requests_total", counted, "counter", host=host, code=code, **told)
    lab.alert_stuck(namespace, name)
    lab.alert_errors(namespace, name)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    if at_start:
        _crash_looping(lab, namespace, name)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, other, {"data": {"EVERY": "45s"}})

    yield
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.7.3")
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.roll(by, namespace, name, new, culprit=True)
    lab.start(afterwards())
