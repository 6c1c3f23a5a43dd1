"""What pods and objects are handed as they are made or written: a role of the cloud, variables of their cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.api import Json
from tests.lab.apps import App, Container
from tests.lab.families.between import publish
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

ROLE, VARIABLE = "eks.amazonaws.com/role-arn", "AWS_ROLE_ARN"
ACCOUNT = "111122223333"
NEEDS_IT = 0.8
"""The share of an app's requests for which it needs what it keeps in the cloud."""
A_SECOND = 4
"""How many objects a webhook looks at in a second, of a version that has a limit."""
FLUX = "kustomize.toolkit.fluxcd.io"
TREE = ("flux-system", "cluster-apps")
LATE_SECONDS = 12.0


@family(
    "A ServiceAccount is annotated with another role of the cloud, which exists and which a bucket does not let in:"
    " what runs has the role of its start, and pods of the next, harmless rollout are denied what they keep there.",
    joined=20,
)
async def role_annotation(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: it is the plainest that there is."""
    namespace, name, caller = lab.rng.choice(
        (("media", "renditions", "player"), ("payments", "receipts", "statements"), ("search", "snapshots", "preview"))
    )
    webhooks = ("platform", "pod-identity-webhook")
    role = f"arn:aws:iam::{ACCOUNT}:role/{namespace}-{name}"
    other = lab.rng.choice((f"arn:aws:iam::{ACCOUNT}:role/prod/{namespace}-{name}", f"{role}-irsa"))

    async def hand_out(request: Json) -> list[Json] | None:
        """As the webhook of the cloud: the role of its ServiceAccount becomes a variable of each new pod."""
        spec = request["object"]["spec"]
        account = lab.world["ServiceAccount"].get((request["namespace"], spec.get("serviceAccountName", "default")), {})
        found = account.get("metadata", {}).get("annotations", {}).get(ROLE)
        if not found:
            return None
        env = [*spec["containers"][0].get("env", ()), {"name": VARIABLE, "value": found}]
        return [{"op": "add", "path": "/spec/containers/0/env", "value": env}]

    def denied(container: Container) -> float:
        """The bucket's policy names one role."""
        has = {one["name"]: one.get("value") for one in container.spec.get("env", ())}
        return 0.0 if has.get(VARIABLE) == role else NEEDS_IT

    await lab.app(*webhooks)
    webhook = Webhook(hand_out, service=webhooks)
    await webhook.start()
    lab.servers.append(webhook)
    await lab.until(lambda: len(backends(lab.world, *webhooks)) == 2)
    made = configuration("pod-identity-webhook", webhook)
    ignoring = [{**made["webhooks"][0], "failurePolicy": "Ignore"}]
    await lab.apply({**made, "kind": "MutatingWebhookConfiguration", "webhooks": ignoring})
    account = objects.account(namespace, name)
    account["metadata"]["annotations"] = {ROLE: role}
    await lab.apply(account)
    await lab.pause(1)  # until the API server asks the webhook
    await lab.app(namespace, name, like=App("", failing=denied), replicas=4, account=name)
    await lab.app(namespace, caller, like=App("", upstreams=((namespace, name),)), replicas=3)
    await lab.until(lambda: backends(lab.world, namespace, caller))
    await publish(lab, namespace, caller)
    lab.reserve(namespace, name)
    for one in (name, caller):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    yield
    by = lab.rng.choice(("flux", "carol", "ci"))
    body = {"metadata": {"annotations": {ROLE: other}}}
    await lab.culprit(by, "update", "ServiceAccount", namespace, name, body)
    await lab.pause(lab.rng.uniform(7, 13))
    await lab.roll(lab.rng.choice(("argocd", "alice")), namespace, name, "1.0.1")
