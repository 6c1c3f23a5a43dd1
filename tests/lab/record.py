"""Records one labelled incident: ``python -m tests.lab.record SCENARIO --out FOLDER`` (docs/lab.md)."""

from __future__ import annotations

import argparse
import asyncio
import gzip
import itertools
import json
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, suppress
from datetime import datetime
from pathlib import Path

import httpx2

from tests.cluster.control_plane import POLICY, ControlPlane
from tests.lab import company
from tests.lab.alerts import payload
from tests.lab.api import KINDS, Answer, Json, Kind, now, stamp
from tests.lab.lab import ROBOTS, USERS, Lab, Variation
from tests.lab.manifests import has_pods, is_done, is_ready
from tests.lab.scenario import SPLIT, Family, load, part
from tests.lab.scraping import Scrapes, scrape
from tests.lab.webhook_services import naming

METADATA_POLICY = Path(__file__).with_name("audit-metadata.yaml")
SETTLE_SECONDS, CALM_SECONDS, CALM_VARIES, FIRE_SECONDS, AFTER_SECONDS = 90, 30, 15, 90, 12
"""Until all is well; before the change, at least and by so many more; until an alert fires, at most; after it."""
OLD_SECONDS = 7
"""What is set up is there before anything is seen: a watch's first objects are taken for just created while they are
younger than that."""
MANAGER_FLAGS = (
    "--horizontal-pod-autoscaler-sync-period=3s",
    "--node-monitor-period=2s",
    "--node-monitor-grace-period=16s",
)
ANSWER_SECONDS = 40
UNAVAILABLE = (0, 429)
"""What is answered while the API server is down or has just started; an error of one kind may be for ever."""


class NotRecordedError(Exception):
    """What the scenario is about did not happen, or an alert fired without it."""


@asynccontextmanager
async def laboratory(family: Family, variation: Variation, folder: Path) -> AsyncIterator[Lab]:
    """A control plane with the company in it, whose nodes run."""
    policy = METADATA_POLICY if variation.audit == "metadata" else POLICY
    plane = ControlPlane(folder, policy=policy, flags=family.flags, users=USERS, store_flags=family.store_flags)
    with closing(plane):
        plane.start()
        plane.start_controllers(*MANAGER_FLAGS)
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=200)
        trust = ssl.create_default_context(cafile=plane.ca)
        async with httpx2.AsyncClient(
            base_url=plane.url, verify=trust, limits=limits, timeout=ANSWER_SECONDS, trust_env=False
        ) as client:
            lab = Lab(plane, client, variation)
            lab.called = f"{family.name} {variation.seed}"
            lab.rng.seed(lab.called)
            await lab.prepare()
            kubelets = asyncio.create_task(lab.kubelets.run())
            try:
                await company.found(lab)
                lab.start(lab.traffic.run())
                yield lab
            finally:
                kubelets.cancel()
                with suppress(asyncio.CancelledError):
                    await kubelets
                lab.kubelets.stop()
                for task in lab.tasks:
                    task.cancel()
                for server in lab.servers:
                    server.close()
                await lab.world.close()


async def robots(lab: Lab) -> None:
    """Those that deploy get a token that is bound to their pod, as theirs is."""
    for name, (namespace, account, agent) in ROBOTS.items():
        await lab.robot(name, namespace, account, f"{agent}/v3.1.0")


async def settled(lab: Lab) -> None:
    """Every workload has its pods, and every pod is ready. Raises NotRecordedError."""
    for _ in range(SETTLE_SECONDS * 2):
        late = [thing["metadata"]["name"] for thing in _late(lab)]
        if not late and len(lab.world["Pod"]) > len(company.APPS):
            return
        await asyncio.sleep(0.5)
    raise NotRecordedError(f"not ready before it began: {late}")


def _late(lab: Lab) -> list[Json]:
    """Workloads whose controller has not seen them as they are, or has not made their pods; pods that are not ready."""
    workloads = [one for kind in ("Deployment", "StatefulSet", "DaemonSet") for one in lab.world[kind].values()]
    pods = lab.world["Pod"].values()
    return [
        *(one for one in workloads if not has_pods(one)),
        *(pod for pod in pods if not (is_ready(pod) or is_done(pod))),
    ]


async def record(family: Family, variation: Variation, out: Path) -> Json:
    """Play a family and write its recording; returns the label. Raises NotRecordedError, RefusedError."""
    with tempfile.TemporaryDirectory(prefix="fs-lab-") as folder:
        async with laboratory(family, variation, Path(folder)) as lab:
            await settled(lab)
            await robots(lab)
            play = family.play(lab)
            await anext(play)
            await settled(lab)
            await asyncio.sleep(OLD_SECONDS)
            lab.kubelets.lag = variation.lag
            label = await Recorder(lab, family, out).run(play)
            assert (label["culprit"] is not None) is family.culprit, label
            return label


class Recorder:
    """Everything that is seen from now on, and the files that it becomes."""

    def __init__(self, lab: Lab, family: Family, out: Path) -> None:
        self._lab, self._family, self._out = lab, family, out
        self._watched: list[str] = []
        self._scrapes = Scrapes()
        self._addresses: dict[tuple[str, str], str] = {}
        self._began = self._start = now()

    async def run(self, play: AsyncIterator[None]) -> Json:
        async with self._seen() as tasks:
            await self._calm()
            self._began = now()
            await anext(play, None)
            await self._until_it_fires(tasks)
            await self._look_on()
        return await self._write()

    async def quiet(self, seconds: float) -> None:
        """Nothing but the company's work, for so long; no alert and no label."""
        async with self._seen() as tasks:
            done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        await self._write_sources()

    @asynccontextmanager
    async def _seen(self) -> AsyncIterator[list[asyncio.Task[None]]]:
        """While the company works, all is watched and scraped; yields what must not end."""
        lab = self._lab
        at = stamp(self._start)
        for thing in lab.world.everything():
            self._see(at, "ADDED", thing)
        lab.world.told = self._see
        tasks = [asyncio.create_task(company.work(lab)), asyncio.create_task(self._scrape())]
        try:
            yield tasks
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _see(self, at: str, kind: str, thing: Json) -> None:
        if thing["kind"] == "Service":
            self._addresses[thing["metadata"]["namespace"], thing["metadata"]["name"]] = thing["spec"].get(
                "clusterIP", ""
            )
        self._watched.append(json.dumps({"at": at, "type": kind, "object": thing}))

    async def _scrape(self) -> None:
        plane = self._lab.plane
        targets = {"apiserver": (f"{plane.url}/metrics", plane.token("admin"))}
        for program in (plane.controller_manager, plane.scheduler):
            assert program
            targets[program.name] = (program.health.replace("/healthz", "/metrics"), "")
        async with httpx2.AsyncClient(verify=False, trust_env=False, timeout=ANSWER_SECONDS) as client:
            await scrape(self._scrapes, client, targets, now, self._simulated)

    def _simulated(self, at: datetime) -> Iterator[tuple[str, str]]:
        return self._lab.scraped(at, apps=self._lab.variation.app_metrics)

    async def _calm(self) -> None:
        """Nothing may fire before the change."""
        for _ in range(CALM_SECONDS + self._lab.rng.randrange(CALM_VARIES)):
            await asyncio.sleep(1)
            self._evaluate(0)
            if any(rule.fired for rule in self._lab.rules):
                raise NotRecordedError(
                    f"fired before the change: {[one.alertname for one in self._lab.rules if one.fired]}"
                )

    async def _until_it_fires(self, tasks: list[asyncio.Task[None]]) -> None:
        delay = self._lab.variation.alert_delay
        for _ in range(int(FIRE_SECONDS + delay + self._lab.lag)):
            await asyncio.sleep(1)
            self._evaluate(delay)
            for task in (*tasks, *self._lab.tasks):
                if task.done():
                    task.result()
            if any(rule.fired for rule in self._lab.rules):
                return
        raise NotRecordedError(f"no alert: {[one.alertname for one in self._lab.rules]}")

    async def _look_on(self) -> None:
        """Whoever was told was told; Prometheus goes on to keep what its rules find."""
        for _ in range(AFTER_SECONDS):
            await asyncio.sleep(1)
            for rule in self._lab.rules:
                rule.look(now(), delay=self._lab.variation.alert_delay)

    def _evaluate(self, delay: float) -> None:
        at = now()
        for rule in self._lab.rules:
            rule.evaluate(at, delay=delay)

    # -- files

    async def _write(self) -> Json:
        variation, out = self._lab.variation, self._out
        whole, named = await self._write_sources()
        (out / "alerts.json").write_text(json.dumps(payload(self._lab.rules, shift=variation.alert_shift), indent=1))
        for number, past in enumerate(self._lab.past, 1):
            past.write(out / "before" / str(number), whole, named, audit=variation.audit != "none")
        label = self._label({event["auditID"]: event for event in map(json.loads, filter(self._recorded, whole))})
        (out / "label.json").write_text(json.dumps(label, indent=1))
        return label

    async def _write_sources(self) -> tuple[list[str], Callable[[str], str]]:
        """The logs, the metrics and the state; returns the whole audit log, and what names webhooks in a text."""
        variation, out = self._lab.variation, self._out
        state = await self._state()
        out.mkdir(parents=True, exist_ok=True)
        named = naming(self._lab.servers, self._addresses)
        whole = [line for line in self._lab.plane.audit_log.read_text().splitlines() if line.endswith("}")]
        if variation.audit != "none":
            _zip(out / "audit.jsonl.gz", "\n".join(named(line) for line in whole if self._recorded(line)))
        _zip(out / "watch.jsonl.gz", "\n".join(map(named, self._watched)))
        if variation.metrics:
            _zip(out / "metrics.om.gz", "\n".join(map(named, self._scrapes.text().split("\n"))))
        _zip(out / "state.json.gz", named(json.dumps(state)))
        return whole, named

    def _recorded(self, line: str) -> bool:
        return str(json.loads(line)["requestReceivedTimestamp"]) >= self._start.strftime("%Y-%m-%dT%H:%M:%S.%f")

    async def _state(self) -> Json:
        kinds = [kind for kind in KINDS.values() if kind.name != "Secret"]
        secrets, *lists = await asyncio.gather(*map(self._list, (KINDS["Secret"], *kinds)))
        for one in secrets["items"]:
            one.pop("data", None)
        return {**{kind.plural: one for kind, one in zip(kinds, lists, strict=True)}, "secrets": secrets}

    async def _list(self, kind: Kind) -> Json:
        """As soon as the API server answers, which may be down just now, and be up for seconds only."""
        for pause in itertools.repeat(0.5):
            answer = await self._lab.world.caller.call("GET", kind.path())
            if answer.status not in UNAVAILABLE:
                break
            await asyncio.sleep(pause)
        return answer.body

    def _label(self, log: dict[str, Json]) -> Json:
        lab = self._lab
        changes = [_change(what, answer, log) for what, answer in lab.culprits]
        accepted = [{**_change(what, answer, log), "why": why} for what, answer, why in lab.accepted]
        fired = min(rule.fired for rule in lab.rules if rule.fired)
        pending = min((rule.pending for rule in lab.rules if rule.fired and rule.pending), default=fired)
        return {
            "scenario": self._family.name,
            "story": self._family.story,
            "seed": lab.variation.seed,
            "recorded_from": self._start.isoformat(),
            "began": self._began.isoformat(),
            "culprit": changes[0] if changes else None,
            "accepted": [{**one, "why": "the same hand, for the same purpose"} for one in changes[1:]] + accepted,
            "family": self._family.name,
            "part": part(self._family.name),
            "symptom_at": pending.isoformat(),
            "lag_seconds": lab.variation.lag,
            "distractors_per_hour": lab.variation.distractors,
            "alert_delay_seconds": lab.variation.alert_delay,
            "alert_shift_seconds": lab.variation.alert_shift,
            "audit": lab.variation.audit,
            "metrics": lab.variation.metrics,
            "app_metrics": lab.variation.app_metrics,
        }


def _change(what: Json, answer: Answer, log: dict[str, Json]) -> Json:
    """With the time at which the API server was done with it."""
    at = datetime.fromisoformat(log[answer.audit_id]["stageTimestamp"])
    return {**what, "at": stamp(at)}


def _zip(file: Path, text: str) -> None:
    file.write_bytes(gzip.compress(f"{text}\n".encode() if not text.endswith("\n") else text.encode(), mtime=0))


def arguments(families: list[str]) -> argparse.ArgumentParser:
    """What `make record` takes."""
    parser = argparse.ArgumentParser(
        prog="tests.lab.record", description="Record a labelled incident on a real control plane."
    )
    parser.add_argument("scenario", choices=[*families, "list"], metavar="SCENARIO", help="a family, or: list")
    parser.add_argument("--joined", type=int, nargs="+", default=[], help="list: the names of those that joined then")
    parser.add_argument("--out", type=Path, help="folder; by default recordings/{dev,test}/SCENARIO-SEED")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--distractors", type=float, default=40, help="harmless changes an hour, which is a minute here"
    )
    parser.add_argument("--lag", type=float, default=0, help="seconds until a bad configuration shows")
    parser.add_argument("--alert-delay", type=float, default=0, help="seconds for which an alert has to hold besides")
    parser.add_argument(
        "--alert-shift", type=float, default=0, help="seconds by which the alert's start is wrong, as -15 or 5"
    )
    parser.add_argument("--audit", choices=("full", "metadata", "none"), default="full")
    parser.add_argument("--no-metrics", action="store_true")
    parser.add_argument("--no-app-metrics", action="store_true", help="none of apps and of the Ingresses' controller")
    return parser


def main() -> int:
    """0 when it was recorded, 1 when what it is about did not happen."""
    families = load()
    given = arguments(list(families)).parse_args()
    if given.scenario == "list" and given.joined:
        print("\n".join(one.name for one in families.values() if one.joined in given.joined))
        return 0
    if given.scenario == "list":
        for one in families.values():
            print(f"{part(one.name):5} {one.name:28} {one.story}")
        return 0
    variation = Variation(
        given.seed,
        given.distractors,
        given.lag,
        given.alert_delay,
        given.alert_shift,
        given.audit,
        metrics=not given.no_metrics,
        app_metrics=not (given.no_metrics or given.no_app_metrics),
    )
    try:
        folder = Path("recordings") / part(given.scenario)
    except KeyError:
        print(f"{given.scenario} is in no part yet: deal it ({SPLIT}, docs/lab.md)", file=sys.stderr)
        return 1
    out = given.out or folder / f"{given.scenario}-{given.seed}"
    try:
        label = asyncio.run(record(families[given.scenario], variation, out))
    except NotRecordedError as error:
        print(f"{given.scenario} was not recorded: {error}", file=sys.stderr)
        return 1
    print(f"{out}: {json.dumps(label['culprit'])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
