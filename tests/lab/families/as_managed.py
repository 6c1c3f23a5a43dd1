"""What others manage: as an operator renders it, and as much of it as what watches it has room for."""

from __future__ import annotations

import configparser
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from zlib import crc32

import yaml

from tests.lab import objects
from tests.lab.alerts import restarts
from tests.lab.api import Json, Kind, path
from tests.lab.apps import App, Container, Problem, Process, mebibytes
from tests.lab.company import APPS
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

POOLERS, OPERATOR = "postgres.corp.example", "postgres-operator"
POOLED = "1.23.1"
"""The version of the poolers: which probes and what of their configuration they know is the same all the time."""


NOT_WELL = "probe failed: HTTP probe failed with statuscode: 503"


@dataclass
class _Poolers:
    """An operator of connection poolers, whose later version renders something else than the poolers can do with."""

    lab: Lab
    kind: Kind
    later: str
    """The operator's tag from which on it does."""
    wrong: str

    def ini(self, one: Json, tag: str) -> str:
        """The configuration of a pooler."""
        name, database = one["metadata"]["name"], one["spec"]["database"]
        is_later = tag == self.later
        host = f"{database}-rw" if is_later and self.wrong == "host" else database
        auth = "scram-sha-256" if is_later and self.wrong == "auth" else "md5"
        told = f"[databases]\n* = host={host} port=5432\n[pgbouncer]\npool_mode = transaction\nauth_type = {auth}\n"
        return f"; {name}, rendered by {OPERATOR} {tag}\n{told}max_client_conn = 400\n"

    def rendered(self, one: Json, tag: str) -> tuple[Json, Json]:
        """Its ConfigMap, and its StatefulSet, which has a checksum of that."""
        namespace, name = one["metadata"]["namespace"], one["metadata"]["name"]
        ini = self.ini(one, tag)
        probe = {"path": "/readyz"} if tag == self.later and self.wrong == "probe" else None
        image = f"registry.corp.example/{namespace}/{name}:{POOLED}"
        made = objects.deployment(
            namespace, name, image, kind="StatefulSet", replicas=1, config=f"{name}-config", probe=probe
        )
        owner = {key: one["metadata"][key] for key in ("name", "uid")}
        owner |= {"apiVersion": f"{POOLERS}/v1", "kind": "Pooler", "controller": True}
        made["metadata"]["ownerReferences"] = [owner]
        made["spec"]["template"]["metadata"]["annotations"] = {f"{POOLERS}/config": f"{crc32(ini.encode()):08x}"}
        config = objects.config_map(namespace, f"{name}-config", **{"pgbouncer.ini": ini})
        config["metadata"]["ownerReferences"] = [owner]
        return config, made

    async def reconcile(self, process: Process) -> None:
        """Each is as this version renders it."""
        listed = await process.api.call("GET", self.kind.path())
        for one in listed.body.get("items", ()):
            namespace = one["metadata"]["namespace"]
            config, made = self.rendered(one, process.tag)
            for wanted, seen in ((config, "data"), (made, "spec")):
                where = path(wanted["kind"], namespace, wanted["metadata"]["name"])
                found = await process.api.call("GET", where)
                if found.status == 404:
                    await process.api.call("POST", path(wanted["kind"], namespace), wanted)
                elif found.ok and _mark(found.body) != _mark(wanted):
                    part = {"template": wanted["spec"]["template"]} if seen == "spec" else wanted["data"]
                    await process.api.call("PATCH", where, {seen: part})

    def check(self, namespace: str, container: Container) -> Problem | None:
        """What a pooler finds wrong with what it is given."""
        told = configparser.ConfigParser()
        told.read_string(container.config["pgbouncer.ini"])
        if told["pgbouncer"]["auth_type"] != "md5":  # as its users' passwords are kept
            return Problem("unready", f"{NOT_WELL} (cannot do SCRAM authentication: password is MD5)")
        host = told["databases"]["*"].split()[0].removeprefix("host=")
        if not backends(self.lab.world, namespace, host):
            return Problem("unready", f"{NOT_WELL} (DNS lookup failed: {host})")
        return None


def _mark(thing: Json) -> object:
    """By what two of a kind differ, of what the operator renders."""
    if "data" in thing:
        return thing["data"]
    template = thing["spec"]["template"]
    notes = template["metadata"].get("annotations", {}).get(f"{POOLERS}/config")
    return notes, template["spec"]["containers"][0]["readinessProbe"]["httpGet"]["path"]


@family(
    "An operator of connection poolers is upgraded. Its new version writes a field of what it renders in another way,"
    " and none of the poolers that are there can do with that: apps of two teams reach their databases no more.",
    joined=81,
)
async def pools_rendered(lab: Lab) -> AsyncIterator[None]:
    """As those tell who have upgraded an operator, and not what it operates."""
    teams = lab.rng.sample((("shop", "invoices"), ("media", "albums"), ("search", "facets"), ("payments", "cards")), 2)
    by, other = lab.rng.choice(("alice", "carol", "ci", "flux")), lab.rng.choice(("argocd", "bob"))
    minor = lab.rng.randrange(12, 30)
    before, later = f"1.{minor}.3", f"1.{minor + 1}.0"
    kind = await lab.custom("Pooler", POOLERS, ANY)
    await lab.served(kind)
    poolers = _Poolers(lab, kind, later, wrong=lab.rng.choice(("host", "auth", "probe")))
    for namespace, name in teams:
        database, pool = f"{name}-db", f"{name}-pool"
        await lab.app(namespace, database, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="17.2")
        image = f"registry.corp.example/{namespace}/{pool}"
        lab.apps[image] = App(image, serves=False, check=partial(poolers.check, namespace))
        meta = {"namespace": namespace, "name": pool}
        await lab.apply({"kind": "Pooler", "metadata": meta, "spec": {"database": database, "instances": 1}})
        await lab.apply(objects.service(namespace, pool))
        await lab.until(partial(backends, lab.world, namespace, database))
    rules = (
        (POOLERS, "poolers", "get,list,watch"),
        ("apps", "statefulsets", "get,list,watch,create,patch"),
        ("", "configmaps", "get,list,watch,create,patch"),
    )
    program = every(1.5, poolers.reconcile)
    await lab.controller("platform", OPERATOR, program, *rules, replicas=1, tag=before)
    recreate = {"spec": {"strategy": {"type": "Recreate", "rollingUpdate": None}}}
    await lab.edit("admin", "Deployment", "platform", OPERATOR, recreate)
    await rolled(lab, "platform", OPERATOR, before)
    for namespace, name in teams:
        await lab.until(partial(backends, lab.world, namespace, f"{name}-pool"))
        like = App("", upstreams=((namespace, f"{name}-pool"),), asked=lambda: 14.0)
        await lab.app(namespace, name, like=like, replicas=2, tag="3.3.1")
        await lab.until(partial(backends, lab.world, namespace, name))
        await publish(lab, namespace, name)
        lab.alert_ingress_errors(namespace, namespace)
        lab.alert_lacking(namespace, name)
    await lab.until(lab.is_well)
    yield
    await lab.roll(other, *teams[lab.rng.randrange(2)], "3.3.2")
    await lab.pause(lab.rng.uniform(6, 11))
    await lab.roll(by, "platform", OPERATOR, later, culprit=True)
    await lab.pause(lab.rng.uniform(1, 3))
    await lab.edit(other, "ConfigMap", "search", "query", {"data": {"TIMEOUT_MS": "700"}})


SCRAPED = "prometheus.io/scrape"
SERIES_EACH, MIB_EACH, BASE_MIB, GROWS_SECONDS = 1400, 0.008, 170.0, 6.0
"""Of a pod that is scraped, and what one takes of memory; what Prometheus needs besides, and how long after its start
it has read what it wrote down before."""
PROMETHEUS = ("monitoring", "prometheus")


def _scrape_config(*, kept: bool) -> str:
    """Of pods that say so, or of all."""
    keep = {"source_labels": ["__meta_kubernetes_pod_annotation_prometheus_io_scrape"], "action": "keep"}
    job: Json = {"job_name": "pods", "kubernetes_sd_configs": [{"role": "pod"}], "scrape_interval": "30s"}
    job |= {"relabel_configs": [{**keep, "regex": "true"}]} if kept else {}
    return str(yaml.safe_dump({"global": {"evaluation_interval": "30s"}, "scrape_configs": [job]}, sort_keys=False))


@family(
    "Prometheus gets less memory, as it seemed to have more than it used, or is to scrape every pod and not only those"
    " that say so. What it has to keep does not fit any more: it is ended for its memory, reads what it had written"
    " down, and is ended again.",
    joined=81,
)
async def watching_more(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose dashboards were empty when they looked why."""
    by, other = lab.rng.choice(("carol", "flux", "argocd", "alice")), lab.rng.choice(("ci", "bob"))
    is_by_limit, namespace = lab.rng.random() < 0.5, lab.rng.choice(sorted(APPS))
    saying = (namespace, "metered")

    def targets(config: str) -> int:
        [job] = yaml.safe_load(config)["scrape_configs"]
        there = [pod for pod in lab.world["Pod"].values() if pod.get("status", {}).get("phase") == "Running"]
        if "relabel_configs" in job:
            there = [pod for pod in there if pod["metadata"].get("annotations", {}).get(SCRAPED) == "true"]
        return len(there)

    def check(container: Container) -> Problem | None:
        read = min(1.0, 0.5 + 0.5 * container.seconds / GROWS_SECONDS)
        needed = BASE_MIB + read * targets(container.config["prometheus.yml"]) * SERIES_EACH * MIB_EACH
        limit = container.spec["resources"]["limits"]["memory"]
        return Problem("oom", f"needs {needed:.0f}Mi, may have {limit}") if needed > mebibytes(limit) else None

    await lab.app(*saying, replicas=4, tag="1.8.0")
    notes = {"spec": {"template": {"metadata": {"annotations": {SCRAPED: "true"}}}}}
    await lab.edit("admin", "Deployment", *saying, notes)
    await rolled(lab, *saying, "1.8.0")
    await lab.apply(objects.config_map("monitoring", "prometheus", **{"prometheus.yml": _scrape_config(kept=True)}))
    like = App("", check=check, serves=False)
    await lab.app(
        *PROMETHEUS, like=like, kind="StatefulSet", replicas=1, tag="v3.5.0", config="prometheus", memory="384Mi"
    )
    await rolled(lab, *PROMETHEUS, "v3.5.0")
    await lab.until(lambda: backends(lab.world, *PROMETHEUS))
    await lab.app("monitoring", "grafana", like=App("", upstreams=(PROMETHEUS,), serves=False), replicas=1)
    await rolled(lab, "monitoring", "grafana", "1.0.0")
    silent = lambda: not backends(lab.world, *PROMETHEUS)  # noqa: E731
    summary = "nothing has been heard from Prometheus for a while"
    lab.alert("WatchdogMissing", silent, summary, 14, namespace="monitoring", statefulset="prometheus")
    ends_again = lambda: restarts(lab.world, *PROMETHEUS) > 2  # noqa: E731
    summary = "a container of monitoring/prometheus is restarted again and again"
    lab.alert("KubePodCrashLooping", ends_again, summary, 3, namespace="monitoring", statefulset="prometheus")
    await lab.until(lab.is_well)
    yield
    await lab.edit(other, "ConfigMap", "shop", "cart", {"data": {"LOG_LEVEL": lab.rng.choice(("warn", "debug"))}})
    await lab.pause(lab.rng.uniform(4, 9))
    if is_by_limit:
        [container] = lab.world["StatefulSet"][PROMETHEUS]["spec"]["template"]["spec"]["containers"]
        less = {**container["resources"], "limits": {"memory": lab.rng.choice(("192Mi", "200Mi"))}}
        body = {"spec": {"template": {"spec": {"containers": [{**container, "resources": less}]}}}}
        await lab.culprit(by, "update", "StatefulSet", *PROMETHEUS, body)
    else:
        every_pod = {"data": {"prometheus.yml": _scrape_config(kept=False)}}
        await lab.culprit(by, "update", "ConfigMap", *PROMETHEUS, every_pod)
