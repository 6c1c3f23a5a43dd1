"""Nobody behind a Service: an app that somebody has scaled to nothing, and labels that only one side has given up."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Answer, Json, path
from tests.lab.apps import App, Container
from tests.lab.families.by_annotation import rolled
from tests.lab.families.more_than_was_meant import Lately
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.families.sent_to_production import stored
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.network import backends, unreachable
from tests.lab.scenario import family

# -- scaled to nothing


async def _scale(lab: Lab, by: str, namespace: str, name: str, replicas: int) -> Answer:
    """As ``kubectl scale`` does, which asks for the scale of a Deployment. Raises RefusedError."""
    where = f"{path('Deployment', namespace, name)}/scale"
    return await lab.who[by].must("PATCH", where, {"spec": {"replicas": replicas}})


async def _try_out(lab: Lab, namespace: str, image: str, tag: str) -> None:
    """The next version of an app, in a namespace for that. Raises RefusedError, TimeoutError."""
    name = image.rsplit("/", 1)[1]
    await lab.namespace(namespace)
    await lab.apply(objects.deployment(namespace, name, f"{image}:{tag}", replicas=1))
    await lab.apply(objects.service(namespace, name))
    await rolled(lab, namespace, name, tag)


@family(
    "Somebody scales an app to nothing by hand: for a maintenance of its database, as nobody is said to need it just"
    " now, or because the context is still of production and staging was meant. An app of another team calls it.",
    joined=93,
)
async def missed_by_callers(lab: Lab) -> AsyncIterator[None]:
    """As those tell who read *scaled* and went on to the next thing."""
    home, name, namespace, caller, front = lab.rng.choice(
        (
            ("payments", "vat-rates", "shop", "price-totals", "totals-page"),
            ("shop", "store-hours", "search", "nearby-stores", "stores-page"),
            ("search", "geo-lookup", "shop", "delivery-slots", "slots-page"),
            ("media", "asset-links", "search", "rich-results", "results-view"),
        )
    )
    by, is_mistaken, minor = lab.rng.choice(TEAMS[:2]), lab.rng.random() < 0.5, lab.rng.randrange(2, 30)
    cannot_do_without, share = lab.rng.random() < 0.4, lab.rng.uniform(0.3, 0.9)
    replicas, trial, db = lab.rng.choice((2, 3)), f"{home}-staging", f"{name}-db"
    await stored(lab, home, db)
    await lab.apply(objects.config_map(home, name, LOG_LEVEL="info", CACHE_SECONDS="30"))
    like = App("", upstreams=((home, db),), asked=lambda: 15.0)
    await lab.app(home, name, like=like, replicas=replicas, tag=f"2.{minor}.1", config=name)
    await rolled(lab, home, name, f"2.{minor}.1")
    await lab.until(lambda: backends(lab.world, home, name))
    if is_mistaken:
        await _try_out(lab, trial, f"registry.corp.example/{home}/{name}", f"2.{minor + 1}.0-rc.2")
    is_gone = Lately(lab, lambda: not backends(lab.world, home, name))

    def fails(container: Container) -> float:
        is_missed = is_gone() and bool(unreachable(lab.world, container.pod, home, name))
        return share if is_missed and not cannot_do_without else 0.0

    env: list[Json] = []
    if not cannot_do_without:
        env = [{"name": f"{name.replace('-', '_').upper()}_URL", "value": f"http://{name}.{home}.svc.cluster.local"}]
    await lab.apply(objects.config_map(namespace, caller, LOG_LEVEL="info", RETRIES="2"))
    upstreams = ((home, name),) if cannot_do_without else ()
    like = App("", upstreams=upstreams, asked=lambda: 18.0, failing=fails, fails_with=lambda _: "502")
    await lab.app(namespace, caller, like=like, replicas=3, tag="4.11.0", config=caller, env=env)
    await rolled(lab, namespace, caller, "4.11.0")
    await set_before(lab, namespace, front, caller)
    lab.reserve(home, name)
    lab.alert_lacking(namespace, caller, seconds=8)
    for one in (caller, front):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        """What it was for."""
        await lab.pause(lab.rng.uniform(3, 7))
        if is_mistaken:
            await _scale(lab, by, trial, name, 0)
        else:
            there = lab.world["StatefulSet"][home, db]["spec"]["template"]["spec"]["containers"][0]
            newer = {**there, "image": str(there["image"]).replace(":16.4", ":16.10")}
            await lab.edit(by, "StatefulSet", home, db, {"spec": {"template": {"spec": {"containers": [newer]}}}})
        await lab.pause(lab.rng.uniform(2, 6))
        await change_page(lab, namespace, front)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, caller, "4.11.1")
    await lab.pause(lab.rng.uniform(6, 11))
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", home, name, {"data": {"CACHE_SECONDS": "45"}})
    await lab.pause(lab.rng.uniform(4, 9))
    answer = await _scale(lab, by, home, name, 0)
    scaled = {"kind": "Deployment", "namespace": home, "name": name, "actor": lab.who[by].user, "verb": "update"}
    lab.culprits.append(({**scaled, "api_group": "apps"}, answer))
    lab.start(afterwards())


# -- labels

RENAMED: tuple[tuple[Json, Json], ...] = (
    ({"app": "{0}"}, {"app": None, "app.kubernetes.io/instance": "{0}"}),
    ({"app": "{0}"}, {"app": "{1}-{0}"}),
    ({"tier": "backend"}, {"tier": None, "app.kubernetes.io/component": "backend"}),
    ({"component": "api"}, {"component": None, "app.kubernetes.io/component": "api"}),
)
"""What a Service selects by, beside the name or alone, and what becomes of it in the template of its pods."""


def _filled(labels: Json, name: str, namespace: str) -> Json:
    return {key: None if value is None else str(value).format(name, namespace) for key, value in labels.items()}


def _all_have(there: list[Json], labels: Json) -> bool:
    return bool(there) and all(is_ready(one) and labels.items() <= one["metadata"]["labels"].items() for one in there)


@family(
    "A team gives its pods the labels that are recommended, in the templates of its apps. The Service of one of them"
    " still selects by the old one: each new pod is ready, and none of them is behind it.",
    joined=93,
)
async def tidied_labels(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose rollout was through, and whose callers read *connection refused*."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "size-guide", "guide-page", "size-imports"),
            ("payments", "payment-methods", "method-page", "method-icons"),
            ("media", "chapters", "chapter-page", "chapter-index"),
            ("search", "did-you-mean", "hint-page", "hint-builder"),
        )
    )
    before, after = (_filled(one, name, namespace) for one in lab.rng.choice(RENAMED))
    by, minor, with_release = (
        lab.rng.choice(("argocd", "flux", "ci", *TEAMS)),
        lab.rng.randrange(2, 30),
        lab.rng.random() < 0.4,
    )
    tag, by_name = f"3.{minor}.0", {"app.kubernetes.io/name": name}

    def labelled(one: str, labels: Json, version: str) -> Json:
        """The Deployment of an app, whose own selector goes by the name and does not change."""
        there = lab.world["Deployment"][namespace, one]["spec"]["template"]["spec"]["containers"][0]
        image = f"{str(there['image']).rsplit(':', 1)[0]}:{version}"
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{**there, "image": image}]}}
        return {"spec": {"template": template}}

    async def place(one: str, version: str, replicas: int) -> None:
        """An app whose pods have the old label too. Raises RefusedError, TimeoutError."""
        await lab.apply(objects.config_map(namespace, one, LOG_LEVEL="info", BATCH="20"))
        asked = 20.0 if one == name else 8.0
        await lab.app(namespace, one, like=App("", asked=lambda: asked), replicas=replicas, tag=version, config=one)
        await lab.until(lambda: (namespace, one) in lab.world["Deployment"])
        labels = {key: value.replace(name, one) for key, value in before.items()}
        await lab.edit("admin", "Deployment", namespace, one, labelled(one, labels, version))
        await lab.until(lambda: _all_have(pods(lab.world, namespace, one), labels))

    await place(name, tag, 3)
    await place(other, "1.6.3", 2)
    keeps = {} if "app" in before else by_name
    selector = {"app.kubernetes.io/name": None, **keeps, **before}
    await lab.edit("admin", "Service", namespace, name, {"spec": {"selector": selector}})
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3)
    await set_before(lab, namespace, front, name)
    lab.reserve(namespace, other)
    lab.alert_stuck(namespace, name)
    lab.alert_lacking(namespace, front, seconds=8)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, name, {"data": {"BATCH": "30"}})

    yield
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(5, 10))
    labels = {key: None if value is None else value.replace(name, other) for key, value in after.items()}
    await lab.edit(by, "Deployment", namespace, other, labelled(other, labels, "1.6.3"))
    await lab.pause(lab.rng.uniform(2, 6))
    version = f"3.{minor}.1" if with_release else tag
    await lab.culprit(by, "update", "Deployment", namespace, name, labelled(name, after, version))
    lab.start(afterwards())
