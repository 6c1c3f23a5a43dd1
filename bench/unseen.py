"""Whether the time of a 404 tells that a thing is there, in a namespace of others: `python -m bench.unseen`, by itself.

Who may read one namespace asks, one after the other and in turns drawn by lot, for what is in another namespace of the
same cluster and for what is nowhere. In one process and without a network: what does not show here shows to nobody.
"""

from __future__ import annotations

import math
import random
import secrets
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlencode

import httpx2
from msgspec.structs import replace

from app.core.findings import Incident
from app.core.findings import Scope as About
from app.core.model import Batch, FieldDiff, Object, ObjectState, Symptom, SymptomSource
from app.core.roles import Role, Scope
from app.store import incidents, tokens
from app.store.database import Database
from app.store.partitions import ensure
from app.store.record import record
from app.store.tokens import Purpose
from app.web.deps import Deps
from app.web.routes import create_app
from bench.own import alone
from tests.web import world
from tests.web.conftest import UNLIMITED

THINGS = 60
"""Objects with ten changes each, and incidents, in either namespace; as many names are asked for that are nowhere."""
CHANGES = 10
ALERTS = 20
ROUNDS = 1000
"""How often each route is asked for each of both."""
RESAMPLED = 500
OWN, THEIRS = "payments", "identity"


@dataclass(frozen=True, slots=True)
class Told:
    """What the times of one route tell: medians in microseconds, the ratio of the two with its 95 % interval, and how
    often of two asks the slower one is for what is there (one half: the time tells nothing)."""

    route: str
    there: float
    nowhere: float
    low: float
    high: float
    slower: float
    p: float

    def __str__(self) -> str:
        ratio = self.there / self.nowhere
        return (
            f"{self.route:38} {self.there:8.0f} {self.nowhere:8.0f}   {ratio:.3f} ({self.low:.3f} to {self.high:.3f})"
            f"   {self.slower:.3f}   {self.p:.3f}"
        )


def told(route: str, there: list[float], nowhere: list[float], draw: random.Random) -> Told:
    """Medians by the percentile bootstrap, ranks by Mann and Whitney's test with its normal approximation."""
    ratios = sorted(
        statistics.median(draw.choices(there, k=len(there))) / statistics.median(draw.choices(nowhere, k=len(nowhere)))
        for _ in range(RESAMPLED)
    )
    order = sorted([(one, True) for one in there] + [(one, False) for one in nowhere])
    ranks = sum(rank for rank, (_, is_there) in enumerate(order, 1) if is_there)
    n, m = len(there), len(nowhere)
    u = ranks - n * (n + 1) / 2
    z = (u - n * m / 2) / math.sqrt(n * m * (n + m + 1) / 12)
    return Told(
        route,
        statistics.median(there) * 1e6,
        statistics.median(nowhere) * 1e6,
        ratios[round(0.025 * RESAMPLED)],
        ratios[round(0.975 * RESAMPLED) - 1],
        u / (n * m),
        math.erfc(abs(z) / math.sqrt(2)),
    )


def name(number: int, of: str = THEIRS) -> str:
    return f"{of}-api-{number:03}"


def changes(of: str, number: int) -> Batch:
    """An object with its changes, each of a dozen fields."""
    made = [
        world.a_change(
            name(number, of),
            at=world.START + timedelta(seconds=number + 60 * version),
            namespace=of,
            diffs=tuple(FieldDiff(("spec", f"field{n}"), "replace", "a" * 40, "b" * 40) for n in range(12)),
            version=f"{number}-{version}",
        )
        for version in range(CHANGES)
    ]
    state: Object = {"metadata": {"name": name(number, of)}, "spec": {f"field{n}": "b" * 40 for n in range(60)}}
    last = made[-1]
    known = ObjectState(last.resource, last.uid, last.resource_version, last.at, state)
    return Batch(world.CLUSTER, changes=tuple(made), objects=(known,))


def incident(of: str, number: int) -> Incident:
    """About one namespace, with alerts that have as many labels as they usually do."""
    alerts = tuple(
        Symptom(
            SymptomSource.ALERT, "TooManyErrors", world.ALERT_AT, f"{of}-{number}-{n}", message="it fails " * 20,
            severity="critical", labels=(("namespace", of), *((f"label{each}", "x" * 30) for each in range(10))),
        )
        for n in range(ALERTS)
    )  # fmt: skip
    return replace(world.incident(), id=secrets.token_hex(6), scope=About(namespaces=(of,)), alerts=alerts)


async def filled(database: Database) -> tuple[str, list[str], list[str]]:
    """The token of who may read OWN alone; the ids of changes and of incidents in THEIRS."""
    changed, opened = [], []
    async with database.write.begin() as conn:
        await ensure(conn, "rankings", [world.ranking().ranked_at])
        for of in (OWN, THEIRS):
            for number in range(THINGS):
                batch, one = changes(of, number), incident(of, number)
                await record(conn, batch)
                await incidents.save_incident(conn, one)
                await incidents.save_ranking(conn, replace(world.ranking(), incident_id=one.id))
                if of == THEIRS:
                    changed.append(batch.changes[CHANGES // 2].id)
                    opened.append(one.id)
        scope = Scope.parse([f"{world.CLUSTER}/{OWN}"])
        token = await tokens.create(conn, Role.VIEWER, purpose=Purpose.API, scope=scope, now=world.END)
    async with database.write.connect() as conn:
        await (await conn.execution_options(isolation_level="AUTOCOMMIT")).exec_driver_sql("VACUUM ANALYZE")
    return token, changed, opened


def another(change_id: str) -> str:
    """The id of no change, of the same moment as that of one."""
    return f"{change_id[:-16]}{secrets.randbits(63):016x}"


Ask = Callable[[int], str]


def routes(changed: list[str], opened: list[str]) -> dict[str, tuple[Ask, Ask]]:
    """By the name of a route, its address for what is there, and for what is nowhere."""
    no_changes, no_incidents = [another(one) for one in changed], [secrets.token_hex(6) for _ in opened]

    def by_id(path: str, there: list[str], nowhere: list[str]) -> tuple[Ask, Ask]:
        return (lambda n: path.format(there[n])), (lambda n: path.format(nowhere[n]))

    def of_object(path: str) -> tuple[Ask, Ask]:
        return (lambda n: path.format(name(n))), (lambda n: path.format(name(n + THINGS)))

    since = (world.START - timedelta(hours=1)).isoformat()
    place = urlencode({"cluster": world.CLUSTER, "namespace": THEIRS, "from": since})
    return {
        **{
            path: by_id(path, changed, no_changes)
            for path in ("/api/v1/changes/{}", "/api/v1/changes/{}/revert", "/changes/{}")
        },
        **{
            path: by_id(path, opened, no_incidents)
            for path in ("/api/v1/incidents/{}", "/api/v1/incidents/{}/suspects", "/incidents/{}")
        },
        "/api/v1/objects/…": of_object(f"/api/v1/objects/{world.CLUSTER}/apps/Deployment/{THEIRS}/{{}}"),
        "/objects/…": of_object(f"/objects/{world.CLUSTER}/apps/Deployment/{THEIRS}/{{}}"),
        "/api/v1/diff?object=…": of_object(f"/api/v1/diff?{place}&object=deployment/{{}}"),
    }


def clock() -> datetime:
    return world.END


async def measured(database: Database) -> list[Told]:
    token, changed, opened = await filled(database)
    deps = Deps(
        read=database.read, scoped=database.scoped, write=database.write, public_url="http://foreshock", clock=clock
    )
    transport = httpx2.ASGITransport(app=create_app(deps, limits=UNLIMITED))
    draw, found = random.Random(4), []
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(transport=transport, base_url="http://foreshock", headers=headers) as client:
        for route, both in routes(changed, opened).items():
            times: tuple[list[float], list[float]] = ([], [])
            for turn in range(-20, ROUNDS):
                for which in draw.sample((0, 1), 2):
                    path = both[which](draw.randrange(THINGS))
                    begun = time.perf_counter()
                    answer = await client.get(path)
                    took = time.perf_counter() - begun
                    if answer.status_code != 404:
                        raise RuntimeError(f"{path}: {answer.status_code} {answer.text[:200]}")
                    if turn >= 0:  # the first ones find caches empty
                        times[which].append(took)
            found.append(told(route, *times, draw))
    return found


def main() -> None:
    found = alone(measured)
    print(f"{'404 of':38} {'there':>8} {'nowhere':>8}   ratio (95 %)             slower  p")
    for one in found:
        print(one)


if __name__ == "__main__":
    main()
