"""One program of a control plane: started, stopped, killed, frozen, and never left over."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

ASSETS = "KUBEBUILDER_ASSETS"
"""The variable that names the folder of the programs, as kubebuilder's and controller-runtime's tests have it."""
READY_SECONDS = 120
END_SECONDS = 60
PROBE_SECONDS = 0.1
TAIL = 40
"""Lines of a log that a failure shows."""
ENDS_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--") if sys.platform == "linux" else ()
"""util-linux: asks the kernel to end the program with the thread that started it, however that ends; keeps its pid."""
STARTER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="starter")
"""The thread that starts every program: it lives as long as this process, others may not."""


def found(name: str) -> str:
    """The path of this program of the control plane. Without it the test is skipped, and fails in CI."""
    folder = os.environ.get(ASSETS)
    path = Path(folder or ".") / name
    if folder and path.is_file():
        return str(path)
    what = f"{ASSETS}={folder} has no {name}" if folder else f"{ASSETS} is not set"
    message = f"{what}: tests/cluster/build.sh builds a control plane and prints its folder"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


def wait_until(holds: Callable[[], bool], what: str, *, seconds: float = READY_SECONDS) -> None:
    """Asks ten times a second whether ``what`` ``holds``, where nobody tells when it does. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        time.sleep(PROBE_SECONDS)


class Port:
    """A port of 127.0.0.1 that is ours from now on, also while the program that listens on it is down.

    It is held by a socket that does not listen: connections are refused until the program, which shares it by
    SO_REUSEPORT, is up. Nobody else can take it in between.
    """

    def __init__(self) -> None:
        self._holder = socket.socket()
        self._holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._holder.bind(("127.0.0.1", 0))
        self.number: int = self._holder.getsockname()[1]

    def __str__(self) -> str:
        return str(self.number)

    def close(self) -> None:
        self._holder.close()


class NotReadyError(Exception):
    """A program ended or did not become ready; the message has the end of its log."""


class Program:
    """The same command with the same files and port each time it starts."""

    def __init__(self, command: Sequence[str], log: Path, *, health: str) -> None:
        """``health`` is the URL that answers 200 once the program is ready."""
        self.command, self.log, self.health = tuple(command), log, health
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        return Path(self.command[0]).name

    @property
    def pid(self) -> int | None:
        """None when it does not run."""
        return self._process.pid if self._process and self._process.poll() is None else None

    @property
    def resident_bytes(self) -> int:
        """Of memory; 0 when it does not run. Linux alone tells."""
        try:
            return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError):  # it ends just now
            return 0

    def start(self) -> None:
        """Starts it and waits until it is ready. Raises NotReadyError."""
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """Starts it."""
        assert self.pid is None, f"{self.name} runs already"
        with self.log.open("ab") as log:
            self._process = STARTER.submit(
                subprocess.Popen,
                [*ENDS_WITH_US, *self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            ).result()

    def wait_until_ready(self) -> None:
        """Raises NotReadyError."""
        try:
            wait_until(lambda: self.pid is None or self.ready, f"{self.name} is ready at {self.health}")
        except TimeoutError as late:
            raise NotReadyError(f"{late}\n{self.tail()}") from late
        if self.pid is None:
            assert self._process
            raise NotReadyError(f"{self.name} ended with {self._process.returncode}\n{self.tail()}")

    @property
    def ready(self) -> bool:
        """Whether it says that it is. Its certificate is not looked at: the port is ours."""
        try:
            return httpx2.get(self.health, verify=False, trust_env=False, timeout=5).is_success
        except httpx2.TransportError:
            return False

    def tail(self) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-TAIL:])

    def stop(self, *, kill: bool = False) -> None:
        """Ends it, as an operator does or as ``kill -9``, and waits until it is gone. One that is down stays down."""
        if self._process is None or self.pid is None:
            return
        self._process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        self.resume()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise

    def restart(self, *, kill: bool = False) -> None:
        self.stop(kill=kill)
        self.start()

    def pause(self) -> None:
        """SIGSTOP: its connections stay open and nothing comes any more; returns once all its threads stand."""
        assert self._process
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)

    def resume(self) -> None:
        """SIGCONT."""
        assert self._process
        self._process.send_signal(signal.SIGCONT)
