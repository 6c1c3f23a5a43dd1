"""What a release does that what is around it is not ready for: a probe, a table, a caller, a called app, a label.

Drawn from a list that somebody wrote and sorted by a hash, behind those that others had taken: its next six with a
culprit, and (with ``on_its_own.py``) the next two without one. None was passed over.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from tests.lab import objects
from tests.lab.alerts import restarts
from tests.lab.apps import App, Container, Problem
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family

REFUSED = "probe failed: dial tcp :8080: connect: connection refused"


async def stand(lab: Lab, namespace: str, name: str, like: App, tag: str, *, replicas: int = 2) -> None:
    """An app with a ConfigMap of its own, once all its pods are ready; the company's teams leave it alone."""
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", CACHE_SECONDS="60"))
    await lab.app(namespace, name, like=like, replicas=replicas, tag=tag, config=name)
    await rolled(lab, namespace, name, tag)
    await lab.until(lambda: not like.serves or backends(lab.world, namespace, name))
    lab.reserve(namespace, name)


async def aside(lab: Lab, namespace: str, name: str, tag: str) -> None:
    """A harmless change of an app nearby: its next version, or an entry of its settings."""
    by = lab.rng.choice(("ci", "argocd", "flux"))
    if lab.rng.random() < 0.65:
        await lab.roll(by, namespace, name, tag)
    else:
        data = {"CACHE_SECONDS": lab.rng.choice(("45", "90", "120"))}
        await lab.edit(by, "ConfigMap", namespace, name, {"data": data})
    await lab.pause(lab.rng.uniform(2, 8))


async def later(lab: Lab, namespace: str, name: str, tag: str) -> None:
    """The same, some time after the change."""
    await lab.pause(lab.rng.uniform(2, 7))
    await aside(lab, namespace, name, tag)


def part_of(lab: Lab, app: App, counts: Callable[[Container], bool]) -> float:
    """Of an app's processes, the share that a thing holds for."""
    there = [one.container for one in lab.kubelets.running() if one.app is app]
    return sum(map(counts, there)) / max(1, len(there))


@family(
    "A release reads far more at its start than the one before and takes some minutes longer. Nobody has looked at the"
    " liveness probe, which waits for as long as was enough so far: each new pod is killed before it is up, and again.",
    joined=73,
)
async def slower_start(lab: Lab) -> AsyncIterator[None]:
    """As very many tell whose app "restarts for ever since the update" though nothing is in its log."""
    namespace, name, caller = lab.rng.choice(
        (("shop", "pricing", "basket-page"), ("search", "suggestions", "search-page"), ("media", "titles", "home-page"))
    )
    minor, usual, longer = lab.rng.randrange(10, 60), lab.rng.uniform(2, 4), lab.rng.uniform(17, 26)
    old, new, by = f"2.{minor}.4", f"2.{minor + 1}.0", lab.rng.choice(("ci", "argocd"))
    liveness = {"initialDelaySeconds": 5, "periodSeconds": 2, "failureThreshold": 3}
    allowed = 5 + 2 * 3

    def starting(container: Container) -> Problem | None:
        """As it reads what it has to have in memory; its own manifest says for how long it may."""
        if container.seconds >= (longer if container.tag == new else usual):
            return None
        is_late = "livenessProbe" in container.spec and container.seconds >= allowed
        return Problem("killed" if is_late else "unready", REFUSED, at_once=True)

    like = App("", asked=lambda: 24.0, check=starting)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", CACHE_SECONDS="60"))
    probe = {"httpGet": {"path": "/healthz", "port": 8080}, **liveness}
    await lab.app(namespace, name, like=like, replicas=3, tag=old, liveness=probe, config=name)
    await rolled(lab, namespace, name, old)
    await stand(lab, namespace, caller, App("", upstreams=((namespace, name),)), "5.3.1")
    await publish(lab, namespace, caller)
    lab.reserve(namespace, name)
    before = restarts(lab.world, namespace, name)
    summary = f"pods of {namespace}/{name} are restarting again and again"
    crashing = lambda: restarts(lab.world, namespace, name) - before >= 2  # noqa: E731
    lab.alert("KubePodCrashLooping", crashing, summary, 4, namespace=namespace, deployment=name)
    lab.alert_errors(namespace, name)
    await lab.until(lab.is_well)
    yield
    await aside(lab, namespace, caller, "5.3.2")
    await lab.roll(by, namespace, name, new, culprit=True)
    lab.start(later(lab, namespace, caller, "5.3.3"))


@family(
    "A release shows something more beside each entry of a list, and asks the database for it once per row where one"
    " query had done. With the few rows of the test data nobody saw it; now the pages take more than a second.",
    joined=73,
)
async def query_per_row(lab: Lab) -> AsyncIterator[None]:
    """The plainest of what is told of object-relational mappers, "N+1"."""
    namespace, name, store, front = lab.rng.choice(
        (
            ("shop", "order-history", "orders-db", "account-page"),
            ("payments", "statements", "bookings-db", "statement-page"),
            ("media", "playlists", "library-db", "player-page"),
        )
    )
    minor, rows, each = lab.rng.randrange(4, 50), lab.rng.randrange(90, 160), lab.rng.uniform(0.008, 0.012)
    old, new, by = f"1.{minor}.1", f"1.{minor + 1}.0", lab.rng.choice(("ci", "argocd", "alice"))
    asked, usual = 22.0, 2

    def is_new(container: Container) -> bool:
        return container.tag == new and container.seconds >= lab.lag

    like = App("", upstreams=((namespace, store),), asked=lambda: asked, latency=lambda c: rows * each * is_new(c))
    await lab.app(namespace, store, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="16.4")
    await rolled(lab, namespace, store, "16.4")
    await lab.until(lambda: backends(lab.world, namespace, store))
    await stand(lab, namespace, name, like, old, replicas=3)
    await stand(lab, namespace, front, App("", upstreams=((namespace, name),)), "8.0.2")
    await publish(lab, namespace, front)
    lab.reserve(namespace, store)
    queries = lab.adding_up(lambda: asked * (usual + rows * part_of(lab, like, is_new)))
    lab.measure("pg_stat_statements_calls_total", queries, "counter", namespace=namespace, service=store)
    lab.alert_slow(namespace, name)
    lab.alert_slow(namespace, front, 0.8)
    await lab.until(lab.is_well)
    yield
    await aside(lab, namespace, front, "8.0.3")
    await lab.roll(by, namespace, name, new, culprit=True)
    lab.start(later(lab, namespace, front, "8.0.4"))


@family(
    "A release of a called app tidies up its answers, and a field has another name in them. Its own tests are green and"
    " it is well; one of its callers, whom nobody asked, still reads the old name and fails wherever it needs it.",
    joined=73,
)
async def dropped_field(lab: Lab) -> AsyncIterator[None]:
    """As those tell who did not know that anybody read it."""
    namespace, called, home, reader, other = lab.rng.choice(
        (
            ("shop", "customers", "payments", "invoices", "shop-page"),
            ("payments", "rates", "shop", "price-list", "transfer-page"),
            ("media", "artworks", "search", "result-cards", "gallery-page"),
        )
    )
    minor, share = lab.rng.randrange(10, 70), lab.rng.uniform(0.25, 0.6)
    old, new, by = f"3.{minor}.0", f"3.{minor + 1}.0", lab.rng.choice(("ci", "argocd", "bob"))

    like = App("", asked=lambda: 40.0)

    def fails(_: Container) -> float:
        """Of what it asks, a share needs the field, and has it from whoever is of the old version."""
        return share * part_of(lab, like, lambda one: one.tag == new and one.seconds >= lab.lag)

    await stand(lab, namespace, called, like, old, replicas=3)
    await stand(
        lab, home, reader, App("", upstreams=((namespace, called),), asked=lambda: 21.0, failing=fails), "4.1.2"
    )
    await stand(lab, namespace, other, App("", upstreams=((namespace, called),)), "6.2.0")
    await publish(lab, home, reader)
    await publish(lab, namespace, other)
    lab.alert_errors(home, reader)
    lab.alert_errors(namespace, other)
    lab.alert_ingress_errors(home, home)
    await lab.until(lab.is_well)
    yield
    if is_first := lab.rng.random() < 0.5:
        await aside(lab, home, reader, "4.1.3")
    await lab.roll(by, namespace, called, new, culprit=True)
    lab.start(later(lab, *((namespace, other, "6.2.1") if is_first else (home, reader, "4.1.3"))))


@family(
    "A team goes over to the labels that are recommended, and its Service asks for one of the new ones too. They stand"
    " on the Deployment, but not in its pods' template: the Service finds no pod, and all are well.",
    joined=73,
)
async def labels_ahead(lab: Lab) -> AsyncIterator[None]:
    """As users of charts and of kustomize's commonLabels tell of it."""
    namespace, name, caller = lab.rng.choice(
        (("shop", "stock", "product-page"), ("payments", "vouchers", "pay-page"), ("search", "synonyms", "help-page"))
    )
    by, key = lab.rng.choice(("flux", "carol", "alice")), lab.rng.choice(("instance", "part-of", "component"))
    label = {f"app.kubernetes.io/{key}": f"{namespace}-{name}" if key == "instance" else namespace}

    await stand(lab, namespace, name, App("", asked=lambda: 18.0), "1.12.0", replicas=3)
    await stand(lab, namespace, caller, App("", upstreams=((namespace, name),)), "2.8.4")
    await publish(lab, namespace, caller)
    lab.alert_lacking(namespace, caller)
    lab.alert_errors(namespace, caller)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await aside(lab, namespace, caller, "2.8.5")
    if lab.rng.random() < 0.5:
        await aside(lab, namespace, name, "1.12.1")
    await lab.edit(by, "Deployment", namespace, name, {"metadata": {"labels": label}})
    await lab.culprit(by, "update", "Service", namespace, name, {"spec": {"selector": label}})


@family(
    "A release calls something that an app of another team has in its next version only. That one is in use in the test"
    " environment and waits for its own release day here: what the new pods ask for is not found.",
    joined=73,
)
async def too_early_release(lab: Lab) -> AsyncIterator[None]:
    """As very many tell of two releases that were to be made in an order."""
    home, called, namespace, name, front = lab.rng.choice(
        (
            ("payments", "instalments", "shop", "order-desk", "till-page"),
            ("media", "renditions", "shop", "product-pictures", "catalogue-page"),
            ("search", "filters", "media", "film-finder", "finder-page"),
        )
    )
    minor, share = lab.rng.randrange(5, 60), lab.rng.uniform(0.2, 0.5)
    old, new, by = f"6.{minor}.3", f"6.{minor + 1}.0", lab.rng.choice(("ci", "argocd", "carol"))
    has_it, lacks_it, asked = "2.4.0", "2.3.6", 23.0

    like = App("", asked=lambda: 30.0)

    def fails(container: Container) -> float:
        """Of the new version's requests, those that need what is not there: as many as the called app is old."""
        is_new = container.tag == new and container.seconds >= lab.lag
        return share * part_of(lab, like, lambda one: one.tag != has_it) if is_new else 0.0

    caller = App("", upstreams=((home, called),), asked=lambda: asked, failing=fails, fails_with=lambda _: "502")
    await stand(lab, home, called, like, lacks_it, replicas=3)
    await stand(lab, namespace, name, caller, old, replicas=3)
    await stand(lab, namespace, front, App("", upstreams=((namespace, name),)), "7.7.0")
    await publish(lab, namespace, front)

    def not_found() -> float:
        there = [one.container for one in lab.kubelets.running() if one.app is caller]
        return asked * sum(map(fails, there)) / max(1, len(there))

    told = {"namespace": namespace, "service": name, "host": f"{called}.{home}", "status": "404"}
    lab.measure("http_client_responses_total", lab.adding_up(not_found), "counter", **told)
    lab.alert_errors(namespace, name)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    places = [(home, called, f"2.3.{lab.rng.randrange(7, 10)}"), (namespace, front, "7.7.1")]
    lab.rng.shuffle(places)
    await aside(lab, *places[0])
    await lab.roll(by, namespace, name, new, culprit=True)
    lab.start(later(lab, *places[1]))


@family(
    "A readiness probe that looked whether the port is open now asks for the health page, which looks at the session"
    " store too. All is well until that store, which is outside, is gone for some seconds, as it is now and then: every"
    " pod is taken out at once, where so far a few requests had failed.",
    joined=73,
)
async def probe_asks_further(lab: Lab) -> AsyncIterator[None]:
    """As post-mortems tell of "deep" health checks."""
    namespace, name, outside = lab.rng.choice(
        (
            ("shop", "storefront", "sessions.cache.cloud.example"),
            ("payments", "wallet", "tokens.cache.cloud.example"),
            ("media", "player", "profiles.cache.cloud.example"),
        )
    )
    by, gone = lab.rng.choice(("alice", "bob", "argocd")), False
    trouble = f"probe failed: HTTP probe failed with statuscode: 503 (dial tcp {outside}:6379: connection refused)"

    def asks_further(container: Container) -> Problem | None:
        is_asked = "httpGet" in container.spec["readinessProbe"]
        return Problem("unready", trouble) if gone and is_asked else None

    async def fail_over(seconds: float) -> None:
        """As it does now and then."""
        nonlocal gone
        gone = True
        await lab.pause(seconds)
        gone = False

    like = App("", asked=lambda: 30.0, check=asks_further, failing=lambda _: 0.02 if gone else 0.0)
    other = f"{name}-offers"
    await stand(lab, namespace, other, App(""), "1.3.0")
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", CACHE_SECONDS="60"))
    env = [{"name": "SESSION_STORE", "value": f"{outside}:6379"}]
    await lab.app(namespace, name, like=like, replicas=4, tag="10.2.0", config=name, env=env)
    port = {"tcpSocket": {"port": 8080}, "periodSeconds": 5}
    await lab.roll("admin", namespace, name, "10.2.1", readinessProbe=port)
    await rolled(lab, namespace, name, "10.2.1")
    await publish(lab, namespace, name)
    lab.measure("session_store_up", lambda: float(not gone), namespace=namespace, service=name, host=outside)
    lab.alert_ingress_errors(namespace, namespace)
    lab.alert_lacking(namespace, name)
    await lab.until(lab.is_well)
    yield
    await fail_over(4)
    await lab.pause(lab.rng.uniform(3, 6))
    await aside(lab, namespace, other, "1.3.1")
    page = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 5}
    await lab.roll(by, namespace, name, "10.2.1", readinessProbe=page, culprit=True)
    await rolled(lab, namespace, name, "10.2.1")
    await lab.pause(lab.rng.uniform(4, 9))
    await aside(lab, namespace, other, "1.3.2")
    lab.start(fail_over(lab.rng.uniform(13, 17)))
