"""The same code as ever, on something else or with something else: a newer base below it, a larger heap within it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from zlib import crc32

from tests.lab import objects
from tests.lab.alerts import restarts
from tests.lab.apps import App, Container, Problem, mebibytes
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.manifests import environment, uid_of
from tests.lab.network import backends
from tests.lab.scenario import family

ASKED = 26.0
"""Requests a second."""


def _handshakes(lab: Lab, app: App, calls: float, *, well: bool) -> Callable[[], float]:
    """How many calls to a partner a second begin well, or do not, as an app's newer library refuses the partner."""

    def rate() -> float:
        there = [one.container for one in lab.kubelets.running() if one.app is app]
        refused = sum(app.failing(one) > 0 for one in there) / max(1, len(there))
        return calls * (1 - refused if well else refused)

    return rate


@family(
    "All images of a team are built anew on this month's base, from the very same code. What the newer base no longer"
    " has, or no longer allows, one of the apps needs: it starts, its probes are well, and the requests that come to"
    " need it fail.",
    joined=86,
)
async def monthly_rebuild(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose diff was empty, and whose partner spoke TLS 1.0."""
    namespace, name, front, called, host, *others = lab.rng.choice(
        (
            ("payments", "mandates", "mandate-page", "mandate-store", "debit.oldbank.example", "fee-list", "iban-book"),
            ("shop", "customs-forms", "abroad-page", "form-store", "edi.freight.example", "parcel-sizes", "gift-texts"),
            ("media", "subtitling", "caption-page", "cue-store", "api.transcripts.example", "posters", "age-marks"),
            ("search", "place-finder", "nearby-page", "place-store", "wms.survey.example", "synonyms", "stop-lists"),
        )
    )
    by, minor, share = lab.rng.choice(("ci", "argocd", "flux")), lab.rng.randrange(2, 60), lab.rng.uniform(0.2, 0.6)
    month, is_of_calls = lab.rng.randrange(2, 12), lab.rng.random() < 0.6

    def tag(number: int, *, of: str) -> str:
        """The version of the code, and the month of the base."""
        return f"{3 + len(of) % 4}.{minor}.2-2026{number:02}01"

    def fails(container: Container) -> float:
        is_new = container.tag == tag(month, of=name)
        return share if is_new and container.seconds >= lab.lag else 0.0

    await lab.app(namespace, called, replicas=2, tag="1.8.0")
    await lab.until(lambda: backends(lab.world, namespace, called))
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", TIMEOUT_MS="1500"))
    like = App(
        "",
        upstreams=((namespace, called),),
        abroad=(host,) if is_of_calls else (),
        asked=lambda: ASKED,
        failing=fails,
        fails_with=lambda _: "502" if is_of_calls else "500",
    )
    await lab.app(namespace, name, like=like, replicas=3, tag=tag(month - 1, of=name), config=name)
    for one in others:
        await lab.app(namespace, one, replicas=2, tag=tag(month - 1, of=one))
    for one in (name, *others):
        await rolled(lab, namespace, one, tag(month - 1, of=one))
    await set_before(lab, namespace, front, name)
    lab.reserve(namespace, *others, called)
    if is_of_calls:
        for outcome, well in (("200", True), ("TLS_ERROR", False)):
            told = {"namespace": namespace, "service": name, "host": host, "code": outcome}
            rate = _handshakes(lab, like, ASKED * share, well=well)
            lab.measure("http_client_requests_total", lab.adding_up(rate), "counter", **told)
    lab.alert_errors(namespace, name)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 7))
        await change_page(lab, namespace, front)

    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(3, 7))
    data = {"data": {"TIMEOUT_MS": lab.rng.choice(("1200", "1800", "2500"))}}
    await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, name, data)
    await lab.pause(lab.rng.uniform(2, 6))
    for one in lab.rng.sample((name, *others), 3):
        await lab.roll(by, namespace, one, tag(month, of=one), culprit=one == name)
        await lab.pause(lab.rng.uniform(0.5, 2))
    lab.start(afterwards())


FLAGS, LIMIT = "JAVA_TOOL_OPTIONS", "768Mi"
BESIDE, AT_START, A_SECOND = 150.0, 180.0, 34.0
"""MiB that a process has beside its heap, those of the heap as it starts, and by how many that grows each second for
as long as nothing has to be collected."""


def _heap(container: Container) -> float:
    """The most MiB that its flags let it have."""
    limit = container.spec["resources"]["limits"]["memory"]
    for flag in environment(container.spec).get(FLAGS, "").split():
        if flag.startswith("-Xmx"):
            return mebibytes(f"{flag.removeprefix('-Xmx').removesuffix('m')}Mi")
        if flag.startswith("-XX:MaxRAMPercentage="):
            return mebibytes(limit) * float(flag.partition("=")[2]) / 100
    return mebibytes(limit) / 4


@family(
    "An app collects garbage more often than its team likes, and somebody raises the flag of its heap where it is"
    " deployed, and not the limit of its container. The new processes take what they may have as they come to need it:"
    " some minutes after they have started, and were ready, the kernel ends them, again and again.",
    joined=86,
)
async def heap_raised_alone(lab: Lab) -> AsyncIterator[None]:
    """As those tell who added up the heap and forgot metaspace, threads and buffers."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "tax-rules", "receipt-page"),
            ("payments", "fraud-rules", "card-page"),
            ("search", "spell-checks", "suggest-page"),
            ("media", "rights-book", "title-page"),
        )
    )
    by, minor, is_after = lab.rng.choice((*TEAMS, "argocd")), lab.rng.randrange(3, 50), lab.rng.random() < 0.5
    usual, raised = lab.rng.choice(
        (
            ("-Xmx512m", "-Xmx1024m"),
            ("-Xmx560m", "-Xmx800m"),
            ("-XX:MaxRAMPercentage=65.0", "-XX:MaxRAMPercentage=92.0"),
        )
    )
    further = lab.rng.choice((" -XX:+UseG1GC", " -XX:+UseZGC -XX:+ExitOnOutOfMemoryError", ""))

    def needs(container: Container) -> float:
        """MiB that a process has by now: each fills its heap at its own pace."""
        pace = A_SECOND * (0.8 + 0.4 * (crc32(uid_of(container.pod).encode()) % 100) / 100)
        grown = pace * max(0.0, container.seconds - lab.lag)
        return BESIDE + min(_heap(container), AT_START + grown)

    def check(container: Container) -> Problem | None:
        """The kernel counts all of it."""
        may = str(container.spec["resources"]["limits"]["memory"])
        is_beyond = needs(container) > mebibytes(may)
        return Problem("oom", f"needs {needs(container):.0f}Mi, may have {may}", at_once=True) if is_beyond else None

    def most() -> float:
        """Bytes of that one of its containers that has most."""
        return 2**20 * max((needs(one.container) for one in lab.kubelets.running() if one.app is like), default=0.0)

    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", CACHE_ENTRIES="20000"))
    like = App("", check=check, asked=lambda: 24.0)
    env = [{"name": FLAGS, "value": f"{usual}{further}"}]
    await lab.app(namespace, name, like=like, replicas=3, tag=f"6.{minor}.0", config=name, env=env, memory=LIMIT)
    await rolled(lab, namespace, name, f"6.{minor}.0")
    await set_before(lab, namespace, front, name)
    told = {"namespace": namespace, "service": name, "container": name}
    lab.measure("container_memory_working_set_bytes", most, **told)
    crashes = lambda: restarts(lab.world, namespace, name) > 2  # noqa: E731
    summary = f"containers of {namespace}/{name} are restarted again and again"
    lab.alert("KubePodCrashLooping", crashes, summary, 3, namespace=namespace, deployment=name)
    lab.alert_lacking(namespace, name, seconds=12)
    lab.alert_ingress_errors(namespace, namespace, 0.1)
    await lab.until(lab.is_well)
    yield
    larger = [{"name": FLAGS, "value": f"{raised}{further}"}]
    released = f"6.{minor}.1"
    if not is_after:
        await lab.roll("ci", namespace, name, released)
        await lab.pause(lab.rng.uniform(8, 13))
    more = {"data": {"CACHE_ENTRIES": lab.rng.choice(("30000", "50000"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, more)
    await lab.pause(lab.rng.uniform(2, 6))
    tag = f"6.{minor}.0" if is_after else released
    await lab.roll(by, namespace, name, tag, env=larger, culprit=True)
    await lab.pause(lab.rng.uniform(4, 8))
    if is_after:
        await lab.roll("ci", namespace, name, released)
        await lab.pause(lab.rng.uniform(1, 3))
    await change_page(lab, namespace, front)
