"""Where faults are tried: a control plane, a PostgreSQL, `foreshock serve` between them, and a network to break."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg

from app.collect.cluster import LOST
from app.store import embedded
from app.store.migrate import migrate
from tests.cluster.control_plane import ControlPlane, running
from tests.cluster.oracle import define_widgets
from tests.cluster.programs import wait_until
from tests.faults.proxy import Proxy

POLICY = Path(__file__).with_name("audit-policy.yaml")
CLUSTER = "tried"
USER = "foreshock"
NAMESPACES = "tried-"
"""How those begin in which the oracle writes."""
KINDS = {("", "configmaps"), ("apps", "deployments"), ("faults.example", "widgets")}
_FOLLOWED = """
SELECT count(*) FILTER (WHERE resource_version <> ''), (watching->>'kinds')::int
FROM watch_positions p JOIN clusters c ON c.id = p.cluster_id JOIN collectors l ON l.cluster_id = c.id
WHERE c.name = %s GROUP BY watching
"""
"""How many kinds have been told of, and how many there are."""
_KINDS = "SELECT api_group, plural FROM watch_positions p JOIN clusters c ON c.id = p.cluster_id WHERE c.name = %s"
_SEEN = """
SELECT 1 FROM collectors l JOIN clusters c ON c.id = l.cluster_id
WHERE c.name = %s AND l.renewed_at > %s AND l.watching->'unseen' = '[]'
"""
READ_ALL = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}
FOLLOWED_SECONDS = 120
REMEMBERED = "what the cluster remembers is recorded"
"""What the program says, once for each cluster, when it has read what there is for what it says of the past."""


UNMARKED = {"/api/v1/events": "events"}
"""Kinds whose watches have no bookmarks, by their paths: of a quiet one the version that was told last is forgotten as
soon as etcd is compacted, and nobody could go on from there."""


class Foreshock:
    """The program, with a data folder of its own. It may be started again after each end; its log goes on."""

    def __init__(self, folder: Path, dsn: str, kubeconfig: Path, **environment: str) -> None:
        self.folder, self.log = folder, folder.with_suffix(".log")
        kept = {key: value for key, value in os.environ.items() if not key.startswith("FORESHOCK_")}
        self.environment = kept | {"DATABASE_URL": dsn, "FORESHOCK_DATA_DIR": str(folder), **environment}
        self._process: subprocess.Popen[bytes] | None = None
        self._began = 0
        self.log.touch()
        folder.mkdir(parents=True, exist_ok=True)
        clusters = {"clusters": [{"name": CLUSTER, "kubeconfig": str(kubeconfig), "exclude": ["secrets"]}]}
        (folder / "clusters.yaml").write_text(json.dumps(clusters))

    def start(self) -> None:
        self._began = self.log.stat().st_size
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "app", "serve", "--port", "0"],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def address(self) -> str:
        """Where it serves; waits until it says so."""
        found: list[str] = []

        def says() -> bool:
            said = self.log.read_bytes()[self._began :].decode()
            found[:] = re.findall(r"https?://127\.0\.0\.1:\d+", said)
            return bool(found)

        wait_until(says, f"it says where it is, in {self.log}", seconds=60)
        return found[0]

    def wait_until_started(self) -> None:
        """Until it can do without PostgreSQL: before that it ends where there is none."""
        assert self.address

    def lost(self, since: datetime) -> Counter[str]:
        """The paths of kinds that the API server could not go on with since then, and how often."""
        said = [json.loads(line) for line in self.log.read_text().splitlines() if LOST in line]
        return Counter(one["kind"] for one in said if datetime.fromisoformat(one["timestamp"]) >= since)

    @property
    def peak_memory(self) -> int:
        """Bytes that it had in memory at the most."""
        assert self._process
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024

    def send(self, how: signal.Signals) -> None:
        assert self._process
        self._process.send_signal(how)

    def kill(self) -> None:
        """As kill -9; nothing where it has ended."""
        if self._process and self.runs:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        if self._process and self.runs:
            self._process.terminate()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()
                raise


@dataclass(slots=True)
class Stand:
    """All of it, running. ``folder`` is open to all: PostgreSQL runs there as another user."""

    plane: ControlPlane
    proxy: Proxy
    postgres: embedded.Server
    folder: Path
    program: Foreshock
    kubeconfig: Path
    _namespaces: int = 0
    _others: list[Foreshock] = field(default_factory=list)

    @property
    def dsn(self) -> str:
        return self.postgres.dsn

    @property
    def postmaster(self) -> int:
        """The process of PostgreSQL."""
        return int((self.folder / "pg" / "data" / "postmaster.pid").read_text().splitlines()[0])

    def start_postgres(self, *options: str) -> None:
        """After it ended."""
        self.postgres.users.close()
        self.postgres = embedded.start(self.folder / "pg", options=options)

    def another(self, **environment: str) -> Foreshock:
        """A second program on the same database, with another data folder; not started."""
        folder = self.folder / f"data-{len(self._others) + 2}"
        self._others.append(Foreshock(folder, self.dsn, self.kubeconfig, **environment))
        return self._others[-1]

    def close(self) -> None:
        for program in (self.program, *self._others):
            program.kill()
        self.postgres.stop()

    def namespace(self) -> str:
        """The name of one that is not there yet."""
        self._namespaces += 1
        return f"{NAMESPACES}{self._namespaces}"

    def ask(self, query: str, *values: Any) -> list[Any]:
        """Rows of the database. Raises psycopg.Error."""
        with psycopg.connect(self.dsn) as conn:
            return conn.execute(query.encode(), values).fetchall()

    def now(self) -> datetime:
        """By the clock of the database."""
        found: datetime = self.ask("SELECT now()")[0][0]
        return found

    def holder(self) -> str:
        """The identity of the spool of who follows the cluster, or followed it last."""
        rows = self.ask("SELECT holder FROM collectors JOIN clusters c ON c.id = cluster_id WHERE c.name = %s", CLUSTER)
        return str(rows[0][0]) if rows else ""

    def wait_until_followed(self) -> None:
        """Until every kind has been told from its beginning, and that is recorded."""

        def followed() -> bool:
            found = self.ask(_FOLLOWED, CLUSTER)
            return bool(found) and found[0][0] >= found[0][1] > len(KINDS) and set(self.ask(_KINDS, CLUSTER)) >= KINDS

        wait_until(followed, f"the cluster is followed, see {self.program.log}", seconds=FOLLOWED_SECONDS)
        remembers = "what the cluster remembers is read"
        wait_until(lambda: REMEMBERED in self.program.log.read_text(), remembers, seconds=FOLLOWED_SECONDS)

    def wait_until_seen(self) -> None:
        """Until nothing is unseen, and that was told just now: what a fault left to be done is not the next one's."""
        since = self.now()

        def seen() -> bool:
            return bool(self.ask(_SEEN, CLUSTER, since))

        wait_until(seen, f"nothing is unseen, see {self.program.log}", seconds=FOLLOWED_SECONDS)

    def forgotten(self, mark: Mark) -> Counter[str]:
        """Which kinds without bookmarks had to be asked for from their beginning since then, and how often."""
        said = sum((program.lost(mark.at) for program in (self.program, *self._others)), Counter[str]())
        return Counter({name: said[path] for path, name in UNMARKED.items() if said[path]})

    # -- what it asked the API server for

    def mark(self) -> Mark:
        """A place in the audit log, now."""
        return Mark(self.plane.audit_log.stat().st_size, datetime.now(UTC))

    def asked(self, mark: Mark) -> list[Call]:
        """What the program has asked the API server for since then; without what has not been answered at all."""
        logs = {self.plane.audit_log: mark.offset, self.plane.other_audit_log: 0}
        lines = [line for path, offset in logs.items() for line in _lines_of(path, offset)]
        found: dict[str, Call] = {}
        for event in map(json.loads, lines):
            began = datetime.fromisoformat(event["requestReceivedTimestamp"])  # a watch is told of again when it ends
            if event["user"]["username"] == USER and began >= mark.at:
                found.setdefault(event["auditID"], _call(event))
        return list(found.values())


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment, and how long the audit log was then."""

    offset: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Call:
    """A request to the API server and its answer: ``is_set`` where it asks for all objects of a kind, ``is_page`` where
    it goes on with that."""

    verb: str
    resource: str
    is_set: bool
    is_page: bool
    code: int


def _lines_of(log: Path, offset: int) -> list[bytes]:
    """The whole lines of an audit log that tell of the program's calls; none of a log that is not there yet."""
    if not log.exists():
        return []
    with log.open("rb") as file:
        file.seek(offset)
        return [line for line in file if line.endswith(b"\n") and f'"{USER}"'.encode() in line]


def _call(event: dict[str, Any]) -> Call:
    query = parse_qs(urlsplit(event["requestURI"]).query)
    is_set = "sendInitialEvents" in query
    is_set = is_set or (event["verb"] == "list" and query.get("limit") != ["1"] and "continue" not in query)
    ref = event.get("objectRef", {})
    resource = f"{ref['resource']}.{ref['apiGroup']}" if ref.get("apiGroup") else ref.get("resource", "")
    path, code = urlsplit(event["requestURI"]).path, event["responseStatus"]["code"]
    return Call(event["verb"], resource or path, is_set, "continue" in query, code)


def sets(calls: Iterable[Call]) -> Counter[str]:
    """Of which kinds all objects were asked for, and how often."""
    return Counter(call.resource for call in calls if call.is_set)


def _allow(plane: ControlPlane) -> None:
    """The program may read everything, as its own user: the audit log tells its calls from others'."""
    api, group = "/apis/rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io"
    ref = {"apiGroup": group, "kind": "ClusterRole", "name": "reads-all"}
    with plane.client() as admin:
        made = admin.post(f"{api}/clusterroles", json={"metadata": {"name": "reads-all"}, "rules": [READ_ALL]})
        assert made.is_success, made.text
        subjects = [{"apiGroup": group, "kind": "User", "name": USER}]
        binding = {"metadata": {"name": "reads-all"}, "roleRef": ref, "subjects": subjects}
        made = admin.post(f"{api}/clusterrolebindings", json=binding)
        assert made.is_success, made.text


def _kubeconfig(plane: ControlPlane, proxy: Proxy) -> Path:
    path = plane.folder / "proxied.kubeconfig"
    path.write_text(plane.kubeconfig(USER).read_text().replace(plane.url, f"https://127.0.0.1:{proxy.port}"))
    return path


@contextmanager
def standing(
    *, flags: tuple[str, ...] = (), mounts: dict[str, str] | None = None, **environment: str
) -> Iterator[Stand]:
    """A stand whose program follows the cluster already.

    ``flags`` are kube-apiserver's; ``environment`` is the program's. ``mounts`` are file systems of their own, by their
    folder below the stand's: the size of each ("64m").
    """
    with ExitStack() as undo:
        folder = Path(tempfile.mkdtemp(prefix="ff"))
        undo.callback(shutil.rmtree, folder)
        folder.chmod(0o711)
        for name, size in (mounts or {}).items():
            _mount(folder / name, size)
            undo.callback(_unmount, folder / name)
        plane = undo.enter_context(running(policy=POLICY, flags=flags))
        _allow(plane)
        define_widgets(plane)
        key = plane.ca.with_suffix(".key")
        proxy = undo.enter_context(closing(Proxy(int(plane.url.rpartition(":")[2]), certificate=plane.ca, key=key)))
        kubeconfig = _kubeconfig(plane, proxy)
        postgres = embedded.start(folder / "pg")
        migrate(postgres.dsn)
        program = Foreshock(folder / "data", postgres.dsn, kubeconfig, **environment)
        stand = Stand(plane, proxy, postgres, folder, program, kubeconfig)
        undo.enter_context(closing(stand))
        program.start()
        stand.wait_until_followed()
        yield stand


def _mount(folder: Path, size: str) -> None:
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0711", "none", folder], check=True)


def _unmount(folder: Path) -> None:
    subprocess.run(["umount", "--lazy", folder], check=True)
