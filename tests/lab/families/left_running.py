"""What goes on beside the apps: runs that never come to an end, and what is to look at all that others say."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import pending
from tests.lab.api import now, path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.before import before
from tests.lab.company import APPS
from tests.lab.families.between import publish
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every, lagging
from tests.lab.scenario import family

TENANTS, RUN_SECONDS, TRIES = 16, 4.0, 100
EACH_STANDS, BY_DAY, IN_THE_EVENING = 50.0, 130.0, 330.0
USUAL, EVENING_PODS = 3, 8
SCRIPT = 'set -eu\ncurl -fsS "$API_URL/tenants/$TENANT" -o /data/settings.json\n'
SIGNED = 'set -eu\ncurl -fsS -H "Authorization: Bearer $API_TOKEN" "$API_URL/tenants/$TENANT" -o /data/settings.json\n'
SIGNALS = {"shop": 46.0, "payments": 31.0, "search": 24.0, "media": 27.0}
OTHER_SIGNALS = 9.0
"""Signals a second of each namespace that users see, and of all else."""


def _unset(container: Container) -> Problem | None:
    """What a script names and nobody sets ends it at once."""
    given = {one["name"] for one in container.spec.get("env", ())}
    named = re.findall(r"\$([A-Z_]+)", container.config.get("sync.sh", ""))
    lacking = next((one for one in named if one not in given), "")
    return Problem("crash", f"/scripts/sync.sh: line 2: {lacking}: unbound variable") if lacking else None


@family(
    "A script that fetches the settings of each tenant is to sign its calls, with a variable that its CronJobs do not"
    " set. What fails is started again within its pod, up to a hundred times, as the settings are not always there; the"
    " next runs come beside it, until an app finds no room for its pods in the evening.",
    joined=36,
)
async def runs_pile_up(lab: Lab) -> AsyncIterator[None]:
    """As told of thousands of pods that crashed and never failed (engineeringat.axis.com, February 2026)."""
    home, sync = lab.rng.choice((("platform", "tenant-sync"), ("platform", "settings-sync")))
    namespace, name = lab.rng.choice((("shop", "landing-page"), ("media", "live-page"), ("search", "start-page")))
    image, asked = f"registry.corp.example/{home}/{sync}", [BY_DAY]
    lab.apps[image] = App(image, ends_after=RUN_SECONDS, check=_unset)
    await lab.apply(objects.config_map(home, sync, **{"sync.sh": SCRIPT}))
    for number in range(TENANTS):
        env = [
            {"name": "TENANT", "value": f"{number:02}"},
            {"name": "API_URL", "value": "https://settings.corp.example"},
        ]
        made = objects.deployment(home, sync, f"{image}:1.2.0", config=sync, env=env, restartPolicy="OnFailure")
        template = made["spec"]["template"]
        [container] = template["spec"]["containers"]
        del container["readinessProbe"]
        container["resources"]["requests"]["cpu"] = "3"
        spec = {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template, "backoffLimit": TRIES}}}
        meta = {"namespace": home, "name": f"{sync}-{number:02}"}
        await lab.apply({"kind": "CronJob", "metadata": meta, "spec": spec})

    def short(_: Container) -> float:
        return max(0.0, 1 - EACH_STANDS * len(backends(lab.world, namespace, name)) / asked[0])

    like = App("", asked=lambda: asked[0], failing=short, fails_with=lambda _: "503", capacity=3 * EACH_STANDS)
    await lab.app(namespace, name, like=like, replicas=USUAL, tag="4.2.0")
    await lab.until(lambda: (namespace, name) in lab.world["Deployment"])
    [container] = lab.world["Deployment"][namespace, name]["spec"]["template"]["spec"]["containers"]
    larger = {"requests": {"cpu": "2", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}
    await lab.roll("admin", namespace, name, "4.2.0", resources=larger)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == USUAL)
    await publish(lab, namespace, name)
    holds = lambda: pending(lab.world, namespace)  # noqa: E731
    lab.alert("KubePodNotScheduled", holds, f"a pod of {namespace} has no node", 8, namespace=namespace)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def come() -> None:
        while asked[0] < IN_THE_EVENING:
            await asyncio.sleep(1)
            asked[0] = min(IN_THE_EVENING, asked[0] * 1.05)

    by, team = lab.rng.choice(("alice", "ci", "flux")), lab.rng.choice(("bob", "carol"))
    yield
    await lab.pause((50 - now().timestamp()) % 60)
    await lab.culprit(by, "update", "ConfigMap", home, sync, {"data": {"sync.sh": SIGNED}})
    await lab.pause(60)
    await lab.pause((12 - now().timestamp()) % 60)
    await lab.edit(team, "Deployment", namespace, name, {"spec": {"replicas": EVENING_PODS}})
    await lab.pause(4)
    lab.start(come())


@dataclass
class _Triage:
    """It finds what signals belong together, of the namespaces that its settings name."""

    lab: Lab
    matched: set[str] = field(default_factory=set)

    async def look(self, process: Process) -> None:
        await lagging(process)
        listed = await process.api.call("GET", path("Namespace"))
        names = [one["metadata"]["name"] for one in listed.body.get("items", [])]
        wanted = process.config["namespaces"]
        self.matched = {one for one in names if re.fullmatch(wanted, one)}
        for one in sorted(self.matched):
            await process.api.call("GET", f"{path('Event', one)}?limit=50")

    def correlated(self) -> float:
        return sum(rate for namespace, rate in SIGNALS.items() if namespace in self.matched)

    def share(self) -> float:
        return self.correlated() / (sum(SIGNALS.values()) + OTHER_SIGNALS)


@family(
    "The settings of what finds the signals that belong together are changed each week, for what it is to notice. This"
    " time a part of a test cluster's comes along: no namespace that users see is among those it looks at any more.",
    joined=36,
)
async def settings_of_test(lab: Lab) -> AsyncIterator[None]:
    """As told of a tool that finds causes, and was silent as they were needed (reddit, April 2026)."""
    namespace, name = "monitoring", lab.rng.choice(("triage", "rca-engine", "signal-correlator"))
    triage, everywhere = _Triage(lab), "|".join(APPS)
    settings = objects.config_map(
        namespace, name, cluster="prod", namespaces=everywhere, sensitivity="0.80", window="5m"
    )
    await lab.apply(settings)
    rules = ("", "namespaces,events", "get,list")
    app = await lab.controller(namespace, name, every(2, triage.look), rules, replicas=1, config=name, tag="2.14.0")
    app.serves = True
    await lab.until(lambda: triage.matched)
    received = lab.adding_up(lambda: sum(SIGNALS.values()) + OTHER_SIGNALS)
    lab.measure("triage_signals_received_total", received, "counter", namespace=namespace, service=name)
    found = lab.adding_up(triage.correlated)
    lab.measure("triage_signals_correlated_total", found, "counter", namespace=namespace, service=name)
    ignored = lambda: triage.share() < 0.5  # noqa: E731
    summary = f"most signals that {namespace}/{name} receives are not looked at"
    lab.alert("SignalsNotCorrelated", ignored, summary, 5, namespace=namespace, service=name)
    await lab.until(lab.is_well)
    by = lab.rng.choice(("ci", "argocd"))
    async with before(lab, days=7):
        await lab.pause(5)
        await lab.edit(by, "ConfigMap", namespace, name, {"data": {"sensitivity": "0.75"}})
        await lab.pause(9)
    yield
    changed = {"sensitivity": "0.70", "cluster": "test", "namespaces": "test-.*"}
    await lab.culprit(by, "update", "ConfigMap", namespace, name, {"data": changed})
