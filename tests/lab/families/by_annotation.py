"""What annotations ask for: a worker that ends on one, and a prefix that is read no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tests.lab.alerts import pods
from tests.lab.api import Json, path
from tests.lab.apps import App, Container, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.lab import Lab
from tests.lab.manifests import images, is_ready
from tests.lab.network import INGRESS_CONTROLLER, backends, unserved
from tests.lab.programs import every
from tests.lab.scenario import family

OLD, PATCHED = "1.13.9", "1.13.10"
"""Versions of the Ingresses' controller."""
NGINX, SIGN_IN = "nginx.ingress.kubernetes.io", "auth-signin"
BY_OLD, BY_NEW = "external-dns.alpha.kubernetes.io", "external-dns.kubernetes.io"
"""How the annotations begin that what keeps the records reads, up to a version and from it on."""
READS_OLD = "0.21."
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


@family(
    "A new version of what keeps the records of public names reads its annotations under another prefix: Ingresses that"
    " say where their name leads to under the old one say nothing to it, and their records are deleted.",
    joined=23,
)
async def annotation_prefix(lab: Lab) -> AsyncIterator[None]:
    """As the keeper of a cluster at home tells of external-dns 0.22 (mcfio/talos-n150-cluster 3761, 2026)."""
    doors = dict(lab.rng.sample([("shop", "frontend"), ("media", "uploads"), ("search", "query")], 2))
    changed = lab.rng.choice(sorted(doors))
    team, by = lab.rng.choice(("bob", "alice")), lab.rng.choice(("argocd", "flux"))
    declared: set[str] = set()
    known: set[str] = set()

    async def keep(process: Process) -> None:
        """What no Ingress declares any more is deleted."""
        prefix = BY_OLD if process.tag.startswith(READS_OLD) else BY_NEW
        listed = await process.api.call("GET", path("Ingress"))
        if listed.ok:
            told = [one for one in listed.body["items"] if f"{prefix}/target" in one["metadata"].get("annotations", {})]
            declared.clear()
            declared.update(rule["host"] for one in told for rule in one["spec"].get("rules", ()))
            known.update(declared)
            lab.outside.unreached = known - declared

    for namespace, name in doors.items():
        host = await publish(lab, namespace, name)
        told = {"metadata": {"annotations": {f"{BY_OLD}/target": ADDRESS}}}
        await lab.edit("admin", "Ingress", namespace, namespace, told)
        fails = lambda host=host: host in lab.outside.unreached or bool(unserved(lab.world, host))  # noqa: E731
        instance = f"https://{host}"
        lab.alert("ProbeFailed", fails, f"{instance} is not answered", 6, job="blackbox", instance=instance)
    rules = ("networking.k8s.io", "ingresses", "get,list,watch")
    await lab.controller("platform", "external-dns", every(2, keep), rules, replicas=1, tag=f"{READS_OLD}1")
    await lab.until(lambda: len(declared) == len(doors))
    async with before(lab, days=21) as then:
        body = {"spec": {"ingressClassName": "internal"}}
        then.judge(await lab.edit(team, "Ingress", changed, changed, body), "it")
        await then.fires()
        await lab.edit(team, "Ingress", changed, changed, {"spec": {"ingressClassName": "nginx"}})
        await then.is_well()
    async with before(lab, days=4):
        await lab.edit(team, "Ingress", changed, changed, annotated(proxy_body_size="32m"))
        await lab.pause(4)

    async def widen() -> None:
        await asyncio.sleep(lab.rng.uniform(1, 3))
        await lab.edit(team, "Ingress", changed, changed, annotated(proxy_body_size="64m"))

    yield
    await lab.roll(by, "platform", "external-dns", "0.22.0", culprit=True)
    lab.start(widen())
