"""More than it may: a heap beside which there is no room, and a folder that is another user's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from zlib import crc32

from tests.lab import objects
from tests.lab.alerts import restarts
from tests.lab.api import Json, now
from tests.lab.apps import App, Container, Problem, mebibytes
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.manifests import environment, uid_of
from tests.lab.scenario import family

# -- a heap

MIB = 2.0**20
OPTIONS = "JAVA_TOOL_OPTIONS"
FRESH_MIB = 170.0
"""What of its heap a process has used once it is up."""
HEAPS = (
    (1024, 300, "-Xms256m -Xmx640m", "-Xms256m -Xmx960m"),
    (1024, 300, "-XX:+UseG1GC -Xmx600m", "-XX:+UseG1GC -Xmx1g"),
    (1536, 420, "-XX:MaxRAMPercentage=60.0", "-XX:MaxRAMPercentage=90.0"),
    (768, 260, "-Xmx448m", "-Xms700m -Xmx700m -XX:+AlwaysPreTouch"),
)
"""The limit of a container, what a process has beside its heap (threads, metaspace, buffers, code), and its flags."""


def _heap(flags: str, limit: float) -> float:
    """The most MiB that flags let a process have."""
    for flag in flags.split():
        if flag.startswith("-Xmx"):
            return mebibytes({"m": "{}Mi", "g": "{}Gi"}[flag[-1]].format(flag[4:-1]))
        if flag.startswith("-XX:MaxRAMPercentage="):
            return limit * float(flag.partition("=")[2]) / 100
    return limit / 4


@dataclass
class _Machines:
    """Each process as it was started: what it may have of its flags it comes to use, as it is asked."""

    lab: Lab
    beside: float
    pace: float
    """MiB of a heap that a process comes to use each second."""
    flags: dict[str, tuple[float, str]] = field(default_factory=dict)
    """By the uid of its pod: how old it was when it was seen last, and what it was started with."""

    def told(self, container: Container) -> str:
        uid = uid_of(container.pod)
        age, flags = self.flags.get(uid, (float("inf"), ""))
        if container.seconds < age:
            flags = container.config.get(OPTIONS, "") or environment(container.spec).get(OPTIONS, "")
        self.flags[uid] = container.seconds, flags
        return flags

    def mib(self, container: Container) -> float:
        limit, flags = mebibytes(container.spec["resources"]["limits"]["memory"]), self.told(container)
        pace = self.pace * (0.8 + crc32(uid_of(container.pod).encode()) % 41 / 100)
        used = FRESH_MIB + pace * max(0.0, container.seconds - self.lab.lag)
        most = _heap(flags, limit)
        return self.beside + (most if "AlwaysPreTouch" in flags else min(most, used))

    def check(self, container: Container) -> Problem | None:
        limit = str(container.spec["resources"]["limits"]["memory"])
        is_over = self.mib(container) > mebibytes(limit)
        return Problem("oom", f"needs {self.mib(container):.0f}Mi, may have {limit}", at_once=True) if is_over else None


@family(
    "The heap of a Java app is raised, as it collects garbage too often, and the limit of its container is not: what a"
    " process has beside its heap finds no room any more, and its pods are killed for their memory.",
    joined=93,
)
async def heap_and_the_rest(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had never seen an OutOfMemoryError, and a 137 each few minutes."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "assortment", "assortment-page", "assortment-feed"),
            ("payments", "risk-model", "risk-page", "risk-batch"),
            ("media", "catalogue", "catalogue-page", "catalogue-sync"),
            ("search", "autocomplete", "complete-page", "complete-feed"),
        )
    )
    (limit, beside, usual, raised), minor = lab.rng.choice(HEAPS), lab.rng.randrange(2, 30)
    by_map, by = lab.rng.random() < 0.5, lab.rng.choice((*TEAMS, "argocd", "flux"))
    machines, tag = _Machines(lab, beside, lab.rng.uniform(22, 36)), f"5.{minor}.0"
    settings = {"LOG_LEVEL": "info", "CACHE_ENTRIES": "40000", **({OPTIONS: usual} if by_map else {})}
    await lab.apply(objects.config_map(namespace, name, **settings))
    source = {"valueFrom": {"configMapKeyRef": {"name": name, "key": OPTIONS}}} if by_map else {"value": usual}
    like = App("", asked=lambda: 24.0, check=machines.check)
    env = [{"name": OPTIONS, **source}]
    await lab.app(namespace, name, like=like, replicas=3, tag=tag, config=name, env=env, memory=f"{limit}Mi")
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.9.2", config=other)
    await rolled(lab, namespace, name, tag)
    await rolled(lab, namespace, other, "1.9.2")
    await set_before(lab, namespace, front, name)

    def most() -> float:
        """Bytes of that process that has most."""
        return MIB * max((machines.mib(one.container) for one in lab.kubelets.running() if one.app is like), default=0)

    lab.measure("container_memory_working_set_bytes", most, namespace=namespace, service=name, container=name)
    many = lambda: restarts(lab.world, namespace, name) >= 2  # noqa: E731
    summary = f"containers of {namespace}/{name} have been killed for their memory"
    lab.alert("KubernetesContainerOomKiller", many, summary, 3, namespace=namespace, container=name)
    lab.alert_stuck(namespace, name)
    lab.alert_errors(namespace, name, 0.1)
    lab.alert_ingress_errors(namespace, namespace, 0.1)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 9))
        await change_page(lab, namespace, front)

    yield
    await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, other, {"data": {"EVERY": "45s"}})
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, {"data": {"CACHE_ENTRIES": "50000"}})
    await lab.pause(lab.rng.uniform(4, 9))
    if by_map:
        await lab.culprit(by, "update", "ConfigMap", namespace, name, {"data": {OPTIONS: raised}})
        await lab.pause(lab.rng.uniform(0.5, 3))
        at = {"kubectl.kubernetes.io/restartedAt": f"{now():%Y-%m-%dT%H:%M:%SZ}"}
        digest = {"checksum/config": f"{lab.rng.getrandbits(64):016x}"}
        body = {"spec": {"template": {"metadata": {"annotations": at if by in TEAMS else digest}}}}
        why = "of the same hand, so that the app is started with the flags that it was given"
        await lab.also(why, by, "update", "Deployment", namespace, name, body)
    else:
        await lab.roll(by, namespace, name, tag, culprit=True, env=[{"name": OPTIONS, "value": raised}])
    lab.start(afterwards())


# -- another user

FOLDERS = (
    ("", "PermissionError: [Errno 13] Permission denied: '/app/var/app.log'"),
    ("", "Error: EACCES: permission denied, mkdir '/app/.cache'"),
    ("", "java.nio.file.AccessDeniedException: /opt/app/work/tomcat.8080"),
    ("", 'nginx: [emerg] mkdir() "/var/cache/nginx/client_temp" failed (13: Permission denied)'),
    ("/data", "panic: open /data/index.bolt: permission denied"),
    ("/data", "sqlite3.OperationalError: unable to open database file"),
)
"""Where an app writes, which is a folder of its image or of a volume, and what it says where it may not."""


async def _claim(lab: Lab, namespace: str, name: str) -> Json:
    """A volume that all pods of an app may write to, as far as its files say. Raises RefusedError."""
    pv = f"pvc-{lab.rng.getrandbits(32):08x}"
    room: Json = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    meta = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name}
    disk = {"server": "nfs.corp.example", "path": f"/exports/{namespace}/{name}"}
    spec = {**room, "capacity": {"storage": "50Gi"}, "claimRef": meta, "nfs": disk}
    await lab.apply({"kind": "PersistentVolume", "metadata": {"name": pv}, "spec": spec})
    asked = {**room, "volumeName": pv, "resources": {"requests": {"storage": "50Gi"}}}
    named = {"namespace": namespace, "name": name}
    await lab.apply({"kind": "PersistentVolumeClaim", "metadata": named, "spec": asked})
    return {"name": "data", "persistentVolumeClaim": {"claimName": name}}


@family(
    "A new version of an app is built on another base, whose processes are not root any more. Where it writes belongs"
    " to root: it ends at its start, or goes on and fails whatever has to be written.",
    joined=93,
)
async def not_root_any_more(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had done what the scan of their images had asked for."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "label-printer", "label-page", "label-archive"),
            ("payments", "statement-files", "statement-view", "statement-mails"),
            ("media", "waveforms", "waveform-page", "waveform-index"),
            ("search", "spell-index", "spell-page", "spell-feed"),
        )
    )
    (folder, error), minor = lab.rng.choice(FOLDERS), lab.rng.randrange(2, 30)
    at_start, share = lab.rng.random() < 0.6, lab.rng.uniform(0.2, 0.6)
    by, old, new = lab.rng.choice(("ci", "argocd", "flux")), f"2.{minor}.6", f"2.{minor + 1}.0"

    def check(container: Container) -> Problem | None:
        return Problem("crash", error, at_once=True) if at_start and container.tag == new else None

    def fails(container: Container) -> float:
        is_refused = not at_start and container.tag == new and container.seconds >= lab.lag
        return share if is_refused else 0.0

    volumes: Json = {}
    if folder:
        volumes["volumes"] = [
            {"name": "config", "configMap": {"name": name}},
            await _claim(lab, namespace, f"{name}-data"),
        ]
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", BATCH="20"))
    like = App("", asked=lambda: 19.0, check=check, failing=fails)
    await lab.app(namespace, name, like=like, replicas=3, tag=old, config=name, **volumes)
    if folder:
        mounts = [{"name": "config", "mountPath": "/etc/config"}, {"name": "data", "mountPath": folder}]
        await lab.until(lambda: (namespace, name) in lab.world["Deployment"])
        await lab.roll("admin", namespace, name, old, volumeMounts=mounts)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.2.8", config=other)
    await rolled(lab, namespace, name, old)
    await rolled(lab, namespace, other, "1.2.8")
    await set_before(lab, namespace, front, name)
    many = lambda: restarts(lab.world, namespace, name) >= 2  # noqa: E731
    summary = f"a pod of {namespace}/{name} restarts again and again"
    lab.alert("KubePodCrashLooping", many, summary, 4, namespace=namespace, container=name)
    lab.alert_stuck(namespace, name)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, other, {"data": {"EVERY": "90s"}})

    yield
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.roll(by, namespace, other, "1.2.9")
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.roll(by, namespace, name, new, culprit=True)
    lab.start(afterwards())
