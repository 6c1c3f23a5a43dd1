"""How much the process may use of its system: names that are looked up at once, and files that are open."""

from __future__ import annotations

import os
import resource

THREADS = 256
"""A thread that waits weighs 8 KiB (measured), and none is there before the first name is looked up."""
FILES = 65_536
"""Some systems let a process open 1,024, and connections count as well (systemd.exec(5), LimitNOFILE)."""


def allow_much() -> None:
    """For this process, and those that it starts. To be called before the first name is looked up.

    libuv looks each name up in a thread, until the C library has an answer or gives up, which nobody can cut short: ten
    seconds and more for a name whose server does not answer. Of its threads it uses half for this, and it has four
    (https://docs.libuv.org/en/v1.x/threadpool.html): two names that nobody answers for would keep the API servers of
    all other clusters, PostgreSQL and Slack from being found.
    """
    os.environ.setdefault("UV_THREADPOOL_SIZE", str(THREADS))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
