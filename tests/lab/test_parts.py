"""The parts of the laboratory that need no cluster."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import orjson
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from tests.lab import disks, metadata, tokens
from tests.lab.alerts import Rule, payload
from tests.lab.api import KINDS, Caller, Json, World, path
from tests.lab.apps import App, Container, diagnose, mebibytes
from tests.lab.copied import copy_each
from tests.lab.families.sharing import linked
from tests.lab.manifests import env_keys, followed, has_pods, mounted, mounts_token
from tests.lab.monitoring import Monitoring
from tests.lab.record import arguments, main
from tests.lab.scenario import EVEN_SINCE, SPLIT, load, part, split
from tests.lab.scraping import Scrapes
from tests.lab.volumes import held_elsewhere, twice_attached

AT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def empty_world() -> World:
    return World(Caller(httpx2.AsyncClient(), "nobody", "", "test"))


def container(**spec: object) -> Container:
    pod: Json = {"metadata": {"namespace": "shop", "name": "a-1"}, "spec": {"containers": [{"name": "a", **spec}]}}
    return Container(pod, "1.0.0", {}, {})


def test_every_family_has_its_part_and_nobody_chose_it() -> None:
    families = load()
    kept = json.loads(SPLIT.read_text())
    assert kept == split(families.values())
    assert len(families) >= 20
    for parts in ("dev", "test"):
        culprits = [one.culprit for one in families.values() if part(one.name) == parts]
        assert culprits.count(False) >= 2
        assert culprits.count(True) >= 10


def test_families_that_join_later_leave_the_others_where_they_were() -> None:
    families = load().values()
    whole = split(families)
    for joined in range(1, max(one.joined for one in families) + 1):
        earlier = [one for one in families if one.joined <= joined]
        assert split(earlier) == {one.name: whole[one.name] for one in earlier}


def test_since_the_fourth_time_the_halves_of_those_that_join_are_equal() -> None:
    families = load().values()
    for joined in range(EVEN_SINCE, max(one.joined for one in families) + 1):
        parts = [part(one.name) for one in families if one.joined == joined]
        assert abs(parts.count("dev") - parts.count("test")) <= 1


def test_a_family_that_joins_does_not_come_in_without_a_part() -> None:
    with pytest.raises(KeyError):
        part("no-such-family")


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        ("Pod", "/api/v1/namespaces/shop/pods/a"),
        ("NetworkPolicy", "/apis/networking.k8s.io/v1/namespaces/shop/networkpolicies/a"),
        ("StorageClass", "/apis/storage.k8s.io/v1/storageclasses/a"),
    ],
)
def test_paths_are_those_of_the_api_server(kind: str, where: str) -> None:
    assert path(kind, "shop", "a") == where
    assert KINDS[kind].group == (where.split("/")[2] if where.startswith("/apis") else "")


def test_a_rule_fires_once_it_held_for_long_enough_and_starts_anew_after_a_break() -> None:
    bad = [True, False, True, True, True]
    rule = Rule("PodsGone", lambda: bad.pop(0), {"namespace": "shop"}, "pods are gone", seconds=2)
    fired = []
    for second in range(5):
        rule.evaluate(AT + timedelta(seconds=second), delay=0)
        fired.append(rule.fired)
    assert fired == [None] * 4 + [AT + timedelta(seconds=4)]


def test_all_is_well_while_no_rule_holds() -> None:
    bad, monitoring = [True, False], Monitoring()
    monitoring.rules = [Rule(name, lambda: bad[0], {}, "", seconds=2) for name in ("PodsGone", "Slow")]
    assert not monitoring.is_well()
    bad.pop(0)
    assert monitoring.is_well()


def test_an_alert_that_is_late_holds_for_longer_and_one_with_a_wrong_time_says_another() -> None:
    rule = Rule("PodsGone", lambda: True, {}, "pods are gone", seconds=2)
    for second in range(8):
        rule.evaluate(AT + timedelta(seconds=second), delay=5)
    assert rule.fired == AT + timedelta(seconds=7)
    [alert] = payload([rule], shift=-15)["alerts"]
    assert datetime.fromisoformat(alert["startsAt"]) == AT - timedelta(seconds=8)


def test_what_a_container_is_like_follows_from_its_manifest() -> None:
    app = App("a", memory_mi=100, path="/healthz", load=250, capacity=100)
    world = empty_world()
    small = diagnose(app, container(resources={"limits": {"memory": "64Mi"}}), world, running=3)
    wrong = container(readinessProbe={"httpGet": {"path": "/ready", "port": 8080}})
    probed = diagnose(app, wrong, world, running=3)
    busy = diagnose(app, container(), world, running=2)
    assert [one.kind if one else None for one in (small, probed, busy)] == ["oom", "unready", "unready"]
    assert probed
    assert "404" in probed.message
    assert diagnose(app, container(), world, running=3) is None


def test_a_sidecar_has_a_manifest_of_its_own() -> None:
    pod = container(resources={"limits": {"memory": "512Mi"}}).pod
    pod["spec"]["containers"].append({"name": "proxy", "resources": {"limits": {"memory": "64Mi"}}})
    app, world = App("proxy", memory_mi=100), empty_world()
    found = diagnose(app, Container(pod, "1.0.0", {}, {}, index=1), world, running=1)
    assert found
    assert found.kind == "oom"
    assert diagnose(app, Container(pod, "1.0.0", {}, {}), world, running=1) is None


@pytest.mark.parametrize(
    ("load", "timeout", "falls"),
    [(40, 1, False), (120, 5, False), (120, 1, True)],
)
def test_a_busy_container_answers_its_liveness_probe_late(load: float, timeout: int, *, falls: bool) -> None:
    app = App("a", capacity=50, load=load, answer_seconds=0.4)
    probe = {"httpGet": {"path": "/healthz", "port": 8080}, "timeoutSeconds": timeout}
    found = diagnose(app, container(livenessProbe=probe), empty_world(), running=3)
    assert (found.kind if found else "") == ("killed" if falls else "")


def test_a_token_says_whose_it_is_until_when_and_is_signed(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    plain = serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    file = tmp_path / "service-accounts.key"
    file.write_bytes(key.private_bytes(serialization.Encoding.PEM, *plain))
    head, claims, signature = tokens.given(file, "shop", "exporter", "u-1", expires=1.9e9).split(".")
    told = json.loads(unpadded(claims))
    assert (told["sub"], told["exp"]) == ("system:serviceaccount:shop:exporter", 1_900_000_000)
    both = (int.from_bytes(unpadded(signature)[:32]), int.from_bytes(unpadded(signature)[32:]))
    signed = f"{head}.{claims}".encode()
    key.public_key().verify(encode_dss_signature(*both), signed, ec.ECDSA(hashes.SHA256()))
    pod = {"metadata": {"name": "exporter-0", "uid": "u-2", "namespace": "shop"}}
    claims = tokens.given(file, "shop", "exporter", "u-1", expires=1.9e9, pod=pod).split(".")[1]
    assert json.loads(unpadded(claims))["kubernetes.io"]["pod"] == {"name": "exporter-0", "uid": "u-2"}


def unpadded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


@pytest.mark.parametrize(
    ("probes", "seconds", "kind", "probe"),
    [
        (("livenessProbe",), 2, "unready", "Liveness"),
        (("livenessProbe",), 4, "killed", "Liveness"),
        (("livenessProbe", "startupProbe"), 4, "starting", "Startup"),
        (("livenessProbe", "startupProbe"), 30, "killed", "Startup"),
        (("livenessProbe",), 50, "", ""),
        ((), 4, "unready", "Liveness"),
    ],
)
def test_who_starts_slowly_needs_a_startup_probe(
    probes: tuple[str, ...], seconds: float, kind: str, probe: str
) -> None:
    get = {"path": "/healthz", "port": 8080}
    thresholds = {"livenessProbe": 3, "startupProbe": 30}
    asked = {one: {"httpGet": get, "periodSeconds": 1, "failureThreshold": thresholds[one]} for one in probes}
    young = dataclasses.replace(container(**asked), seconds=seconds)
    found = diagnose(App("a", start_seconds=40), young, empty_world(), running=1)
    assert ((found.kind, found.probe) if found else ("", "")) == (kind, probe)


@pytest.mark.parametrize(
    ("kind", "status", "made"),
    [
        ("Deployment", {}, False),
        ("Deployment", {"observedGeneration": 1, "replicas": 2}, False),
        ("Deployment", {"observedGeneration": 2, "replicas": 1}, False),
        ("StatefulSet", {"observedGeneration": 2, "replicas": 2}, True),
        ("DaemonSet", {"observedGeneration": 2, "currentNumberScheduled": 2, "desiredNumberScheduled": 3}, False),
        ("DaemonSet", {"observedGeneration": 2, "currentNumberScheduled": 3, "desiredNumberScheduled": 3}, True),
    ],
)
def test_a_workload_has_its_pods_once_its_controller_says_so(kind: str, status: Json, made: bool) -> None:
    thing = {"kind": kind, "metadata": {"generation": 2}, "spec": {"replicas": 2}, "status": status}
    assert has_pods(thing) is made


def test_names_outside_need_the_resolver() -> None:
    app = App("a", abroad=("smtp.example",))
    assert diagnose(app, container(), empty_world(), running=1) is None
    found = diagnose(app, container(), empty_world(), running=1, resolver_up=False)
    assert found
    assert "smtp.example" in found.message


@pytest.mark.parametrize(
    ("node", "modes", "held"),
    [
        ("a", ["ReadWriteOnce"], ""),
        ("b", ["ReadWriteOnce"], "data"),
        ("b", ["ReadWriteMany"], ""),
        ("b", ["ReadWriteOnce", "ReadOnlyMany"], ""),
        ("b", [], ""),
    ],
)
def test_a_volume_that_one_node_may_write_is_not_attached_to_a_second(node: str, modes: list[str], held: str) -> None:
    world = empty_world()
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "wiki"}}]

    def pod(name: str, where: str) -> Json:
        meta = {"namespace": "shop", "name": name}
        return {"metadata": meta, "spec": {"nodeName": where, "volumes": volumes}, "status": {"phase": "Running"}}

    claim: Json = {"spec": {"accessModes": modes, "volumeName": "pvc-7"}}
    world._objects = {"Pod": {("shop", "old"): pod("old", "a")}, "PersistentVolumeClaim": {("shop", "wiki"): claim}}
    assert held_elsewhere(world, pod("new", node)) == held
    told = 'Multi-Attach error for volume "pvc-7" Volume is already used by pod(s) old'
    assert twice_attached(world, pod("new", node)) == (told if held else "")
    assert not twice_attached(world, pod("new", ""))


def test_the_keys_that_an_environment_is_taken_from() -> None:
    reference = {"name": "db", "key": "password"}
    env = [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"secretKeyRef": reference}}]
    assert env_keys(container(env=env).pod) == [("Secret", "db", "password")]


def test_of_a_projected_volume_every_map_is_mounted_in_its_turn_but_for_what_all_pods_have() -> None:
    sources = [{"configMap": {"name": one}} for one in ("kube-root-ca.crt", "own", "defaults")]
    volume = {"name": "config", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}, *sources]}}
    assert mounted({"spec": {"volumes": [volume]}}) == [("ConfigMap", "own"), ("ConfigMap", "defaults")]


@pytest.mark.parametrize(
    ("volume", "has_it"),
    [
        ({"projected": {"sources": [{"configMap": {}}, {"serviceAccountToken": {"path": "token"}}]}}, True),
        ({"projected": {"sources": [{"configMap": {}}]}}, False),
        ({"configMap": {"name": "a"}}, False),
    ],
)
def test_whether_a_pod_mounts_a_token(volume: Json, has_it: bool) -> None:
    pod: Json = {"metadata": {"namespace": "shop", "name": "a-1"}, "spec": {"volumes": [{"name": "v", **volume}]}}
    assert mounts_token(pod) is has_it
    assert not mounts_token({"spec": {}})


@pytest.mark.parametrize(
    ("seconds", "more", "variables"),
    [
        (60, {}, {"MY_CACHE_PORT": "tcp://10.0.0.7:6379"}),
        (600, {}, {}),
        (60, {"enableServiceLinks": False}, {}),
    ],
)
def test_a_container_is_told_of_the_services_that_were_there_as_it_started(
    seconds: float, more: Json, variables: dict[str, str]
) -> None:
    world = empty_world()
    meta = {"creationTimestamp": (datetime.now(UTC) - timedelta(seconds=300)).isoformat()}
    service: Json = {"metadata": meta, "spec": {"clusterIP": "10.0.0.7", "ports": [{"port": 6379}]}}
    world._objects = {"Service": {("shop", "my-cache"): service, ("media", "other"): service}}
    one = dataclasses.replace(container(), seconds=seconds)
    one.pod["spec"].update(more)
    assert linked(world, one) == variables


@pytest.mark.parametrize(("quantity", "size"), [("128Mi", 128), ("1Gi", 1024), ("512Ki", 0.5), ("1048576", 1)])
def test_memory_quantities(quantity: str, size: float) -> None:
    assert mebibytes(quantity) == size


def test_scrapes_become_openmetrics_with_their_times() -> None:
    scrapes = Scrapes()
    told = """# TYPE depth gauge
depth{name="a b"} 3
# TYPE calls_total counter
calls_total 7
# TYPE t histogram
t_bucket{le="1"} 1
t_sum 2
"""
    scrapes.add("apiserver", told, AT)
    scrapes.add("apiserver", told.replace(" 7", " 9"), AT + timedelta(seconds=5))
    text = scrapes.text()
    assert "# TYPE calls counter\n" in text
    assert f'calls_total{{job="apiserver"}} 9 {AT.timestamp() + 5:.3f}' in text
    assert 'depth{job="apiserver",name="a b"} 3' in text
    assert "_bucket" not in text
    assert text.endswith("# EOF\n")
    assert scrapes.total("calls_total") == 9


def test_the_variations_are_options(tmp_path: Path) -> None:
    words = f"quota --alert-shift -15 --audit none --no-metrics --out {tmp_path}".split()
    given = arguments(["quota"]).parse_args(words)
    assert (given.alert_shift, given.audit, given.no_metrics, given.out) == (-15, "none", True, tmp_path)
    assert not given.no_app_metrics
    assert arguments(["quota"]).parse_args(["quota", "--no-app-metrics"]).no_app_metrics


def test_a_recording_without_bodies_keeps_who_asked_for_what(tmp_path: Path) -> None:
    event = {"level": "RequestResponse", "verb": "create", "user": {"username": "a"}, "requestObject": {"kind": "Pod"}}
    source = tmp_path / "full" / "quota"
    source.mkdir(parents=True)
    (source / metadata.LOG).write_bytes(gzip.compress(orjson.dumps(event) + b"\n"))
    (source / "label.json").write_text("{}")
    copy_each(tmp_path / "full", tmp_path / "less", metadata.strip, having=metadata.LOG)
    told = gzip.decompress((tmp_path / "less" / "quota" / metadata.LOG).read_bytes())
    assert orjson.loads(told) == {"level": "Metadata", "verb": "create", "user": {"username": "a"}}
    assert (tmp_path / "less" / "quota" / "label.json").exists()
    with pytest.raises(SystemExit, match="no recording"):
        copy_each(tmp_path / "nothing", tmp_path / "less", metadata.strip, having=metadata.LOG)


def test_who_wrote_most_is_evicted_first_and_told_how_much() -> None:
    two: list[Json] = [{"metadata": {"uid": uid}, "spec": {"containers": [{"name": "app"}]}} for uid in ("a", "b")]
    written = {"b": 3000.0}
    assert [pod["metadata"]["uid"] for pod in disks.by_use(two, written)] == ["b", "a"]
    small, much = (disks.kibibytes(pod, written) for pod in two)
    assert 40 <= small < 1024
    assert much > 3000 * 1024
    assert f"Container app was using {much}Ki, request is 0, " in disks.words(two[1], written)


def test_who_has_more_on_the_disk_than_a_limit_says_may_not_stay() -> None:
    volumes = [{"name": "cache", "emptyDir": {}}, {"name": "work", "emptyDir": {"sizeLimit": "1Gi"}}]
    pod: Json = {"metadata": {"uid": "a"}, "spec": {"containers": [{"name": "app"}], "volumes": volumes}}
    assert disks.excess(pod, {"a": 1000.0, "b": 3000.0}) == ""
    assert disks.excess(pod, {"a": 1100.0}) == 'Usage of EmptyDir volume "work" exceeds the limit "1Gi". '
    pod["spec"] = {"containers": [{"name": "app", "resources": {"limits": {"ephemeral-storage": "500Mi"}}}]}
    assert disks.excess(pod, {"a": 600.0}).startswith("Container app exceeded its local ephemeral storage limit")


def test_a_single_file_is_not_read_anew() -> None:
    volumes = [{"name": "all", "configMap": {"name": "all"}}, {"name": "one", "secret": {"secretName": "one"}}]
    mounts = [{"name": "all", "mountPath": "/a"}, {"name": "one", "mountPath": "/b/c", "subPath": "c"}]
    pod: Json = {"spec": {"containers": [{"volumeMounts": mounts}], "volumes": volumes}}
    assert followed(pod) == [("ConfigMap", "all")]
    assert mounted(pod) == [("ConfigMap", "all"), ("Secret", "one")]


def test_each_family_has_its_line_in_the_docs_with_its_part() -> None:
    rows = re.findall(
        r"^\| ([a-z0-9-]+) \| (dev|test) \|", (Path(__file__).parents[2] / "docs/lab.md").read_text(), re.MULTILINE
    )
    assert rows == sorted((name, part(name)) for name in load())


def test_the_families_that_came_together_are_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["record", "list", "--joined", "21", "22"])
    assert main() == 0
    names = capsys.readouterr().out.split()
    assert names == sorted(one.name for one in load().values() if one.joined in (21, 22))
    assert len(names) == 20
