"""What shows long after a change as a rule: as more is asked of what it left less, or as what a release takes is used
up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace as of
from datetime import timedelta

import pytest
from msgspec.structs import replace

from app.core.edges.causes import RECORDS
from app.core.edges.indexing import topology
from app.core.findings import Evidence
from app.core.model import Change, Json, Outcome, Path, Rollout, Symptom, Verb
from app.core.ranking.meant import with_meant
from app.core.ranking.short_of import FILLED, INTERVALS, LATER, is_full, shows_within, with_alerted
from app.core.signals.complaints import symptom_signals
from app.core.signals.signal import Signal
from tests.core.company import ranked
from tests.core.factories import a_change, a_resource, a_state, a_symptom, a_workload, after, an_alert, an_incident

WEB = a_resource("Deployment", "web", "shop")
INDEX = a_resource("Job", "index", "shop")
CURATOR = a_resource("CronJob", "curator", "shop")
STREAM = replace(a_resource("Stream", "orders", "bus"), api_group="jetstream.nats.io")
IMAGE = ("spec", "template", "spec", "containers", (("name", "a"),), "image")
KILLED = "Container a was OOMKilled, exit code 137"
LATE = "Readiness probe failed: context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
AGO = -900.0


def env(name: str) -> Path:
    return (*IMAGE[:-1], "env", (("name", name),), "value")


def killed() -> Symptom:
    return a_symptom(WEB, "OOMKilled", at=after(0), message=KILLED, count=9)


def late() -> Symptom:
    return a_symptom(WEB, "Unhealthy", at=after(0), message=LATE, count=9)


def released() -> Change:
    return a_change(WEB, at=after(AGO), path=IMAGE, old="r/web:1", new="r/web:2")


def fewer() -> Change:
    return a_change(WEB, at=after(AGO), path=("spec", "replicas"), old=9, new=3)


def evidence(change: Change, *symptoms: Symptom, between: Iterable[Change] = ()) -> dict[str, Evidence]:
    """What is said of a change of a quarter of an hour ago whose rollout went through, by rule."""
    rollout = Rollout(WEB, "uid", 2, after(AGO), Outcome.COMPLETE, after(AGO + 30), change.id)
    ranking = ranked(
        change,
        *between,
        incident=an_incident(an_alert(after(30), name="Down", namespace="shop", deployment="web")),
        symptoms=list(symptoms),
        states=[a_workload(WEB)],
        rollouts=[rollout],
    )
    (suspect,) = (one for one in ranking.suspects if one.change.resource == WEB)
    return {one.rule: one for one in suspect.evidence}


@pytest.mark.parametrize(
    ("change", "shows", "other"), [(released(), killed(), late()), (fewer(), late(), killed())], ids=["leak", "fewer"]
)
def test_a_quarter_of_an_hour_of_well_pods_speaks_less_against_what_comes_later(
    change: Change, shows: Symptom, other: Symptom
) -> None:
    later, at_once = evidence(change, shows), evidence(change, other)
    assert later["time"].weight > at_once["time"].weight + 1.0
    spoken = later["rollout"].weight if "rollout" in later else 0.0
    assert at_once["rollout"].weight < spoken


def test_pods_that_an_autoscaler_put_there_with_other_room_used_nothing_up_yet() -> None:
    evicted = a_symptom(WEB, "EvictedByVPA", at=after(-60), message="Pod was evicted by VPA Updater", count=2)
    anew, since = evidence(released(), killed(), evicted), evidence(released(), killed())
    assert anew["time"].weight < since["time"].weight - 1.0


def test_it_still_explains_what_is_complained_of() -> None:
    plain = a_change(WEB, at=after(AGO), path=(*IMAGE[:-1], "args"), old=["--v=1"], new=["--v=2"])
    assert evidence(released(), killed())["symptoms"].weight > 1.5 * evidence(plain, killed())["symptoms"].weight
    assert evidence(fewer(), late())["symptoms"].weight > 1.5 * evidence(plain, late())["symptoms"].weight


@pytest.mark.parametrize(
    ("message", "comes_later"),
    [
        ("HikariPool-1 - Connection is not available, request timed out after 30000ms (total=20, active=20)", True),
        ("QueuePool limit of size 5 overflow 10 reached, connection timed out", True),
        ("ReplyError: OOM command not allowed when used memory > 'maxmemory'.", True),
        ("OSError: [Errno 28] No space left on device", True),
        ("dial tcp 10.0.0.7:80: connect: connection refused", False),
        ("could not get connection: connection refused by target connection", False),
        ("psycopg_pool.PoolTimeout: couldn't get a connection after 30.00 sec", True),
    ],
)
def test_what_a_release_takes_and_does_not_give_back_is_used_up_in_time(message: str, *, comes_later: bool) -> None:
    told = evidence(released(), a_symptom(WEB, "Error", at=after(0), message=message, count=9))
    assert (told["time"].weight > -0.5) is comes_later
    assert (told["rollout"].weight > -2.0) is comes_later


def test_how_much_a_heap_may_hold_is_held_in_time() -> None:
    options = (*IMAGE[:-1], "env", (("name", "JAVA_TOOL_OPTIONS"),), "value")
    heap = a_change(WEB, at=after(AGO), path=options, old="", new="-XX:MaxRAMPercentage=95")
    traced = a_change(WEB, at=after(AGO), path=options, old="", new="-Dtrace=on")
    assert evidence(heap, killed())["time"].weight > evidence(traced, killed())["time"].weight + 1.0


@pytest.mark.parametrize(
    ("kind", "reason", "within"),
    [
        ("StorageClass", "FailedScheduling", LATER),
        ("EC2NodeClass", "FailedCreatePodSandBox", INTERVALS),
        ("NodePool", "FailedScheduling", INTERVALS),
        ("NodePool", "Unhealthy", None),
        ("PeerAuthentication", "Error", LATER),
        ("VirtualService", "Error", None),
        ("StorageClass", "Unhealthy", None),
        ("ClusterSecretStore", "Unhealthy", INTERVALS),
        ("KubernetesAuthEngineRole", "Error", INTERVALS),
        ("VerticalPodAutoscaler", "EvictedByVPA", INTERVALS),
        ("NetworkPolicy", "Unhealthy", LATER),
        ("CiliumNetworkPolicy", "Unhealthy", LATER),
        ("Deployment", "FailedScheduling", None),
    ],
)
def test_what_says_how_the_next_ones_are_made_waits_for_these(kind: str, reason: str, within: timedelta | None) -> None:
    change = a_change(a_resource(kind, "web", "shop"), at=after(AGO), path=("spec", "x"), old=1, new=2)
    assert shows_within(change, complaint(reason)) == within


def complaint(reason: str, message: str = "") -> Signal:
    told = a_symptom(WEB, reason, at=after(0), message=message, count=9)
    return symptom_signals([told], start=after(-60), end=after(30))[0]


REFUSED = 'pods is forbidden: User "system:serviceaccount:shop:web" cannot list resource "pods" in API group ""'
EVICTED = "Pod ephemeral local storage usage exceeds the total limit of containers 2Gi. "
STORE = "nats: API error: code=503 err_code=10077 description=maximum bytes exceeded"
SETTINGS, LEVELS = a_resource("ConfigMap", "web", "shop"), "log_level: info\nroute: "
TTL = (*IMAGE[:-1], "env", (("name", "TTL_SECONDS"),), "value")
LEVEL_OF_WEB = (*IMAGE[:-1], "env", (("name", "LOG_LEVEL"),), "value")
LOW = "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 9Gi. "
PARTS = "code: 252, message: Too many parts (3001) in table 'stats.viewers'. Merges are processing"
SCALER, KEDA = a_resource("HorizontalPodAutoscaler", "web", "shop"), a_resource("ScaledObject", "web", "shop")
UP = ("spec", "behavior", "scaleUp", "selectPolicy")
DOWN = ("spec", "behavior", "scaleDown", "selectPolicy")
SCALE_IN = ("metadata", "annotations", "autoscaling.keda.sh/paused-scale-in")
ONE: Json = {"type": "Pods", "value": 1, "periodSeconds": 300}
POLICY = ("spec", "behavior", "scaleUp", "policies", (("type", "Pods"),))
BEHAVIOR: Json = {"scaleUp": {"selectPolicy": "Disabled"}}
POOL = "HikariPool-1 - Connection is not available, request timed out after 30000ms (total=20, active=20)"
PAUSED = ("metadata", "annotations", "autoscaling.keda.sh/paused-replicas")
BY_CPU = ("spec", "metrics", (("type", "Resource"), ("resource.name", "cpu")))
QUOTA, CLASS = a_resource("ResourceQuota", "pods", "shop"), a_resource("StorageClass", "fast", None)
FULL_QUOTA = 'pods "web-1" is forbidden: exceeded quota: pods, requested: pods=1, used: pods=4, limited: pods=4'
LEVEL, ROUTE, MOST = ("data", "LOG_LEVEL"), ("data", "ROUTE"), ("spec", "maxBytes")


@pytest.mark.parametrize(
    ("change", "told", "within"),
    [
        (a_change(a_resource("RoleBinding", "web", "shop"), verb=Verb.DELETE), ("Error", REFUSED), LATER),
        (a_change(a_resource("RoleBinding", "web", "shop"), verb=Verb.DELETE), ("Error", LATE), None),
        (
            a_change(a_resource("ConfigMap", "web", "shop"), path=LEVEL, old="INFO", new="TRACE"),
            ("Evicted", EVICTED),
            LATER,
        ),
        (a_change(a_resource("ConfigMap", "web", "shop"), path=LEVEL, old="INFO", new="TRACE"), ("Error", LATE), None),
        (a_change(a_resource("ConfigMap", "web", "shop"), path=ROUTE, old="a", new="b"), ("Evicted", EVICTED), None),
        (a_change(SETTINGS, path=("data", "a"), old=f"{LEVELS}a", new=f"{LEVELS}b"), ("Evicted", EVICTED), None),
        (a_change(SETTINGS, path=("data", "catalog"), old="a", new="b"), ("Evicted", EVICTED), None),
        (a_change(WEB, path=TTL, old="900", new="0"), ("Error", STORE), INTERVALS),
        (a_change(WEB, path=TTL, old="900", new="0"), ("OOMKilled", KILLED), INTERVALS),
        (a_change(WEB, path=TTL, old="900", new="0"), ("Error", LATE), None),
        (a_change(WEB, path=IMAGE[:-1], old="ttl", new="ttl"), ("Error", STORE), None),
        (a_change(STREAM, path=("spec", "ttlStrategy"), old={"a": 1}), ("OOMKilled", KILLED), INTERVALS),
        (a_change(SETTINGS, path=("data", "LOG_LEVEL"), old="INFO", new="TRACE"), ("Evicted", LOW), LATER),
        (a_change(WEB, path=LEVEL_OF_WEB, old="INFO", new="TRACE"), ("Evicted", LOW), LATER),
        (released(), ("Error", PARTS), FILLED),
        (a_change(WEB, path=env("sessionTTL"), old="60", new="600"), ("Error", STORE), INTERVALS),
        (a_change(WEB, path=env("sessionTTL"), old="600", new="60"), ("Error", STORE), None),
        (a_change(WEB, path=env("THROTTLE"), old="60", new="600"), ("Error", STORE), None),
        (a_change(WEB, path=env("CORS_MAX_AGE"), old="600", new="3600"), ("OOMKilled", KILLED), None),
        (a_change(WEB, path=env("JWT_EXPIRES_IN"), old="1h", new="8h"), ("OOMKilled", KILLED), None),
        (a_change(WEB, path=env("COOKIE_TTL"), old="600", new="3600"), ("OOMKilled", KILLED), None),
        (a_change(WEB, path=env("REDIS_CACHE_HOST"), old="a", new="b"), ("Error", STORE), None),
        (a_change(WEB, path=env("OTEL_TRACES_SAMPLER"), old="a", new="b"), ("Error", POOL), None),
        (a_change(SETTINGS, path=LEVEL, old="INFO", new="TRACE"), ("Error", POOL), None),
        (a_change(SCALER, path=("spec", "behavior"), new=BEHAVIOR), ("Unhealthy", LATE), FILLED),
        (a_change(KEDA, path=SCALE_IN, new="true"), ("Unhealthy", LATE), None),
        (
            a_change(SCALER, path=("spec", "behavior"), old=None, new={"scaleUp": {"policies": [ONE]}}),
            ("Unhealthy", LATE),
            FILLED,
        ),
        (
            a_change(SCALER, path=("spec", "behavior"), old=None, new={"scaleDown": {"policies": [ONE]}}),
            ("Unhealthy", LATE),
            None,
        ),
        (a_change(SCALER, path=(*POLICY, "value"), old=4, new=1), ("Unhealthy", LATE), FILLED),
        (a_change(SCALER, path=(*POLICY, "value"), old=1, new=4), ("Unhealthy", LATE), None),
        (a_change(SCALER, path=(*POLICY, "periodSeconds"), old=15, new=300), ("Unhealthy", LATE), FILLED),
        (a_change(SCALER, path=UP, old="Max", new="Disabled"), ("Unhealthy", LATE), FILLED),
        (a_change(SCALER, path=UP, old="Max", new="Disabled"), ("Error", REFUSED), None),
        (a_change(SCALER, path=UP, old="Disabled", new="Max"), ("Unhealthy", LATE), None),
        (a_change(SCALER, path=DOWN, old="Max", new="Disabled"), ("Unhealthy", LATE), None),
        (a_change(SCALER, verb=Verb.DELETE), ("Unhealthy", LATE), FILLED),
        (a_change(KEDA, path=PAUSED, new="1"), ("Unhealthy", LATE), FILLED),
        (a_change(KEDA, path=PAUSED, old="1", new=None), ("Unhealthy", LATE), None),
        (a_change(SCALER, path=BY_CPU, old={"type": "Resource"}, new=None), ("Unhealthy", LATE), FILLED),
        (a_change(SCALER, path=BY_CPU, old=None, new={"type": "Resource"}), ("Unhealthy", LATE), None),
        (a_change(SCALER, path=(*BY_CPU, "averageUtilization"), old=40, new=80), ("Unhealthy", LATE), LATER),
        (a_change(KEDA, path=("spec", "triggers", 0, "metadata", "value"), old="2", new="20"), ("Error", LATE), LATER),
        (a_change(KEDA, path=("spec", "triggers", 0, "metadata", "value"), old="20", new="2"), ("Error", LATE), None),
        (a_change(QUOTA, path=("spec", "hard"), new={"pods": "4"}), ("FailedCreate", FULL_QUOTA), INTERVALS),
        (a_change(replace(QUOTA, name="most")), ("FailedCreate", FULL_QUOTA), LATER),
        (a_change(QUOTA), ("Error", FULL_QUOTA), None),
        (a_change(CLASS), ("ProvisioningFailed", 'with StorageClass "fast": too high'), INTERVALS),
        (a_change(CLASS), ("ProvisioningFailed", "it is faster than fast-1"), None),
        (a_change(INDEX, verb=Verb.CREATE), ("Unhealthy", LATE), LATER),
        (a_change(INDEX, verb=Verb.DELETE), ("Unhealthy", LATE), None),
        (a_change(replace(INDEX, name="web"), verb=Verb.CREATE), ("Unhealthy", LATE), None),
        (a_change(STREAM, path=MOST, old=10**11, new=10**10), ("Error", STORE), LATER),
        (a_change(CURATOR, path=("spec", "suspend"), old=False, new=True), ("Error", STORE), INTERVALS),
        (a_change(CURATOR, path=("spec", "suspend"), old=True, new=False), ("Error", STORE), None),
        (a_change(CURATOR, path=("spec", "suspend"), old=False, new=True), ("Error", LATE), None),
    ],
)
def test_what_is_written_kept_or_asked_for_later_shows_then(
    change: Change, told: tuple[str, str], within: timedelta | None
) -> None:
    assert shows_within(change, complaint(*told)) == within


REDIS = a_resource("StatefulSet", "redis", "shop")


@pytest.mark.parametrize(
    ("name", "message", "named", "told"),
    [
        ("RedisOutOfConfiguredMaxmemory", "", "redis", True),
        ("StoreFull", "redis-0 uses 100% of its maxmemory", "redis", True),
        ("StoreFull", "the filesystem of redis-0 is full", "redis", True),
        ("DiskUsage", "Disk usage is at 95%", "redis", True),
        ("SpaceLow", "Space on /data: 95% used", "redis", True),
        ("StoreBusy", "redis-0 uses 100% of its cpu", "redis", False),
        ("Down", "redis is down: JVM memory fine, full GC ran before it", "redis", False),
        ("BackupFailed", "volume snapshot: full backup failed", "redis", False),
        ("StoreSlow", "its storage is not yet full", "redis", False),
        ("StoreFull", "redis-0 uses 100% of its maxmemory", "other", False),
    ],
)
def test_what_an_alert_says_is_full_is_told_of_what_it_names_and_who_calls_that(
    name: str, message: str, named: str, *, told: bool
) -> None:
    web = a_workload(WEB, containers=[{"name": "a", "env": [{"name": "REDIS", "value": "redis.shop:6379"}]}])
    service = a_state(a_resource("Service", "redis", "shop"), {"spec": {"selector": {"app": "redis"}}})
    top = topology([web, service, a_workload(REDIS, labels={"app": "redis"})])
    incident = an_incident(an_alert(after(30), name=name, message=message, namespace="shop", statefulset=named))
    signal, crash = with_alerted(
        [complaint("Unhealthy", LATE), complaint("Error", "panic: nil map")], with_meant(incident, top), top
    )
    assert is_full(signal) is told
    assert not is_full(crash), "it says why itself"


def test_a_record_of_a_name_is_known_until_it_ends() -> None:
    keeper = a_change(a_resource("Deployment", "external-dns", "dns"), path=IMAGE[:-1], new=["--policy=sync"])
    missing = complaint("Error", "dial tcp: lookup web.corp.example: no such host")
    assert shows_within(keeper, missing) is None
    assert shows_within(keeper, of(missing, cause=RECORDS)) == LATER
    assert shows_within(released(), of(missing, cause=RECORDS)) is None


def test_how_many_came_between_says_nothing_of_what_comes_later() -> None:
    between = [a_change(a_resource("ConfigMap", f"a-{n}", f"b-{n}"), at=after(n - 500), new=n) for n in range(100)]
    few, many = evidence(released(), killed()), evidence(released(), killed(), between=between)
    assert few["time"].weight == many["time"].weight
