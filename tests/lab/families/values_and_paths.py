"""What manifests say of apps: a limit, the path of a probe, an image's tag, a value of another environment."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial

from tests.lab import objects
from tests.lab.alerts import pods, restarts
from tests.lab.api import Json
from tests.lab.apps import App, Container, Problem, mebibytes
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.manifests import environment, uid_of
from tests.lab.network import backends
from tests.lab.scenario import family

START_MIB, WARM_SECONDS = 96.0, 9.0
"""What a process has after its start, and how long it takes until it has what its load needs."""


def _resources(lab: Lab, namespace: str, name: str, memory: str) -> Json:
    """A change of an app's limit of memory; what it requests stays."""
    there = lab.world["Deployment"][namespace, name]["spec"]["template"]["spec"]["containers"][0]
    limited = {**there, "resources": {**there["resources"], "limits": {"memory": memory}}}
    return {"spec": {"template": {"spec": {"containers": [limited]}}}}


@family(
    "The limits of memory of a team's apps are cut to half, as none seems to use what it has. One of them needs more"
    " with what it is asked every day: its containers are well after their start, have warmed up soon after, and are"
    " OOM killed, again and again.",
    joined=82,
)
async def smaller_by_half(lab: Lab) -> AsyncIterator[None]:
    """As those tell who took the means of a dashboard for what an app needs."""
    namespace, name, front, *others = lab.rng.choice(
        (
            ("shop", "product-details", "product-page", "size-charts", "store-finder"),
            ("media", "episode-lists", "series-page", "age-ratings", "trailers"),
            ("search", "facets", "category-page", "synonyms", "did-you-mean"),
            ("payments", "statements", "statement-page", "holiday-calendar", "bank-codes"),
        )
    )
    by, asked = lab.rng.choice((*TEAMS, "argocd", "flux")), lab.rng.uniform(54, 66)
    before, each, needs = lab.rng.choice(("640Mi", "768Mi")), lab.rng.uniform(17, 19), lab.rng.uniform(100, 180)
    after = f"{mebibytes(before) / 2:.0f}Mi"

    def has(container: Container) -> float:
        """In MiB: with each request a second of its share it keeps something more."""
        share = asked / max(3, len(backends(lab.world, namespace, name)))
        return START_MIB + min(1.0, container.seconds / WARM_SECONDS) * each * share

    def check(container: Container) -> Problem | None:
        limit = str(container.spec["resources"]["limits"]["memory"])
        wanted = has(container)
        return Problem("oom", f"needs {wanted:.0f}Mi, may have {limit}") if wanted > mebibytes(limit) else None

    def most(app: App) -> float | None:
        """Bytes of the one of its containers that has most."""
        there = [one.container for one in lab.kubelets.running() if one.app is app]
        limits = [mebibytes(str(one.spec["resources"]["limits"]["memory"])) for one in there]
        used = [has(one) if app is apps[name] else needs for one in there]
        return max((min(both) * 2**20 for both in zip(used, limits, strict=True)), default=None)

    apps = {
        name: await lab.app(namespace, name, like=App("", check=check, asked=lambda: asked), replicas=3, tag="4.2.0")
    }
    for other in others:
        apps[other] = await lab.app(namespace, other, replicas=2, tag="1.7.3")
    for one in apps:
        await lab.edit("admin", "Deployment", namespace, one, _resources(lab, namespace, one, before))
    await rolled(lab, namespace, name, "4.2.0")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3)
    await set_before(lab, namespace, front, name)
    for one, app in apps.items():
        told = {"namespace": namespace, "service": one, "container": one}
        lab.measure("container_memory_working_set_bytes", partial(most, app), **told)
    killed = lambda: restarts(lab.world, namespace, name) >= 3  # noqa: E731
    summary = f"containers of {namespace}/{name} were OOM killed several times within an hour"
    lab.alert("KubeContainerOOMKilled", killed, summary, namespace=namespace, container=name)
    lab.alert_lacking(namespace, name, seconds=14)
    await lab.pause(WARM_SECONDS)
    await lab.until(lab.is_well)
    yield

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 9))
        await change_page(lab, namespace, front)

    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(3, 8))
    first, last = lab.rng.sample(others, 2)
    await lab.edit(by, "Deployment", namespace, first, _resources(lab, namespace, first, after))
    await lab.pause(lab.rng.uniform(1, 3))
    await lab.culprit(by, "update", "Deployment", namespace, name, _resources(lab, namespace, name, after))
    await lab.pause(lab.rng.uniform(1, 3))
    await lab.edit(by, "Deployment", namespace, last, _resources(lab, namespace, last, after))
    lab.start(afterwards())


@family(
    "A release of an app answers for its health at another path, as its newer framework wants it. The probes in its"
    " manifest ask at the old one and get 404: none of the new pods becomes ready, or each is killed as not alive.",
    joined=82,
)
async def old_path(lab: Lab) -> AsyncIterator[None]:
    """As it goes where the code is in one repository, and the manifest in another."""
    namespace, name, called, front = lab.rng.choice(
        (
            ("shop", "wish-lists", "wish-store", "wish-page"),
            ("payments", "mandates", "mandate-store", "mandate-page"),
            ("media", "bookmarks", "bookmark-store", "library-page"),
            ("search", "recent-searches", "history-store", "start-page"),
        )
    )
    old_at, new_at = lab.rng.choice(
        (("/health", "/actuator/health"), ("/healthz", "/q/health"), ("/actuator/health", "/manage/health"))
    )
    minor, by, is_alive_too = lab.rng.randrange(4, 40), lab.rng.choice(("ci", "argocd", "flux")), lab.rng.random() < 0.5
    old, new = f"2.{minor}.3", "3.0.0"

    def check(container: Container) -> Problem | None:
        """A new one, as long as it is asked at another path than its own."""
        if container.tag != new:
            return None
        for probe, kind in (("livenessProbe", "killed"), ("readinessProbe", "unready")):
            asked = container.spec.get(probe, {}).get("httpGet", {}).get("path", new_at)
            is_due = kind == "unready" or container.seconds > 2  # three times in vain
            if asked != new_at and is_due:
                return Problem(kind, "probe failed: HTTP probe failed with statuscode: 404", at_once=True)
        return None

    await lab.app(namespace, called, replicas=2, tag="1.4.1")
    await lab.until(lambda: backends(lab.world, namespace, called))
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", TIMEOUT_MS="700"))
    liveness = {"httpGet": {"path": old_at, "port": 8080}, "periodSeconds": 10} if is_alive_too else None
    like = App("", path=old_at, upstreams=((namespace, called),), check=check)
    more = {"probe": {"path": old_at}, "liveness": liveness, "config": name}
    await lab.app(namespace, name, like=like, replicas=lab.rng.choice((3, 4)), tag=old, **more)
    await rolled(lab, namespace, name, old)
    await set_before(lab, namespace, front, name)
    lab.alert_stuck(namespace, name)
    lab.alert_lacking(namespace, name, seconds=15)
    if is_alive_too:
        crashes = lambda: restarts(lab.world, namespace, name) > 2  # noqa: E731
        summary = f"containers of {namespace}/{name} are restarted again and again"
        lab.alert("KubePodCrashLooping", crashes, summary, 3, namespace=namespace, deployment=name)
    await lab.until(lab.is_well)
    yield

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(2, 5))
        await change_page(lab, namespace, front)

    await lab.roll("ci", namespace, called, "1.4.2")
    await lab.pause(lab.rng.uniform(3, 7))
    await lab.edit("alice", "ConfigMap", namespace, name, {"data": {"TIMEOUT_MS": lab.rng.choice(("600", "900"))}})
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.roll(by, namespace, name, new, culprit=True)
    lab.start(afterwards())


@family(
    "An app is deployed with a tag whose image was never pushed, as its build had failed or as somebody took the number"
    " for another: no node can pull it, and the rollout does not get on.",
    joined=82,
)
async def never_pushed(lab: Lab) -> AsyncIterator[None]:
    """As everybody has it who deploys by a number that a person writes somewhere."""
    namespace, name, called, front = lab.rng.choice(
        (
            ("shop", "returns", "return-labels", "return-page"),
            ("payments", "installments", "rate-tables", "installment-page"),
            ("media", "watch-parties", "party-rooms", "party-page"),
            ("search", "nearby", "geo-index", "map-page"),
        )
    )
    minor, by = lab.rng.randrange(12, 48), lab.rng.choice(("ci", "argocd", "flux", *TEAMS))
    old = f"1.{minor}.4"
    new = lab.rng.choice((f"1.{minor + 1}.0", f"1.{minor}.5", f"1.{minor + 10}.0", f"v1.{minor + 1}.0"))
    is_recreated = lab.rng.random() < 0.3
    await lab.app(namespace, called, replicas=2, tag="2.0.8")
    await lab.until(lambda: backends(lab.world, namespace, called))
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", TIMEOUT_MS="900"))
    like = App("", upstreams=((namespace, called),))
    await lab.app(namespace, name, like=like, replicas=3, tag=old, config=name)
    lab.outside.missing.add(f"{like.image}:{new}")
    if is_recreated:
        strategy = {"strategy": {"type": "Recreate", "rollingUpdate": None}}
        await lab.edit("admin", "Deployment", namespace, name, {"spec": strategy})
    await rolled(lab, namespace, name, old)
    await set_before(lab, namespace, front, name)

    def waits() -> bool:
        """Whether a container of its pods has no image."""
        told = (one for pod in pods(lab.world, namespace, name) for one in pod["status"].get("containerStatuses", ()))
        return any(one["state"].get("waiting", {}).get("reason") == "ImagePullBackOff" for one in told)

    summary = f"a container of {namespace}/{name} has been waiting for a while"
    lab.alert("KubeContainerWaiting", waits, summary, 12, namespace=namespace, container=name)
    lab.alert_stuck(namespace, name)
    lab.alert_errors(namespace, front)
    await lab.until(lab.is_well)
    yield

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(2, 6))
        await lab.edit("carol", "Deployment", namespace, called, {"spec": {"replicas": 3}})

    await lab.roll("ci", namespace, called, "2.0.9")
    await lab.pause(lab.rng.uniform(3, 7))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.roll(by, namespace, name, new, culprit=True)
    lab.start(afterwards())


def _if_any(count: Callable[[], float]) -> float | None:
    """A counter that a process has from the first on that it counts."""
    return count() or None


@family(
    "The values for production get one that is staging's, as a block was copied from there: an app's new pods ask the"
    " backend of the other environment, which is well, and knows none of production's customers.",
    joined=82,
)
async def staging_value(lab: Lab) -> AsyncIterator[None]:
    """As those tell who have an overlay for each environment, and a person who copies from one to the other."""
    namespace, name, key, backend, called, front = lab.rng.choice(
        (
            ("shop", "vouchers", "LOYALTY_URL", "loyalty", "voucher-rules", "voucher-page"),
            ("payments", "card-tokens", "VAULT_URL", "card-vault", "card-rules", "card-page"),
            ("media", "entitlements", "RIGHTS_URL", "rights", "plan-rules", "player-start"),
            ("search", "personal-results", "PROFILE_URL", "profiles", "ranking-rules", "for-you"),
        )
    )
    by, in_config, share = lab.rng.choice(("argocd", "flux", "ci")), lab.rng.random() < 0.5, lab.rng.uniform(0.5, 0.9)
    hosts = {where: f"{backend}.{where}.corp.example" for where in ("production", "staging")}
    values = {where: f"https://{host}" for where, host in hosts.items()}
    read: dict[str, str] = {}

    def asks(container: Container) -> str:
        """Whom a process has read to ask, at its start."""
        value = container.config[key] if in_config else environment(container.spec)[key]
        return read.setdefault(uid_of(container.pod), value)

    def fails(container: Container) -> float:
        return share if asks(container) == values["staging"] and container.seconds >= lab.lag else 0.0

    like = App("", upstreams=((namespace, called),), asked=lambda: 26.0, failing=fails)

    def calls(where: str) -> float:
        """A second, to the backend of an environment."""
        there = [asks(one.container) for one in lab.kubelets.running() if one.app is like and one.problem is None]
        return 26.0 * there.count(values[where]) / max(1, len(there))

    await lab.app(namespace, called, replicas=2, tag="3.3.0")
    await lab.until(lambda: backends(lab.world, namespace, called))
    data = {"LOG_LEVEL": "info", "TIMEOUT_MS": "1200", **({key: values["production"]} if in_config else {})}
    await lab.apply(objects.config_map(namespace, name, **data))
    env = [] if in_config else [{"name": key, "value": values["production"]}]
    await lab.app(namespace, name, like=like, replicas=3, tag="5.6.2", config=name, env=env)
    await rolled(lab, namespace, name, "5.6.2")
    await set_before(lab, namespace, front, name)
    for where, host in hosts.items():
        told = {"namespace": namespace, "service": name, "host": host}
        made = lab.adding_up(partial(calls, where))
        lab.measure("http_client_requests_total", partial(_if_any, made), "counter", **told)
    lab.alert_errors(namespace, name)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(2, 6))
        await lab.edit("bob", "Deployment", namespace, called, {"spec": {"replicas": 3}})

    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(3, 7))
    await lab.roll("ci", namespace, called, "3.3.1")
    await lab.pause(lab.rng.uniform(3, 8))
    if in_config:
        data = {key: values["staging"], "TIMEOUT_MS": "1500"}
        await lab.culprit(by, "update", "ConfigMap", namespace, name, {"data": data})
        note = {"checksum/config": f"{lab.rng.getrandbits(64):016x}"}  # its pods read it at their start only
        template = {"spec": {"template": {"metadata": {"annotations": note}}}}
        await lab.culprit(by, "update", "Deployment", namespace, name, template)
    else:
        changed = [{"name": key, "value": values["staging"]}, {"name": "HTTP_POOL_SIZE", "value": "40"}]
        await lab.roll(by, namespace, name, "5.6.2", env=changed, culprit=True)
    lab.start(afterwards())
