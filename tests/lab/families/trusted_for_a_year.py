"""What the API server asks before it writes: somebody whose certificate is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tests.lab.api import Json, now, path
from tests.lab.company import APPS
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

CERTIFIED_SECONDS = 88.0
"""For how long the webhook's certificate is good once all is set up; it was made a year ago."""
DEPLOYERS = ("argocd", "flux", "ci")


@family(
    "No culprit. What checks Deployments before they are written has a certificate that its chart made a year ago, when"
    " it was installed, and that nobody renews. It is over, the API server trusts it no more, and each release of any"
    " team is refused.",
    culprit=False,
    joined=85,
)
async def hook_certificate(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose deployments failed from one minute to the next with x509: certificate has expired."""
    server = lab.rng.choice(
        (("platform", "deploy-guard"), ("platform", "release-policy"), ("platform", "image-policy"))
    )
    apps = [(namespace, name) for namespace, names in APPS.items() for name in names]
    (early, *releases), release = lab.rng.sample(apps, 4), lab.rng.randrange(2, 40)

    async def review(request: Json) -> str | None:
        """That each container says where its image is from."""
        if not backends(lab.world, *server):
            raise ConnectionError("no pod is behind it")
        images = (one["image"] for one in request["object"]["spec"]["template"]["spec"]["containers"])
        return None if all(one.startswith("registry.corp.example/") for one in images) else "unknown registry"

    def failed() -> int:
        """How many writes of who deploys ended with a failure to call a webhook."""
        return sum(lab.who[one].counts[500] for one in DEPLOYERS)

    async def deploy(place: tuple[str, str], tag: str) -> None:
        """As what syncs does it: what is refused is tried again, and then once more a while later."""
        by = lab.rng.choice(DEPLOYERS)
        there = lab.world["Deployment"][place]["spec"]["template"]["spec"]["containers"][0]
        container = {**there, "image": f"{there['image'].rsplit(':', 1)[0]}:{tag}"}
        body = {"spec": {"template": {"spec": {"containers": [container]}}}}
        for wait in (1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0):
            if (await lab.who[by].call("PATCH", path("Deployment", *place), body)).ok:
                return
            await asyncio.sleep(wait * lab.rng.uniform(0.9, 1.1))

    async def hour(over: float) -> None:
        await lab.pause(over - now().timestamp())
        for place in releases:
            lab.start(deploy(place, f"3.{release}.0"))
            await lab.pause(lab.rng.uniform(2, 6))

    await lab.app(*server, replicas=2, tag="1.6.3")
    await rolled(lab, *server, "1.6.3")
    failures = lab.rate(failed, 0.15, seconds=12)
    summary = "changes that are to be deployed are not written to the cluster"
    lab.alert("SyncFailing", failures, summary, 6, namespace="argocd")
    await lab.until(lab.is_well)
    webhook = Webhook(review, seconds=CERTIFIED_SECONDS, service=server)
    over = now().timestamp() + CERTIFIED_SECONDS
    await webhook.start()
    lab.servers.append(webhook)
    manifest = configuration(server[1], webhook)
    asked = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"]}
    manifest["webhooks"][0]["rules"] = [{**asked, "resources": ["deployments"]}]
    await lab.apply(manifest)
    for place in (early, *releases):
        lab.reserve(*place)
    yield
    await lab.roll(lab.rng.choice(DEPLOYERS), *early, f"3.{release}.0")
    await lab.pause(lab.rng.uniform(2, 5))
    data = {"data": {"LOG_LEVEL": lab.rng.choice(("warn", "debug"))}}
    await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", *releases[0], data)
    lab.start(hour(over))
