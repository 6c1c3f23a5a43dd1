"""What others decide beyond the cluster: how much a public registry gives one address, whom a firewall lets through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from itertools import count

from tests.lab.api import Json, now, path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

PUBLIC = "docker.io/"
LIMIT = (
    "toomanyrequests: You have reached your unauthenticated pull rate limit. https://www.docker.com/increase-rate-limit"
)


@dataclass
class _Allowance:
    """What a public registry gives to one address in six hours. Other clusters and offices are behind it as well."""

    lab: Lab
    left: float = 1e6

    def refusal(self, image: str, pod: Json) -> str:
        """Why it does not give an image out; what it gives out counts."""
        if not image.startswith(PUBLIC):
            return ""
        if self.left < 1:
            name, tag = image.removeprefix(PUBLIC).rsplit(":", 1)
            asked = f"https://registry-1.docker.io/v2/{name}/manifests/{tag}"
            return f"unexpected status code {asked}: 429 Too Many Requests - Server message: {LIMIT}"
        self.left -= 1
        return ""

    async def others(self) -> None:
        """They pull too, now and then."""
        while True:
            await asyncio.sleep(1)
            self.left = max(0.0, self.left - self.lab.rng.choice((0, 0, 1, 1)))


def _is_kept_waiting(lab: Lab, namespace: str) -> bool:
    """Whether the image of some pod there is not pulled."""
    return any(
        one.get("state", {}).get("waiting", {}).get("reason") == "ImagePullBackOff"
        for (where, _), pod in lab.world["Pod"].items()
        if where == namespace
        for one in pod.get("status", {}).get("containerStatuses", ())
    )


@family(
    "No culprit. All nodes pull from the public registry by the one address that the company's other clusters and"
    " offices have too. Today it has used up what the registry gives anybody: jobs that pull their image each time"
    " do not start any more.",
    culprit=False,
    joined=83,
)
async def behind_one_address(lab: Lab) -> AsyncIterator[None]:
    """As many have it since there has been a limit to pulls without an account."""
    namespace, name, job, image = lab.rng.choice(
        (
            ("search", "crawl-plan", "crawl", "library/python:3.13"),
            ("media", "transcode-queue", "transcode", "linuxserver/ffmpeg:7.1"),
            ("shop", "export-plan", "export-feed", "library/node:22"),
        )
    )
    allowance, numbers = _Allowance(lab), count(lab.rng.randrange(4000, 9000))
    lab.outside.denied = allowance.refusal

    async def hand_out(process: Process) -> None:
        """The next piece of work becomes a Job."""
        container = {"name": job, "image": f"{PUBLIC}{image}", "imagePullPolicy": "Always"}
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        spec = {"backoffLimit": 1, "ttlSecondsAfterFinished": 6, "template": template}
        body = {"metadata": {"name": f"{job}-{next(numbers)}", "labels": {"job": job}}, "spec": spec}
        await process.api.call("POST", path("Job", namespace), body)

    def is_late() -> bool:
        """Whether a Job has gone on for far longer than they do."""
        return any(
            (now() - datetime.fromisoformat(one["metadata"]["creationTimestamp"])).total_seconds() > 20
            and not one.get("status", {}).get("completionTime")
            for (where, _), one in lab.world["Job"].items()
            if where == namespace
        )

    repository = f"{PUBLIC}{image.rsplit(':', 1)[0]}"
    lab.apps[repository] = App(repository, ends_after=3.0, serves=False)
    await lab.controller(
        namespace, name, every(4.0, hand_out), ("batch", "jobs", "create,get,list"), replicas=1, tag="2.0.4"
    )
    await rolled(lab, namespace, name, "2.0.4")
    lab.reserve(namespace, name)
    summary = f"an image for a pod in {namespace} has not been pulled for a while"
    waits = lambda: _is_kept_waiting(lab, namespace)  # noqa: E731
    lab.alert("KubePodImagePullBackOff", waits, summary, 10, namespace=namespace)
    lab.alert("KubeJobNotCompleted", is_late, f"a job in {namespace} takes too long", 3, namespace=namespace)
    await lab.until(lab.is_well)
    yield
    allowance.left = lab.rng.uniform(13, 22)
    lab.start(allowance.others())
    await lab.roll("ci", namespace, name, "2.0.5")
    await lab.pause(lab.rng.uniform(3, 7))
    level = lab.rng.choice(("debug", "warn"))
    await lab.edit(lab.rng.choice(("bob", "carol")), "ConfigMap", "shop", "catalog", {"data": {"LOG_LEVEL": level}})
    await lab.pause(lab.rng.uniform(3, 7))
    await lab.roll("argocd", "payments", "ledger", "1.21.0")


@family(
    "No culprit. Another department tidies up the rules of a firewall outside of the cluster. One that seemed to be"
    " nobody's let the nodes through to a system there: nobody in the cluster gets a connection to it any more.",
    culprit=False,
    joined=83,
)
async def fence_outside(lab: Lab) -> AsyncIterator[None]:
    """As everybody has it whose databases are still in the old data centre."""
    namespace, names, front, host, address = lab.rng.choice(
        (
            ("payments", ("settlements", "payout-files"), "bank-desk", "core-db.dc1.corp.example", "10.60.4.20:5432"),
            ("shop", ("stock-levels", "order-export"), "stock-desk", "erp.dc1.corp.example", "10.61.0.8:1433"),
            ("media", ("licences", "royalties"), "rights-desk", "rights.partner.example", "203.0.113.40:443"),
        )
    )

    def check(container: Container) -> Problem | None:
        why = lab.outside.broken.get(host)
        return Problem("unready", f"probe failed: HTTP probe failed with statuscode: 503 ({why})") if why else None

    for one in names:
        await lab.app(namespace, one, like=App("", abroad=(host,), check=check), replicas=3, tag="6.0.2")
        await rolled(lab, namespace, one, "6.0.2")
    await lab.until(lambda: all(backends(lab.world, namespace, one) for one in names))
    calls = App("", upstreams=tuple((namespace, one) for one in names))
    await lab.app(namespace, front, like=calls, replicas=2, tag="2.3.0")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, *names)
    for one in names:
        lab.alert_lacking(namespace, one, seconds=8)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.roll("ci", namespace, front, "2.3.1")
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, lab.rng.choice(names), "6.0.3")
    await lab.pause(lab.rng.uniform(2, 5))
    data = {"TIMEOUT_MS": str(lab.rng.randrange(400, 1200))}
    await lab.edit(lab.rng.choice(("alice", "bob")), "ConfigMap", "search", "query", {"data": data})
    await lab.pause(lab.rng.uniform(8, 16))
    lab.outside.broken[host] = f"dial tcp {address}: i/o timeout"
