"""Two clusters whose every place holds a word of its own, ``canary`` and the name of the place: who is shown one is
told of that place.

``a1``, ``a2`` and ``b1`` are namespaces, ``a0`` is in none, ``aw`` is what is of cluster a as a whole, ``ca`` and
``cb`` what is told to whoever reaches anything of these clusters, ``all`` is of the whole installation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import timedelta
from hashlib import blake2b

from msgspec.structs import replace as changed

from app.core.findings import NONE, Also, Evidence, Incident, Onset, Opinion, Ranking, Suspect, Verdict
from app.core.findings import Scope as About
from app.core.model import (
    SLOT_SECONDS,
    Batch,
    CallCount,
    CallKey,
    Change,
    FieldDiff,
    Gap,
    MetricSeries,
    ObjectState,
    Outcome,
    Resource,
    Rollout,
    Symptom,
    SymptomSource,
)
from app.core.roles import Scope
from app.store import incidents, verdicts, views
from app.store.database import Database
from app.store.record import record
from tests.web import world

AT = world.START + timedelta(seconds=30)
PLACES = ("a1", "a2", "a0", "aw", "b1")
WORDS = frozenset({*PLACES, "ca", "cb", "all"})
CANARY = re.compile(f"canary({'|'.join(sorted(WORDS))})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Place:
    """What a request may name of a place, or of none: ``absent`` says that nothing is recorded there."""

    name: str
    cluster: str
    absent: bool = False

    @property
    def word(self) -> str:
        return f"canary{'no' if self.absent else self.name}"

    @property
    def namespace(self) -> str | None:
        return None if self.name in ("a0", "aw") else self.word

    @property
    def resource(self) -> Resource:
        if self.name == "a0":
            return Resource(self.cluster, "", "Node", None, self.word)
        return Resource(self.cluster, "apps", "Deployment", self.namespace or "canarya1", f"{self.word}-app")

    @property
    def change(self) -> Change:
        return _written(self, self.resource, version=self.word)

    @property
    def incident(self) -> str:
        """Its id."""
        return blake2b(self.word.encode(), digest_size=6).hexdigest()

    @property
    def part(self) -> str:
        """The id of another incident, which may be made a part of it."""
        return blake2b(self.word.encode(), digest_size=6, person=b"part").hexdigest()

    @property
    def names(self) -> tuple[str, ...]:
        """All by which a request names it, the longest first."""
        return (self.change.id, self.incident, self.part, self.word, self.cluster)


def place(name: str) -> Place:
    return Place(name, f"canaryc{name[0]}")


def nowhere(like: Place, *, known: bool) -> Place:
    """What is not there, asked for as ``like`` is: in its cluster where that is ``known`` to who asks."""
    return replace(like, absent=True, cluster=like.cluster if known else "nowhere")


def reached(scope: Scope | None) -> frozenset[str]:
    """The words that a scope may be told."""
    if scope is None:
        return WORDS
    found = {f"c{cluster[-1]}" for cluster in scope.clusters}
    for cluster, namespace in scope.places:
        letter = cluster[-1]
        whole = {name for name in PLACES if name.startswith(letter)}
        found |= whole if namespace is None else {f"{letter}0"} if namespace == "-" else {namespace[-2:]}
    return frozenset(found & WORDS)


def _written(of: Place, resource: Resource, *, version: str) -> Change:
    word = of.word
    made = world.a_change(
        resource.name,
        at=AT,
        kind=resource.kind,
        api_group=resource.api_group,
        namespace=resource.namespace,
        cluster=resource.cluster,
        actor=f"{word}@example.com",
        diffs=(FieldDiff(world.IMAGE, "replace", f"{word}:v1", f"{word}:v2"),),
        summary=f"image of {word}: v1 → v2",
        version=version,
    )
    return changed(made, actor=changed(made.actor, user_agent=f"{word}-agent", pod=f"{word}-pod"))


def _batch(of: Place) -> Batch:
    """A change with its rollout and state, an object of a kind that is nowhere else, and something that hurts."""
    change, word = of.change, of.word
    if of.name == "aw":
        return Batch(of.cluster, calls=_calls(word), series=_series(word))
    own = Resource(of.cluster, f"{word}.example", f"{word}kind", of.namespace, f"{word}-own")
    second = _written(of, own, version=f"{word}-own")
    hurt = Symptom(
        SymptomSource.POD if of.namespace else SymptomSource.NODE,
        f"{word}Crash",
        AT + timedelta(seconds=5),
        f"{word}-hurt",
        resource=change.resource,
        message=f"{word} hurts",
        severity="warning",
    )
    rollout = Rollout(
        change.resource, change.uid, 2, change.at, Outcome.FAILED, change_id=change.id, reason=f"{word} failed"
    )
    whole = of.name == "b1"
    return Batch(
        of.cluster,
        changes=(change, second),
        objects=tuple(
            ObjectState(one.resource, one.uid, one.resource_version, one.at, {"metadata": {"name": word}})
            for one in (change, second)
        ),
        rollouts=(rollout,) if of.namespace else (),
        symptoms=(hurt,),
        gaps=(Gap(of.cluster, "Pod", AT, AT + timedelta(seconds=4), f"canaryc{of.name[0]} was not seen"),),
        calls=_calls(word) if whole else (),
        series=_series(word) if whole else (),
    )


def _calls(word: str) -> tuple[CallCount, ...]:
    key = CallKey(f"{word}-caller", f"{word}-pod", f"{word}-agent", "get", "", "pods", word, 200)
    end = int(world.END.timestamp())
    return tuple(CallCount(key, end - 120 + n * SLOT_SECONDS, 50, 9_000) for n in range(20))


def _series(word: str) -> tuple[MetricSeries, ...]:
    times = tuple(world.END.timestamp() - 600 + 15.0 * n for n in range(40))
    labels = (("code", "200"), ("instance", f"{word}-instance"), ("job", "apiserver"), ("verb", "GET"))
    values = tuple(4.0 * n for n in range(40))
    names = ("apiserver_request_total", f"{word}_things_total")
    return tuple(MetricSeries(name, labels, "counter", times, values) for name in names)


def _incident(of: Place, incident_id: str) -> Incident:
    """About its namespaces alone; that of ``aw`` about two of them, that of ``a0`` about none."""
    spaces = {"a0": (), "aw": ("canarya1", "canarya2")}.get(of.name, (of.word,))
    alerts = [
        Symptom(
            SymptomSource.ALERT,
            f"{of.word}Errors",
            world.ALERT_AT,
            f"{incident_id}-{space}",
            message=f"{of.word} fails",
            severity="critical",
            labels=(("alertname", f"{of.word}Errors"), *((("namespace", space),) if space else ())),
        )
        for space in (spaces or ("",))
    ]
    return Incident(
        incident_id,
        of.cluster,
        f"{of.word} errors",
        "open",
        "critical",
        world.ALERT_AT,
        scope=About(namespaces=spaces),
        alerts=tuple(alerts),
    )


def _ranking(of: Place, whole: str) -> Ranking:
    """Of which suspects, what they stand for, a reason and the onset are of other places of the cluster, and another
    reason of the other cluster."""
    others = [one for one in PLACES if one[0] == of.name[0] and one != "aw"]
    there = "canaryb1" if of.name[0] == "a" else "canarya1"
    reasons = Evidence("load", 1.0, f"{whole} sends more"), Evidence("elsewhere", 0.8, f"It was made in {there}, too")
    parts = tuple(Also(one.id, one.at, one.resource) for one in (place(name).change for name in others))
    suspects = tuple(
        Suspect(rank, 0.3, 1.0, place(name).change, reasons, derived=(whole,), also=parts, beside=parts)
        for rank, name in enumerate(others, start=1)
    )
    onset = Onset(AT, AT, AT + timedelta(seconds=3), f"{whole} errors")
    window = (world.START, world.END)
    return Ranking(of.incident, world.ALERT_AT + timedelta(minutes=3), onset, suspects, 0.1, 3, window)


async def fill(database: Database) -> None:
    """Records all of it."""
    for name in PLACES:
        of = place(name)
        whole = "canaryb1" if name == "b1" else "canaryaw"
        async with database.write.begin() as conn:
            await record(conn, _batch(of))
            for one in (of.incident, of.part):
                await incidents.save_incident(conn, _incident(of, one))
            await incidents.save_ranking(conn, _ranking(of, whole))
            await verdicts.say(conn, of.incident, Verdict(NONE, Opinion.NOT_IT, whole, world.ALERT_AT))
    async with database.write.begin() as conn:
        await views.add_view(conn, "canaryall view", "metric=up", now=world.END)
