"""What was told of what is put in another's place: a chart in another repository, a link, members of an ensemble."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from datetime import datetime

from tests.lab.alerts import pods
from tests.lab.api import Json, now
from tests.lab.apps import App, Container, Problem
from tests.lab.lab import Lab
from tests.lab.manifests import images, is_ready, uid_of
from tests.lab.network import INGRESS_CLASS, backends
from tests.lab.scenario import family

TRIES = 4
"""How often a client asks for a file in all."""
MEMBERS, QUORUM = 5, 3
SYNC_SECONDS, SESSION_SECONDS = 25.0, 5.0
"""Until a new member has all that the others know, and for how long clients wait for an ensemble without a quorum."""


@family(
    "A product's chart moves to another repository, whose pipeline is for the development cluster only for now: it"
    " takes what is not to be installed elsewhere for what is to be removed, and uninstalls the release in production.",
    joined=17,
)
async def chart_moved(lab: Lab) -> AsyncIterator[None]:
    """As PostHog tells of 16 February 2024 (posthog 20381)."""
    namespace, release = lab.rng.choice((("search", "insights"), ("media", "studio"), ("payments", "billing")))
    doors = {f"{release}-web": release, f"{release}-events": f"{release}-capture"}
    parts = (*doors, f"{release}-worker")
    marks = {
        "labels": {"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/instance": release},
        "annotations": {"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": namespace},
    }
    for name in parts:
        await lab.app(namespace, name, like=App("", serves=name in doors), replicas=3)
        for kind in ("Deployment", "Service"):
            await lab.edit("admin", kind, namespace, name, {"metadata": marks})
    kept = f"sh.helm.release.v1.{release}.v{lab.rng.randrange(40, 400)}"
    about = {"namespace": namespace, "name": kept, "labels": {"name": release, "owner": "helm", "status": "deployed"}}
    body = {"kind": "Secret", "type": "helm.sh/release.v1", "metadata": about, "stringData": {"release": "H4sIAAAA"}}
    await lab.apply(body)
    await lab.until(lambda: all(backends(lab.world, namespace, name) for name in parts))
    for name, door in doors.items():  # which are of those who have the cluster
        service = {"service": {"name": name, "port": {"number": 80}}}
        paths = [{"path": "/", "pathType": "Prefix", "backend": service}]
        rules = [{"host": f"{door}.corp.example", "http": {"paths": paths}}]
        spec: Json = {"ingressClassName": INGRESS_CLASS, "rules": rules}
        await lab.apply({"kind": "Ingress", "metadata": {"namespace": namespace, "name": door}, "spec": spec})
        lab.alert_ingress_errors(namespace, door)
    yield
    for kind in ("Service", "Deployment"):  # in Helm's order
        for name in parts:
            await lab.culprit("ci", "delete", kind, namespace, name)
    await lab.culprit("ci", "delete", "Secret", namespace, kept)


@family(
    "A release of what tells clients where a file is makes wrong links: it answers all of them at once and well, what"
    " keeps the files has none of that name, and each client asks again, some times.",
    joined=17,
)
async def wrong_links(lab: Lab) -> AsyncIterator[None]:
    """As crates.io tells of 20 July 2023 (icco/postmortems 101 has it)."""
    namespace, name, store = lab.rng.choice(
        (("media", "releases", "files"), ("shop", "catalogues", "pictures"), ("search", "datasets", "chunks"))
    )
    minor, clients = lab.rng.randrange(20, 70), lab.rng.choice((26.0, 34.0, 42.0))
    old, new = f"0.{minor}.0", f"0.{minor + 1}.0"

    def wrong() -> float:
        """The share of the links that are."""
        tags = [images(pod)[0].rsplit(":", 1)[1] for pod in backends(lab.world, namespace, name)]
        return sum(tag == new for tag in tags) / max(1, len(tags))

    def asked() -> float:
        return clients * sum(wrong() ** tried for tried in range(TRIES))

    def refused() -> bool:
        """More than a tenth of what the store was asked."""
        answers = lab.traffic.of_app(namespace, store, 10).answers
        return answers["403"] + answers["404"] > 0.1 * max(1, answers.total())

    keeper = App("", asked=asked, failing=lambda container: wrong(), fails_with=lambda container: "403")
    await lab.app(namespace, store, like=keeper, replicas=3)
    await lab.app(namespace, name, tag=old, like=App("", asked=asked), replicas=4)
    summary = f"more than 10% of the requests to {namespace}/{store} are answered with 4xx"
    lab.alert("HighClientErrorRate", refused, summary, namespace=namespace, service=store)
    yield
    await lab.roll(lab.rng.choice(("ci", "argocd", "bob")), namespace, name, new, culprit=True)


class _Ensemble:
    """Members that agree by majority: one that is new answers its probe at once, and knows nothing for a while."""

    def __init__(self, lab: Lab, namespace: str, name: str) -> None:
        self._lab, self._place = lab, (namespace, name)
        self._synced: defaultdict[str, float] = defaultdict(float)  # for how long, by uid
        self._lost: datetime | None = None

    def _ready(self) -> list[str]:
        return [uid_of(pod) for pod in pods(self._lab.world, *self._place) if is_ready(pod)]

    def found(self) -> None:
        """As it is now all of them know everything."""
        for uid in self._ready():
            self._synced[uid] = SYNC_SECONDS

    def _has_quorum(self) -> bool:
        return sum(self._synced[uid] >= SYNC_SECONDS for uid in self._ready()) >= QUORUM

    async def live(self) -> None:
        """Whoever is new is told what the others know while those can agree on it."""
        while True:
            await asyncio.sleep(0.5)
            if self._has_quorum():
                self._lost = None
                for uid in self._ready():
                    self._synced[uid] += 0.5
            elif not self._lost:
                self._lost = now()

    def is_lost(self) -> bool:
        """Whether clients' sessions are over."""
        return self._lost is not None and (now() - self._lost).total_seconds() > SESSION_SECONDS


@family(
    "The machines of a coordination service are patched one after another, as it is written down: a new member looks"
    " well as soon as it runs, and knows nothing yet as the next one goes, until too few are left that could tell it.",
    joined=17,
)
async def quorum_lost(lab: Lab) -> AsyncIterator[None]:
    """As Elastic tells of 4 February 2019 (icco/postmortems 101 has it)."""
    name = lab.rng.choice(("zookeeper", "coordination", "zk-ensemble"))
    namespace, proxy, console = lab.rng.choice(
        (("search", "cluster-proxy", "console"), ("media", "stream-proxy", "backstage"), ("shop", "tenants", "admin"))
    )
    ensemble = _Ensemble(lab, "platform", name)

    def check(container: Container) -> Problem | None:
        """It does not know any more where to send what it gets."""
        unrouted = Problem("unready", "probe failed: HTTP probe failed with statuscode: 503")
        return unrouted if ensemble.is_lost() else None

    def latency(container: Container) -> float:
        """Until it gives up."""
        return 3.0 if ensemble.is_lost() else 0.0

    image = f"registry.corp.example/platform/{name}"
    await lab.app("platform", name, tag="3.4.13-1", like=App("", serves=False), kind="StatefulSet", replicas=MEMBERS)
    await lab.app(namespace, proxy, like=App("", check=check), replicas=3)
    await lab.app(namespace, console, like=App("", latency=latency), replicas=2)
    lab.alert_lacking(namespace, proxy)
    lab.alert_slow(namespace, console)
    await lab.until(lambda: len([pod for pod in pods(lab.world, "platform", name) if is_ready(pod)]) == MEMBERS)
    ensemble.found()
    lab.start(ensemble.live())
    yield
    found = lab.world["StatefulSet"]["platform", name]["spec"]["template"]["spec"]["containers"][0]
    body = {"spec": {"template": {"spec": {"containers": [{**found, "image": f"{image}:3.4.13-2"}]}}}}
    await lab.culprit(lab.rng.choice(("alice", "carol", "ci")), "update", "StatefulSet", "platform", name, body)
