"""What is asked by many at the same time and is made for few: who checks Ingresses, who signs certificates."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial

from tests.lab import addresses, objects
from tests.lab.alerts import restarts, stuck
from tests.lab.api import Json, RefusedError, now, path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.families.along_with import REVIEWS
from tests.lab.families.by_annotation import NGINX, rolled
from tests.lab.lab import Lab
from tests.lab.manifests import images, uid_of
from tests.lab.network import INGRESS_CLASS, INGRESS_CONTROLLER, backends, unserved
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

Started = tuple[str, float]
"""A process, by the uid of its pod and when it was started."""
CONTROLLER = f"registry.corp.example/{'/'.join(INGRESS_CONTROLLER)}"
STORES = 40
OWN_MIB, EACH_MIB, LIMIT_MIB = 118.0, 26.0, 256
"""Of the Ingresses' controller: its own memory, that of each check under way, and what it may have."""
CHECK_SECONDS, STEP_SECONDS = 0.35, 0.05
"""How long one takes that has the processor for itself: all that there is, is rendered and tried."""
BETWEEN_SECONDS = 0.1
"""After which the next application's turn comes; those that failed are tried anew all at once."""
RETRIES = (5.0, 10.0, 20.0, 20.0)
"""Seconds after which that is done."""


@dataclass
class _Checks:
    """The webhook of the Ingresses' controller: for each that is written it renders its whole configuration."""

    lab: Lab
    under_way: Counter[Started] = field(default_factory=Counter)
    full: set[Started] = field(default_factory=set)
    """Processes whose memory is at its limit: nothing there gets on until the kernel ends them."""

    running: list[Started] = field(default_factory=list)

    async def look(self) -> None:
        while True:
            there = (one for one in self.lab.kubelets.running() if one.app.image == CONTROLLER)
            self.running = [(uid_of(one.container.pod), one.started.timestamp()) for one in there]
            await asyncio.sleep(0.2)

    async def review(self, _: Json) -> None:
        ready = {uid_of(pod) for pod in backends(self.lab.world, *INGRESS_CONTROLLER)}
        there = [one for one in self.running if one[0] in ready]
        if not there:
            raise ConnectionError("nobody listens")
        chosen = self.lab.kubelets.rng.choice(there)
        self.under_way[chosen] += 1
        try:
            done = 0.0
            while done < CHECK_SECONDS:
                await asyncio.sleep(STEP_SECONDS)
                if OWN_MIB + EACH_MIB * self.under_way[chosen] > LIMIT_MIB:
                    self.full.add(chosen)
                done += 0.0 if chosen in self.full else STEP_SECONDS / self.under_way[chosen]
                if chosen not in self.running:
                    raise ConnectionError("it was ended meanwhile")
        finally:
            self.under_way[chosen] -= 1

    def check(self, container: Container) -> Problem | None:
        is_full = _is_among(container, self.full)
        return Problem("oom", f"needs more than {LIMIT_MIB}Mi, which it may have") if is_full else None


def _is_among(container: Container, processes: set[Started]) -> bool:
    uid, started = uid_of(container.pod), now().timestamp() - container.seconds
    return any(one == uid and abs(when - started) < 0.3 for one, when in processes)


@family(
    "All stores have their Ingress by one chart, whose new version has one more annotation, and what applies it writes"
    " all of them at the same time. The Ingresses' controller checks each by rendering its whole configuration once"
    " more, has no memory for so many, and is killed, and again as they are tried anew.",
    joined=48,
)
async def validated_at_once(lab: Lab) -> AsyncIterator[None]:
    """As a user of ingress-nginx tells of a release of many charts (kubernetes/ingress-nginx 9433)."""
    namespace, name = lab.rng.choice((("shop", "storefront"), ("media", "channel-site"), ("search", "partner-site")))
    by, hosts = lab.rng.choice(("argocd", "flux")), [f"store-{number:02}" for number in range(1, STORES + 1)]
    checks = _Checks(lab)
    lab.apps[CONTROLLER].check = checks.check
    lab.start(checks.look())
    await lab.app(namespace, f"{name}-api", replicas=2, tag="2.2.0")
    like = App("", upstreams=((namespace, f"{name}-api"),), asked=lambda: 36.0)
    await lab.app(namespace, name, like=like, replicas=3, tag="6.1.0")
    for host in hosts:
        backend = {"service": {"name": name, "port": {"number": 80}}}
        paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
        rule = {"host": f"{host}.stores.example", "http": {"paths": paths}}
        labels = {"helm.sh/chart": "store-3.4.0", "app.kubernetes.io/instance": host}
        meta = {"namespace": namespace, "name": host, "labels": labels}
        spec = {"ingressClassName": INGRESS_CLASS, "rules": [rule]}
        await lab.apply({"kind": "Ingress", "metadata": meta, "spec": spec})
    await lab.until(lambda: backends(lab.world, namespace, name) and backends(lab.world, *INGRESS_CONTROLLER))
    webhook = Webhook(checks.review, service=INGRESS_CONTROLLER)
    await webhook.start()
    lab.servers.append(webhook)
    made = configuration("ingress-nginx-admission", webhook, seconds=10)
    rules = {"apiGroups": ["networking.k8s.io"], "apiVersions": ["v1"], "resources": ["ingresses"]}
    rules["operations"] = ["CREATE", "UPDATE"]
    one = {**made["webhooks"][0], "name": "validate.nginx.ingress.kubernetes.io", "rules": [rules]}
    del one["namespaceSelector"]
    await lab.apply({**made, "webhooks": [one]})
    lab.reserve(namespace, name)
    lab.alert_lacking(*INGRESS_CONTROLLER, seconds=5)
    url = f"https://{hosts[0]}.stores.example"
    fails = lambda: bool(unserved(lab.world, f"{hosts[0]}.stores.example"))  # noqa: E731
    lab.alert("ProbeFailed", fails, f"{url} is not answered", 4, job="blackbox", instance=url)
    await lab.until(lab.is_well)
    yield
    timeout = lab.rng.choice(("90", "120", "180"))
    noted = {"annotations": {f"{NGINX}/proxy-read-timeout": timeout}, "labels": {"helm.sh/chart": "store-3.5.0"}}
    left = set(hosts)

    async def sync(host: str, wait: float) -> None:
        await asyncio.sleep(wait)
        try:
            await lab.culprit(by, "update", "Ingress", namespace, host, {"metadata": noted})
        except RefusedError:
            return
        left.discard(host)

    async def retry() -> None:
        for pause in RETRIES:
            await asyncio.sleep(pause)
            await asyncio.gather(*(sync(host, 0.0) for host in sorted(left)))

    await asyncio.gather(*(sync(host, BETWEEN_SECONDS * number) for number, host in enumerate(hosts)))
    lab.start(retry())


MESH, SIGNER = "dapr-system", "dapr-sentry"
SIDECAR = f"registry.corp.example/{MESH}/daprd"
OF_OLD, ANEW = "1.14.4", "1.15.2"
EVERY_SECONDS, PATIENCE_SECONDS = 1.7, 9.0
"""Between two questions of the signer to the API server, as its client lets it, and how long a sidecar waits."""
FATAL = "Fatal error from runtime: failed to retrieve the initial identity: context deadline exceeded"


@dataclass
class _Signer:
    """Each process of a sidecar asks for a certificate at its start; whose it is, the signer asks the API server.

    One that has given up is asked about all the same when its turn comes.
    """

    lab: Lab
    tokens: dict[str, str]
    """Of an account of each namespace."""
    waiting: deque[tuple[str, str, float]] = field(default_factory=deque)
    """Namespace, uid and start of each."""
    asked: set[Started] = field(default_factory=set)
    signed: set[Started] = field(default_factory=set)
    pace: float = 0.1
    """Seconds between two questions."""

    async def sign(self, process: Process) -> None:
        self.waiting.clear()
        self.asked -= self.asked - self.signed
        async with asyncio.TaskGroup() as group:
            group.create_task(self._hear())
            while True:
                if self.waiting:
                    namespace, uid, started = self.waiting.popleft()
                    spec = {"token": self.tokens[namespace]}
                    told = await process.api.call("POST", REVIEWS, {"spec": spec})
                    if told.body.get("status", {}).get("authenticated"):
                        self.signed.add((uid, started))
                    await asyncio.sleep(self.pace)
                await asyncio.sleep(0.1)

    async def _hear(self) -> None:
        """What sidecars ask, as they start."""
        while True:
            for one in self.lab.kubelets.running():
                pod, started = one.container.pod, one.started.timestamp()
                has_sidecar = any(image.startswith(f"{SIDECAR}:") for image in images(pod))
                if has_sidecar and (uid_of(pod), started) not in self.asked:
                    self.asked.add((uid_of(pod), started))
                    self.waiting.append((pod["metadata"]["namespace"], uid_of(pod), started))
            await asyncio.sleep(0.2)

    def check(self, container: Container) -> Problem | None:
        if _is_among(container, self.signed):
            return None
        if container.seconds >= PATIENCE_SECONDS:
            return Problem("crash", FATAL)
        return Problem("unready", "probe failed: HTTP probe failed with statuscode: 500")


@family(
    "All apps that have a sidecar get its new version in one go. Each one asks for a certificate at its start, and who"
    " signs those asks the API server whose it is, as often as its client lets it, which is enough for one app: for all"
    " together it is not, sidecars wait in vain, end, and ask again, behind those that have given up.",
    joined=48,
)
async def signed_in_turn(lab: Lab) -> AsyncIterator[None]:
    """As users and makers of Dapr tell of its Sentry (dapr/dapr 4371 and 8642)."""
    names = {
        "shop": ("vouchers", "wishlist", "returns"),
        "media": ("playlists", "ratings"),
        "payments": ("refunds", "payouts"),
        "search": ("facets",),
    }
    by, places = (
        lab.rng.choice(("ci", "argocd", "carol")),
        [(home, one) for home, them in names.items() for one in them],
    )
    await lab.namespace(MESH)
    given = {}
    for home in names:
        where = f"{path('ServiceAccount', home, 'default')}/token"
        given[home] = (await lab.who["admin"].must("POST", where, {"spec": {}})).body["status"]["token"]
    signer = _Signer(lab, given)
    lab.apps[SIDECAR] = App(SIDECAR, serves=False, check=signer.check, upstreams=((MESH, SIGNER),))
    rule = ("authentication.k8s.io", "tokenreviews", "create")
    await lab.controller(MESH, SIGNER, signer.sign, rule, replicas=1, tag=OF_OLD)
    await rolled(lab, MESH, SIGNER, OF_OLD)
    for home, name in places:
        await lab.app(home, f"{name}-db", like=App("", serves=False), kind="StatefulSet", replicas=1, tag="17.2")
        image = f"registry.corp.example/{home}/{name}"
        lab.apps[image] = app = App(image, upstreams=((home, f"{name}-db"),))
        chance = random.Random(f"{lab.called} {image}")
        told = addresses.told(app, home, name, env=(), has_config=False, chance=chance)
        made = objects.deployment(home, name, f"{image}:3.0.1", env=told.env, replicas=4)
        resources = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}}
        args = ["--app-id", name, "--sentry-address", f"{SIGNER}.{MESH}.svc.cluster.local:443"]
        sidecar = {"name": "daprd", "image": f"{SIDECAR}:{OF_OLD}", "args": args, "resources": resources}
        made["spec"]["template"]["spec"]["containers"].append(sidecar)
        await lab.apply(made)
        await lab.apply(objects.service(home, name))
    for place in places:
        await rolled(lab, *place, "3.0.1")
        is_stuck = partial(stuck, lab.world, *place)
        labels = {"namespace": place[0], "deployment": place[1]}
        summary = f"the rollout of {place[0]}/{place[1]} is not progressing"
        lab.alert("KubeDeploymentRolloutStuck", is_stuck, summary, 18, **labels)
    restarted = lab.rate(lambda: sum(restarts(lab.world, *place) for place in places), 0.3, seconds=15)
    lab.alert("KubePodCrashLooping", restarted, "containers of daprd are restarting", 4, container="daprd")
    await lab.until(lab.is_well)
    signer.pace = EVERY_SECONDS
    yield
    for home, name in places:
        first, sidecar = lab.world["Deployment"][home, name]["spec"]["template"]["spec"]["containers"]
        containers = [first, {**sidecar, "image": f"{SIDECAR}:{ANEW}"}]
        body = {"spec": {"template": {"spec": {"containers": containers}}}}
        await lab.culprit(by, "update", "Deployment", home, name, body)
