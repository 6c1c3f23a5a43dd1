"""No longer let by: a webhook whose certificate nobody has renewed, and a rule of the cloud's firewall."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network

from tests.lab import objects
from tests.lab.api import Json, Kind, now, stamp
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.more_than_was_meant import Lately
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.network import unserved
from tests.lab.programs import both, every, informer, leading
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

# -- a certificate

GOOD_SECONDS = 84.0
"""For how long it is good once all is set up."""
INJECTOR, MARK = ("platform", "secret-injector"), "secrets.corp.example"


async def _inject(request: Json) -> list[Json]:
    """A mark of what it has added to a pod."""
    notes = request["object"]["metadata"].get("annotations") or {}
    value = {**notes, f"{MARK}/status": "injected"}
    return [{"op": "add", "path": "/metadata/annotations", "value": value}]


@family(
    "No culprit. What gives pods their secrets is a webhook that is asked for each of them. Its certificate was made by"
    " hand a year ago, for it alone, and nobody has renewed it. It is over: whatever runs goes on, and no pod is made"
    " any more in the namespaces that have their secrets from it.",
    culprit=False,
    joined=104,
)
async def nobody_renewed_it(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose first release of the afternoon did not come, and they looked for it in the release."""
    (home, name, front), (away, other, page) = lab.rng.sample(
        (
            ("shop", "gift-cards", "gift-page"),
            ("payments", "tax-reports", "tax-page"),
            ("media", "live-chat", "live-page"),
            ("search", "saved-alerts", "alerts-page"),
        ),
        2,
    )
    minor = lab.rng.randrange(2, 40)
    await lab.app(*INJECTOR, like=App("", serves=False), replicas=2, tag="0.9.4")
    await rolled(lab, *INJECTOR, "0.9.4")
    for namespace, one, before in ((home, name, front), (away, other, page)):
        await lab.apply(objects.config_map(namespace, one, LOG_LEVEL="info", BATCH="25"))
        await lab.app(namespace, one, like=App("", asked=lambda: 16.0), replicas=3, tag=f"3.{minor}.0", config=one)
        await rolled(lab, namespace, one, f"3.{minor}.0")
        await set_before(lab, namespace, before, one)
        label = {"metadata": {"labels": {f"{MARK}/inject": "enabled"}}}
        await lab.edit("admin", "Namespace", "", namespace, label)
        for app in (one, before):
            lab.alert_stuck(namespace, app)
        lab.alert_lacking(namespace, one, seconds=12)
        lab.alert_ingress_errors(namespace, namespace)
    webhook = Webhook(_inject, seconds=GOOD_SECONDS, service=INJECTOR)
    over = now().timestamp() + GOOD_SECONDS
    await webhook.start()
    lab.servers.append(webhook)
    manifest = configuration(INJECTOR[1], webhook, only=f"{MARK}/inject", seconds=10)
    await lab.apply({**manifest, "kind": "MutatingWebhookConfiguration"})
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        """What comes once it is over."""
        await lab.pause(max(0.0, over - now().timestamp()) + lab.rng.uniform(2, 9))
        await lab.roll(lab.rng.choice(("ci", "argocd")), away, other, f"3.{minor}.1")
        await lab.pause(lab.rng.uniform(3, 9))
        await change_page(lab, home, front)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), home, name, f"3.{minor}.1")
    await lab.pause(lab.rng.uniform(6, 10))
    body = {"data": {"BATCH": lab.rng.choice(("40", "50"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", away, other, body)
    lab.start(afterwards())


# -- a rule

GROUP, PROVIDER = "ec2.aws.upbound.io", ("platform", "provider-aws-ec2")
NODE, DOOR = "10.0.0.4", 30443
"""An address of a machine, and the port of all machines to which the load balancer sends."""
DATABASE, TO_DATABASE, FROM_BALANCER = "10.0.32.17", "data-from-nodes", "nodes-from-balancer"


def _rule(port: tuple[int, int], cidr: str, to: str, said: str) -> Json:
    """Who may come in where."""
    about = {"type": "ingress", "protocol": "tcp", "fromPort": port[0], "toPort": port[1], "cidrBlocks": [cidr]}
    named = {"securityGroupIdRef": {"name": to}, "description": said}
    return {"spec": {"forProvider": {**about, **named}, "providerConfigRef": {"name": "default"}}}


RULES = {
    TO_DATABASE: _rule((5432, 5432), "10.0.0.0/20", "data", "postgres from workers"),
    FROM_BALANCER: _rule((30000, 32767), "10.0.16.0/22", "nodes", "node ports"),
    "nodes-ssh-bastion": _rule((22, 22), "10.0.48.0/24", "nodes", "ssh"),
    "data-from-office": _rule((5432, 5432), "10.90.0.0/16", "data", "office"),
    "nodes-from-metrics": _rule((9100, 9100), "10.0.40.0/24", "nodes", "node exporter"),
}


@dataclass
class _Cloud:
    """What the cloud's firewall lets in: what the provider has last carried out."""

    lab: Lab
    kind: Kind
    rules: dict[str, Json] = field(default_factory=dict)

    async def be_there(self) -> None:
        """With its rules, and who carries them out. Raises RefusedError, TimeoutError."""
        lab, kind = self.lab, self.kind
        await lab.served(kind)
        for name, rule in RULES.items():
            meta = {"name": name, "labels": {"owner": "platform"}}
            await lab.apply({"kind": kind.name, "apiVersion": f"{GROUP}/v1", "metadata": meta, **rule})
        rights = (GROUP, kind.plural, "get,list,watch,patch"), ("coordination.k8s.io", "leases", "*")
        program = both(informer(kind.path()), every(2.0, self.carry_out), leading(*PROVIDER))
        await lab.controller(*PROVIDER, program, *rights, replicas=1, tag="v1.23.0")
        await rolled(lab, *PROVIDER, "v1.23.0")
        await lab.until(lambda: len(self.rules) == len(RULES))

    async def carry_out(self, process: Process) -> None:
        listed = await process.api.call("GET", self.kind.path())
        if not listed.ok:
            return
        there = {one["metadata"]["name"]: one for one in listed.body["items"]}
        self.rules = {name: one["spec"]["forProvider"] for name, one in there.items()}
        for name, one in there.items():
            done = one.get("status", {}).get("atProvider")
            if json.dumps(done, sort_keys=True) != json.dumps(self.rules[name], sort_keys=True):
                ready = {"type": "Synced", "status": "True", "reason": "ReconcileSuccess"}
                told = [{**ready, "lastTransitionTime": f"{stamp(now())[:19]}Z"}]
                body = {"status": {"atProvider": self.rules[name], "conditions": told}}
                await process.api.call("PATCH", self.kind.path(None, name), body)

    def lets_in(self, name: str, port: int, source: str = "") -> bool:
        """Whether a rule is there, and of that port, and of that address where one is given."""
        rule = self.rules.get(name)
        if rule is None or not rule["fromPort"] <= port <= rule["toPort"]:
            return False
        return not source or any(ip_address(source) in ip_network(one) for one in rule["cidrBlocks"])


@family(
    "The rules of the cloud's firewall are objects of the cluster, and somebody tidies them up: some are narrower from"
    " now on, one is deleted. One of them was what let the machines reach the database outside, or the load balancer"
    " reach the machines. Connections that nobody lets in are not answered at all.",
    joined=104,
)
async def rule_taken_out(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose review of the firewall had a list of rules without an owner."""
    (home, name, front), (away, other, page) = lab.rng.sample(
        (
            ("shop", "order-book", "order-page"),
            ("payments", "ledger-view", "ledger-page"),
            ("media", "library", "library-page"),
            ("search", "favourites", "favourites-page"),
        ),
        2,
    )
    by, minor, is_door = lab.rng.choice(("flux", "ci", *TEAMS)), lab.rng.randrange(2, 40), lab.rng.random() < 0.5
    is_deleted, asks_probe, share = lab.rng.random() < 0.5, lab.rng.random() < 0.5, lab.rng.uniform(0.5, 0.9)
    cloud = _Cloud(lab, await lab.custom("SecurityGroupRule", GROUP, ANY, namespaced=False))
    await cloud.be_there()
    no_data = Lately(lab, lambda: not cloud.lets_in(TO_DATABASE, 5432, NODE))
    no_door = Lately(lab, lambda: not cloud.lets_in(FROM_BALANCER, DOOR))
    lab.outside.reached = lambda: not no_door()
    why = f"probe failed: HTTP probe failed with statuscode: 503 (dial tcp {DATABASE}:5432: i/o timeout)"

    def check(_: Container) -> Problem | None:
        return Problem("unready", why, at_once=True) if asks_probe and no_data() else None

    hosts = [{"name": "DB_HOST", "value": "main-db.corp.internal"}, {"name": "DB_PORT", "value": "5432"}]
    for namespace, one, before in ((home, name, front), (away, other, page)):
        like = App("", asked=lambda: 18.0, check=check)
        like.failing = lambda _: share if no_data() else 0.0
        like.latency = lambda _: 3.0 * share if no_data() else 0.0
        await lab.apply(objects.config_map(namespace, one, LOG_LEVEL="info", PAGE_SIZE="40"))
        await lab.app(namespace, one, like=like, replicas=3, tag=f"7.{minor}.0", config=one, env=hosts)
        await rolled(lab, namespace, one, f"7.{minor}.0")
        await set_before(lab, namespace, before, one)
        url = f"https://{namespace}.corp.example"
        fails = lambda url=url: no_door() or bool(unserved(lab.world, url[8:]))  # noqa: E731
        lab.alert("ProbeFailed", fails, f"{url} is not answered", 6, job="blackbox", instance=url)
        lab.alert_errors(namespace, one)
        lab.alert_slow(namespace, one)
        lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 7))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", away, other, {"data": {"PAGE_SIZE": "60"}})

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), home, name, f"7.{minor}.1")
    await lab.pause(lab.rng.uniform(7, 12))
    await change_page(lab, away, page)
    await lab.pause(lab.rng.uniform(4, 8))
    narrower = _rule((22, 22), "10.0.48.8/32", "nodes", "ssh")
    await lab.edit(by, cloud.kind.name, "", "nodes-ssh-bastion", narrower)
    await lab.pause(lab.rng.uniform(1, 3))
    taken = FROM_BALANCER if is_door else TO_DATABASE
    less = _rule((31000, 31999), "10.0.16.0/22", "nodes", "node ports")
    if not is_door:
        less = _rule((5432, 5432), "10.0.4.0/22", "data", "postgres from workers")
    if is_deleted:
        await lab.culprit(by, "delete", cloud.kind.name, "", taken)
    else:
        await lab.culprit(by, "update", cloud.kind.name, "", taken, less)
    lab.start(afterwards())
