"""What a syncer of virtual clusters calls things by: pods have labels in a new form, Services know the old one."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from zlib import crc32

from tests.lab import addresses, objects
from tests.lab.api import Json, path
from tests.lab.apps import App, Process
from tests.lab.families.between import publish
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

DOMAIN = "vcluster.corp.example"


@dataclass
class Tenant:
    """A virtual cluster: what its users made there, which its syncer makes in the ``namespace`` that it lives in."""

    lab: Lab
    name: str
    namespace: str
    pods: dict[str, Json] = field(default_factory=dict)
    """Name in the host and spec of each."""
    services: dict[str, str] = field(default_factory=dict)
    """Name in the host of each, and what its pods are called in the virtual cluster."""

    def add(self, home: str, name: str, replicas: int, *upstreams: str) -> str:
        """A Service and its pods, in a namespace of the virtual cluster; returns how the host calls it."""
        there = f"{name}-x-{home}-x-{self.name}"
        image = f"registry.corp.example/{self.namespace}/{there}"
        app = App(image, upstreams=tuple((self.namespace, one) for one in upstreams))
        self.lab.apps[image] = app
        chance = random.Random(f"{self.lab.called} {image}")
        told = addresses.told(app, self.namespace, there, env=(), has_config=False, chance=chance)
        made = objects.deployment(self.namespace, name, f"{image}:1.0.0", env=told.env)
        for _ in range(replicas):
            suffix = "".join(chance.choice("bcdfghjklmnpqrstvwxz2456789") for _ in range(5))
            self.pods[f"{name}-{suffix}-x-{home}-x-{self.name}"] = made["spec"]["template"]["spec"]
        self.services[there] = name
        return there

    def labels(self, app: str, tag: str) -> dict[str, str]:
        """The labels of a pod or in a selector, as a version of the syncer writes those of the virtual cluster."""
        form = "label" if tag.startswith("0.20.") else "ns-label"
        mark = crc32(f"{form} app {self.name}".encode())
        return {f"{DOMAIN}/{form}-{self.name}-x-{mark:010}": app, f"{DOMAIN}/managed-by": self.name}

    async def sync(self, process: Process) -> None:
        """Pods are kept as they should be; a Service keeps the selector that it was made with."""
        for name, spec in self.pods.items():
            app = str(spec["containers"][0]["name"])
            wanted = self.labels(app, process.tag)
            found = await process.api.call("GET", path("Pod", self.namespace, name))
            if found.status == 404:
                body = {"metadata": {"name": name, "labels": wanted}, "spec": spec}
                await process.api.call("POST", path("Pod", self.namespace), body)
            elif found.ok and (has := found.body["metadata"].get("labels", {})) != wanted:
                body = {"metadata": {"labels": {**dict.fromkeys(has), **wanted}}}
                await process.api.call("PATCH", path("Pod", self.namespace, name), body)
        for name, app in self.services.items():
            if (await process.api.call("GET", path("Service", self.namespace, name))).status == 404:
                made = objects.service(self.namespace, name)
                made["spec"]["selector"] = self.labels(app, process.tag)
                await process.api.call("POST", path("Service", self.namespace), made)


@family(
    "A new version of a syncer of a virtual cluster writes the labels of its pods in another form, also of those that"
    " are there, and leaves the Services as they were made: they select nobody, its names are not resolved any more.",
    joined=20,
)
async def translated_labels(lab: Lab) -> AsyncIterator[None]:
    """As a user of vcluster tells of the way from 0.20 to 0.25 (June 2025, vcluster 2887)."""
    name = lab.rng.choice(("atlas", "orchid", "harbour"))
    namespace, syncer = f"vcluster-{name}", f"{name}-syncer"
    await lab.namespace(namespace)
    tenant = Tenant(lab, name, namespace)
    resolver = tenant.add("kube-system", "kube-dns", 2)
    api = tenant.add("default", "api", 3, resolver)
    web = tenant.add("default", "web", 3, api, resolver)
    rules = (("", "pods,services", "*"),)
    await lab.controller(namespace, syncer, every(2, tenant.sync), *rules, kind="StatefulSet", replicas=1, tag="0.20.4")
    await lab.until(lambda: all(backends(lab.world, namespace, one) for one in (resolver, api, web)))
    await publish(lab, namespace, web)
    lab.alert_ingress_errors(namespace, namespace)
    for one in (api, web):
        lab.alert_errors(namespace, one)
    yield
    by, new = lab.rng.choice(("argocd", "ci", "alice")), "0.25.0"
    there = lab.world["StatefulSet"][namespace, syncer]["spec"]["template"]["spec"]["containers"][0]
    container = {**there, "image": f"{there['image'].rsplit(':', 1)[0]}:{new}"}
    body = {"spec": {"template": {"spec": {"containers": [container]}}}}
    await lab.culprit(by, "update", "StatefulSet", namespace, syncer, body)
