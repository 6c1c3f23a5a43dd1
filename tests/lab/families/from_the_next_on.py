"""What shows from the next one on, or on one path alone: pods that start later, runs to come, a part of a site."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import pods, restarts
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Container, Problem
from tests.lab.company import APPS
from tests.lab.families.by_annotation import rolled
from tests.lab.families.more_than_was_meant import Lately
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.network import INGRESS_CLASS, backends
from tests.lab.scenario import family

# -- a ConfigMap that is read at the start

SETTINGS = (
    ("CACHE_TTL", "300s", "5 min", 'panic: CACHE_TTL: time: unknown unit " min" in duration "5 min"'),
    ("MAX_UPLOAD_BYTES", "1048576", "1M", 'java.lang.NumberFormatException: For input string: "1M"'),
    ("COUNTRIES", '["de","fr"]', '["de","fr","at"', "json.decoder.JSONDecodeError: Expecting ',' delimiter: line 1"),
    ("LOG_FORMAT", "json", "jsn", 'fatal: LOG_FORMAT: must be one of "json", "text", is "jsn"'),
)


@dataclass
class _AtStart:
    """What each container found as it was started: it looks at its environment then, and never again."""

    lab: Lab
    namespace: str
    name: str
    key: str
    found: dict[str, tuple[float, str]] = field(default_factory=dict)
    """By the uid of its pod, with how old it was when it was seen last."""

    def value(self, container: Container) -> str:
        uid = str(container.pod["metadata"]["uid"])
        age, value = self.found.get(uid, (float("inf"), ""))
        if container.seconds < age:
            value = str(self.lab.world["ConfigMap"][self.namespace, self.name]["data"][self.key])
        self.found[uid] = container.seconds, value
        return value


@family(
    "A value in the ConfigMap of an app is changed to one that it cannot read. It takes it from its environment at its"
    " start, so that nothing happens; pods that start later, by a release, on another node or as there are to be more,"
    " end at once.",
    joined=90,
)
async def read_at_start_only(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose drained node brought to light what somebody had edited in the morning."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "coupon-api", "coupon-page"),
            ("payments", "receipt-api", "receipt-page"),
            ("media", "avatar-api", "avatar-page"),
            ("search", "trend-api", "trend-page"),
        )
    )
    key, good, bad, error = lab.rng.choice(SETTINGS)
    by, occasion, minor = lab.rng.choice((*TEAMS, "flux")), lab.rng.randrange(3), lab.rng.randrange(2, 30)
    held = f"{name}-env"
    read = _AtStart(lab, namespace, held, key)

    def check(container: Container) -> Problem | None:
        return Problem("crash", error, at_once=True) if read.value(container) == bad else None

    await lab.apply(objects.config_map(namespace, held, **{key: good, "POOL_SIZE": "20"}))
    env = [
        {"name": one, "valueFrom": {"configMapKeyRef": {"name": held, "key": one}}}
        for one in sorted((key, "POOL_SIZE"))
    ]
    like = App("", asked=lambda: 22.0, check=check)
    await lab.app(namespace, name, like=like, replicas=3, tag=f"7.{minor}.0", env=env)
    await rolled(lab, namespace, name, f"7.{minor}.0")
    await set_before(lab, namespace, front, name)
    many = lambda: restarts(lab.world, namespace, name) >= 2  # noqa: E731
    summary = f"a pod of {namespace}/{name} restarts again and again"
    lab.alert("KubePodCrashLooping", many, summary, 4, namespace=namespace, container=name)
    lab.alert_stuck(namespace, name)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(5, 9))
        await change_page(lab, namespace, front)
        await lab.pause(lab.rng.uniform(8, 14))
        if occasion == 0:
            await lab.roll("ci", namespace, name, f"7.{minor}.1")
        elif occasion == 1:
            await lab.edit("carol", "Deployment", namespace, name, {"spec": {"replicas": 5}})
        else:
            await _drain(lab, pods(lab.world, namespace, name)[0]["spec"]["nodeName"])

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, front, "6.1.6")
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.culprit(by, "update", "ConfigMap", namespace, held, {"data": {key: bad}})
    lab.start(afterwards())


async def _drain(lab: Lab, node: str) -> None:
    """Nothing new goes there, and the teams' apps are asked to go."""
    await lab.edit("admin", "Node", "", node, {"spec": {"unschedulable": True}})
    for one in list(lab.world["Pod"].values()):
        meta = one["metadata"]
        if meta["namespace"] in APPS and one["spec"].get("nodeName") == node:
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": meta["name"]}}
            await lab.who["admin"].call("POST", f"{path('Pod', meta['namespace'], meta['name'])}/eviction", body)


# -- a CronJob

RUN_SECONDS = 4.0


def _failed(lab: Lab, namespace: str, name: str) -> bool:
    """Whether the latest Job of a CronJob that is over has failed."""
    over: list[tuple[str, str]] = []
    for (where, _), job in lab.world["Job"].items():
        owners = [one["name"] for one in job["metadata"].get("ownerReferences", ())]
        if where == namespace and owners == [name]:
            told = [one["type"] for one in job.get("status", {}).get("conditions", ()) if one["status"] == "True"]
            over += [(job["metadata"]["creationTimestamp"], one) for one in told if one in ("Complete", "Failed")]
    return bool(over) and max(over)[1] == "Failed"


@family(
    "A CronJob gets a new image, which does not know one of the arguments that it is called with any more, or another"
    " argument that its program does not understand. All is quiet until its next run, which fails, as all after it do.",
    joined=90,
)
async def next_run_fails(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose figures were of yesterday."""
    namespace, name, reader, front = lab.rng.choice(
        (
            ("shop", "stock-sync", "stock-view", "stock-page"),
            ("payments", "rates-import", "rates-view", "rates-page"),
            ("media", "feed-export", "feed-view", "feed-page"),
            ("search", "popular-terms", "terms-view", "terms-page"),
        )
    )
    is_image, minor, most = lab.rng.random() < 0.5, lab.rng.randrange(2, 20), lab.rng.choice((0, 1))
    by = lab.rng.choice(("ci", "flux") if is_image else ("flux", *TEAMS))
    image = f"registry.corp.example/{namespace}/{name}"
    old, new = f"1.{minor}.3", "2.0.0" if is_image else f"1.{minor}.3"
    window = ("--window=24h", "--window=24h" if is_image else "--window=1d")

    def check(container: Container) -> Problem | None:
        args = container.spec.get("args", ())
        if container.tag == "2.0.0" and "--full" in args:
            return Problem("crash", "Error: unknown flag: --full\nUsage: run [flags]", at_once=True)
        if "--window=1d" in args:
            told = 'invalid argument "1d" for "--window" flag: time: unknown unit "d" in duration "1d"'
            return Problem("crash", f"Error: {told}", at_once=True)
        return None

    lab.apps[image] = App(image, ends_after=RUN_SECONDS, check=check, serves=False)
    made = objects.deployment(namespace, name, f"{image}:{old}", restartPolicy="Never")
    [container] = made["spec"]["template"]["spec"]["containers"]
    del container["readinessProbe"]
    container["args"] = ["run", "--full", window[0]]
    template = made["spec"]["template"]
    spec = {
        "schedule": "* * * * *",
        "concurrencyPolicy": "Forbid",
        "jobTemplate": {"spec": {"template": template, "backoffLimit": most}},
    }
    await lab.apply({"kind": "CronJob", "metadata": {"namespace": namespace, "name": name}, "spec": spec})
    await lab.apply(objects.config_map(namespace, reader, LOG_LEVEL="info", BATCH="20"))
    await lab.app(namespace, reader, like=App("", asked=lambda: 15.0), replicas=2, tag="3.1.0", config=reader)
    await rolled(lab, namespace, reader, "3.1.0")
    await set_before(lab, namespace, front, reader)
    summary = f"the last run of CronJob {namespace}/{name} has failed"
    is_bad = lambda: _failed(lab, namespace, name)  # noqa: E731
    lab.alert("KubeCronJobLastRunFailed", is_bad, summary, 5, namespace=namespace, cronjob=name)
    lab.alert_errors(namespace, reader)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lambda: any(where == namespace for where, _ in lab.world["Job"]))
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 9))
        await change_page(lab, namespace, front)
        await lab.pause(lab.rng.uniform(2, 6))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, reader, {"data": {"BATCH": "40"}})

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, reader, "3.1.1")
    await lab.pause((lab.rng.uniform(14, 40) - now().timestamp()) % 60)
    args = ["run", "--full", window[1]]
    body = {"spec": {"containers": [{**container, "image": f"{image}:{new}", "args": args}]}}
    change = {"spec": {"jobTemplate": {"spec": {"template": body}}}}
    await lab.culprit(by, "update", "CronJob", namespace, name, change)
    lab.start(afterwards())


# -- a path of an Ingress


def leads_to(ingress: Json, asked: str) -> str:
    """The Service to which the controller sends a path: of those that match the longest, and an exact one first."""
    found = []
    for one in ingress["spec"]["rules"][0]["http"]["paths"]:
        told = one["path"].rstrip("/")
        is_exact = one["pathType"] == "Exact"
        if asked == one["path"] or (not is_exact and (asked == told or asked.startswith(f"{told}/"))):
            found.append((is_exact, len(told), one["backend"]["service"]["name"]))
    return str(max(found)[2]) if found else ""


@family(
    "In an Ingress the path to one app gets another form: another name, or only exactly this one. What lies below the"
    " old one is left to the app that has all other paths, which knows nothing of it: that part of the site answers"
    " 404.",
    joined=90,
)
async def path_of_the_site(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose pods were all ready, and who had no error in any log."""
    namespace, name, front, part = lab.rng.choice(
        (
            ("shop", "account-area", "shop-pages", "account"),
            ("payments", "invoice-desk", "pay-pages", "invoices"),
            ("media", "upload-desk", "media-pages", "uploads"),
            ("search", "saved-searches", "search-pages", "saved"),
        )
    )
    by, minor = lab.rng.choice((*TEAMS, "flux", "ci")), lab.rng.randrange(2, 30)
    there, elsewhere, host = lab.rng.uniform(6, 12), 20.0, f"{namespace}.corp.example"
    new, kind = lab.rng.choice(((f"/{part}", "Exact"), (f"/my-{part}", "Prefix"), (f"/{part}/v2", "Prefix")))

    def rules(of_part: str, path_type: str) -> Json:
        listed = ((of_part, path_type, name), ("/", "Prefix", front))
        paths = [
            {"path": where, "pathType": how, "backend": {"service": {"name": one, "port": {"number": 80}}}}
            for where, how, one in listed
        ]
        return {"rules": [{"host": host, "http": {"paths": paths}}]}

    def is_led_astray() -> bool:
        ingress = lab.world["Ingress"].get((namespace, namespace))
        return ingress is not None and leads_to(ingress, f"/{part}/overview") != name

    astray = Lately(lab, is_led_astray)
    await lab.apply(objects.config_map(namespace, front, LOG_LEVEL="info", PAGE_SIZE="50"))
    like = App("", asked=lambda: 0.0 if astray() else there)
    await lab.app(namespace, name, like=like, replicas=2, tag=f"2.{minor}.0")
    like = App(
        "",
        asked=lambda: elsewhere + (there if astray() else 0.0),
        failing=lambda _: there / (there + elsewhere) if astray() else 0.0,
        fails_with=lambda _: "404",
    )
    await lab.app(namespace, front, like=like, replicas=3, tag="6.1.5", config=front)
    await rolled(lab, namespace, name, f"2.{minor}.0")
    await rolled(lab, namespace, front, "6.1.5")
    meta = {"namespace": namespace, "name": namespace}
    spec = {"ingressClassName": INGRESS_CLASS, **rules(f"/{part}", "Prefix")}
    await lab.apply({"kind": "Ingress", "metadata": meta, "spec": spec})
    await lab.until(lambda: backends(lab.world, namespace, name) and backends(lab.world, namespace, front))
    lab.reserve(namespace, name, front)
    instance = f"https://{host}/{part}/overview"
    told = {"namespace": "monitoring", "service": "blackbox-exporter", "instance": instance}
    lab.measure("probe_http_status_code", lambda: 404.0 if astray() else 200.0, **told)
    lab.alert("ProbeFailed", astray, f"{instance} is not answered with 200", 6, job="blackbox", instance=instance)

    def many_not_found() -> bool:
        answers = lab.traffic.of_ingress(namespace, namespace, 10.0).answers
        return answers["404"] > 0.1 * max(1, answers.total())

    summary = f"more than 10% of the requests to Ingress {namespace}/{namespace} are answered with 4xx"
    lab.alert("NginxHighHttp4xxErrorRate", many_not_found, summary, namespace=namespace, ingress=namespace)
    lab.alert_errors(namespace, name)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(2, 5))
        await change_page(lab, namespace, front)

    yield
    longer = {"metadata": {"annotations": {"nginx.ingress.kubernetes.io/proxy-read-timeout": "90"}}}
    await lab.edit(lab.rng.choice(TEAMS), "Ingress", namespace, namespace, longer)
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"2.{minor}.1")
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.culprit(by, "update", "Ingress", namespace, namespace, {"spec": rules(new, kind)})
    lab.start(afterwards())
