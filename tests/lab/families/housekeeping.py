"""What is put in order below the apps: limits, certificates, the registry's account, tokens, and what fills up."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial

from tests.lab.alerts import pods
from tests.lab.api import Json, path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.network import INGRESS_CONTROLLER, backends, unserved
from tests.lab.programs import both, every, getting, informer
from tests.lab.scenario import family

PEOPLE = ("alice", "bob", "carol")


@family(
    "The platform team gives a namespace a LimitRange, so that no container there is without a limit for its memory."
    " One app says none and has always needed more than the default: the pods of its next rollout are killed for it.",
    joined=68,
)
async def default_memory_limit(lab: Lab) -> AsyncIterator[None]:
    """As very many tell whose pods have a limit that is in no manifest."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "recommendations", "home-page"),
            ("search", "synonyms", "suggest-api"),
            ("media", "transcoder", "clips-api"),
            ("payments", "statements", "account-api"),
        )
    )
    by, minor = lab.rng.choice(("flux", "argocd", *PEOPLE)), lab.rng.randrange(3, 40)
    default, needed = lab.rng.choice((("256Mi", 410), ("512Mi", 640), ("512Mi", 890)))
    old, new = f"3.{minor}.0", f"3.{minor}.{lab.rng.randrange(1, 4)}"
    await lab.app(namespace, name, like=App("", memory_mi=needed), replicas=3, tag=old, memory="2Gi")
    unlimited = {"requests": {"cpu": "200m", "memory": "200Mi"}}
    await lab.roll("admin", namespace, name, old, resources=unlimited)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="6.0.2")
    await rolled(lab, namespace, name, old)
    await lab.until(lambda: backends(lab.world, namespace, front))
    lab.reserve(namespace, name)
    lab.alert_stuck(namespace, name)
    lab.alert_lacking(namespace, name)
    await lab.until(lab.is_well)
    yield
    await lab.roll("ci", namespace, front, "6.0.3")
    await lab.pause(lab.rng.uniform(2, 6))
    limit = {"type": "Container", "default": {"memory": default}, "defaultRequest": {"memory": "64Mi", "cpu": "50m"}}
    body = {"metadata": {"name": "defaults"}, "spec": {"limits": [limit]}}
    await lab.culprit(by, "create", "LimitRange", namespace, "defaults", body)
    await lab.pause(lab.rng.uniform(6, 16))
    await lab.roll("ci", namespace, name, new)


def certificate(host: str, serial: int) -> Json:
    """As the company's authority gives one out for a name, in the two files of a Secret."""
    shown = f"subject=CN = {host}\nserial={serial:08X}\nX509v3 Subject Alternative Name:\n    DNS:{host}\n"
    return {"tls.crt": shown, "tls.key": hashlib.sha256(shown.encode()).hexdigest()}


@dataclass
class _Doors:
    """The Ingresses' controller shows each name's certificate; one that is for another name no browser takes."""

    lab: Lab
    secrets: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By public name."""

    async def read(self, process: Process) -> None:
        for host, (namespace, name) in self.secrets.items():
            found = await process.api.call("GET", path("Secret", namespace, name))
            if not found.ok:
                continue
            shown = base64.b64decode(found.body["data"]["tls.crt"]).decode()
            if f"DNS:{host}\n" in shown:
                self.lab.outside.unreached.discard(host)
            else:
                self.lab.outside.unreached.add(host)


@family(
    "Two certificates are renewed by hand on one afternoon, from files of an authority that does not speak ACME. Into"
    " the second Secret goes the first one's certificate again: whoever comes by that name is shown another.",
    joined=68,
)
async def mixed_up_files(lab: Lab) -> AsyncIterator[None]:
    """The commonest slip of whoever renews by hand."""
    (other, beside), (namespace, front) = lab.rng.sample(
        (("shop", "frontend"), ("payments", "checkout"), ("search", "query"), ("media", "uploads")), 2
    )
    by, serial, doors = lab.rng.choice(PEOPLE), lab.rng.randrange(2**30), _Doors(lab)
    shown = lab.apps[f"registry.corp.example/{'/'.join(INGRESS_CONTROLLER)}"]
    assert shown.program
    shown.program = both(shown.program, every(1, doors.read))

    hosts: dict[str, str] = {}
    for where, name in ((other, beside), (namespace, front)):
        hosts[where] = await publish(lab, where, name)
        secret = {"metadata": {"namespace": where, "name": f"{where}-tls"}, "type": "kubernetes.io/tls"}
        await lab.apply({"kind": "Secret", **secret, "stringData": certificate(hosts[where], serial)})
        tls = {"spec": {"tls": [{"hosts": [hosts[where]], "secretName": f"{where}-tls"}]}}
        await lab.edit("admin", "Ingress", where, where, tls)
        doors.secrets[hosts[where]] = (where, f"{where}-tls")
    await lab.roll("admin", *INGRESS_CONTROLLER, "1.12.1")
    await rolled(lab, *INGRESS_CONTROLLER, "1.12.1")

    def fails(host: str) -> bool:
        return host in lab.outside.unreached or bool(unserved(lab.world, host))

    for host in hosts.values():
        instance = f"https://{host}"
        lab.alert(
            "ProbeFailed", partial(fails, host), f"{instance} is not answered", 6, job="blackbox", instance=instance
        )
    await lab.until(lab.is_well)
    yield
    await lab.edit(by, "Secret", other, f"{other}-tls", {"stringData": certificate(hosts[other], serial + 1)})
    await lab.pause(lab.rng.uniform(2, 4))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, front, "2.0.1")
    await lab.pause(lab.rng.uniform(2, 5))
    wrong = {"stringData": certificate(hosts[other], serial + 1)}
    await lab.culprit(by, "update", "Secret", namespace, f"{namespace}-tls", wrong)


REGISTRY, ROBOTS, PULLS = ("platform", "registry"), "registry-robots", "registry-pull"


def _hashed(password: str) -> str:
    """As an htpasswd file has it."""
    return "puller:{SHA}" + base64.b64encode(hashlib.sha1(password.encode()).digest()).decode()


def _pull_secret(password: str) -> Json:
    """What kubelets show to the registry for a pod."""
    auth = base64.b64encode(f"puller:{password}".encode()).decode()
    auths = {"auths": {"registry.corp.example": {"username": "puller", "password": password, "auth": auth}}}
    return {"stringData": {".dockerconfigjson": json.dumps(auths)}}


@dataclass
class _Registry:
    """The company's own: it lets in who has the password whose hash is in its file."""

    lab: Lab
    namespaces: tuple[str, ...]
    file: str = ""

    def look(self, container: Container) -> Problem | None:
        self.file = base64.b64decode(container.secret.get("htpasswd", "")).decode()
        return None

    def denied(self, image: str, pod: Json) -> str:
        """What it says to a kubelet that pulls for a pod."""
        namespace = pod["metadata"]["namespace"]
        shown = self.lab.outside.credentials.get((namespace, PULLS), {}).get(".dockerconfigjson", "")
        if namespace not in self.namespaces:
            return ""
        auths = json.loads(base64.b64decode(shown) or "{}").get("auths", {})
        if _hashed(auths.get("registry.corp.example", {}).get("password", "")) == self.file:
            return ""
        name = image.removeprefix("registry.corp.example/").rsplit(":", 1)[0]
        scope = f"https://registry.corp.example/service/token?scope=repository%3A{name.replace('/', '%2F')}%3Apull"
        return f"failed to authorize: failed to fetch oauth token: unexpected status from GET request to {scope}: 401"


@family(
    "The password of the account by which all nodes pull is changed in the registry as every half year, and entered in"
    " the pull secrets of each team's namespace, but for that of one team who joined since and is not on the list: all"
    " goes on there until its next rollout, whose images it is not given.",
    joined=68,
)
async def not_on_the_list(lab: Lab) -> AsyncIterator[None]:
    """As it goes where pull secrets are copied into each namespace by hand or by a list."""
    teams = {
        "shop": ("frontend", "cart", "catalog"),
        "payments": ("checkout", "ledger"),
        "search": ("query", "indexer"),
        "media": ("thumbnails", "uploads"),
    }
    forgotten, by = lab.rng.choice(tuple(teams)), lab.rng.choice(PEOPLE)
    registry = _Registry(lab, tuple(teams))
    old, new = (f"{lab.rng.getrandbits(128):032x}" for _ in range(2))
    robots = {"metadata": {"namespace": REGISTRY[0], "name": ROBOTS}, "stringData": {"htpasswd": _hashed(old)}}
    await lab.apply({"kind": "Secret", **robots})
    await lab.app(*REGISTRY, like=App("", serves=False, check=registry.look), tag="2.14.0", secret=ROBOTS)
    for team in teams:
        meta = {"namespace": team, "name": PULLS}
        await lab.apply(
            {"kind": "Secret", "type": "kubernetes.io/dockerconfigjson", "metadata": meta, **_pull_secret(old)}
        )
        await lab.edit("admin", "ServiceAccount", team, "default", {"imagePullSecrets": [{"name": PULLS}]})
    await rolled(lab, *REGISTRY, "2.14.0")
    await lab.until(lambda: registry.file == _hashed(old))
    lab.outside.denied = registry.denied
    for team, names in teams.items():
        for name in names:
            await lab.roll("admin", team, name, "1.0.1")
    for team, names in teams.items():
        for name in names:
            await rolled(lab, team, name, "1.0.1")
            lab.alert_stuck(team, name)
    await lab.until(lab.is_well)
    yield
    listed = [team for team in teams if team != forgotten]
    lab.rng.shuffle(listed)
    await lab.culprit(by, "update", "Secret", REGISTRY[0], ROBOTS, {"stringData": {"htpasswd": _hashed(new)}})
    for team in listed:
        await lab.edit(by, "Secret", team, PULLS, _pull_secret(new))
    await lab.pause(lab.rng.uniform(8, 16))
    await lab.roll("ci", forgotten, lab.rng.choice(teams[forgotten]), "2.0.0")


@family(
    "No account is to have a token that it does not need: the platform team switches off that tokens are put into pods,"
    " account by account, as in the cluster for tests a week ago. The pods of one account do call the API, and those"
    " that are started from then on find no token.",
    joined=68,
)
async def no_token_needed(lab: Lab) -> AsyncIterator[None]:
    """As many tell after a benchmark's advice on automountServiceAccountToken was followed."""
    namespace, name, listens = lab.rng.choice(
        (
            ("media", "job-dispatcher", "Pod"),
            ("shop", "session-broker", "EndpointSlice"),
            ("search", "shard-placer", "Pod"),
            ("payments", "leader-picker", "ConfigMap"),
        )
    )
    by, minor, off = (
        lab.rng.choice(("flux", *PEOPLE)),
        lab.rng.randrange(2, 30),
        {"automountServiceAccountToken": False},
    )
    old, new = f"1.{minor}.0", f"1.{minor + 1}.0"
    where = path(listens, namespace)
    group, plural = (
        ("discovery.k8s.io", "endpointslices") if listens == "EndpointSlice" else ("", f"{listens.lower()}s")
    )
    program = both(informer(where), every(4, getting(f"{where}?limit=20")))
    await lab.controller(namespace, name, program, (group, plural, "get,list,watch"), tag=old)
    await rolled(lab, namespace, name, old)
    others = lab.rng.sample([one for one in ("shop", "payments", "search", "media") if one != namespace], 2)
    lab.reserve(namespace, name)
    lab.alert_stuck(namespace, name)
    lab.alert_lacking(namespace, name)
    await lab.until(lab.is_well)
    accounts = [(others[0], "default"), (namespace, "default"), (others[1], "default")]
    async with before(lab, days=lab.rng.choice((6, 7, 8)), cluster=lab.rng.choice(("test-1", "staging-eu"))):
        for place in (*accounts, (namespace, name)):
            await lab.edit(by, "ServiceAccount", *place, off)
        await lab.pause(4)
    for place in (*accounts, (namespace, name)):
        await lab.edit("admin", "ServiceAccount", *place, {"automountServiceAccountToken": None})
    yield
    for place in accounts:
        await lab.edit(by, "ServiceAccount", *place, off)
        await lab.pause(lab.rng.uniform(0.2, 1))
    await lab.culprit(by, "update", "ServiceAccount", namespace, name, off)
    await lab.pause(lab.rng.uniform(5, 14))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, new)


@dataclass
class _Leak:
    """Each request leaves a little behind in the process that answered it, which its limit bounds."""

    lab: Lab
    limit: float
    each: float
    """MiB of a request."""
    users: float
    """How many requests a second there are in all."""
    kept: dict[tuple[str, float], float] = field(default_factory=lambda: defaultdict(float))
    """MiB, by the pod's uid and its process's start."""
    mine: App = field(init=False)

    def used(self) -> dict[tuple[str, float], float]:
        """Of each process that runs."""
        there = [one for one in self.lab.kubelets.running() if one.app is self.mine]
        keys = [(str(one.container.pod["metadata"]["uid"]), one.started.timestamp()) for one in there]
        return {key: self.kept[key] for key in keys}

    def largest(self) -> float:
        """Bytes that the process has in memory that has most."""
        return (self.mine.memory_mi + max(self.used().values(), default=0.0)) * 2**20

    async def run(self) -> None:
        while True:
            there = self.used()
            for key in there:
                self.kept[key] += 0.5 * self.each * self.users / len(there)
            await asyncio.sleep(0.5)

    async def grow_busy(self, users: float) -> None:
        """As each evening."""
        while self.users < users:
            self.users += 2
            await asyncio.sleep(0.8)

    def full(self, container: Container) -> Problem | None:
        uid = str(container.pod["metadata"]["uid"])
        much = next((much for (one, _), much in self.used().items() if one == uid), 0.0)
        return (
            Problem("oom", f"needs {self.mine.memory_mi + much:.0f}Mi")
            if self.mine.memory_mi + much > self.limit
            else None
        )


@family(
    "No culprit. An app has kept a little of each request since a release of months ago, and nobody noticed, as it was"
    " released each week. There was no release for three weeks: in a busy hour its containers come to the limit of"
    " their memory, one after another.",
    culprit=False,
    joined=68,
)
async def three_weeks_without_release(lab: Lab) -> AsyncIterator[None]:
    """As everybody has had it over a holiday or a freeze."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "price-engine", "product-page"),
            ("search", "autocomplete", "search-page"),
            ("payments", "invoices", "invoice-page"),
            ("media", "playlists", "player-page"),
        )
    )
    leak = _Leak(lab, 512.0, lab.rng.uniform(0.16, 0.24), 18.0)
    leak.mine = App("", memory_mi=120, asked=lambda: leak.users, check=leak.full)
    await lab.app(namespace, name, like=leak.mine, replicas=3, tag="7.2.4", memory="512Mi")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="5.1.0")
    await rolled(lab, namespace, name, "7.2.4")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    for key in leak.used():
        leak.kept[key] = lab.rng.uniform(225, 262)  # of three weeks
    lab.start(leak.run())
    told = {"namespace": namespace, "service": name}
    lab.measure("container_memory_working_set_bytes", leak.largest, **told, container=name)

    killed = set[str]()

    def was_killed() -> bool:
        """As a kubelet goes on to say of a container why it ended last."""
        there = pods(lab.world, namespace, name)
        for pod in there:
            for one in pod.get("status", {}).get("containerStatuses", ()):
                if one.get("lastState", {}).get("terminated", {}).get("reason") == "OOMKilled":
                    killed.add(pod["metadata"]["uid"])
        return any(pod["metadata"]["uid"] in killed for pod in there)

    summary = f"a container of {namespace}/{name} was ended for its memory"
    lab.alert("KubeContainerOOMKilled", was_killed, summary, 3, namespace=namespace, deployment=name)
    lab.alert_errors(namespace, name)
    await lab.until(lab.is_well)
    yield
    await lab.roll("ci", namespace, front, "5.1.1")
    lab.start(leak.grow_busy(lab.rng.uniform(42, 56)))
