"""What belongs together and does not any more: a chart and its image, tokens and their key, Secrets and their owner."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.api import Caller, Json, path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.families.between import publish
from tests.lab.families.upgrades import CALLERS
from tests.lab.lab import NODES, Lab
from tests.lab.network import unserved
from tests.lab.scenario import family

READ_SECONDS = 3.0
"""For so long after its start a program reads its configuration, and never again."""
ASK_SECONDS = 1.5
"""How often an agent asks what there is on its node."""


@family(
    "A hub is deployed for one more disk of a course from a working copy whose chart, a part that Git keeps apart, is"
    " two weeks old: the settings have their old names, and the image is of today and ends on them.",
    joined=14,
)
async def old_chart(lab: Lab) -> AsyncIterator[None]:
    """As Berkeley tells of its hub (March 2017, infrastructure 20)."""
    namespace, old, new, value = lab.rng.choice(
        (
            ("datahub", "singleuser.image", "singleuser.image_spec", "data8/singleuser:1a6c6d8"),
            ("courses", "auth.type", "auth.class_name", "google"),
            ("labs", "mounts.server", "mounts.shared_server", "10.0.9.12"),
        )
    )

    def check(container: Container) -> Problem | None:
        """It reads its settings as it starts."""
        if container.seconds > READ_SECONDS or new in container.config:
            return None
        return Problem("crash", f"traitlets.config.configurable.ConfigError: {new} is not set")

    settings = {"cull.timeout": "3600", "hub.db": "sqlite:///srv/hub.sqlite"}
    disks = "data8x-20170301-120000"
    await lab.namespace(namespace)
    await lab.apply(objects.config_map(namespace, "hub", **settings, **{new: value, "disks": disks}))
    await lab.app(namespace, "hub", tag="e4af695", like=App("", check=check), replicas=1, config="hub")
    recreate: Json = {"type": "Recreate", "rollingUpdate": None}
    await lab.edit("admin", "Deployment", namespace, "hub", {"spec": {"strategy": recreate}})
    host = await publish(lab, namespace, "hub")
    holds = lambda: bool(unserved(lab.world, host))  # noqa: E731
    lab.alert("ProbeFailed", holds, f"https://{host} is not answered", 8, job="blackbox", instance=f"https://{host}")
    yield
    data = {new: None, old: value, "disks": f"{disks},cogneuro88-20170307-063643"}
    await lab.culprit("ci", "update", "ConfigMap", namespace, "hub", {"data": data})
    mark = {"checksum/config": f"{lab.rng.getrandbits(64):016x}"}
    body = {"spec": {"template": {"metadata": {"annotations": mark}}}}
    await lab.culprit("ci", "update", "Deployment", namespace, "hub", body)


@family(
    "The certificates of the control plane are over after a year and are made anew, and with them the key that signs"
    " the tokens of ServiceAccounts: whoever runs, as the network's agents, goes on with one that is taken no more.",
    culprit=False,
    joined=14,
)
async def signing_key(lab: Lab) -> AsyncIterator[None]:
    """As a user of Kubernetes tells of his cluster (July 2018, kubernetes 44298)."""
    asking: dict[str, Caller] = {}

    async def agent(process: Process) -> None:
        """Who is where is forgotten where nobody tells it. Its token is the one that it was started with."""
        node = process.see().pod["spec"]["nodeName"]
        asking[node] = process.api
        while True:
            asked = await process.api.call("GET", f"{path('Pod')}?fieldSelector=spec.nodeName={node}")
            if asked.ok:
                lab.outside.cut_off.discard(node)
            elif asked.status == 401:
                lab.outside.cut_off.add(node)
            await asyncio.sleep(ASK_SECONDS * process.rng.uniform(0.9, 1.1))

    async def renew() -> None:
        """The programs of the control plane end, and start with the new files."""
        plane = lab.plane
        manager, scheduler = plane.controller_manager, plane.scheduler
        assert manager
        assert scheduler
        for program in (scheduler, manager, plane.apiserver):
            await asyncio.to_thread(program.stop)
        key = str(plane.folder / "service-accounts.key")
        made = ("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key)
        await asyncio.to_thread(subprocess.run, made, check=True, capture_output=True)
        for program in (plane.apiserver, manager, scheduler):
            await asyncio.to_thread(program.start)

    await lab.controller("kube-system", "network-agent", agent, ("", "pods", "list"), kind="DaemonSet")
    await lab.until(lambda: set(NODES) <= asking.keys())
    for place in CALLERS:
        lab.reserve(*place)
        lab.alert_lacking(*place)
    yield
    lab.start(renew())
