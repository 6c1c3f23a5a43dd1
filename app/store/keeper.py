"""Stands between our own PostgreSQL and the programs that use it: ends it when the last of them is gone.

embedded.py runs this file as a script, on the standard library alone, so that it starts in a blink and takes little
memory: ``keeper.py USERS UID GID COMMAND...``. Every program that uses the server holds the lock of the file USERS
shared for as long as it lives; the system lets go of it for one that was killed. UID and GID are whom the server runs
as, or ``-`` for the same as this process.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from typing import IO, Any

PR_SET_PDEATHSIG = 1
PATIENCE = 30
"""Seconds that a server is given to end cleanly: it writes out its memory."""


def main(users: str, uid: str, gid: str, *command: str) -> int:
    """Runs the server to its end."""
    for ignored in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # the users are asked to end, not this
        signal.signal(ignored, lambda *_: None)
    account: dict[str, Any] = {} if uid == "-" else {"user": int(uid), "group": int(gid), "extra_groups": []}
    with (
        open(users, "rb") as held,  # noqa: PTH123 - pathlib takes longer to import than all of this
        subprocess.Popen(command, preexec_fn=_ending_with(os.getpid()), **account) as server,  # noqa: S603, PLW1509
    ):
        threading.Thread(target=_end_unused, args=(held, server), daemon=True).start()
        return server.wait()


def _ending_with(us: int) -> Any:
    """What the server does before it begins: asks Linux to end it when this process is killed."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)

    def ask() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGINT)
        if os.getppid() != us:
            os._exit(1)

    return ask


def _end_unused(users: IO[bytes], server: subprocess.Popen[bytes]) -> None:
    """Ends the server when nobody holds ``users`` any more; who comes meanwhile waits for this process's end."""
    fcntl.flock(users, fcntl.LOCK_EX)
    server.send_signal(signal.SIGINT)
    time.sleep(PATIENCE)
    server.send_signal(signal.SIGQUIT)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
