"""What programs say of what they ran out of, cannot read or wrote at once, and which changes lead to it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.core.edges.causes import CONFLICT, HARDWARE, INVALID, QUOTA, RIGHTS, UNSAID, cause_of
from app.core.edges.indexing import topology
from app.core.edges.leads import Cause
from app.core.edges.program_causes import DISK, EXHAUSTED, FILE, UNFIT, UNREADABLE, USED_UP
from app.core.edges.reach import reach
from app.core.model import Change, FieldDiff, Path, Verb
from app.core.ranking.short_of import LATER, shows_within
from app.core.signals.complaints import symptom_signals
from tests.core.company import first, ranked
from tests.core.edges.test_causes import EXPIRED, image, kind, request
from tests.core.factories import a_change, a_resource, a_symptom, a_workload, after, an_alert, an_incident

NODE_CONFIG = a_resource("ConfigMap", "node-config", "kube-system")
MODIFIED = (
    'Operation cannot be fulfilled on deployments.apps "web-front": the object has been modified; '
    "please apply your changes to the latest version and try again"
)
FILES = "http: Accept error: accept tcp [::]:8080: accept4: too many open files; retrying in 5ms"
WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
PAID = "429 You exceeded your current quota (type: insufficient_quota)"
UNTRUSTED = "x509: certificate signed by unknown authority"
REFUSED = 'FATAL: password authentication failed for user "ledger"'


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (MODIFIED, CONFLICT),
        ('deployments.apps "web-front" already exists', None),
        (FILES, EXHAUSTED),
        ("Error: EMFILE, open '/srv/menu.json'", EXHAUSTED),
        ("OSError: [Errno 23] Too many open files in system", EXHAUSTED),
        ("java.lang.OutOfMemoryError: unable to create native thread: possibly out of memory", EXHAUSTED),
        ("java.lang.OutOfMemoryError: unable to create new native thread", EXHAUSTED),
        ("RuntimeError: can't start new thread", EXHAUSTED),
        ("runtime/cgo: pthread_create failed: Resource temporarily unavailable", EXHAUSTED),
        ("The configured user limit (128) on the number of inotify instances has been reached", EXHAUSTED),
        ("java.lang.OutOfMemoryError: Java heap space", None),
        (WRONG_TYPE, UNREADABLE),
        ("org.apache.kafka.common.errors.SerializationException: Unknown magic byte!", UNREADABLE),
        ("RecordDeserializationException: Error deserializing key/value for partition orders-3", UNREADABLE),
        ("java.io.InvalidClassException: corp.Cart; local class incompatible", UNREADABLE),
        ("json: cannot unmarshal string into Go struct field Event.id of type int64", UNFIT),
        ("yaml: line 3: cannot unmarshal !!str into int", None),
        ('UnrecognizedPropertyException: Unrecognized field "total" (class Order), not marked as ignorable', UNFIT),
        ("pydantic_core._pydantic_core.ValidationError: 1 validation error for Order", UNFIT),
        ('invalid type: string "12", expected u64 at line 1 column 9', UNFIT),
        ("ERR unknown command 'HGETDEL'", None),
        (PAID, USED_UP),
        ("403 Maximum credits exceeded", USED_UP),
        ("You have exceeded your daily request quota for this API", USED_UP),
        ("402 Payment Required", USED_UP),
        ("429 Too Many Requests", None),
        ("exceeded quota: compute, requested: pods=1, used: pods=8, limited: pods=8", QUOTA),
        ('pods "web-1" is forbidden: failed quota: team: must specify limits.memory for: proxy', UNSAID),
        ("open /secrets/database: no such file or directory", FILE),
        ('services "a" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to', RIGHTS),
        ('EdgeProxy "a" is invalid: [spec.listeners: Too many: 17: must have at most 16 items, <nil>', INVALID),
        ("ERROR: nextval: reached maximum value of sequence postings_id_seq (2147483647)", USED_UP),
        ("mlx5_core 0000:3b:00.0 eno1: Link is Up - 100Mbps/Full - flow control off", HARDWARE),
        ("write /data/7: disk quota exceeded", DISK),
    ],
)
def test_programs_say_in_their_own_words_what_they_cannot_do(text: str, cause: Cause | None) -> None:
    assert cause_of([text]) is cause


def written(field: str, name: str = "Deployment") -> Change:
    return kind(name, "spec", "template", "spec", field)


SCALED = kind("Deployment", "spec", "replicas", new=9)
OF_A_KIND = replace(image(), resource=replace(a_resource("Cache", "carts"), api_group="caches.example"))


@pytest.mark.parametrize(
    ("text", "change", "leads"),
    [
        (MODIFIED, SCALED, True),
        (MODIFIED, kind("ClusterRole", "rules"), True),
        (MODIFIED, kind("ConfigMap", "data"), True),
        (MODIFIED, kind("Secret", "data"), True),
        (MODIFIED, kind("MutatingWebhookConfiguration", "webhooks"), True),
        (MODIFIED, kind("CustomResourceDefinition", "spec", "versions"), True),
        (MODIFIED, kind("ValidatingWebhookConfiguration", "webhooks"), False),
        (MODIFIED, kind("Service"), False),
        (MODIFIED, kind("Node"), False),
        (FILES, image(), True),
        (FILES, request("2"), True),
        (FILES, written("env"), True),
        (FILES, written("securityContext"), True),
        (FILES, kind("Node"), True),
        (FILES, kind("DaemonSet"), True),
        (FILES, kind("NodePool"), True),
        (FILES, kind("MutatingWebhookConfiguration", "webhooks"), True),
        (FILES, SCALED, False),
        (FILES, kind("ConfigMap", "data"), False),
        (FILES, kind("Secret", "data"), False),
        (WRONG_TYPE, image(), True),
        (WRONG_TYPE, written("env"), True),
        (WRONG_TYPE, kind("CronJob"), True),
        (WRONG_TYPE, OF_A_KIND, True),
        (WRONG_TYPE, request("2"), False),
        (WRONG_TYPE, SCALED, False),
        (WRONG_TYPE, kind("ConfigMap", "data"), False),
        (PAID, written("env"), True),
        (PAID, SCALED, True),
        (PAID, kind("HorizontalPodAutoscaler", "spec", "maxReplicas"), True),
        (PAID, kind("Job"), True),
        (PAID, kind("Secret", "data"), True),
        (PAID, kind("ConfigMap", "data"), True),
        (PAID, image(), False),
        (PAID, request("2"), False),
        (PAID, kind("NetworkPolicy"), False),
    ],
)
def test_few_sorts_of_changes_lead_to_what_they_cannot_do(text: str, change: Change, leads: bool) -> None:
    cause = cause_of([text])
    assert cause is not None
    assert cause.leads(change) is leads


def setting(*pairs: tuple[str, str], name: str = "ConfigMap") -> Change:
    change = a_change(a_resource(name, "web-config"), at=after(-10))
    diffs = (FieldDiff(("data", f"key-{n}"), "replace", old, new) for n, (old, new) in enumerate(pairs))
    return replace(change, diffs=tuple(diffs))


@pytest.mark.parametrize("text", [UNTRUSTED, REFUSED])
@pytest.mark.parametrize(
    ("change", "leads"),
    [
        (setting(("30", "60")), False),
        (setting(("250ms", "2s"), ("0.5", "-1"), ("10 %", "20 %")), False),
        (setting(("30", "60"), ("ledger", "ledger_ro")), True),
        (setting(("30", "none")), True),
        (setting(("timeout = 30", "timeout = 60")), True),
        (setting(("30", "60"), name="Secret"), True),
        (setting(), True),
        (replace(setting(), verb=Verb.CREATE, diffs=(FieldDiff((), "add", None, {"data": {"a": "30"}}),)), True),
    ],
)
def test_numbers_of_a_config_map_say_nothing_of_who_is_let_in_or_trusted(
    text: str, change: Change, leads: bool
) -> None:
    cause = cause_of([text])
    assert cause is not None
    assert cause.leads(change) is leads


def certified(name: str, *keys: str) -> Change:
    change = kind(name)
    return replace(change, diffs=tuple(FieldDiff(("data", key), "replace", "a", "b") for key in keys))


@pytest.mark.parametrize(
    ("change", "leads"),
    [
        (certified("ConfigMap", "ca.crt"), False),
        (certified("Secret", "ca.crt"), False),
        (certified("Secret", "tls.crt"), True),
        (certified("Secret", "ca.crt", "tls.crt"), True),
        (certified("ConfigMap", "tls.crt"), True),
        (certified("ConfigMap", "ca.crt", "tls.crt"), True),
        (certified("Secret", "token"), True),
        (kind("APIService", "spec", "caBundle"), True),
        (kind("Certificate", "spec", "duration"), True),
        (kind("ConfigMap", "data", "motd"), False),
    ],
)
def test_whom_to_trust_lets_no_certificate_expire(change: Change, leads: bool) -> None:
    cause = cause_of([EXPIRED])
    assert cause is not None
    assert cause.leads(change) is leads


@pytest.mark.parametrize("name", ["ConfigMap", "Secret"])
def test_whom_to_trust_decides_who_is_trusted(name: str) -> None:
    cause = cause_of([UNTRUSTED])
    assert cause is not None
    assert cause.leads(certified(name, "ca.crt"))


def test_one_more_pod_is_not_why_a_quota_asks_what_pods_say() -> None:
    """What gives pods another container is: those that were there had passed."""
    more = a_change(a_resource("Deployment", "web"), at=after(-2), path=("spec", "replicas"), old=3, new=6)
    assert UNSAID.leads(kind("MutatingWebhookConfiguration", verb=Verb.CREATE))
    assert UNSAID.leads(kind("ResourceQuota"))
    assert not UNSAID.leads(more)
    assert QUOTA.leads(more)


@pytest.mark.parametrize(
    ("of", "path", "old", "new", "leads"),
    [
        ("PersistentVolumeClaim", ("spec", "resources", "requests", "storage"), "20Gi", "24Gi", False),
        ("PersistentVolume", ("spec", "capacity", "storage"), "900Mi", "1Gi", False),
        ("PersistentVolumeClaim", ("spec", "resources", "requests", "storage"), "24Gi", "20Gi", True),
        ("PersistentVolumeClaim", ("spec", "volumeName"), "data-1", "data-2", True),
    ],
)
def test_a_disk_is_not_full_for_being_larger(
    of: str, path: tuple[str, ...], old: str, new: str, *, leads: bool
) -> None:
    assert DISK.leads(a_change(a_resource(of, "data"), path=path, old=old, new=new)) is leads


@pytest.mark.parametrize(("old", "new", "leads"), [("20", "30", False), ("/events", "/v2/events", True)])
def test_what_has_another_form_comes_from_no_number_of_the_settings(old: str, new: str, leads: bool) -> None:
    change = a_change(a_resource("ConfigMap", "refunds"), path=("data", "SETTING"), old=old, new=new)
    assert UNFIT.leads(change) is leads


SYSCTL: Path = ("spec", "template", "spec", "initContainers", (("name", "sysctl"),), "command")
WATCHERS = "fs.inotify.max_user_instances=8192"
IPV4 = "net.ipv4.ip_local_port_range = 1024 6500{}\n"
BESIDE = f"{WATCHERS}\n# revision "


@pytest.mark.parametrize(
    ("change", "leads"),
    [
        (a_change(a_resource("DaemonSet", "tuning", "ops"), path=SYSCTL, old=WATCHERS, new=WATCHERS[:-1]), True),
        (a_change(a_resource("ConfigMap", "tuning", "ops"), path=("data", "a.conf"), old="", new=WATCHERS), True),
        (a_change(a_resource("ConfigMap", "tuning", "ops"), path=("data", "a.conf"), old="", new="fs=8192"), False),
        (
            a_change(
                a_resource("ConfigMap", "tuning", "ops"), path=("data", "a"), old=IPV4.format(1), new=IPV4.format(2)
            ),
            True,
        ),
        (
            a_change(a_resource("ConfigMap", "tuning", "ops"), path=("data", "a"), old=BESIDE + "1", new=BESIDE + "2"),
            False,
        ),
        (
            a_change(a_resource("ConfigMap", "tuning", "ops"), path=("data", "a"), old="", new="http://api.net.local"),
            False,
        ),
        (a_change(a_resource("Deployment", "web", "ops"), path=SYSCTL, old="", new=WATCHERS), False),
    ],
)
def test_what_the_kernel_lets_all_have_is_met_by_whoever_asks_next(change: Change, *, leads: bool) -> None:
    assert (reach(change, topology([])).get(("agent", "kernel")) == 0) is leads
    told = a_symptom(a_resource("Deployment", "web", "shop"), "Error", at=after(0), message=FILES, count=9)
    (signal,) = symptom_signals([told], start=after(-60), end=after(30))
    assert ("agent", "kernel") in signal.about
    assert shows_within(change, signal) == (LATER if leads else None)


KUBELET: Path = ("data", "kubelet")
SMALLER = "kind: KubeletConfiguration\nsystemReserved:\n  memory: {}\n"


@pytest.mark.parametrize(
    ("change", "leads"),
    [
        (a_change(NODE_CONFIG, path=KUBELET, old=SMALLER.format("1Gi"), new=SMALLER.format("9Gi")), True),
        (
            a_change(NODE_CONFIG, path=KUBELET, old=SMALLER.format("1Gi"), new=SMALLER.format("1Gi") + "logLevel: 4\n"),
            False,
        ),
        (a_change(a_resource("Deployment", "web"), path=("spec", "maxPods"), old=1, new=2), False),
    ],
)
def test_what_kubelets_keep_from_pods_is_lacked_by_the_next_of_them(change: Change, *, leads: bool) -> None:
    assert (("scheduling",) in reach(change, topology([]))) is leads


def test_it_is_suspected_where_pods_find_no_room() -> None:
    web = a_resource("Deployment", "web", "shop")
    none = "0/6 nodes are available: 6 Insufficient memory."
    ranking = ranked(
        a_change(NODE_CONFIG, at=after(-40), path=KUBELET, old=SMALLER.format("1Gi"), new=SMALLER.format("9Gi")),
        a_change(web, at=after(-3)),
        incident=an_incident(an_alert(after(30), name="KubePodNotReady", namespace="shop")),
        symptoms=[a_symptom(web, "FailedScheduling", at=after(0), message=none, count=5)],
        states=[a_workload(web)],
    )
    assert first(ranking) == ("ConfigMap", "node-config")
