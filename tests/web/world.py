"""A small made-up incident, as the nouns that everything upstream would hand over.

At 14:02:27 a rollout of checkout-api begins; at 14:02:32 its new pods rewrite one annotation against another
controller; at 14:03:14 an alert fires. Ninety other changes surround it.
"""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime, timedelta

from app.core.findings import Also, CallerRow, Evidence, Incident, Onset, Ranking, Scope, Spark, Suspect, WriteFight
from app.core.model import (
    Actor,
    ActorSource,
    Batch,
    Change,
    DiffSource,
    FieldDiff,
    Gap,
    MetricSeries,
    ObjectState,
    Outcome,
    Progress,
    Resource,
    Rollout,
    Symptom,
    SymptomSource,
    Verb,
    version_key,
)

CLUSTER = "shop"
START = datetime(2026, 11, 20, 14, 1, 40, tzinfo=UTC)
CULPRIT_AT = START + timedelta(seconds=47, milliseconds=804)
ONSET_AT = START + timedelta(seconds=52)
ALERT_AT = START + timedelta(seconds=94)
END = START + timedelta(seconds=125)

IMAGE = ("spec", "template", "spec", "containers", (("name", "app"),), "image")
TEAMS = ("payments", "identity", "batch", "growth", "market-data", "platform")
PEOPLE = ("alice@shop.example", "bob@shop.example", "carol@shop.example", "ci-deployer")
ARGOCD = "system:serviceaccount:argocd:argocd-application-controller"


def a_change(
    name: str = "checkout-api",
    *,
    at: datetime = START,
    kind: str = "Deployment",
    api_group: str = "apps",
    namespace: str | None = "payments",
    actor: str = ARGOCD,
    verb: Verb = Verb.UPDATE,
    diffs: tuple[FieldDiff, ...] = (FieldDiff(IMAGE, "replace", "shop/app:v1", "shop/app:v2"),),
    summary: str = "",
    version: str = "1",
    begun_by: str | None = None,
    cluster: str = CLUSTER,
) -> Change:
    """One change; only what a test is about needs to be said."""
    uid = f"uid-{kind}-{namespace}-{name}"
    return Change(
        resource=Resource(cluster, api_group, kind, namespace, name),
        at=at,
        verb=verb,
        key=version_key(cluster, uid, version),
        actor=Actor(actor, ActorSource.AUDIT, user_agent="argocd-application-controller", pod="argocd-0"),
        uid=uid,
        resource_version=version,
        generation=2,
        diffs=diffs,
        diff_source=DiffSource.STATES,
        summary=summary or f"image of {name}: v1 → v2",
        sources=frozenset({"audit", "watch"}),
        begun_by=begun_by,
    )


CULPRIT = a_change(
    "checkout-api",
    at=CULPRIT_AT,
    diffs=(
        FieldDiff(IMAGE, "replace", "registry.example/checkout-api:v1.41.0", "registry.example/checkout-api:v1.42.0"),
        FieldDiff(
            ("spec", "template", "spec", "containers", (("name", "app"),), "env", (("name", "OWNER_SIGNATURE"),)),
            "add",
            None,
            {"name": "OWNER_SIGNATURE", "value": "server"},
        ),
        FieldDiff(("spec", "template", "metadata", "annotations", "shop.example/tier"), "remove", "gold", None),
    ),
    summary="image of checkout-api: v1.41.0 → v1.42.0",
    version="culprit",
)


def surrounding_changes(count: int = 90, *, seed: int = 7) -> list[Change]:
    """Everyday changes spread over the window, of every lane."""
    dice = random.Random(seed)
    seconds = (END - START).total_seconds()
    kinds = (
        ("apps", "Deployment", "image of {0}: v1.{1}.0 → v1.{2}.0"),
        ("apps", "Deployment", "replicas of {0}: {1} → {2}"),
        ("", "ConfigMap", "timeout_ms of {0}: {1}00 → {2}00"),
        ("rbac.authorization.k8s.io", "RoleBinding", "subjects of {0}: +1"),
        ("networking.k8s.io", "NetworkPolicy", "port of {0}: {1} → {2}"),
        ("shop.example", "Component", "owner of {0}: team-{1} → team-{2}"),
        ("", "ResourceQuota", "cpu of {0}: {1} → {2}"),
    )
    made = []
    for number in range(count):
        api_group, kind, summary = dice.choice(kinds)
        team = dice.choice(TEAMS)
        name = f"{team}-{dice.choice(('api', 'worker', 'gateway', 'sessions', 'mailer'))}"
        before = dice.randint(1, 40)
        made.append(
            a_change(
                name,
                at=START + timedelta(microseconds=dice.randrange(int(seconds * 1e6))),
                kind=kind,
                api_group=api_group,
                namespace=team,
                actor=dice.choice((*PEOPLE, ARGOCD)),
                verb=dice.choice((Verb.UPDATE, Verb.UPDATE, Verb.UPDATE, Verb.CREATE, Verb.DELETE)),
                diffs=(FieldDiff(("spec", "replicas"), "replace", before, before + 1),),
                summary=summary.format(name, before, before + 1),
                version=str(number),
            )
        )
    return made


def derived_changes(count: int = 40) -> list[Change]:
    """What controllers wrote because of the culprit."""
    return [
        a_change(
            f"checkout-api-{number:05x}",
            at=CULPRIT_AT + timedelta(milliseconds=120 * (number + 1)),
            kind="ReplicaSet",
            actor="system:serviceaccount:kube-system:deployment-controller",
            summary=f"replicas of checkout-api-{number:05x}: {number} → {number + 1}",
            version=f"derived-{number}",
            begun_by=CULPRIT.id,
        )
        for number in range(count)
    ]


def rollouts_of(changes: list[Change]) -> list[Rollout]:
    """A rollout for each image change; the culprit's is still running."""
    made = []
    for number, change in enumerate(changes):
        if change.resource.kind != "Deployment" or "image" not in change.summary or change.verb is Verb.DELETE:
            continue
        running = change.id == CULPRIT.id
        outcome = Outcome.RUNNING if running else Outcome.FAILED if number % 17 == 5 else Outcome.COMPLETE
        made.append(
            Rollout(
                resource=change.resource,
                uid=change.uid,
                generation=number + 2,
                started_at=change.at,
                outcome=outcome,
                ended_at=None if running else change.at + timedelta(seconds=4 + number % 9),
                change_id=change.id,
                progress=(Progress(change.at, 5, 2, 5),) if running else (),
                images=("registry.example/app:v2",),
                images_before=("registry.example/app:v1",),
            )
        )
    return made


def symptoms() -> list[Symptom]:
    """Pods that hurt after the onset."""
    workload = Resource(CLUSTER, "apps", "Deployment", "payments", "checkout-api")
    return [
        Symptom(
            source=SymptomSource.EVENT,
            reason="BackOff" if number % 2 else "Unhealthy",
            at=ONSET_AT + timedelta(seconds=6 + number * 7),
            fingerprint=f"symptom-{number}",
            resource=Resource(CLUSTER, "", "Pod", "payments", f"checkout-api-{number}"),
            workload=workload,
            message="Back-off restarting failed container",
        )
        for number in range(6)
    ]


def gap() -> Gap:
    return Gap(
        CLUSTER, "Pod", START + timedelta(seconds=18), START + timedelta(seconds=23), "the watch of pods was behind"
    )


def a_state(change: Change) -> ObjectState:
    """The last state of the culprit's object, as its diffs leave it."""
    return ObjectState(
        resource=change.resource,
        uid=change.uid,
        resource_version=change.resource_version,
        seen_at=change.at,
        state={
            "spec": {
                "replicas": 3,
                "template": {
                    "metadata": {"annotations": {}},
                    "spec": {
                        "containers": [
                            {
                                "name": "app",
                                "image": "registry.example/checkout-api:v1.42.0",
                                "env": [{"name": "OWNER_SIGNATURE", "value": "server"}],
                            }
                        ]
                    },
                },
            }
        },
        generation=2,
    )


def batch(count: int = 90) -> Batch:
    """The whole world: ``count`` everyday changes, the culprit, and what came of it."""
    changes = [*surrounding_changes(count), CULPRIT, *derived_changes()]
    return Batch(
        cluster=CLUSTER,
        changes=tuple(changes),
        objects=(a_state(CULPRIT),),
        rollouts=tuple({(r.started_at, r.uid): r for r in rollouts_of(changes)}.values()),
        symptoms=tuple(symptoms()),
        gaps=(gap(),),
    )


def alert() -> Symptom:
    return Symptom(
        source=SymptomSource.ALERT,
        reason="CheckoutErrorsHigh",
        at=ALERT_AT,
        fingerprint="a1",
        message="5xx of checkout are at 12 %",
        severity="critical",
        labels=(("alertname", "CheckoutErrorsHigh"), ("namespace", "payments"), ("severity", "critical")),
        annotations=(
            ("description", "Look at the errors by path first."),
            ("runbook_url", "https://wiki.example/runbooks/checkout"),
        ),
    )


ONSET = Onset(ONSET_AT, ONSET_AT - timedelta(seconds=2), ONSET_AT + timedelta(seconds=2), "PATCH serviceaccounts")


def incident(*, title: str = "Checkout errors high") -> Incident:
    return Incident(
        id="5f0a1c22d3e4",
        cluster=CLUSTER,
        title=title,
        status="open",
        severity="critical",
        started_at=ALERT_AT,
        scope=Scope(namespaces=("payments",)),
        alerts=(alert(),),
    )


def _line(title: str, unit: str, *, rise: float, seed: int) -> Spark:
    dice = random.Random(seed)
    onset = (ONSET_AT - START).total_seconds()
    values: list[float | None] = [
        None
        if 12 <= slot <= 13 and seed == 3
        else 10 + 3 * math.sin(slot / 2) + dice.random() * 6 + (rise if slot * 2.5 > onset else 0)
        for slot in range(50)
    ]
    bad_from = ONSET_AT.timestamp() if rise else None
    return Spark(title, unit, START.timestamp(), 2.5, tuple(values), bad_from)


def _caller(user: str, *, before: int, after: int, verb: str = "patch", resource: str = "serviceaccounts") -> CallerRow:
    onset = int((ONSET_AT - START).total_seconds() // 5)
    counts = tuple((before if slot < onset else after) + (slot * 7) % 5 for slot in range(25))
    return CallerRow(user, verb, resource, START.timestamp(), 5.0, counts, before / 5, after / 5)


def ranking() -> Ranking:
    """Three suspects, a fight, sparks and callers."""
    others = surrounding_changes()
    second, third = (next(c for c in others if c.resource.kind == kind) for kind in ("ConfigMap", "NetworkPolicy"))
    written = [c for c in others if c.resource.kind == "RoleBinding"][:2]
    alike = [c for c in others if c.resource.kind == "ConfigMap" and c is not second][:2]
    return Ranking(
        incident_id=incident().id,
        ranked_at=ALERT_AT + timedelta(minutes=3),
        onset=ONSET,
        suspects=(
            Suspect(
                rank=1,
                probability=0.93,
                score=8.2,
                change=CULPRIT,
                evidence=(
                    Evidence(
                        "load",
                        3.2,
                        "Its new pods send 41 PATCH serviceaccounts/s; the old ones sent none. First to rise.",
                    ),
                    Evidence(
                        "fight",
                        2.4,
                        "Write fight over owner-signature of 4 ServiceAccounts: 2,149 rewrites by two writers.",
                    ),
                    Evidence("share", 1.2, "These writes are 91 % of the extra API load."),
                    Evidence("others", -0.4, "Latency of other callers did not move."),
                    Evidence("queue", 0.0, "Not measured: the controller's queue length.", measured=False),
                ),
                derived=tuple(change.id for change in derived_changes(3)),
                t_minus=ONSET_AT - CULPRIT_AT,
                would_flip="load",
            ),
            Suspect(
                2,
                0.02,
                1.1,
                second,
                (Evidence("time", 0.9, "It came 31 s before the onset."),),
                t_minus=ONSET_AT - second.at,
                would_flip="time",
                also=tuple(Also(c.id, c.at, c.resource) for c in alike),
            ),
            Suspect(
                3,
                0.01,
                0.3,
                third,
                (Evidence("scope", -0.2, "It is in another namespace."),),
                t_minus=ONSET_AT - third.at,
                beside=tuple(Also(c.id, c.at, c.resource) for c in written),
            ),
        ),
        none_of_these=0.04,
        candidates=100,
        window=(START, END),
        fights=(
            WriteFight(
                "",
                "ServiceAccount",
                "metadata.annotations.owner-signature",
                (Resource(CLUSTER, "", "ServiceAccount", "payments", "checkout"),),
                ("checkout-api (server)", "checkout-worker (worker)"),
                2149,
                ONSET_AT,
                END,
                41.2,
                ("server", "worker"),
            ),
        ),
        sparks=(
            _line("Writes to the API", "/s", rise=45, seed=1),
            _line("Latency p99", "ms", rise=0, seed=2),
            _line("Webhook p99", "ms", rise=20, seed=3),
        ),
        callers=(
            _caller("system:serviceaccount:payments:checkout", before=0, after=205),
            _caller("system:serviceaccount:kube-system:replicaset-controller", before=40, after=45, verb="update"),
            _caller(
                "system:serviceaccount:kube-system:deployment-controller",
                before=22,
                after=20,
                verb="update",
                resource="deployments/status",
            ),
            _caller("system:kube-scheduler", before=9, after=12, verb="create", resource="pods/binding"),
        ),
        findings=(Evidence("errors", 0.0, "409 Conflict rose from 0 to 12/s for checkout."),),
        not_measured=("etcd latency",),
        scope=Scope(namespaces=("payments",)),
    )


def metrics() -> tuple[MetricSeries, ...]:
    """Half an hour before END, every 15 s: two API servers, of which one is not scraped for five minutes."""
    every = tuple(END.timestamp() - 1800 + 15.0 * n for n in range(121))
    found = []
    for instance in ("10.0.0.1:6443", "10.0.0.2:6443"):
        times = every if instance.startswith("10.0.0.1") else tuple(t for n, t in enumerate(every) if not 40 < n < 60)
        place = {"job": "apiserver", "instance": instance}
        for number, verb in enumerate(("GET", "LIST", "POST", "PATCH")):
            labels = place | {"verb": verb, "code": "200", "resource": "pods", "subresource": ""}
            found.append(_counting("apiserver_request_total", labels, times, per_second=4.0 * (number + 1)))
            for le, share in (("0.1", 0.5), ("1", 0.9), ("+Inf", 1.0)):
                bucket = {**place, "verb": verb, "le": le}
                name = "apiserver_request_duration_seconds_bucket"
                found.append(_counting(name, bucket, times, per_second=share * 4.0 * (number + 1)))
        found.append(_counting("process_resident_memory_bytes", place, times, per_second=1e6))
    return tuple(found)


def without_buckets(name: str, *, seconds: float) -> tuple[MetricSeries, ...]:
    """A histogram of which sum and count are kept alone, of observations that each took as long."""
    times, place = tuple(END.timestamp() - 1800 + 15.0 * n for n in range(121)), {"job": "etcd", "instance": "etcd-0"}
    return (
        _counting(f"{name}_sum", place, times, per_second=seconds * 4),
        _counting(f"{name}_count", place, times, per_second=4.0),
    )


def _counting(name: str, labels: dict[str, str], times: tuple[float, ...], *, per_second: float) -> MetricSeries:
    values = tuple(per_second * (time - times[0]) for time in times)
    return MetricSeries(name, tuple(sorted(labels.items())), "", times, values)
