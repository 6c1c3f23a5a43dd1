"""Controllers and what they keep for others: certificates, drift that is looked for, and who may make pods."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from itertools import count

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.company import APPS, READ
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.network import INGRESS_CLASS, backends
from tests.lab.programs import both, every
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

ISSUER = ("cert-manager", "cert-manager")
POLICY = ("platform", "policy")


async def _door(lab: Lab, namespace: str, name: str, host: str, secret: str) -> None:
    """An Ingress with a certificate. Raises RefusedError."""
    backend = {"service": {"name": name, "port": {"number": 80}}}
    paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
    spec = {
        "ingressClassName": INGRESS_CLASS,
        "tls": [{"hosts": [host], "secretName": secret}],
        "rules": [{"host": host, "http": {"paths": paths}}],
    }
    await lab.apply({"kind": "Ingress", "metadata": {"namespace": namespace, "name": name}, "spec": spec})


class _Certificates:
    """What cert-manager does: a Secret for each Certificate, issued anew once its names are others."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.issued: dict[tuple[str, str], list[str]] = {}
        """The names in each Secret's certificate."""

    async def issue(self, process: Process) -> None:
        leader = min(pod["metadata"]["name"] for pod in pods(self._lab.world, *ISSUER))
        listed = await process.api.call("GET", path("Certificate"))
        if process.see().pod["metadata"]["name"] != leader or not listed.ok:
            return
        for one in listed.body["items"]:
            namespace, names = one["metadata"]["namespace"], one["spec"]["dnsNames"]
            place = (namespace, one["spec"]["secretName"])
            if self.issued.get(place) == names:
                continue
            pair = {"tls.crt": base64.b64encode(f"certificate for {' '.join(names)}".encode()).decode()}
            meta: Json = {"name": place[1], "annotations": {"cert-manager.io/alt-names": ",".join(names)}}
            body = {"metadata": meta, "data": pair}
            done = await process.api.call("PATCH", path("Secret", *place), body)
            if done.status == 404:
                done = await process.api.call("POST", path("Secret", namespace), body)
            if done.ok:
                self.issued[place] = names
                ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": "Certificate is up to date"}
                where = path("Certificate", namespace, one["metadata"]["name"])
                await process.api.call("PATCH", where, {"status": {"conditions": [ready]}})

    async def be_seen(self) -> None:
        """Whoever comes by a name that is not in the certificate does not trust what is there."""
        while True:
            wrong = set()
            for (namespace, _), ingress in self._lab.world["Ingress"].items():
                for tls in ingress["spec"].get("tls", ()):
                    names = self.issued.get((namespace, tls["secretName"]), [])
                    wrong |= set(tls["hosts"]) - set(names)
            self._lab.outside.unreached = wrong
            await asyncio.sleep(0.5)


@family(
    "One certificate is for several public names. Somebody adds the name of a new page to it and leaves off one that is"
    " still in use: it is issued anew at once, and whoever comes by that name is warned of a certificate for others.",
    joined=72,
)
async def names_left_off(lab: Lab) -> AsyncIterator[None]:
    namespace, first, second, third = lab.rng.choice(
        (("shop", "frontend", "gift-cards", "outlet"), ("media", "uploads", "live-tv", "replay"))
    )
    by, domain = lab.rng.choice(("alice", "bob", "flux")), "corp.example"
    hosts = {name: f"{name}.{namespace}.{domain}" for name in (first, second, third)}
    work, secret = _Certificates(lab), f"{namespace}-tls"
    certificate = await lab.custom("Certificate", "cert-manager.io", ANY)
    await lab.served(certificate)
    rules = objects.cluster_role("cert-manager", READ, ("coordination.k8s.io", "leases", "*"), ("", "secrets", "*"),
        ("cert-manager.io", "*", "*"))["rules"]  # fmt: skip
    await lab.edit("admin", "ClusterRole", "", "cert-manager", {"rules": rules})
    app = lab.apps["registry.corp.example/cert-manager/cert-manager"]
    assert app.program
    app.program = both(app.program, every(1.5, work.issue))
    await lab.roll("admin", *ISSUER, "v1.18.2")
    await rolled(lab, *ISSUER, "v1.18.2")
    for name in (second, third):
        await lab.app(namespace, name, replicas=2, tag="1.7.0")
        await rolled(lab, namespace, name, "1.7.0")
    spec = {
        "secretName": secret,
        "dnsNames": [hosts[first], hosts[second]],
        "issuerRef": {"kind": "ClusterIssuer", "name": "letsencrypt"},
    }
    await lab.apply({"kind": "Certificate", "metadata": {"namespace": namespace, "name": namespace}, "spec": spec})
    for name in (first, second):
        await _door(lab, namespace, name, hosts[name], secret)
        instance = f"https://{hosts[name]}"
        fails = lambda host=hosts[name]: host in lab.outside.unreached  # noqa: E731
        lab.alert("ProbeFailed", fails, f"{instance} is not answered", 6, job="blackbox", instance=instance)
    lab.reserve(namespace, first)
    await lab.until(lambda: (namespace, secret) in work.issued)
    lab.start(work.be_seen())
    await lab.pause(1)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(1, 4))
    await lab.roll("ci", namespace, third, "1.8.0")
    await lab.pause(lab.rng.uniform(2, 5))
    kept = lab.rng.choice((first, second))
    body = {"spec": {"dnsNames": [hosts[kept], hosts[third]]}}
    await lab.culprit(by, "update", "Certificate", namespace, namespace, body)
    await lab.pause(lab.rng.uniform(1, 2))
    await lab.roll("ci", namespace, second, "1.7.1")


SYNC, QUOTAS = ("platform", "release-sync"), ("platform", "quota-keeper")
SHARES, WAITING = 2, 10
"""What the level of the platform's controllers gets of the API server, and how many requests may wait for it."""


async def _one_level(lab: Lab) -> None:
    """All controllers of the platform have it together, and it borrows from none."""
    level = {
        "type": "Limited",
        "limited": {
            "nominalConcurrencyShares": SHARES,
            "lendablePercent": 0,
            "borrowingLimitPercent": 0,
            "limitResponse": {
                "type": "Queue",
                "queuing": {"queues": 1, "handSize": 1, "queueLengthLimit": WAITING},
            },
        },
    }
    await lab.apply({"kind": "PriorityLevelConfiguration", "metadata": {"name": "platform"}, "spec": level})
    account = {"kind": "ServiceAccount", "serviceAccount": {"namespace": SYNC[0], "name": "*"}}
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
    schema = {
        "priorityLevelConfiguration": {"name": "platform"},
        "matchingPrecedence": 700,
        "distinguisherMethod": {"type": "ByUser"},
        "rules": [{"subjects": [account], "resourceRules": [everything]}],
    }
    await lab.apply({"kind": "FlowSchema", "metadata": {"name": "platform"}, "spec": schema})


@family(
    "What looks for drift asks the API server of each object what would become of it. So that it is through sooner, it"
    " gets ten times as many workers; the platform's controllers have one level of priority together, and another one"
    " there is told that there are too many requests.",
    joined=72,
)
async def more_workers(lab: Lab) -> AsyncIterator[None]:
    by, many = lab.rng.choice(("bob", "carol", "argocd")), lab.rng.choice((40, 48))
    takes = lab.rng.uniform(0.22, 0.32)
    places = [(namespace, name) for namespace, names in APPS.items() for name in names]

    async def review(_: Json) -> None:
        """What stands in the way of each write takes its time."""
        await asyncio.sleep(takes)

    async def compare(process: Process) -> None:
        """Each worker takes the next object as soon as it is through with one."""
        turn = count()

        async def worker() -> None:
            while True:
                namespace, name = places[next(turn) % len(places)]
                body = {"metadata": {"labels": {"app.kubernetes.io/name": name}}}
                where = f"{path('Deployment', namespace, name)}?dryRun=All&fieldManager=release-sync"
                done = await process.api.call("PATCH", where, body)
                await asyncio.sleep(0.05 if done.ok else 0.5)

        async with asyncio.TaskGroup() as group:
            for _ in range(int(process.env["WORKERS"])):
                group.create_task(worker())

    async def keep(process: Process) -> None:
        async def see(namespace: str) -> None:
            await process.api.call("GET", path("ResourceQuota", namespace))
            await process.api.call("GET", f"{path('Pod', namespace)}?limit=5")

        await asyncio.gather(*map(see, APPS))

    await _one_level(lab)
    await lab.app(*POLICY, like=App("", serves=False), tag="1.15.2")
    await rolled(lab, *POLICY, "1.15.2")
    webhook = Webhook(review, service=POLICY)
    await webhook.start()
    lab.servers.append(webhook)
    told = configuration("policy", webhook)
    told["webhooks"][0]["rules"] = [
        {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["deployments"]}
    ]
    told["webhooks"][0]["failurePolicy"] = "Ignore"
    await lab.apply(told)
    rules = ("apps", "deployments", "get,list,watch,patch")
    workers = [{"name": "WORKERS", "value": "4"}]
    await lab.controller(*SYNC, compare, rules, replicas=1, tag="2.6.1", env=workers)
    await lab.controller(*QUOTAS, every(0.4, keep), ("", "resourcequotas,pods", "get,list"), replicas=1, tag="0.9.3")
    await rolled(lab, *SYNC, "2.6.1")
    await rolled(lab, *QUOTAS, "0.9.3")
    image = f"registry.corp.example/{'/'.join(QUOTAS)}"
    summary = "requests of platform/quota-keeper to the API server are answered with 429"
    throttled = lab.rate(lab.refused(image, 429), 0.3, seconds=8)
    lab.alert("KubeClientThrottled", throttled, summary, 5, namespace=QUOTAS[0], deployment=QUOTAS[1])
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(1, 3))
    await lab.roll("ci", *QUOTAS, "0.9.4")
    await lab.pause(lab.rng.uniform(6, 9))
    env = [{"name": "WORKERS", "value": str(many)}]
    await lab.roll(by, *SYNC, "2.6.1", culprit=True, env=env)


@family(
    "What reviews each new pod is rolled out with a version that does not read the rules as they are written: its only"
    " pod ends at its start, again and again, and as nobody is to run what was not reviewed, no team gets any pod.",
    joined=72,
)
async def reviewer_crashes(lab: Lab) -> AsyncIterator[None]:
    minor = lab.rng.randrange(10, 18)
    old, new = f"1.{minor}.4", f"1.{minor + 1}.0"
    by = lab.rng.choice(("argocd", "flux", "carol"))
    teams = lab.rng.sample((("shop", "basket-api"), ("media", "covers"), ("search", "facets"), ("payments", "fees")), 3)

    def check(container: Container) -> Problem | None:
        unread = container.tag == new and "excludeNames" in container.config.get("rules.yaml", "")
        return Problem("crash", "rules.yaml: unknown field excludeNames", at_once=True) if unread else None

    async def review(_: Json) -> None:
        """Nobody takes the connection while no pod is ready."""
        if not backends(lab.world, *POLICY):
            raise ConnectionError

    rules = "match: [pods]\nexcludeNames: [debug]\nrequire: [resources]\n"
    await lab.apply(objects.config_map(*POLICY, **{"rules.yaml": rules}))
    like = App("", serves=False, check=check)
    await lab.app(*POLICY, like=like, replicas=1, tag=old, config=POLICY[1])
    await lab.edit("admin", "Deployment", *POLICY, {"spec": {"strategy": {"type": "Recreate", "rollingUpdate": None}}})
    await rolled(lab, *POLICY, old)
    for namespace, name in teams:
        await lab.app(namespace, name, replicas=3, tag="4.1.0")
        await rolled(lab, namespace, name, "4.1.0")
        lab.alert_stuck(namespace, name)
    webhook = Webhook(review, service=POLICY)
    await webhook.start()
    lab.servers.append(webhook)
    told = configuration("policy", webhook)
    told["webhooks"][0]["namespaceSelector"]["matchExpressions"][0]["values"].append("platform")
    await lab.apply(told)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(1, 3))
    await lab.roll("ci", *teams[0], "4.1.1")
    await rolled(lab, *teams[0], "4.1.1")
    await lab.pause(lab.rng.uniform(2, 6))
    await lab.roll(by, *POLICY, new, culprit=True)
    for team in teams[1:]:
        await lab.pause(lab.rng.uniform(4, 7))
        await lab.roll("ci", *team, "4.2.0")
