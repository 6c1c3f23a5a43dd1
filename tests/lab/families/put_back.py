"""What is not as it was: a database whose release was put back, an Ingress whose way was by a proxy of old."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json
from tests.lab.apps import App, Container
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.manifests import images, is_done
from tests.lab.network import INGRESS_CLASS, backends, led_to
from tests.lab.scenario import family

OLD, FAULTY, NEW = "3.3.4", "3.4.0", "3.4.1"
"""Of an app, the second of which had a fault of its own."""
MIGRATE_SECONDS = 3.0
OF_OLD, OF_PROXY = 8080, 80
"""The port of the Services that were written for the proxy of old, and that of all others."""


@family(
    "A release's hook has told the database that a new column is never empty, once all pods were new. For a small fault"
    " on a page somebody puts the release back: the database stays as it is, and whatever the old code writes is"
    " refused.",
    joined=32,
)
async def rollback_schema(lab: Lab) -> AsyncIterator[None]:
    """As told of rollbacks that lie (nivelepsilon.com, a state that refuses to time-travel)."""
    namespace, name, front = lab.rng.choice(
        (("shop", "returns", "my-orders"), ("payments", "mandates", "subscriptions"), ("media", "rights", "licences"))
    )
    database, hook = f"{name}-db", f"{name}-post-upgrade"
    image, writes = f"registry.corp.example/{namespace}/{hook}", lab.rng.uniform(0.3, 0.5)

    def is_migrated() -> bool:
        """Whether the hook of the new release ran through."""
        runs = pods(lab.world, namespace, hook)
        return any(is_done(pod) and images(pod)[0].endswith(f":{NEW}") for pod in runs)

    def failing(container: Container) -> float:
        if container.tag == FAULTY:
            return writes / 2
        return writes if is_migrated() and container.tag != NEW else 0.0

    lab.apps[image] = App(image, ends_after=MIGRATE_SECONDS, upstreams=((namespace, database),), serves=False)
    await lab.app(namespace, database, like=App("", serves=False), kind="StatefulSet", replicas=1)
    like = App("", upstreams=((namespace, database),), failing=failing)
    await lab.app(namespace, name, like=like, replicas=3, tag=OLD)
    at_once = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "100%", "maxUnavailable": 0}}
    await lab.edit("admin", "Deployment", namespace, name, {"spec": {"strategy": at_once}})
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2)
    await lab.until(lambda: len(backends(lab.world, namespace, front)) == 2)
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    by = lab.rng.choice(("ci", "argocd"))
    async with before(lab, days=lab.rng.randrange(19, 24)) as then:
        answer = await lab.roll(by, namespace, name, FAULTY)
        await then.fires()
        await lab.roll(by, namespace, name, OLD)
        await then.is_well()
        then.judge(answer, "it")
    await rolled(lab, namespace, name, OLD)
    yield
    await lab.roll(by, namespace, name, NEW)
    await rolled(lab, namespace, name, NEW)
    meta = {"namespace": namespace, "name": f"{hook}-{NEW.replace('.', '-')}"}
    template: Json = objects.deployment(namespace, hook, f"{image}:{NEW}", restartPolicy="Never")
    del template["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]
    job = {"metadata": meta, "spec": {"template": template["spec"]["template"], "backoffLimit": 0}}
    why = "the hook that made the column mandatory: without it the old code would be well"
    await lab.also(why, by, "create", "Job", namespace, meta["name"], job)
    await lab.until(is_migrated)
    await lab.pause(lab.rng.uniform(6, 10))
    await lab.roll(by, namespace, name, OLD, culprit=True)


@family(
    "Apps behind a proxy that is kept by hand are given their own Ingress one after another, all by one template with"
    " the usual port. The Service of one was made for that proxy and has another port: its host is answered with 503.",
    joined=32,
)
async def ingress_port(lab: Lab) -> AsyncIterator[None]:
    """As told of a cutover from a manual nginx (grokdevops, Kubernetes services and ingress, what goes wrong)."""
    namespace, first, name = lab.rng.choice(
        (("shop", "reviews", "wishlist"), ("search", "autocomplete", "history"), ("media", "comments", "channels"))
    )
    proxy, asked = "edge-nginx", lab.rng.uniform(18, 30)
    by = lab.rng.choice(("alice", "carol", "flux"))

    def leading(app: str, service: str) -> Json:
        """An app's Ingress as the template has it, but for where it leads."""
        backend = {"service": {"name": service, "port": {"number": OF_PROXY}}}
        paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
        rules = [{"host": f"{app}.corp.example", "http": {"paths": paths}}]
        return {"spec": {"ingressClassName": INGRESS_CLASS, "rules": rules}}

    for one in (first, name):
        await lab.app(namespace, one, like=App("", asked=lambda: asked), replicas=3, tag="2.0.7")
    ports = {"spec": {"ports": [{"name": "http", "port": OF_OLD, "targetPort": 8080}]}}
    await lab.edit("admin", "Service", namespace, name, ports)
    addresses = ((first, OF_PROXY), (name, OF_OLD))
    env = [
        {"name": f"UPSTREAM_{one.upper()}", "value": f"http://{one}.{namespace}.svc:{port}"} for one, port in addresses
    ]

    def by_proxy() -> float:
        """What still comes to it: of each app whose Ingress leads there."""
        there = (one for (home, _), one in lab.world["Ingress"].items() if home == namespace)
        return asked * sum(proxy in led_to(lab.world, namespace, one) for one in there)

    like = App("", upstreams=((namespace, first), (namespace, name)), asked=by_proxy)
    await lab.app(namespace, proxy, like=like, replicas=2, env=env, tag="1.25.3")
    await lab.until(lambda: len(backends(lab.world, namespace, proxy)) == 2)
    for one in (first, name):
        meta = {"namespace": namespace, "name": one}
        await lab.apply({"kind": "Ingress", "metadata": meta, **leading(one, proxy)})
        lab.alert_ingress_errors(namespace, one)
    lab.reserve(namespace, proxy, first, name)
    await lab.until(lab.is_well)
    async with before(lab, hours=21):
        await lab.edit(by, "Ingress", namespace, first, leading(first, first))
        await lab.pause(7)
    yield
    await lab.culprit(by, "update", "Ingress", namespace, name, leading(name, name))
