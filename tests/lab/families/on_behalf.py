"""Who does things on behalf of others, and may no more, finds nothing more, or is told to look elsewhere."""

from __future__ import annotations

import asyncio
import base64
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime

from tests.lab import objects
from tests.lab.api import Caller, Json, now, path, stamp
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family
from tests.lab.tokens import given

STALE_SECONDS = 18.0
"""How old what an app goes by may be."""
LEEWAY_SECONDS = 60.0
"""For which the API server still takes a token that is over."""


@family(
    "No culprit. What fetches prices from outside and writes them into a ConfigMap has a kubeconfig of its own, from"
    " the time when it ran outside of the cluster. The token in it was good for a year, which is over: each write is"
    " answered with 401, and who is to sell at prices that are too old refuses to.",
    culprit=False,
    joined=75,
)
async def kubeconfig_over(lab: Lab) -> AsyncIterator[None]:
    """As very many tell of a token or a client certificate that nobody had in their calendar."""
    namespace, name, front, keeper, kept = lab.rng.choice(
        (
            ("payments", "quotes", "quote-page", "rates-sync", "exchange-rates"),
            ("shop", "price-tags", "price-page", "tariff-sync", "tariffs"),
            ("search", "fare-finder", "fare-page", "fare-sync", "fares"),
        )
    )
    share, team = lab.rng.uniform(0.4, 0.8), lab.rng.choice(("ci", "argocd", "bob"))

    def refuses(container: Container) -> float:
        written = container.config.get("as_of", "")
        age = (now() - datetime.fromisoformat(written)).total_seconds() if written else 0.0
        return share if age > STALE_SECONDS + lab.lag else 0.0

    async def write(process: Process) -> None:
        """As whom its kubeconfig says."""
        token = base64.b64decode(process.see().secret["token"]).decode()
        api = Caller(process.api.client, process.api.user, token, process.api.agent, counts=process.api.counts)
        data = {"as_of": stamp(now()), "rate": f"{process.rng.uniform(1.04, 1.11):.4f}"}
        await api.call("PATCH", path("ConfigMap", namespace, kept), {"data": data})

    def of(uid: str, expires: float) -> Json:
        key = lab.plane.folder / "service-accounts.key"
        return {"stringData": {"token": given(key, "platform", keeper, uid, expires=expires)}}

    await lab.apply(objects.config_map(namespace, kept, as_of=stamp(now()), rate="1.0712"))
    uid = (await lab.apply(objects.account("platform", keeper))).body["metadata"]["uid"]
    await lab.apply(objects.cluster_role(keeper, ("", "configmaps", "get,patch")))
    await lab.apply(objects.binding(keeper, keeper, "platform", keeper, within=namespace))
    secret = f"{keeper}-kubeconfig"
    meta = {"namespace": "platform", "name": secret}
    await lab.apply({"kind": "Secret", "metadata": meta, **of(uid, now().timestamp() + 3600)})
    like = App("", program=every(3, write), serves=False)
    await lab.app("platform", keeper, like=like, account=keeper, secret=secret, replicas=1, tag="0.9.4")
    await lab.app(namespace, name, like=App("", asked=lambda: 24.0, failing=refuses, fails_with=lambda _: "503"),
                  config=kept, replicas=3, tag="3.2.0")  # fmt: skip
    await rolled(lab, namespace, name, "3.2.0")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), tag="1.18.0")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    over = now().timestamp() + lab.rng.uniform(57, 62) - LEEWAY_SECONDS
    await lab.edit("admin", "Secret", "platform", secret, of(uid, over))
    yield
    await lab.pause(lab.rng.uniform(1, 6))
    await lab.roll(team, namespace, front, "1.18.1")


@dataclass
class _Queue:
    """Messages, and workers each of which is through with so many a second."""

    lab: Lab
    place: tuple[str, str]
    arrives: float
    each: float = 2.5
    waiting: float = 0.0

    async def run(self) -> None:
        image = f"registry.corp.example/{'/'.join(self.place)}"
        while True:
            await asyncio.sleep(0.5)
            there = sum(one.app.image == image and one.problem is None for one in self.lab.kubelets.running())
            self.waiting = max(0.0, self.waiting + 0.5 * (self.arrives - there * self.each))

    def length(self) -> float:
        return self.waiting

    def is_long(self) -> bool:
        return self.waiting > 130

    @property
    def wanted(self) -> int:
        """How many workers are enough for what comes, and for what waits."""
        return min(10, max(2, math.ceil((self.arrives + self.waiting / 20) / self.each)))


@family(
    "Somebody tidies up the RoleBindings, and deletes one whose name says that it was a trial. By it a home-made"
    " autoscaler has set the replicas of a team's workers ever since: it gets 403 there from now on, and as the evening"
    " comes the workers stay as few as they are.",
    joined=75,
)
async def unused_binding(lab: Lab) -> AsyncIterator[None]:
    """As those tell who took for unused what only had an old name."""
    places = lab.rng.sample((("media", "transcode-worker"), ("shop", "mail-worker"), ("search", "crawl-worker")), 2)
    by, minor = lab.rng.choice(("alice", "bob", "carol")), lab.rng.randrange(4, 20)
    queues = {place: _Queue(lab, place, arrives=lab.rng.uniform(4, 7)) for place in places}
    scaler, trial = ("platform", "queue-scaler"), lab.rng.choice(("scaler-poc", "tmp-scaling", "hackday-scaler"))

    async def scale(process: Process) -> None:
        """As many as are wanted, where it may."""
        for (namespace, name), queue in queues.items():
            where = path("Deployment", namespace, name)
            found = await process.api.call("GET", where)
            if found.ok and found.body["spec"]["replicas"] != queue.wanted:
                await process.api.call("PATCH", where, {"spec": {"replicas": queue.wanted}})

    for namespace, name in places:
        await lab.app(namespace, name, like=App("", serves=False), replicas=2, tag=f"1.{minor}.0")
        lab.start(queues[namespace, name].run())
    await lab.apply(objects.account(*scaler))
    await lab.apply(objects.cluster_role(scaler[1], ("apps", "deployments", "get,patch")))
    for place, name in zip(places, (trial, scaler[1]), strict=True):
        await lab.apply(objects.binding(name, scaler[1], *scaler, within=place[0]))
    unused = objects.binding("intern-summer", "view", places[0][0], "intern", within=places[0][0])
    await lab.apply(unused)
    like = App("", program=every(2, scale), serves=False)
    await lab.app(*scaler, like=like, account=scaler[1], replicas=1, tag="0.4.2")
    for (namespace, name), queue in queues.items():
        told = {"namespace": namespace, "service": name}
        lab.measure("queue_messages_waiting", queue.length, **told)
        summary = f"more messages wait for {namespace}/{name} than are worked off in a quarter of an hour"
        lab.alert("QueueBacklogHigh", queue.is_long, summary, 5, **told)
    await rolled(lab, *places[0], f"1.{minor}.0")
    await lab.pause(4)
    yield
    await lab.edit("flux", "Deployment", *scaler, {"metadata": {"annotations": {"team": "platform"}}})
    if lab.rng.random() < 0.5:
        await lab.who[by].call("DELETE", path("RoleBinding", places[0][0], "intern-summer"))
        await lab.pause(lab.rng.uniform(1, 3))
    await lab.culprit(by, "delete", "RoleBinding", places[0][0], trial)
    await lab.pause(lab.rng.uniform(2, 5))
    await lab.roll("ci", *places[0], f"1.{minor}.1")
    await lab.pause(lab.rng.uniform(1, 5))
    for queue in queues.values():
        queue.arrives = lab.rng.uniform(20, 23)


SECRETS = "external-secrets.io"
NO_VALUE = "<no value>"
"""What a template has in the place of what is not there."""


@family(
    "What the store of secrets is asked by is changed from the second version of its engine to the first, as somebody"
    " takes it for the version of the API. The passwords are read one level too high, nothing is found there, and the"
    " templates of all Secrets are filled in with <no value>: who logs in to a database with it is refused.",
    joined=75,
)
async def store_version(lab: Lab) -> AsyncIterator[None]:
    """As users of external-secrets tell of the versions of Vault's KV engine."""
    apps = lab.rng.sample((("shop", "orders"), ("payments", "refunds"), ("media", "playlists"), ("search", "saved")), 3)
    by, other = lab.rng.choice(("alice", "carol", "flux")), lab.rng.choice(("ci", "bob"))
    vault = {f"{namespace}/{name}": f"{lab.rng.getrandbits(80):020x}" for namespace, name in apps}
    store = await lab.custom("ClusterSecretStore", SECRETS, ANY, namespaced=False)
    wanted = await lab.custom("ExternalSecret", SECRETS, ANY)

    async def refresh(process: Process) -> None:
        """Write each Secret as its template and the store have it now."""
        stores = (await process.api.call("GET", store.path())).body.get("items", [])
        versions = {one["metadata"]["name"]: one["spec"]["provider"]["vault"]["version"] for one in stores}
        for one in (await process.api.call("GET", wanted.path())).body.get("items", []):
            namespace, name = one["metadata"]["namespace"], one["spec"]["target"]["name"]
            is_nested = versions.get(one["spec"]["secretStoreRef"]["name"]) == "v2"
            password = vault[one["spec"]["dataFrom"][0]["extract"]["key"]] if is_nested else NO_VALUE
            found = await process.api.call("GET", path("Secret", namespace, name))
            data = {"password": base64.b64encode(password.encode()).decode()}
            if found.status == 404:
                await process.api.call("POST", path("Secret", namespace), {"metadata": {"name": name}, "data": data})
            elif found.ok and found.body.get("data") != data:
                await process.api.call("PATCH", path("Secret", namespace, name), {"data": data})

    def logs_in(password: str, user: str) -> Callable[[Container], Problem | None]:
        def check(container: Container) -> Problem | None:
            if base64.b64decode(container.secret.get("password", "")).decode() == password:
                return None
            why = f'FATAL: password authentication failed for user "{user}"'
            return Problem("unready", f"probe failed: HTTP probe failed with statuscode: 503 ({why})")

        return check

    await lab.served(store, wanted)
    vault_at = {"server": "https://vault.corp.example", "path": "teams", "version": "v2"}
    body = {"metadata": {"name": "vault"}, "spec": {"provider": {"vault": vault_at}}}
    await lab.apply({"kind": "ClusterSecretStore", **body})
    rules = (SECRETS, "*", "get,list,watch"), ("", "secrets", "get,create,patch")
    await lab.controller("platform", "external-secrets", every(2, refresh), *rules, replicas=1, tag="0.14.2")
    for namespace, name in apps:
        spec = {
            "refreshInterval": "2m",
            "secretStoreRef": {"kind": "ClusterSecretStore", "name": "vault"},
            "target": {"name": f"{name}-db", "template": {"data": {"password": "{{ .password }}"}}},
            "dataFrom": [{"extract": {"key": f"{namespace}/{name}"}}],
        }
        await lab.apply({"kind": "ExternalSecret", "metadata": {"namespace": namespace, "name": name}, "spec": spec})
        like = App("", check=logs_in(vault[f"{namespace}/{name}"], name))
        await lab.app(namespace, name, like=like, secret=f"{name}-db", tag="2.5.0", replicas=lab.rng.choice((2, 3)))
        lab.alert_lacking(namespace, name)
    for place in apps:
        await rolled(lab, *place, "2.5.0")
    await lab.until(lab.is_well)
    yield
    await lab.roll(other, *lab.rng.choice(apps), "2.5.1")
    await lab.pause(lab.rng.uniform(4, 9))
    change = {"spec": {"provider": {"vault": {"version": "v1"}}}}
    await lab.culprit(by, "update", "ClusterSecretStore", "", "vault", change)
    await lab.pause(lab.rng.uniform(1, 2))
    await lab.edit(other, "Deployment", *apps[0], {"metadata": {"annotations": {"team.corp.example/on-call": "yes"}}})


ARGO = "argoproj.io"
OF_APP = "argocd.argoproj.io/instance"


@family(
    "An Application of the GitOps agent is pointed at another folder, as its repository is put in order: in that one"
    " there is only what all of the team's environments have in common. The agent prunes what it does not find there:"
    " a Deployment and its Service go, and what calls them finds no such host.",
    joined=75,
)
async def other_folder(lab: Lab) -> AsyncIterator[None]:
    """As users of Argo CD tell who had switched on that it prunes."""
    namespace, name, front = lab.rng.choice(
        (
            ("search", "suggest", "search-page"),
            ("shop", "stock", "stock-page"),
            ("payments", "vouchers", "voucher-page"),
            ("media", "captions", "player-page"),
        )
    )
    by, team = lab.rng.choice(("alice", "bob", "carol")), lab.rng.choice(("ci", "flux"))
    application, image = await lab.custom("Application", ARGO, ANY), f"registry.corp.example/{namespace}/{name}"
    lab.apps[image] = App(image)
    common = objects.config_map(namespace, f"{name}-common", REGION="eu-central-1", CURRENCY="EUR")
    whole = (objects.deployment(namespace, name, f"{image}:4.1.0", replicas=3), objects.service(namespace, name))
    used, wrong = lab.rng.choice(
        (("overlays/prod", "base"), ("envs/prod", "envs/shared"), ("deploy/eu-1", "deploy/common"))
    )
    folders: dict[str, tuple[Json, ...]] = {f"{name}/{used}": (common, *whole), f"{name}/{wrong}": (common,)}

    async def sync() -> None:
        """What is in the folder of the Application is there, and what is labelled as its own and is not in it goes."""
        agent = lab.who["argocd"]
        while True:
            await asyncio.sleep(2)
            one = lab.world["Application"].get(("argocd", name))
            wanted = folders[one["spec"]["source"]["path"]] if one else ()
            for kind in ("ConfigMap", "Deployment", "Service") if one else ():
                named = {thing["metadata"]["name"]: thing for thing in wanted if thing["kind"] == kind}
                there = {
                    key[1]: thing
                    for key, thing in lab.world[kind].items()
                    if key[0] == namespace and thing["metadata"].get("labels", {}).get(OF_APP) == name
                }
                for missing in named.keys() - there.keys():
                    made = named[missing]
                    labels = {**made["metadata"].get("labels", {}), OF_APP: name}
                    body = {**made, "metadata": {**made["metadata"], "labels": labels}}
                    await agent.call("POST", path(kind, namespace), body)
                for gone in there.keys() - named.keys():
                    options = {"propagationPolicy": "Foreground"}
                    await agent.call("DELETE", path(kind, namespace, gone), options)

    await lab.served(application)
    source = {"repoURL": f"https://git.corp.example/{namespace}/deploy.git", "path": f"{name}/{used}"}
    spec = {
        "project": namespace,
        "source": {**source, "targetRevision": "main"},
        "destination": {"server": "https://kubernetes.default.svc", "namespace": namespace},
        "syncPolicy": {"automated": {"prune": True, "selfHeal": True, "allowEmpty": False}},
    }
    await lab.apply({"kind": "Application", "metadata": {"namespace": "argocd", "name": name}, "spec": spec})
    lab.start(sync())
    await rolled(lab, namespace, name, "4.1.0")
    like = App("", upstreams=((namespace, name),), asked=lambda: 18.0)
    await lab.app(namespace, front, like=like, tag="7.4.0")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.alert_lacking(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.roll(team, namespace, front, "7.4.1")
    await lab.pause(lab.rng.uniform(3, 8))
    change = {"spec": {"source": {"path": f"{name}/{wrong}"}}}
    await lab.culprit(by, "update", "Application", "argocd", name, change)
