"""Which faults are tried, for how long each, and what they need to stand in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tests.faults import disks, ends, idle, network, objects, pages
from tests.faults.proxy import Mode
from tests.faults.trial import Recipe


@dataclass(frozen=True, slots=True)
class Place:
    """As stand.standing takes it."""

    flags: tuple[str, ...] = ()
    mounts: tuple[tuple[str, str], ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault to try. ``patience`` and ``no_sets`` as trial.tried takes them."""

    name: str
    recipe: Recipe
    place: Place = Place()
    patience: float = 120
    no_sets: bool = True


PLAIN = Place()
UNCACHED = Place(flags=("--watch-cache=false",))
"""An API server that reads and watches etcd itself: so old versions are gone as soon as they are compacted."""
PAGED = Place(flags=(*UNCACHED.flags, "--feature-gates=WatchList=false"))
"""An API server that knows no streaming lists, as those before Kubernetes 1.32: its pages come out of etcd."""
LITTLE_SPOOL = Place(environment=(("FORESHOCK_SPOOL_BYTES", "1000000"),))
SPOOL_DISK = Place(mounts=(("data", "40m"),))
POSTGRES_DISK = Place(mounts=(("pg", "700m"),))
LOG_DISK = Place(mounts=(("wal", "96m"),))


def faults(*, quick: bool) -> list[Fault]:
    """All of them, in an order in which those of one place follow each other."""
    long, some = (15.0, 60.0) if quick else (600.0, 120.0)
    return [
        Fault("nothing", lambda _stand, _found: None),
        Fault("idle", partial(idle.idle, seconds=some)),
        Fault("page views", idle.page_views),
        Fault("poison objects", objects.poison),
        Fault("large objects", objects.large),
        Fault("foreshock killed", partial(ends.kills_of_foreshock, times=4 if quick else 50)),
        Fault("apiserver ended", lambda s, f: ends.kills_of_server(s.plane.apiserver, f, times=4), no_sets=False),
        Fault(
            "another API server",
            partial(ends.two_servers, times=1 if quick else 2, settled=5 if quick else 130),
            no_sets=not quick,
        ),
        Fault("etcd ended", lambda s, f: ends.kills_of_server(s.plane.etcd, f, times=4), no_sets=False),
        Fault(
            "apiserver stalled",
            lambda s, _: ends.stall_of_server(s.plane.apiserver, seconds=15 if quick else 90),
            no_sets=False,
        ),
        Fault(
            "etcd stalled", lambda s, _: ends.stall_of_server(s.plane.etcd, seconds=15 if quick else 60), no_sets=False
        ),
        Fault("black hole", lambda s, _: network.black_hole(s, seconds=long), patience=240, no_sets=quick),
        Fault("network resets", partial(network.failing, mode=Mode.RESETS, seconds=some), no_sets=quick),
        Fault("answers of 500", partial(network.failing, mode=Mode.ANSWERS_500, seconds=some), no_sets=quick),
        Fault("postgres stopped", lambda s, _: ends.end_of_postgres(s, seconds=long, kill=False), patience=240),
        Fault("postgres killed", lambda s, _: ends.end_of_postgres(s, seconds=5, kill=True)),
        Fault("postgres stalled", lambda s, _: ends.stall_of_postgres(s, seconds=15 if quick else 60)),
        Fault("leader stalled", partial(ends.stall_of_leader, seconds=20 if quick else 60)),
        Fault("gone at start", network.gone_at_start, no_sets=False),
        Fault("gone amid", network.gone_amid, UNCACHED, no_sets=False),
        Fault("continue token expired", partial(pages.expired, behind=(1,) if quick else (1, 2)), PAGED, no_sets=False),
        Fault(
            "spool full", lambda s, _: disks.spool_bound(s, seconds=30 if quick else 120), LITTLE_SPOOL, no_sets=False
        ),
        Fault(
            "spool disk full", lambda s, _: disks.spool_disk(s, seconds=15 if quick else 120), SPOOL_DISK, no_sets=False
        ),
        Fault(
            "postgres disk full",
            partial(disks.postgres_data, seconds=15 if quick else 120),
            POSTGRES_DISK,
            no_sets=False,
        ),
        Fault("postgres log full", partial(disks.postgres_log, seconds=15), LOG_DISK, no_sets=False),
    ]
