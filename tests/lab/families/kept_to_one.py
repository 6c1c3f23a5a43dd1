"""What keeps to the one that it had at its start: a token that is read once, a connection for all calls."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import tokens
from tests.lab.alerts import pods
from tests.lab.api import Json, Kind, now, path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.outages import LEEWAY_SECONDS
from tests.lab.lab import Lab
from tests.lab.manifests import images, is_ready
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

GROUP = "gateway.corp.example"
HOUR, HOUR_SECONDS = 3600, 45.0
"""For how long a token is asked for, and how long that is in the time of here."""
STALE_SECONDS = 8.0
"""After which a gateway that reads no routes says that it is not well."""
TOKENS = "/var/run/secrets/kubernetes.io/serviceaccount"


def _lifetime(pod: Json) -> int | None:
    """How long a token it asks for by a volume of its own: what admission adds is good for a year all the same."""
    for volume in pod["spec"].get("volumes", ()):
        for source in volume.get("projected", {}).get("sources", ()) if volume["name"] == "api-access" else ():
            if "serviceAccountToken" in source:
                return int(source["serviceAccountToken"]["expirationSeconds"])
    return None


@dataclass
class _Gateway:
    """It reads its token at its start, and by it its routes, again and again."""

    lab: Lab
    kind: Kind
    namespace: str
    account: Json
    read: dict[str, float] = field(default_factory=dict)
    """When each pod has read its routes, by name."""
    known: dict[str, set[str]] = field(default_factory=dict)

    async def route(self, process: Process) -> None:
        pod = process.see().pod
        name, home = pod["metadata"]["name"], pod["metadata"]["namespace"]
        if _lifetime(pod) == HOUR:
            meta, key = self.account["metadata"], self.lab.plane.folder / "service-accounts.key"
            expires = now().timestamp() + HOUR_SECONDS - LEEWAY_SECONDS
            process.api.token = tokens.given(key, home, meta["name"], meta["uid"], expires=expires, pod=pod)
        await every(1.5, lambda one: self._read(one, name))(process)

    async def _read(self, process: Process, name: str) -> None:
        listed = await process.api.call("GET", self.kind.path(self.namespace))
        if listed.ok:
            self.read[name] = now().timestamp()
            self.known[name] = {one["metadata"]["name"] for one in listed.body["items"]}

    def check(self, container: Container) -> Problem | None:
        read = self.read.get(container.pod["metadata"]["name"])
        if read is None or now().timestamp() - read < STALE_SECONDS:
            return None
        return Problem("unready", "probe failed: HTTP probe failed with statuscode: 503")

    def unknown(self, container: Container) -> float:
        """The share of requests whose tenant has a route that the gateway has not read: all tenants ask alike."""
        there = {name for _, name in self.lab.world[self.kind.name]}
        known = self.known.get(container.pod["metadata"]["name"], there)
        return len(there - known) / max(1, len(there))


@family(
    "To be safer, a gateway is to have tokens that are good for an hour only, by a volume of its own. Its client is of"
    " old and reads its token once, at its start: until now that was good for a year. After an hour it is unauthorized,"
    " reads no routes any more, and says that it is not well.",
    joined=48,
)
async def hour_tokens(lab: Lab) -> AsyncIterator[None]:
    """As an exercise of youbrokeprod.com has it, of which it says that it happened to hundreds."""
    namespace, name, called = lab.rng.choice(
        (
            ("shop", "store-gateway", "store-backend"),
            ("media", "channel-gateway", "channel-backend"),
            ("search", "tenant-gateway", "tenant-backend"),
        )
    )
    by, tenants = lab.rng.choice(("alice", "flux", "ci")), lab.rng.sample(range(100, 999), 60)
    kind = await lab.custom("TenantRoute", GROUP, ANY)
    await lab.served(kind)

    def made(number: int) -> Json:
        spec = {"host": f"t{number}.{namespace}.corp.example", "backend": called}
        return {"apiVersion": f"{GROUP}/v1", "kind": kind.name, "metadata": {"name": f"t{number}"}, "spec": spec}

    async def onboard(process: Process) -> None:
        if len(tenants) > 0:
            await process.api.call("POST", kind.path(namespace), made(tenants.pop()))

    await lab.app(namespace, called, replicas=3, tag="3.11.0")
    for _ in range(8):
        await lab.who["admin"].must("POST", kind.path(namespace), made(tenants.pop()))
    rule = (GROUP, kind.plural, "get,list,watch")
    gateway = _Gateway(lab, kind, namespace, {})
    app = await lab.controller(
        namespace, name, gateway.route, rule, upstreams=((namespace, called),), replicas=3, tag="0.9.4"
    )
    gateway.account = (await lab.who["admin"].must("GET", path("ServiceAccount", namespace, name))).body
    app.check, app.serves = gateway.check, True
    app.failing, app.fails_with = gateway.unknown, lambda _: "404"
    rule = (GROUP, kind.plural, "get,list,create")
    await lab.controller(namespace, f"{name}-onboarding", every(9, onboard), rule, replicas=1, tag="2.0.1")
    await rolled(lab, namespace, name, "0.9.4")
    await publish(lab, namespace, name)
    lab.reserve(namespace, called)
    lab.alert_lacking(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    spec = lab.world["Deployment"][namespace, name]["spec"]["template"]["spec"]
    token = {"serviceAccountToken": {"path": "token", "expirationSeconds": HOUR}}
    authority = {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}
    volume = {"name": "api-access", "projected": {"sources": [token, authority]}}
    mount = {"name": "api-access", "mountPath": TOKENS, "readOnly": True}
    [container] = spec["containers"]
    body = {
        "automountServiceAccountToken": False,
        "containers": [{**container, "volumeMounts": [*container.get("volumeMounts", ()), mount]}],
        "volumes": [*spec.get("volumes", ()), volume],
    }
    await lab.culprit(by, "update", "Deployment", namespace, name, {"spec": {"template": {"spec": body}}})


OF_EACH_CALL, OF_ALL_CALLS = "2.8.3", "2.9.0"
"""Versions of a caller: with a connection for every few calls, and with one that all calls share."""
ASKED, STANDS = 250.0, 90.0
"""Calls a second in all, and how many of them one pod of the called app stands."""


@dataclass
class _Connections:
    """Who is connected to whom: a process with one connection for all of its calls keeps it while its pod is there."""

    lab: Lab
    called: tuple[str, str]
    caller: tuple[str, str]
    kept: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Whom the calls of a caller's pod go to, and since when."""

    def weights(self) -> dict[str, float]:
        """How many callers' calls each pod of the called app gets, by its name."""
        there = sorted(pod["metadata"]["name"] for pod in backends(self.lab.world, *self.called))
        counted = dict.fromkeys(there, 0.0)
        for pod in pods(self.lab.world, *self.caller) if there else ():
            name = pod["metadata"]["name"]
            if not is_ready(pod):
                continue
            if images(pod)[0].endswith(f":{OF_ALL_CALLS}"):
                if self.kept.get(name, ("", 0.0))[0] not in counted:
                    self.kept[name] = self.lab.kubelets.rng.choice(there), now().timestamp()
                held, since = self.kept[name]
                if now().timestamp() - since >= self.lab.lag:
                    counted[held] += 1.0
                    continue
            for one in counted:
                counted[one] += 1.0 / len(counted)
        return counted

    def weight(self, container: Container) -> float:
        return self.weights().get(container.pod["metadata"]["name"], 0.0)

    def beyond(self, container: Container) -> float:
        """The share of what a pod gets that is more than it stands."""
        weights = self.weights()
        whole = sum(weights.values())
        if not whole:
            return 0.0
        mine = ASKED * weights.get(container.pod["metadata"]["name"], 0.0) / whole
        return max(0.0, 1 - STANDS / mine) if mine else 0.0


@family(
    "A release of one app calls another by HTTP/2, where all calls of a process share one connection, and what is"
    " balanced are connections: the few processes of the caller have one pod of the called app each, which does not"
    " stand it, and the others have nothing to do, as many as there are.",
    joined=48,
)
async def one_connection(lab: Lab) -> AsyncIterator[None]:
    """As one who is on call tells of the first of the incidents that he has notes of (hackernoon.com)."""
    namespace, name, caller = lab.rng.choice(
        (
            ("shop", "stock", "assortment"),
            ("search", "synonyms", "autocomplete"),
            ("payments", "risk-score", "card-gateway"),
        )
    )
    by, team = lab.rng.choice(("ci", "argocd")), lab.rng.choice(("alice", "bob", "carol"))
    connections = _Connections(lab, (namespace, name), (namespace, caller))
    late = lambda container: 1.2 if connections.beyond(container) else 0.0  # noqa: E731
    like = App(
        "",
        capacity=STANDS,
        asked=lambda: ASKED,
        weight=connections.weight,
        failing=connections.beyond,
        fails_with=lambda _: "503",
        latency=late,
    )
    await lab.app(namespace, name, like=like, replicas=5, tag="1.14.2")
    like = App("", upstreams=((namespace, name),), asked=lambda: 60.0)
    await lab.app(namespace, caller, like=like, replicas=2, tag=OF_EACH_CALL)
    await rolled(lab, namespace, name, "1.14.2")
    await rolled(lab, namespace, caller, OF_EACH_CALL)
    await publish(lab, namespace, caller)
    lab.reserve(namespace, name)
    lab.alert_errors(namespace, name, 0.1)
    lab.alert_errors(namespace, caller, 0.1)
    lab.alert_slow(namespace, name)
    await lab.until(lab.is_well)
    yield
    await lab.edit(team, "Deployment", namespace, name, {"spec": {"replicas": 6}})
    await lab.pause(lab.rng.uniform(5, 12))
    await lab.roll(by, namespace, caller, OF_ALL_CALLS, culprit=True)
