"""etcd, kube-controller-manager and kube-scheduler are scraped as `scrape` in clusters.yaml names them: real ones, into
a real database, and the page of the control plane draws what they told."""

from __future__ import annotations

import asyncio
import json
import math
import re
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from app.collect import contexts
from app.collect.live import KEPT
from app.collect.measuring import EVERY, Measuring
from app.collect.watch import Pace
from app.core.metrics.blocks import block_graph
from app.core.metrics.lines import STARTED
from app.core.metrics.measures import Graph, Measure, SeriesQuery, window_grid
from app.core.metrics.panels import PANELS
from app.core.model import MetricSeries
from app.store import lines, series
from app.store.database import Database
from tests.cluster.control_plane import CONTROLLERS, ControlPlane, running
from tests.cluster.programs import Port, Program, found, wait_until
from tests.cluster.test_metrics import deployment, make
from tests.collect.test_importer import T0
from tests.collect.test_measuring import running as measuring
from tests.stale import is_stale
from tests.test_tls import certificate

READER = "foreshock"
"""May read /metrics, and nothing else."""
NOBODY = "alice"
"""May nothing."""
PODS = "/api/v1/namespaces/default/pods"
MANAGER, SCHEDULER = CONTROLLERS
WINDOW = timedelta(minutes=10)


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """With controllers that let nobody read /metrics but whom RBAC allows it, and an etcd that waits for its disk."""
    with (
        running(controllers=True, guarded=True, store_flags=["--unsafe-no-fsync=false"]) as started,
        started.client() as admin,
    ):
        rbac = "rbac.authorization.k8s.io"
        role = {"apiGroup": rbac, "kind": "ClusterRole", "name": "system:monitoring"}
        subject = {"apiGroup": rbac, "kind": "User", "name": READER}
        binding = {"metadata": {"name": "scraper"}, "roleRef": role, "subjects": [subject]}
        make(admin, f"/apis/{rbac}/v1/clusterrolebindings", binding)
        yield started


def target(plane: ControlPlane, job: str) -> dict[str, str]:
    """As an operator writes it; what the token is, ``show`` says."""
    program = {"etcd": plane.etcd, MANAGER: plane.controller_manager, SCHEDULER: plane.scheduler}[job]
    assert program
    url = str(httpx2.URL(program.health).copy_with(path="/metrics"))
    if job == "etcd":
        return {"job": job, "url": url}
    return {"job": job, "url": url, "token_file": str(plane.folder / "token"), "ca_file": str(plane.certificate(job))}


def show(plane: ControlPlane, token: str) -> None:
    """What targets are shown from now on."""
    (plane.folder / "token").write_text(token)


class Scraping:
    """A cluster whose targets are scraped: in half minutes that pass when a test says so, all of them once in each."""

    def __init__(self, database: Database, folder: Path, *targets: dict[str, str]) -> None:
        self._database, self._now = database, T0
        name = f"scraped-{uuid4().hex[:8]}"
        file = folder / f"{name}.yaml"
        file.write_text(json.dumps({"clusters": [{"name": name, "scrape": targets}]}))  # JSON is YAML
        (self.wanted,) = contexts.read(file)
        self._all = asyncio.Barrier(len(targets) + 1)
        pace = Pace(clock=lambda: self._now, sleep=self._sleep, chance=lambda: 0.0)
        self.measuring = Measuring(database.write, self.wanted, pace=pace, kept=KEPT, questions=())

    async def _sleep(self, _wait: timedelta) -> None:
        await self._all.wait()  # it was scraped, and that is recorded
        await self._all.wait()  # the next half minute begins

    async def scraped(self) -> None:
        """Wait until all targets were."""
        await self._all.wait()

    async def again(self) -> None:
        """Half a minute later."""
        self._now += EVERY
        await self._all.wait()
        await self.scraped()

    async def told(self, name: str, *, job: str) -> list[MetricSeries]:
        """The series of a metric that are stored of a job."""
        async with self._database.read.connect() as conn:
            found = await series.read(conn, self.wanted.name, T0, T0 + WINDOW, names=(name,))
        return [one for one in found if dict(one.labels)["job"] == job]

    async def panel(self, key: str) -> Graph:
        """As the page draws it, but with all of its lines."""
        query = PANELS[key].query
        assert isinstance(query, SeriesQuery)
        axis = window_grid(T0.timestamp(), (T0 + WINDOW).timestamp(), most=120)
        async with self._database.read.connect() as conn:
            blocks = await lines.read_series(conn, self.wanted.name, (*query.names, STARTED), axis, end=T0 + WINDOW)
        return block_graph(blocks, axis, replace(query, most=100))


@asynccontextmanager
async def scraping(database: Database, folder: Path, *targets: dict[str, str]) -> AsyncIterator[Scraping]:
    """Scraped once, when the block begins."""
    one = Scraping(database, folder, *targets)
    async with measuring(one.measuring), asyncio.timeout(120):
        await one.scraped()
        yield one


def work(plane: ControlPlane, job: str) -> None:
    """Has a program work for as long as its processor's time is counted in, which a quick one hardly needs by itself:
    it counts hundredths of a second."""
    told = target(plane, job)
    token, before = Path(told["token_file"]).read_text(), None
    for _ in range(400):
        answer = httpx2.get(
            told["url"],
            headers={"Authorization": f"Bearer {token}"},
            verify=ssl.create_default_context(cafile=told["ca_file"]),
            trust_env=False,
        )
        spent = re.search(r"^process_cpu_seconds_total (\S+)", answer.text, re.MULTILINE)
        assert spent, answer.text[:500]
        before = before or spent[1]
        if spent[1] != before:
            return
    raise AssertionError(f"{job} did nothing that counts")


def values(found: Graph, *of: str) -> list[float]:
    """What is known of one line."""
    (line,) = (one.values for one in found.curves if one.of[: len(of)] == of)
    return [value for value in line.tolist() if not math.isnan(value)]


def known(found: Graph, start: int, end: int, *of: str) -> set[bool]:
    """Of a line's values between two scrapes, whether they are."""
    (line,) = (one.values for one in found.curves if one.of[: len(of)] == of)
    bins = round(EVERY.total_seconds() / found.axis.step)
    return {not math.isnan(value) for value in line[start * bins : end * bins].tolist()}


def pods_wait(admin: httpx2.Client, count: int) -> bool:
    """Whether so many pods were found no node for."""
    found: list[dict[str, Any]] = admin.get(PODS).json()["items"]
    conditions = [one for pod in found for one in pod.get("status", {}).get("conditions", ())]
    return len([one for one in conditions if one.get("reason") == "Unschedulable"]) == count


def have_pods_wait(plane: ControlPlane, name: str) -> None:
    """A Deployment of two pods, for which there is no node: everybody has something to do."""
    with plane.client() as admin:
        before = len(admin.get(PODS).json()["items"])
        make(admin, "/apis/apps/v1/namespaces/default/deployments", deployment(name))
        wait_until(lambda: pods_wait(admin, before + 2), "pods wait for a node")


async def test_each_program_tells_what_the_page_draws_of_it(database: Database, plane: ControlPlane) -> None:
    show(plane, plane.token(READER))
    jobs = ("etcd", MANAGER, SCHEDULER)
    async with scraping(database, plane.folder, *(target(plane, job) for job in jobs)) as one:
        await asyncio.to_thread(have_pods_wait, plane, "web")
        await one.again()
        assert one.measuring.remarks == ()

        for job, told in {
            "etcd": ("etcd_mvcc_db_total_size_in_bytes", "etcd_server_leader_changes_seen_total"),
            MANAGER: ("workqueue_depth", "workqueue_adds_total", "workqueue_retries_total"),
            SCHEDULER: ("scheduler_pending_pods", "scheduler_schedule_attempts_total"),
        }.items():
            for name in ("up", STARTED, "process_resident_memory_bytes", *told):
                assert await one.told(name, job=job), (job, name)

        queue = {key: values(await one.panel(key), "deployment") for key in ("depth", "adds", "retries", "work")}
        assert all(queue.values()), queue
        assert max(queue["adds"]) > 0
        assert max(queue["work"]) > 0
        pending = await one.panel("pending")
        assert sum(values(pending, *line.of)[-1] for line in pending.curves) == 2
        assert max(values(await one.panel("attempts"), "unschedulable")) > 0
        assert max(values(await one.panel("scheduling"), "unschedulable")) > 0

        (size,) = await one.told("etcd_mvcc_db_total_size_in_bytes", job="etcd")
        assert values(await one.panel("size"))[-1] == size.values[-1] > 1e5
        for key in ("fsync", "commit"):
            latency = await one.panel(key)
            assert latency.measure is Measure.QUANTILE
            assert 0 < max(values(latency)) < 60, key
        assert set(values(await one.panel("leader"))) == {0.0}
        memory, restarts = await one.panel("memory"), await one.panel("restarts")
        for job in jobs:
            assert min(values(memory, job)) > 1e6, job
            assert set(values(restarts, job)) == {0.0}, job


@contextmanager
def guarded_etcd(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Where an etcd takes those clients alone that show a certificate, as kubeadm's, and what such a one names."""
    own, known = folder / "own", folder / "known"
    for one in (own, known):
        one.mkdir()
    (cert, key), (shown, its_key) = certificate(own), certificate(known)
    ports = {name: Port() for name in ("clients", "peers", "health")}
    clients, peers, health = (
        f"{scheme}://127.0.0.1:{ports[name]}"
        for name, scheme in (("clients", "https"), ("peers", "http"), ("health", "http"))
    )
    etcd = Program(
        [
            found("etcd"),
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            f"--listen-metrics-urls={health}",
            f"--cert-file={cert}",
            f"--key-file={key}",
            f"--trusted-ca-file={shown}",
            "--client-cert-auth",
            "--socket-reuse-port",
        ],
        folder / "etcd.log",
        health=f"{health}/health",
    )
    try:
        etcd.start()
        yield f"{clients}/metrics", {"ca_file": str(cert), "cert_file": str(shown), "key_file": str(its_key)}
    finally:
        etcd.stop(kill=True)
        for port in ports.values():
            port.close()


async def test_an_etcd_that_wants_to_see_a_certificate_is_shown_ours(
    database: Database, plane: ControlPlane, tmp_path: Path
) -> None:
    with guarded_etcd(tmp_path) as (url, files):
        async with scraping(database, plane.folder, {"job": "etcd", "url": url, **files}) as one:
            assert one.measuring.remarks == ()
            assert await one.told("etcd_mvcc_db_total_size_in_bytes", job="etcd")
        async with scraping(database, plane.folder, {"job": "etcd", "url": url, "ca_file": files["ca_file"]}) as one:
            (remark,) = one.measuring.remarks
            said = "tlsv13 alert certificate required; it wants to see a certificate: write one as cert_file"
            assert f": {said}" in remark


@pytest.mark.parametrize("job", CONTROLLERS)
async def test_a_target_that_lets_us_in_no_more_is_told_of_in_words_and_its_lines_end(
    database: Database, plane: ControlPlane, job: str
) -> None:
    show(plane, plane.token(READER))
    async with scraping(database, plane.folder, target(plane, job)) as one:
        for wrong, said in (
            ("no-token-of-anybody", "127.0.0.1 answers 401 Unauthorized: Unauthorized"),
            (plane.token(NOBODY), f'127.0.0.1 answers 403 Forbidden: forbidden: User "{NOBODY}" cannot get path'),
        ):
            show(plane, wrong)
            await one.again()
            (remark,) = one.measuring.remarks
            assert said in remark
            assert wrong not in remark
        show(plane, plane.token(READER))
        await one.again()
        assert one.measuring.remarks == ()
        (up,) = await one.told("up", job=job)
        (started,) = await one.told(STARTED, job=job)
    assert list(up.values) == [1.0, 0.0, 0.0, 1.0]
    assert [is_stale(value) for value in started.values] == [False, True, False]


async def test_a_target_with_another_certificate_is_told_nothing(database: Database, plane: ControlPlane) -> None:
    show(plane, plane.token(READER))
    wrong = {**target(plane, SCHEDULER), "ca_file": str(plane.certificate(MANAGER))}
    async with scraping(database, plane.folder, wrong) as one:
        (remark,) = one.measuring.remarks
        assert "shows a certificate that is not to be trusted" in remark
        (up,) = await one.told("up", job=SCHEDULER)
        assert list(up.values) == [0.0]
        assert not await one.told(STARTED, job=SCHEDULER)


async def test_where_a_target_was_down_no_line_is_drawn_across(database: Database, plane: ControlPlane) -> None:
    show(plane, plane.token(READER))
    assert plane.scheduler
    async with scraping(database, plane.folder, target(plane, MANAGER), target(plane, SCHEDULER)) as one:
        await asyncio.to_thread(work, plane, SCHEDULER)
        await one.again()
        await asyncio.to_thread(plane.scheduler.stop)
        await one.again()
        (remark,) = one.measuring.remarks
        assert "cannot be reached: Connection refused" in remark
        await asyncio.to_thread(plane.scheduler.start)
        await one.again()
        await asyncio.to_thread(work, plane, SCHEDULER)
        await one.again()
        assert one.measuring.remarks == ()
        (memory,) = await one.told("process_resident_memory_bytes", job=SCHEDULER)
        drawn = {key: await one.panel(key) for key in ("memory", "cpu", "restarts")}
    assert [is_stale(value) for value in memory.values] == [False, False, True, False, False]
    assert known(drawn["memory"], 0, 4, MANAGER) == known(drawn["cpu"], 0, 4, MANAGER) == {True}
    assert known(drawn["memory"], 0, 2, SCHEDULER) == known(drawn["memory"], 3, 4, SCHEDULER) == {True}
    assert known(drawn["memory"], 2, 3, SCHEDULER) == {False}
    assert known(drawn["cpu"], 0, 1, SCHEDULER) == known(drawn["cpu"], 3, 4, SCHEDULER) == {True}
    assert known(drawn["cpu"], 1, 3, SCHEDULER) == {False}
    assert sum(values(drawn["restarts"], SCHEDULER)) == 1
    assert [line.of[0] for line in drawn["restarts"].curves] == [SCHEDULER]
