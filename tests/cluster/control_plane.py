"""A real Kubernetes control plane on 127.0.0.1: etcd, kube-apiserver, and who asks gets controllers and a scheduler.

No nodes: pods stay Pending until a test writes their status as a kubelet would, or tests.cluster.nodes does.
"""

from __future__ import annotations

import base64
import json
import secrets
import ssl
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx2

from tests.cluster.programs import Port, Program, found

POLICY = Path(__file__).with_name("audit-policy.yaml")
USERS = {
    "admin": "system:masters",
    "alice": "",
    "bob": "",
    "carol": "",
    "foreshock": "",
    "kubelets": "system:masters",
    "system:kube-controller-manager": "",
    "system:kube-scheduler": "",
}
"""Who has a token, and the group. RBAC is on: the masters may everything, alice, bob, carol and foreshock
nothing until they are bound."""
BARE = ("etcd", "kube-apiserver")
CONTROLLERS = ("kube-controller-manager", "kube-scheduler")
ANSWER_SECONDS = 30


class ControlPlane:
    """One cluster in one folder. Each of its programs can be stopped, killed and frozen by itself (see Program).

    ``audit_log`` is a file of JSON lines. An answer may be back a moment before its line is there. ``other_apiserver``
    is a second one over the same etcd, with a log of its own, which is not started.
    """

    def __init__(
        self,
        folder: Path,
        *,
        policy: Path = POLICY,
        flags: Sequence[str] = (),
        users: Mapping[str, str] = MappingProxyType({}),
        store_flags: Sequence[str] = (),
    ) -> None:
        """``policy`` is the audit policy, ``flags`` are further ones of kube-apiserver, ``store_flags`` of etcd.

        ``users`` join USERS.
        """
        self.folder = folder
        self.audit_log = folder / "audit.log"
        self.ca = folder / "apiserver.crt"  # kube-apiserver makes it; the authority's own certificate is in it too
        self._ports = {name: Port() for name in ("etcd", "peer", "apiserver", "other", "controllers", "scheduler")}
        self.url = f"https://127.0.0.1:{self._ports['apiserver']}"
        self._compacted = 0
        self._groups = {**USERS, **users}
        self._tokens = {user: secrets.token_hex(16) for user in self._groups}
        self._write_credentials()
        self.etcd = self._make_etcd(store_flags)
        self.apiserver = self._make_apiserver("apiserver", self.audit_log, policy, flags)
        self.other_audit_log = folder / "other-audit.log"
        self.other_apiserver = self._make_apiserver("other", self.other_audit_log, policy, flags)
        self.controller_manager: Program | None = None
        self.scheduler: Program | None = None

    def start(self) -> None:
        """Starts the store and the server. Raises NotReadyError."""
        self.etcd.start()
        self.apiserver.start()

    @property
    def api_ports(self) -> tuple[int, int]:
        """Where the API server listens, and the other one."""
        return self._ports["apiserver"].number, self._ports["other"].number

    def start_controllers(self, *flags: str, guarded: bool = False) -> None:
        """Starts kube-controller-manager, with further ``flags``, and kube-scheduler beside them; no leader is elected.

        Their /metrics is for everybody, or where ``guarded`` for whom RBAC allows it; then ``certificate`` is there.
        Raises NotReadyError.
        """
        self.controller_manager = self._make_client(
            "kube-controller-manager",
            self._ports["controllers"],
            "--use-service-account-credentials=true",
            f"--root-ca-file={self.ca}",
            f"--service-account-private-key-file={self.folder / 'service-accounts.key'}",
            *flags,
            guarded=guarded,
        )
        self.scheduler = self._make_client("kube-scheduler", self._ports["scheduler"], guarded=guarded)
        programs = (self.controller_manager, self.scheduler)
        for program in programs:
            program.launch()
        for program in programs:
            program.wait_until_ready()

    def stop(self, *, kill: bool = False) -> None:
        """Ends every program, those that use another first."""
        for program in (
            self.scheduler, self.controller_manager, self.other_apiserver, self.apiserver, self.etcd,
        ):  # fmt: skip
            if program is not None:
                program.stop(kill=kill)

    def close(self) -> None:
        """Ends every program at once and gives the ports back."""
        self.stop(kill=True)
        for port in self._ports.values():
            port.close()

    def certificate(self, name: str) -> Path:
        """That of a guarded kube-controller-manager or kube-scheduler, with the authority that it made for it."""
        return self.folder / f"{name}.crt"

    def token(self, user: str) -> str:
        """The bearer token of one of the users."""
        return self._tokens[user]

    def client(self, user: str = "admin", *, other: bool = False) -> httpx2.Client:
        """HTTP to the API server, or to the ``other`` one, as one of USERS; the caller closes it."""
        return httpx2.Client(
            base_url=f"https://127.0.0.1:{self.api_ports[other]}",
            headers={"Authorization": f"Bearer {self.token(user)}"},
            verify=ssl.create_default_context(cafile=self.ca),
            timeout=ANSWER_SECONDS,
            trust_env=False,
        )

    def kubeconfig(self, user: str = "admin") -> Path:
        """A kubeconfig file of one of USERS: one context of the same name, one cluster called "test"."""
        path = self.folder / f"{user.replace(':', '-')}.kubeconfig"
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": self.url, "certificate-authority": str(self.ca)}}],
            "users": [{"name": user, "user": {"token": self.token(user)}}],
            "contexts": [{"name": user, "context": {"cluster": "test", "user": user}}],
            "current-context": user,
        }
        path.write_text(json.dumps(content, indent=1))  # JSON is YAML
        return path

    def audited(self) -> list[dict[str, Any]]:
        """The audit events so far, oldest first; without a last line that is being written."""
        written = self.audit_log.read_bytes() if self.audit_log.exists() else b""
        return [json.loads(line) for line in written.splitlines(keepends=True) if line.endswith(b"\n")]

    def compact(self, *, keep: int = 0) -> int:
        """Drops every revision but the newest, and ``keep`` before it, from etcd; returns the oldest that is left.

        Kubernetes calls that resourceVersion. A watch or list of an older one is answered by the API server's own
        cache, if that reaches so far back: restart it and it has forgotten too.
        """
        newest = int(self._ask_etcd("range", {"key": base64.b64encode(b"\0").decode()})["header"]["revision"])
        if newest - keep > self._compacted:
            self._ask_etcd("compaction", {"revision": str(newest - keep), "physical": True})
            self._compacted = newest - keep
        return self._compacted

    def _ask_etcd(self, what: str, body: dict[str, Any]) -> dict[str, Any]:
        """One call of the gRPC gateway."""
        url = f"http://127.0.0.1:{self._ports['etcd']}/v3/kv/{what}"
        answer = httpx2.post(url, json=body, timeout=ANSWER_SECONDS, trust_env=False)
        assert answer.is_success, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def _write_credentials(self) -> None:
        """The tokens, and the key that signs those of ServiceAccounts."""
        lines = [f'{self._tokens[user]},{user},{user},"{group}"\n' for user, group in self._groups.items()]
        (self.folder / "tokens.csv").write_text("".join(lines))
        key = self.folder / "service-accounts.key"
        command = ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(key)]
        subprocess.run(command, check=True, capture_output=True)

    def _make_etcd(self, flags: Sequence[str]) -> Program:
        clients = f"http://127.0.0.1:{self._ports['etcd']}"
        peers = f"http://127.0.0.1:{self._ports['peer']}"
        command = [
            found("etcd"),
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            "--socket-reuse-port",
            "--watch-progress-notify-interval=5s",  # as kubeadm has it: bookmarks of a kind that rests go on
            "--unsafe-no-fsync",  # kill -9 loses nothing; only the machine's own end would
            "--log-level=warn",
            *flags,
        ]
        return Program(command, self.folder / "etcd.log", health=f"{clients}/health")

    def _make_apiserver(self, name: str, audit_log: Path, policy: Path, flags: Sequence[str]) -> Program:
        key = self.folder / "service-accounts.key"
        command = [
            found("kube-apiserver"),
            f"--etcd-servers=http://127.0.0.1:{self._ports['etcd']}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",  # 127.0.0.1 may not be an endpoint of the service "kubernetes"
            f"--secure-port={self._ports[name]}",
            "--permit-port-sharing",
            f"--cert-dir={self.folder}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            f"--audit-policy-file={policy}",
            f"--audit-log-path={audit_log}",
            "--audit-log-maxsize=0",
            "--shutdown-watch-termination-grace-period=1s",  # else the end waits a minute for open watches
            *flags,
        ]
        health = f"https://127.0.0.1:{self._ports[name]}/readyz"
        return Program(command, self.folder / f"kube-{name}.log", health=health)

    def _make_client(self, name: str, port: Port, *flags: str, guarded: bool) -> Program:
        """A program that works on what the API server has, under the user that RBAC knows it by."""
        kubeconfig = self.kubeconfig(f"system:{name}")
        asking = (f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}")
        command = [
            found(name),
            f"--kubeconfig={kubeconfig}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            "--permit-port-sharing",
            f"--authorization-always-allow-paths=/healthz,/readyz,/livez{'' if guarded else ',/metrics'}",
            *((*asking, f"--cert-dir={self.folder}") if guarded else ()),
            *flags,
        ]
        return Program(command, self.folder / f"{name}.log", health=f"https://127.0.0.1:{port}/healthz")


@contextmanager
def running(
    *,
    controllers: bool = False,
    guarded: bool = False,
    policy: Path = POLICY,
    flags: Sequence[str] = (),
    store_flags: Sequence[str] = (),
) -> Iterator[ControlPlane]:
    """A control plane of one's own, to break; with or without its controllers, ``guarded`` or not. It ends with the
    block."""
    for name in (*BARE, *CONTROLLERS) if controllers else BARE:
        found(name)  # or the test is skipped before anything is made
    with (
        tempfile.TemporaryDirectory(prefix="fs-cluster-") as folder,
        closing(ControlPlane(Path(folder), policy=policy, flags=flags, store_flags=store_flags)) as plane,
    ):
        plane.start()
        if controllers:
            plane.start_controllers(guarded=guarded)
        yield plane
