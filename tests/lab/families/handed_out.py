"""What pods and objects are handed as they are made or written: a role of the cloud, variables of their cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime

from tests.lab import objects
from tests.lab.api import Json, now
from tests.lab.apps import App, Container, Process
from tests.lab.families.between import publish
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.manifests import images
from tests.lab.network import backends
from tests.lab.programs import every, tell
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


@family(
    "The new version of a webhook that writes variables into all that is to be synced takes only a few objects a second"
    " and refuses the others: one tree has more, written at once, and each of its syncs is refused at some of them.",
    joined=20,
)
async def webhook_limit(lab: Lab) -> AsyncIterator[None]:
    """As somebody tells of four stops of what their cluster syncs (July 2026, home-ops 13294 and 13293)."""
    name = lab.rng.choice(("kustomize-mutating-webhook", "cluster-vars", "substitutions"))
    webhooks, syncer = (TREE[0], name), "tree-controller"
    kind = await lab.custom("Kustomization", FLUX, ANY)
    children = [f"app-{letter}" for letter in "abcdefghijklmn"]
    looked, done, started = list[datetime](), [now()], now()

    async def substitute(request: Json) -> str | list[Json] | None:
        """By what its pod is now; a version of one digit more has a limit."""
        [pod, *_] = backends(lab.world, *webhooks)
        if images(pod)[0].endswith(":0.6.0"):
            looked[:] = [at for at in looked if (now() - at).total_seconds() < 1]
            if len(looked) >= A_SECOND:
                return "too many requests: rate limit exceeded"
            looked.append(now())
        value = {"substitute": {"CLUSTER": "lab", "DOMAIN": "corp.example"}}
        return [{"op": "add", "path": "/spec/postBuild", "value": value}]

    async def sync(process: Process) -> None:
        """First all as a trial; where one is refused, nothing is written, and it is tried again later."""
        tree = (await process.api.call("GET", kind.path(*TREE))).body
        revision = f"main@sha1:{int((now() - started).total_seconds()) // 15:07x}"
        body = {"spec": {"interval": "10m", "revision": revision}}
        for trial in ("?dryRun=All", ""):
            for child in children:
                answer = await process.api.call("PATCH", f"{kind.path(TREE[0], child)}{trial}", body)
                if not answer.ok:
                    why = f"Kustomization/{TREE[0]}/{child} dry-run failed: {answer.body.get('message', '')}"
                    about = {**tree, "kind": kind.name}
                    await tell(process, about, "Warning", "ReconciliationFailed", why, by=syncer)
                    return
        done[0] = now()

    await lab.app(*webhooks, tag="0.5.4", replicas=1)
    webhook = Webhook(substitute, service=webhooks)
    await webhook.start()
    lab.servers.append(webhook)
    await lab.served(kind)
    for declared in (TREE[1], *children):
        meta = {"namespace": TREE[0], "name": declared}
        spec = {"interval": "10m", "path": f"./{declared}", "revision": "main@sha1:0000000"}
        await lab.apply({"apiVersion": f"{FLUX}/v1", "kind": kind.name, "metadata": meta, "spec": spec})
    await lab.until(lambda: backends(lab.world, *webhooks))
    made = configuration(name, webhook)
    rule = {"apiGroups": [FLUX], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": [kind.plural]}
    one = {**made["webhooks"][0], "rules": [rule]}
    await lab.apply({**made, "kind": "MutatingWebhookConfiguration", "webhooks": [one]})
    rules = ((FLUX, kind.plural, "get,list,patch"), ("", "events", "create"))
    await lab.controller("flux-system", syncer, every(4, sync), *rules, replicas=1)
    stuck = lambda: (now() - done[0]).total_seconds() > LATE_SECONDS  # noqa: E731
    summary = f"{'/'.join(TREE)} has not been synced for a while"
    lab.alert("FluxReconciliationStalled", stuck, summary, 4, namespace=TREE[0], kustomization=TREE[1])
    yield
    by = lab.rng.choice(("ci", "bob", "carol"))
    await lab.roll(by, *webhooks, "0.6.0", culprit=True)
