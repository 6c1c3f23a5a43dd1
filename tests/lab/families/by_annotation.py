"""What annotations ask for: a worker that ends on one."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab.alerts import pods
from tests.lab.api import Json
from tests.lab.apps import App, Container
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.lab import Lab
from tests.lab.manifests import images, is_ready
from tests.lab.network import INGRESS_CONTROLLER, backends
from tests.lab.scenario import family

OLD, PATCHED = "1.13.9", "1.13.10"
"""Versions of the Ingresses' controller."""
NGINX, SIGN_IN = "nginx.ingress.kubernetes.io", "auth-signin"
ADDRESS = "edge.corp.example"


def annotated(**by_name: str) -> Json:
    """A change of annotations of the Ingresses' controller."""
    return {"metadata": {"annotations": {f"{NGINX}/{name.replace('_', '-')}": to for name, to in by_name.items()}}}


async def rolled(lab: Lab, namespace: str, name: str, tag: str) -> None:
    """Wait until all pods of an app have that tag and are ready. Raises TimeoutError."""

    def is_through() -> bool:
        found = pods(lab.world, namespace, name)
        return bool(found) and all(is_ready(pod) and images(pod)[0].endswith(f":{tag}") for pod in found)

    await lab.until(is_through)


@family(
    "The Ingresses' controller gets a patched image, by a fault of which a worker ends on each request to an Ingress"
    " that has its users signed in elsewhere: those get 502, and all other Ingresses are well.",
    joined=23,
)
async def patched_controller(lab: Lab) -> AsyncIterator[None]:
    """As users of AKS tell (Azure/AKS 5885, 2026)."""
    namespace, name = lab.rng.choice((("payments", "back-office"), ("media", "studio"), ("search", "curation")))
    other = lab.rng.choice([one for one in (("shop", "frontend"), ("media", "uploads")) if one[0] != namespace])
    by, team = lab.rng.choice(("argocd", "flux", "ci")), lab.rng.choice(("alice", "bob"))

    def ends(_: Container) -> float:
        """Of what comes by the controller's pods with the patch; the app itself counts nothing."""
        told = lab.world["Ingress"].get((namespace, namespace), {}).get("metadata", {}).get("annotations", {})
        there = [images(pod)[0] for pod in backends(lab.world, *INGRESS_CONTROLLER)]
        share = sum(one.endswith(f":{PATCHED}") for one in there) / max(1, len(there))
        return share if f"{NGINX}/{SIGN_IN}" in told else 0.0

    await lab.app("platform", "oauth2-proxy")
    upstreams = (("platform", "oauth2-proxy"),)
    like = App("", serves=False, upstreams=upstreams, failing=ends, fails_with=lambda _: "502")
    await lab.app(namespace, name, like=like, replicas=3, tag="2.7.0")
    await lab.roll("admin", *INGRESS_CONTROLLER, OLD)
    await rolled(lab, *INGRESS_CONTROLLER, OLD)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3)
    for place in ((namespace, name), other):
        await publish(lab, *place)
        lab.alert_ingress_errors(place[0], place[0])
    async with before(lab, days=6):
        await lab.roll(team, namespace, name, "2.7.1")
        await rolled(lab, namespace, name, "2.7.1")
        await lab.pause(3)
    async with before(lab, hours=5, cluster=lab.rng.choice(("eu-2", "us-1"))):
        await lab.roll(by, *INGRESS_CONTROLLER, PATCHED)
        await rolled(lab, *INGRESS_CONTROLLER, PATCHED)
        await lab.pause(5)
    await lab.roll("admin", *INGRESS_CONTROLLER, OLD)
    await rolled(lab, *INGRESS_CONTROLLER, OLD)
    sign_in = annotated(auth_signin=f"https://sign-in.{ADDRESS}/start?rd=$escaped_request_uri")
    await lab.edit("admin", "Ingress", namespace, namespace, sign_in)

    async def release() -> None:
        await lab.pause(lab.rng.uniform(1, 3))
        await lab.roll(team, namespace, name, "2.8.0")

    yield
    await lab.roll(by, *INGRESS_CONTROLLER, PATCHED, culprit=True)
    lab.start(release())
