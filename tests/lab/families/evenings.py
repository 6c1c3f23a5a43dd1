"""What shows only once its hour has come: pods for the evening that a maximum refuses, mail that is sent at night."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import now, path, stamp
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.lab import Lab
from tests.lab.manifests import images, is_ready
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

STEP_SECONDS, STEP_SHARE = 0.5, 0.12
"""How fast the evening comes."""
RELAY = ("platform", "smtp-relay")
OLD_RELAY, NEW_RELAY = "3.7.11", "3.10.2"
"""The new one is built with a library that speaks no TLS of old."""
MINUTE, BEFORE_SECONDS = 60.0, 15.0
"""A CronJob is due on the minute: what is prepared is through so long before one, and the run is due after the next."""


@family(
    "The most memory that a container may have in a namespace is cut below what an app asks for, to have nobody ask for"
    " too much: what runs goes on, and none of the further pods that it gets each evening is let in.",
    joined=20,
)
async def memory_maximum(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: it is the plainest that there is."""
    namespace, name = lab.rng.choice((("shop", "offers"), ("media", "livestream"), ("search", "trending")))
    scaler, schedule = "schedule-scaler", f"{name}-schedule"
    by_day, by_night, each = 3, lab.rng.choice((7, 8)), 60.0
    calm, busy = 100.0, lab.rng.choice((300.0, 330.0, 360.0))
    asked, is_evening = [1.0], asyncio.Event()  # nobody asks before it is there

    def overload(_: Container) -> float:
        ready = sum(is_ready(pod) for pod in pods(lab.world, namespace, name))
        return max(0.0, 1 - each * max(1, ready) / asked[0])

    async def users() -> None:
        while True:
            await asyncio.sleep(STEP_SECONDS)
            asked[0] += STEP_SHARE * ((busy if is_evening.is_set() else calm) - asked[0])

    async def scale(process: Process) -> None:
        """By the clock: so many in the evening, so many else."""
        told = (await process.api.call("GET", path("ConfigMap", namespace, schedule))).body.get("data", {})
        where = f"{path('Deployment', namespace, name)}/scale"
        found = await process.api.call("GET", where)
        wanted = int(told["evening" if is_evening.is_set() else "else"]) if told else 0
        if found.ok and wanted and found.body["spec"]["replicas"] != wanted:
            await process.api.call("PATCH", where, {"spec": {"replicas": wanted}})

    def most(memory: str) -> list[dict[str, object]]:
        return [{"type": "Container", "max": {"memory": memory}}]

    meta = {"namespace": namespace, "name": "containers"}
    await lab.apply({"kind": "LimitRange", "metadata": meta, "spec": {"limits": most("2Gi")}})
    data = {"else": f"{by_day}", "evening": f"{by_night}"}
    await lab.apply(objects.config_map(namespace, schedule, **data))
    like = App("", capacity=2 * each, asked=lambda: asked[0], failing=overload, fails_with=lambda _: "503")
    await lab.app(namespace, name, like=like, replicas=by_day, memory="1Gi")
    rules = (("", "configmaps", "get"), ("apps", "deployments/scale", "get,patch"))
    await lab.controller("platform", scaler, every(2, scale), *rules, replicas=1)
    await lab.until(lambda: sum(is_ready(pod) for pod in pods(lab.world, namespace, name)) == by_day)
    lab.alert_errors(namespace, name)
    lab.start(users())
    yield
    by = lab.rng.choice(("carol", "flux", "alice"))
    body = {"spec": {"limits": most(lab.rng.choice(("512Mi", "768Mi")))}}
    await lab.culprit(by, "update", "LimitRange", namespace, "containers", body)
    await lab.pause(lab.rng.uniform(8, 14))
    is_evening.set()


@family(
    "The relay of all mail gets a new version that speaks no encryption of old: by day nobody minds, and what sends"
    " the invoices once a night, as ever for years, is refused at its first line.",
    joined=20,
)
async def mail_by_night(lab: Lab) -> AsyncIterator[None]:
    """As in "Anatomy of a Cron Job Disaster" (CronGuard)."""
    namespace, name = lab.rng.choice((("payments", "invoices"), ("shop", "order-digest"), ("media", "royalty-notes")))
    image = f"registry.corp.example/{namespace}/{name}"

    def check(container: Container) -> Problem | None:
        """It gathers what is to be sent first, and then speaks to the relay."""
        spoken = any(images(pod)[0].endswith(f":{OLD_RELAY}") for pod in backends(lab.world, *RELAY))
        if spoken or container.seconds < 2:
            return None
        why = "[SSL: TLSV1_ALERT_PROTOCOL_VERSION] tlsv1 alert protocol version"
        return Problem("crash", f"smtplib: STARTTLS {RELAY[1]}.{RELAY[0]}:587: ssl.SSLError: {why}")

    def has_failed() -> bool:
        return any(
            condition["type"] == "Failed" and condition["status"] == "True"
            for (where, _), job in lab.world["Job"].items()
            for condition in job.get("status", {}).get("conditions", ())
            if where == namespace
        )

    lab.apps[image] = App(image, check=check, ends_after=8, upstreams=(RELAY,), serves=False)
    await lab.app(*RELAY, tag=OLD_RELAY, like=App("", serves=False))
    await lab.app("shop", "notifications", like=App("", upstreams=(RELAY,)))
    await asyncio.sleep((MINUTE - BEFORE_SECONDS - now().timestamp()) % MINUTE)
    due = (now() + timedelta(minutes=2)).replace(second=0, microsecond=0)
    env = [{"name": "SMTP_HOST", "value": ".".join(reversed(RELAY))}, {"name": "SMTP_PORT", "value": "587"}]
    made = objects.deployment(namespace, name, f"{image}:1.2.0", env=env, restartPolicy="Never")["spec"]["template"]
    del made["spec"]["containers"][0]["readinessProbe"]
    spec = {
        "schedule": f"{due.minute} {due.hour} * * *",
        "timeZone": "Etc/UTC",
        "concurrencyPolicy": "Forbid",
        "jobTemplate": {"spec": {"template": made, "backoffLimit": 1}},
    }
    await lab.apply({"kind": "CronJob", "metadata": {"namespace": namespace, "name": name}, "spec": spec})
    last = [due - timedelta(days=1), due - timedelta(days=1) + timedelta(minutes=9)]
    began, done = (f"{stamp(at)[:19]}Z" for at in last)
    status = {"lastScheduleTime": began, "lastSuccessfulTime": done}
    await lab.who["admin"].must("PATCH", f"{path('CronJob', namespace, name)}/status", {"status": status})
    lab.alert("KubeJobFailed", has_failed, f"a run of {namespace}/{name} has failed", 3, namespace=namespace)
    yield
    await lab.roll(lab.rng.choice(("flux", "argocd", "carol")), *RELAY, NEW_RELAY, culprit=True)
