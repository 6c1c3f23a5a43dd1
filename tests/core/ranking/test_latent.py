"""What pods start with waits for the next rollout, which is then only the occasion."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import pytest
from msgspec.structs import replace

from app.core.edges.indexing import topology
from app.core.edges.reach import reach
from app.core.findings import Ranking, Suspect
from app.core.model import Actor, ActorSource, Change, Json, ObjectState, Outcome, Path, Resource, Rollout, Verb
from app.core.ranking.candidates import candidates
from app.core.ranking.latent import _acts_as, acts_at, started
from tests.core.company import ranked
from tests.core.factories import CI, a_change, a_resource, a_state, a_symptom, a_workload, after, an_alert, an_incident

SYNC = a_resource("Deployment", "sync", "platform")
ACCOUNT = a_resource("ServiceAccount", "sync", "platform")
STRATEGY: Path = ("spec", "strategy", "type")
LATENT = [
    (ACCOUNT, ("automountServiceAccountToken",), None, False),
    (SYNC, STRATEGY, "RollingUpdate", "Recreate"),
]


def rolled_out(*changes: Change, at: float = -12) -> Ranking:
    """A harmless rollout of a workload, the like of which there were many, whose pods crash."""
    release = a_change(SYNC, at=after(at), old="sync:1.0.0", new="sync:1.0.1")
    rollout = Rollout(SYNC, "uid", 2, after(at), Outcome.RUNNING, change_id=release.id)
    return ranked(
        *changes,
        release,
        incident=an_incident(an_alert(after(10), name="Lacking", namespace="platform", deployment="sync")),
        symptoms=[a_symptom(SYNC, "CrashLoopBackOff", at=after(at + 2), count=4)],
        states=[a_workload(SYNC, serviceAccountName="sync")],
        rollouts=[rollout],
    )


def written(resource: Resource, path: Path, old: Json, new: Json, *, at: float) -> Change:
    return a_change(resource, at=after(at), path=path, old=old, new=new)


def of(ranking: Ranking, change: Change) -> Suspect:
    return next(one for one in ranking.suspects if one.change.id == change.id)


def time(suspect: Suspect) -> tuple[float, str]:
    (found,) = [evidence for evidence in suspect.evidence if evidence.rule == "time"]
    return found.weight, found.sentence


@pytest.mark.parametrize(("resource", "path", "old", "new"), LATENT)
def test_what_waited_for_a_rollout_is_dated_by_it(resource: Resource, path: Path, old: Json, new: Json) -> None:
    waits = written(resource, path, old, new, at=-60)
    ranking = rolled_out(waits)
    assert time(of(ranking, waits))[1].startswith("The first pods started with it 2 s before the onset")
    assert ranking.suspects[0].change.id == waits.id


BACKUP = a_resource("CronJob", "backup", "platform")
CRON = Actor("system:serviceaccount:kube-system:cronjob-controller", ActorSource.AUDIT)
COMMAND: Path = ("spec", "jobTemplate", "spec", "template", "spec", "containers", (("name", "dump"),), "command")


def a_run(*, at: float) -> Change:
    job = a_resource("Job", "backup-29393400", "platform")
    return a_change(job, at=after(at), path=(), old=None, new={}, verb=Verb.CREATE, actor=CRON)


def the_run(name: str, *, seen: float) -> ObjectState:
    return replace(a_state(a_resource("Job", name, "platform"), {}, owner=BACKUP), seen_at=after(seen))


def acts(change: Change, *changes: Change, states: Sequence[ObjectState] = ()) -> datetime | None:
    top = topology([a_workload(BACKUP, containers=[{"envFrom": [{"configMapRef": {"name": "backup"}}]}])])
    return acts_at(change, reach(change, top), started([], [change, *changes], states, top=top))


DUE = f"backup-{int(after(-600).timestamp()) // 60}"


@pytest.mark.parametrize(
    ("jobs", "at"),
    [
        ([the_run(DUE, seen=-300)], -600),
        ([the_run("backup-by-hand", seen=-300)], -300),
        ([the_run(DUE, seen=-300), the_run("backup-by-hand", seen=-900)], -900),
        ([the_run("backup-by-hand", seen=-50_000)], None),
    ],
    ids=["by its name", "by when it was told of", "the first of two", "before the edit"],
)
def test_what_a_cron_job_runs_is_dated_by_its_next_job(jobs: list[ObjectState], at: float | None) -> None:
    command = a_change(BACKUP, at=after(-48_000), path=COMMAND)
    assert acts(command, states=jobs) == (None if at is None else after(at))


def test_the_jobs_of_a_cron_job_may_be_told_as_changes() -> None:
    command = a_change(BACKUP, at=after(-48_000), path=COMMAND)
    by_hand = replace(a_run(at=-20), actor=CI)
    assert acts(command, by_hand, a_run(at=-10)) == after(-10)


@pytest.mark.parametrize("field", ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"])
def test_how_many_ended_jobs_are_kept_does_nothing_to_the_next_one(field: str) -> None:
    kept, run = a_change(BACKUP, at=after(-300), path=("spec", field), old=3, new=1), a_run(at=-10)
    assert acts(kept, run) is None
    begun = replace(run, begun_by=kept.id)
    (found,) = candidates([kept, begun], [], [], topology=topology([a_workload(BACKUP)]), until=after(0))
    assert found.inert
    assert found.derived == (begun.id,)


def test_what_a_cron_job_s_pods_read_waits_for_its_next_job_too() -> None:
    config = a_change(a_resource("ConfigMap", "backup", "platform"), at=after(-48_000), path=("data", "x"))
    assert acts(config, states=[the_run(DUE, seen=-300)]) == after(-600)


def test_a_cron_job_that_is_stopped_has_not_to_wait() -> None:
    halted = a_change(BACKUP, at=after(-48_000), path=("spec", "suspend"), old=False, new=True)
    assert acts(halted, states=[the_run(DUE, seen=-300)]) is None


NIGHTLY = Resource("lab", "velero.io", "Schedule", "platform", "city")
CERT_MANAGER = Actor("system:serviceaccount:cert-manager:cert-manager", ActorSource.AUDIT)
VELERO = Actor("system:serviceaccount:platform:velero", ActorSource.AUDIT)


@pytest.mark.parametrize(
    ("name", "actor", "spec", "at"),
    [
        ("city-20261014140000", VELERO, {"schedule": "0 */2 * * *"}, -9),
        ("city-20261014140000", VELERO, {"template": {}}, None),
        ("city-20261014140000", CI, {"schedule": "0 */2 * * *"}, None),
        ("town-20261014140000", VELERO, {"schedule": "0 */2 * * *"}, None),
        ("city-tls", CERT_MANAGER, {"schedule": "0 */2 * * *"}, None),
    ],
    ids=["its next run", "no schedule", "by hand", "another's run", "another program's"],
)
def test_what_has_a_schedule_acts_as_its_program_makes_the_next_run(
    name: str, actor: Actor, spec: Json, at: float | None
) -> None:
    edit = a_change(NIGHTLY, at=after(-4700), path=("spec", "template", "includedNamespaces"), new=["*"])
    backup = Resource("lab", "" if actor == CERT_MANAGER else "velero.io", "Backup", "platform", name)
    run = a_change(backup, at=after(-9), path=(), old=None, new={}, verb=Verb.CREATE, actor=actor)
    top = topology([a_state(NIGHTLY, {"metadata": {"name": "city"}, "spec": spec})])
    acted = acts_at(edit, reach(edit, top), started([], [edit, run], [], top=top))
    assert acted == (None if at is None else after(at))


def test_what_is_paused_acts_at_once() -> None:
    pause = a_change(NIGHTLY, at=after(-4700), path=("spec", "paused"), old=None, new=True)
    run = a_change(
        Resource("lab", "velero.io", "Backup", "platform", "city-1"), at=after(-9), path=(), verb=Verb.CREATE
    )
    top = topology([a_state(NIGHTLY, {"spec": {"schedule": "0 */2 * * *"}})])
    begun = started([], [pause, replace(run, actor=VELERO)], [], top=top)
    assert begun
    assert acts_at(pause, reach(pause, top), begun) is None


def test_it_is_said_that_it_was_run() -> None:
    edit = a_change(NIGHTLY, at=after(-4700), path=("spec", "template", "includedNamespaces"), new=["*"])
    assert _acts_as(edit) == "It was run for the first time since"


def test_it_is_said_that_a_job_was_made() -> None:
    command = a_change(BACKUP, at=after(-90), path=COMMAND)
    ranking = ranked(
        command,
        a_run(at=-14),
        incident=an_incident(an_alert(after(10), name="Lacking", namespace="platform", cronjob="backup")),
        symptoms=[a_symptom(BACKUP, "CrashLoopBackOff", at=after(-10), count=4)],
        states=[a_workload(BACKUP)],
    )
    assert time(of(ranking, command))[1].startswith("Its first Job since was made 4 s before the onset")


def test_what_waits_still_did_nothing() -> None:
    waits = written(SYNC, STRATEGY, "RollingUpdate", "Recreate", at=-11.5)
    found = [one for one in rolled_out(waits).suspects if one.change.id == waits.id]
    assert all(one.rank > 1 and "first pods" not in time(one)[1] for one in found)


def test_what_acts_at_once_does_not_wait() -> None:
    image = a_change(SYNC, at=after(-60), old="sync:0.9.0", new="sync:1.0.0")
    assert time(of(rolled_out(image), image))[1].startswith("50 s before the onset")


def pool(kind: str, domain: str = "karpenter.sh") -> Resource:
    return Resource("lab", domain, kind, None, "general")


@pytest.mark.parametrize(
    ("of", "path", "waits"),
    [
        (pool("NodePool"), ("spec", "template", "spec", "requirements"), True),
        (pool("EC2NodeClass", "karpenter.k8s.aws"), ("spec", "userData"), True),
        (pool("NodePool"), ("spec", "disruption", "consolidateAfter"), False),
        (replace(pool("NodePool"), name="gpu"), ("spec", "template", "spec", "requirements"), False),
    ],
    ids=["a pool", "a class", "when nodes go", "another pool"],
)
def test_how_nodes_are_made_shows_with_the_next_one(of: Resource, path: Path, *, waits: bool) -> None:
    labels: Json = {"karpenter.sh/nodepool": "general", "karpenter.k8s.aws/ec2nodeclass": "general"}
    node = a_resource("Node", "fresh", None)
    made = a_change(node, at=after(-95), path=(), old=None, new={}, verb=Verb.CREATE)
    edit, release = a_change(of, at=after(-3_000), path=path), a_change(SYNC, at=after(-400))
    rollout = Rollout(SYNC, "uid", 2, after(-400), Outcome.RUNNING, change_id=release.id)
    pod = a_state(a_resource("Pod", "sync-5d8c7b9f6b-x2x4z", "platform"), {"spec": {"nodeName": "fresh"}})
    top = topology([a_state(node, {"metadata": {"labels": labels}}), a_workload(SYNC), pod])
    begun = started([rollout], [edit, release, made], top=top)
    assert acts_at(edit, reach(edit, top), begun) == (after(-95) if waits else None)


CONFIG = a_resource("ConfigMap", "sync-config", "platform")
DRAINED: Path = ("spec", "unschedulable")


def node_change(name: str, *, at: float, path: Path = DRAINED, new: Json = True, verb: Verb = Verb.UPDATE) -> Change:
    return a_change(a_resource("Node", name, None), at=after(at), path=path, old=None, new=new, verb=verb)


@pytest.mark.parametrize(
    ("what", "at"),
    [
        (node_change("db-1", at=-31), -31),
        (node_change("db-1", at=-31, path=(), new=None, verb=Verb.DELETE), -31),
        (node_change("db-2", at=-31), -31),
        (node_change("db-3", at=-31), None),
        (node_change("db-1", at=-31, new=False), None),
        (node_change("db-1", at=-5_000), None),
    ],
    ids=["drained", "deleted", "its pod went from there", "another node", "open again", "before the edit"],
)
def test_what_pods_read_shows_when_those_of_a_node_begin_anew(what: Change, at: float | None) -> None:
    edit = a_change(CONFIG, at=after(-4_000), path=("data", "size"))
    reads: Json = [{"name": "c", "envFrom": [{"configMapRef": {"name": CONFIG.name}}]}]
    there, gone = (
        a_state(a_resource("Pod", f"sync-5d8c7b9f6b-{suffix}", "platform"), {"spec": {"nodeName": node}})
        for suffix, node in (("x2x4z", "db-1"), ("q7w4k", "db-2"))
    )
    left = replace(gone, deleted_at=after(-20))
    top = topology([a_workload(SYNC, containers=reads), there], gone=[left])
    found = acts_at(edit, reach(edit, top), started([], [edit, what], top=top))
    assert found == (None if at is None else after(at))


def test_what_a_program_was_configured_with_is_dated_by_what_it_then_does() -> None:
    scaler = Actor("system:serviceaccount:kube-system:cluster-autoscaler", ActorSource.AUDIT)
    config = a_resource("ConfigMap", "cluster-autoscaler", "kube-system")
    edit = a_change(config, at=after(-90), path=("data", "threshold"))
    taint = a_change(
        a_resource("Node", "a", None), at=after(-14), path=("spec", "taints"), old=None, new=[], actor=scaler
    )
    reads: Json = [{"name": "c", "envFrom": [{"configMapRef": {"name": config.name}}]}]
    ranking = ranked(
        edit,
        taint,
        incident=an_incident(an_alert(after(10), name="Lacking", namespace="platform", deployment="sync")),
        symptoms=[a_symptom(SYNC, "ScaleDown", at=after(-10), count=4)],
        states=[
            a_workload(a_resource("Deployment", "cluster-autoscaler", "kube-system"), containers=reads),
            a_workload(SYNC),
            a_state(a_resource("Pod", "sync-5d8c7b9f6b-x2x4z", "platform"), {"spec": {"nodeName": "a"}}),
        ],
    )
    assert time(of(ranking, edit))[1].startswith("cluster-autoscaler first acted on it 4 s before the onset")
