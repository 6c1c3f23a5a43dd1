"""Every redaction rule, one example each; 500 and more canaries; what must not be hidden; idempotence."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.core.model import Object
from app.core.objects.redact import LAST_APPLIED, TOO_DEEP, Redactor, decode
from app.core.objects.redact_rules import TAG, TRIGGER, may_hide

KEY = b"a key that only the tests know.."
redactor = Redactor(KEY)


def hidden(value: Any) -> bool:
    return isinstance(value, str) and TAG.fullmatch(value) is not None


def masked(value: Any) -> Any:
    """A redacted value with its fingerprints made equal, to compare with a snapshot."""
    return orjson.loads(TAG.sub("#", orjson.dumps(value).decode()))


def test_rule_1_secrets_keep_names_and_lose_values() -> None:
    secret: Any = {
        "kind": "Secret",
        "metadata": {"name": "db", "annotations": {"a": "b"}},
        "type": "Opaque",
        "data": {"user": "YWRtaW4=", "password": "aHVudGVyMg=="},
        "stringData": {"host": "db.internal"},
    }
    found: Any = redactor.object("", "Secret", secret)
    assert masked(found) == {
        "kind": "Secret",
        "metadata": {"name": "db", "annotations": {"a": "b"}},
        "type": "Opaque",
        "data": {"user": "#", "password": "#"},
        "stringData": {"host": "#"},
    }
    assert found["data"]["user"] != found["data"]["password"]
    changed = {**secret, "data": {**secret["data"], "password": "other"}}
    assert redactor.object("", "Secret", changed)["data"] != found["data"], "a changed secret shows as changed"
    assert Redactor(b"another key, also of enough bytes").object("", "Secret", secret)["data"] != found["data"]


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        (
            [{"op": "replace", "path": "/data/password", "value": "x"}],
            [{"op": "replace", "path": "/data/password", "value": "#"}],
        ),
        ([{"op": "add", "path": "/data", "value": {"a": "b"}}], [{"op": "add", "path": "/data", "value": {"a": "#"}}]),
        (
            [{"op": "replace", "path": "", "value": {"stringData": {"a": "b"}}}],
            [{"op": "replace", "path": "", "value": {"stringData": {"a": "#"}}}],
        ),
        (
            [{"op": "test", "path": "/stringData/a~1b", "value": "x"}],
            [{"op": "test", "path": "/stringData/a~1b", "value": "#"}],
        ),
        ({"data": {"a": "b", "c": None}}, {"data": {"a": "#", "c": None}}),
        ({"metadata": {"labels": {"team": "x"}}}, {"metadata": {"labels": {"team": "x"}}}),
        ({"metadata": {"annotations": {LAST_APPLIED: "not json"}}}, {"metadata": {"annotations": {LAST_APPLIED: "#"}}}),
    ],
)
def test_rule_1_patches_of_secrets_by_their_url(patch: Any, expected: Any) -> None:
    assert masked(redactor.patch("", "secrets", patch)) == expected


def test_rule_1_lists_of_secrets() -> None:
    found = redactor.object("", "SecretList", {"items": [{"data": {"a": "b"}}]})
    assert masked(found) == {"items": [{"data": {"a": "#"}}]}


def test_rule_2_last_applied_is_redacted_with_the_kind_around_it() -> None:
    inner = json.dumps({"kind": "ConfigMap", "data": {"password": "hunter2"}, "metadata": {"name": "x"}})
    found: Any = redactor.object("", "Secret", {"metadata": {"annotations": {LAST_APPLIED: inner}}})
    assert masked(orjson.loads(found["metadata"]["annotations"][LAST_APPLIED]))["data"] == {"password": "#"}


def test_rule_2_any_annotation_that_is_json() -> None:
    text = '{"user":"bob","password":"hunter2"}'
    found: Any = redactor.object("", "ConfigMap", {"metadata": {"annotations": {"x/config": text}}})
    assert masked(orjson.loads(found["metadata"]["annotations"]["x/config"])) == {"user": "bob", "password": "#"}


def test_rule_3_helm_releases_lose_their_payload() -> None:
    release: Object = {
        "metadata": {"name": "sh.helm.release.v1.shop.v3", "labels": {"owner": "helm"}},
        "data": {"release": "H4sI"},
    }
    assert masked(redactor.object("", "Secret", release))["data"] == {"release": "#"}
    assert masked(redactor.object("", "ConfigMap", release))["data"] == {"release": "#"}


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("DB_PASSWORD", "hunter2", True),
        ("DATABASE_URL", "postgres://app:hunter2@db/app", True),
        ("GITHUB_TOKEN", "abc", True),
        ("API_KEY", "abc", True),
        ("SESSION_COOKIE", "xyzzy", True),
        ("PASSWORD", "123456", True),
        ("TOKEN_TTL", "3600", False),
        ("AUTH_MODE", "oidc", False),
        ("LOG_LEVEL", "debug", False),
        ("MAX_CONN", "100", False),
        ("CERT_DIR", "/etc/certs", False),
    ],
)
def test_rule_4_environment(name: str, value: str, secret: bool) -> None:
    pod: Any = {"spec": {"containers": [{"name": "app", "env": [{"name": name, "value": value}]}]}}
    found: Any = redactor.object("", "Pod", pod)
    got = found["spec"]["containers"][0]["env"][0]["value"]
    assert (got != value) is secret
    assert "hunter2" not in got


def test_rule_4_references_to_secrets_are_kept() -> None:
    env: Any = [{"name": "DB_PASSWORD", "valueFrom": {"secretKeyRef": {"name": "db", "key": "password"}}}]
    pod: Object = {"spec": {"containers": [{"env": env, "envFrom": [{"secretRef": {"name": "all"}}]}]}}
    assert redactor.object("", "Pod", pod) == pod


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--password=x1", "--v=2"], ["--password=#", "--v=2"]),
        (["--token", "x1", "--port", "80"], ["--token", "#", "--port", "80"]),
        (["mysql", "-uroot", "-px1yz"], ["mysql", "-uroot", "-p#"]),
        (["sh", "-c", "mysql -uroot -px1yz db"], ["sh", "-c", "mysql -uroot -p# db"]),
        (["-port=80", "-p", "8080"], ["-port=80", "-p", "#"]),
    ],
)
def test_rule_4_arguments(arguments: list[str], expected: list[str]) -> None:
    pod: Any = {"spec": {"containers": [{"args": arguments}]}}
    found: Any = redactor.object("apps", "Deployment", pod)
    assert masked(found)["spec"]["containers"][0]["args"] == expected


@pytest.mark.parametrize(
    "text",
    [
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----",
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "glpat-abcdefghij0123456789",
        "xoxb-123456789012-abcdefghijkl",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "9f86d081884c7d659a2feaa0c55ad015",
    ],
)
def test_rule_4_shapes_everywhere(text: str) -> None:
    found: Any = redactor.object("x.example", "Widget", {"spec": {"anything": text, "list": [f"before {text} after"]}})
    assert text not in orjson.dumps(found).decode()
    assert masked(found) == {"spec": {"anything": "#", "list": ["before # after"]}}


def test_rule_5_config_maps() -> None:
    data: Any = {
        "tls.pem": "x",
        "kubeconfig": "y",
        ".npmrc": "z",
        "app.properties": "db.host=h\ndb.password=hunter2\n",
        "app.yaml": "user: bob\nclient_secret: |\n  hunter2\n  more\nport: 80\n",
        "max_connections": "100",
    }
    found = masked(redactor.object("", "ConfigMap", {"data": data}))["data"]
    assert found == {
        "tls.pem": "#",
        "kubeconfig": "#",
        ".npmrc": "#",
        "app.properties": "db.host=h\ndb.password=#\n",
        "app.yaml": "user: bob\nclient_secret: |\n  #\nport: 80\n",
        "max_connections": "100",
    }


def test_rule_6_what_is_never_stored() -> None:
    assert redactor.patch("", "serviceaccounts/token", {"spec": {"audiences": []}}) is None
    assert redactor.patch("authentication.k8s.io", "tokenreviews", {"spec": {"token": "x"}}) is None
    uri = "/api/v1/namespaces/a/pods/b/exec?command=cat&command=%2Fetc%2Fshadow&container=c&access_token=abc"
    assert TAG.sub("#", redactor.uri(uri)) == (
        "/api/v1/namespaces/a/pods/b/exec?command=#&command=#&container=c&access_token=#"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('dial: password="hunter2" refused', 'dial: password="#" refused'),
        ("Authorization: Bearer abcdef0123456789", "Authorization: Bearer #"),
        ("cannot reach https://bob:hunter2@host/x", "cannot reach https://bob:#@host/x"),
        ('{"token": "hunter2"}', '{"token": "#"}'),
        ("tokens are counted; the password is wrong", "tokens are counted; the password is wrong"),
        ("image of my-credentials: 1.2.0 → v1.3.0-rc.1", "image of my-credentials: 1.2.0 → v1.3.0-rc.1"),
        ("my-credentials: 1.2.3four → 1.3", "my-credentials: # → 1.3"),
        ("db-password: 1.2.3-4hunter2", "db-password: #"),
        ("failed to fetch oauth token: unexpected status: 403", "failed to fetch oauth token: unexpected status: 403"),
        ("password: unexpected hunter2", "password: # hunter2"),
    ],
)
def test_rule_7_messages(text: str, expected: str) -> None:
    assert TAG.sub("#", redactor.text(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        'invalid: {"env": [{"name": "DB_PASSWORD", "value": "hunter2"}]}',
        r'invalid: "{\"env\":[{\"name\":\"SALT\",\"value\":\"hunter2\"}]}"',
        '{"user": "bob", "password": "hunter2 and mo',
    ],
)
def test_rule_7_json_inside_a_message(text: str) -> None:
    assert "hunter2" not in redactor.text(text)
    harmless = text.replace("DB_PASSWORD", "MODE").replace("SALT", "MODE").replace("password", "mode")
    assert redactor.text(harmless) == harmless


@pytest.mark.parametrize(
    ("key", "kept"),
    [
        ("checksum/config", True),
        ("checksum/secret", True),
        ("configHash", True),
        ("image-digest", True),
        ("passwordHash", False),
        ("signatureHash", False),
        ("note", False),
    ],
)
def test_rule_5_digests_of_what_is_public_are_kept(key: str, kept: bool) -> None:
    value = "3f1d9c0e7b6a54f2c8e1d0a9b7c6f5e4d3c2b1a0f9e8d7c6b5a4f3e2d1c0b9a8"
    found: Any = redactor.object("x.example", "Widget", {"metadata": {"annotations": {key: value}}})
    assert (found["metadata"]["annotations"][key] == value) is kept
    plain: Any = redactor.object("x.example", "Widget", {"spec": {"checksum/secret": "hunter2"}})
    assert hidden(plain["spec"]["checksum/secret"])


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("token", "hunter2hunter2", True),
        ("client", "Bearer abcdef0123456789", True),
        ("url", "https://bob:hunter2@etcd:2379", True),
        ("secret", "db-credentials", False),
        ("resource", "secrets", False),
        ("le", "+Inf", False),
        ("pod", "web-668bd678db-x2j84", False),
        ("fingerprint", "4f3b9c6a1d2e8f70", False),
    ],
)
def test_labels_are_secret_by_name_or_by_shape(name: str, value: str, secret: bool) -> None:
    assert (redactor.label(name, value) != value) is secret


def test_rule_8_custom_resources() -> None:
    spec: Any = {"credentials": {"user": "bob", "pass": "x"}, "apiToken": "y", "secretName": "s", "tokenTTL": "5m"}
    found = masked(redactor.object("x.example", "Widget", {"spec": spec}))["spec"]
    assert found == {"credentials": {"user": "#", "pass": "#"}, "apiToken": "#", "secretName": "s", "tokenTTL": "5m"}
    sealed: Object = {"metadata": {"name": "a"}, "spec": {"encryptedData": {"a": "b"}}}
    assert masked(redactor.object("bitnami.com", "SealedSecret", sealed)) == {"metadata": {"name": "a"}, "spec": "#"}


def test_rule_9_bundles_and_depth() -> None:
    hook: Any = {"webhooks": [{"name": "a", "clientConfig": {"caBundle": "LS0t" * 400}}]}
    found = masked(redactor.object("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", hook))
    assert found["webhooks"][0]["clientConfig"]["caBundle"] == "#"
    deep: Any = "x"
    for _ in range(500):
        deep = {"a": deep}
    assert TOO_DEEP in json.dumps(redactor.object("x.example", "Widget", {"spec": deep}))


def test_what_postgresql_cannot_store_is_taken_out() -> None:
    odd: Any = {"spec": {"a\0b": "c\0d", "e": "\ud800", "f": 10**40, "g": float("inf"), "h": float("nan")}}
    found: Any = redactor.object("x.example", "Widget", odd)
    assert found["spec"] == {"a\ufffdb": "c\ufffdd", "e": "\ufffd", "f": str(10**40), "g": "inf", "h": "nan"}


def test_a_short_key_is_refused() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        Redactor(b"short")


BENIGN = """
registry.example/payments/payments-api:v1.42.0
registry.k8s.io/pause@sha256:7031c1b283388d2c2e09b57badb803c05ebed362dc88d84b480cc47f72a21097 app.kubernetes.io/name
kube-root-ca.crt 10.96.0.1 500m 128Mi 25% RollingUpdate IfNotPresent ClusterFirst TCP http-metrics 8080
/var/run/secrets/kubernetes.io/serviceaccount /etc/certs/tls.crt /healthz /usr/local/bin/entrypoint.sh
default-scheduler user@example.com https://example.com/path?x=1
http://prometheus.monitoring.svc.cluster.local:9090/api/v1/query deployment.kubernetes.io/revision
node-role.kubernetes.io/control-plane NoSchedule Equal Exists true false 3600 1h30m
system:serviceaccount:kube-system:deployment-controller system:node:ip-10-0-0-12 cluster-admin view edit Always Never
f5f48a5c-9d8c-4c1a-8fd1-1c3d9e2f4a5b 2026-11-21T05:28:42Z payments-api-668bd678db-x2j84
ingress-nginx-controller-admission prometheus-kube-prometheus-operator-alertmanager-overview
kube-prometheus-stack-kube-state-metrics-5d8c9c8b7f-abcde --leader-elect=true --v=2 --tls-cert-file=/etc/tls/tls.crt
--secure-port=10250 --kubeconfig=/etc/kubernetes/kubelet.conf --token-ttl=15m --authorization-mode=Node,RBAC
--password-file=/run/secrets/pw -server.http-listen-port=3100 -log.level=info
sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
commit-2fd4e1c67a2d28fced849ee1bb76e7391b93eb12 2fd4e1c67a2d28fced849ee1bb76e7391b93eb12
Cluster.admission.networking-internal.example.com topology.kubernetes.io/zone
metadata.annotations['kubectl.kubernetes.io/restartedAt'] object.spec.replicas<=5 kubernetes.io/service-account.name
projects/acme-production/locations/europe-west1/keyRings/main arn:aws:iam::123456789012:role/eks-node-group-role
-Xmx512m -Dspring.profiles.active=production JAVA_OPTS GOMAXPROCS 0.0.0.0/0 fe80::1 *.example.com ^/api/(v1|v2)/.*$
500 0.5 1e3 20Gi ReadWriteOnce gp3 WaitForFirstConsumer Retain Delete Fail Ignore NoneOnDryRun Namespaced Cluster
v1beta1 openapi-generator-maven-plugin-configuration-directory
com.example.payments.gateway.internal.configuration.ApplicationKt
""".split()  # noqa: SIM905
BENIGN_FIELDS = {
    "secretName": "payments-tls",
    "tokenTTL": "24h",
    "passwordPolicy": "strict",
    "authMode": "oidc",
    "serviceAccountName": "payments",
    "cert-manager.io/cluster-issuer": "letsencrypt-prod",
    "keyName": "main",
    "publicKeyAlgorithm": "RSA",
    "authenticationMode": "Webhook",
    "connectionTimeout": "30s",
    "maxConnections": "100",
    "certificateAuthority": "/etc/ca.crt",
    "privateNetwork": "true",
    "secretStoreRef": "vault",
    "tokenAudience": "api",
    "author": "alice",
    "topologyKey": "kubernetes.io/hostname",
    "imagePullSecretsEnabled": "true",
    "credentialsFile": "/etc/creds.json",
    "apiKeyHeader": "X-Api-Key",
    "key": "app",
    "operator": "In",
    "keyspace": "orders",
    "monkey": "see",
    "tokenizer": "bert-base",
    "compassHost": "compass.internal",
    "bypass": "cache",
    "passthrough": "enabled",
}


def test_what_is_harmless_is_kept() -> None:
    spec: Any = {f"field{n}": text for n, text in enumerate(BENIGN)} | BENIGN_FIELDS
    found: Any = redactor.object("x.example", "Widget", {"spec": spec})
    lost = {name: value for name, value in spec.items() if found["spec"][name] != value}
    assert len(spec) > 110
    assert len(lost) <= 0.05 * len(spec), lost


strings = st.text(max_size=60) | st.sampled_from(
    [
        "password=x1 y",
        "token: abc",
        "Bearer abcdefghijkl",
        "a://b:c@d",
        "-p x",
        '{"secret":"x"}',
        "secret: |\n  a\n",
        "AKIAIOSFODNN7EXAMPLE=password:",
        "<redacted:0123abcd>",
        "pw=<redacted:0123abcd>x",
        '"name":"TOKEN","value":"x y"',
        r"\"key\": \"SALT\", \"value\": \"a",
        '"password": "abc',
        "secret='a b",
    ]
)
keys = st.text(max_size=12) | st.sampled_from(
    ["password", "data", "env", "args", "name", "value", "credentials", "key"]
)
jsons = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | strings,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize("value", [9223372036854775808, 88005553535])
def test_a_number_is_secret_by_the_name_beside_it_too(value: int) -> None:
    shown = redactor.object("apps", "Widget", {"spec": {"env": [{"name": "PASSWORD", "value": value}]}})
    assert str(value) not in str(shown)
    assert redactor.object("apps", "Widget", shown) == shown


@settings(max_examples=300)
@given(st.dictionaries(keys, jsons, max_size=4), st.sampled_from(["Secret", "ConfigMap", "Deployment", "Widget"]))
@example({"": {"name": "Pass", "value": 9223372036854775808}}, "ConfigMap")
def test_redacting_twice_is_redacting_once(obj: Any, kind: str) -> None:
    group = "" if kind in ("Secret", "ConfigMap") else "apps"
    once = redactor.object(group, kind, {"spec": obj, "data": obj})
    assert redactor.object(group, kind, once) == once


@settings(max_examples=300)
@given(st.lists(strings, max_size=4).map(" ".join))
def test_redacting_a_text_twice_is_redacting_it_once(text: str) -> None:
    once = redactor.text(text)
    assert redactor.text(once) == once


@settings(max_examples=1000)
@given(st.from_regex(TRIGGER), st.sampled_from([str, str.upper, str.lower]))
def test_one_look_misses_nothing_that_may_be_secret(text: str, spelled: Callable[[str], str]) -> None:
    assert may_hide(spelled(text)) == bool(TRIGGER.search(spelled(text)))


def test_what_was_harmless_under_one_name_is_secret_under_another() -> None:
    shown: list[Any] = [
        {"name": "value", "value": "hunter-2-hunter"},
        {"name": "caBundle", "value": "hunter-2-hunter"},
        {"value": "hunter-2-hunter"},
    ]
    assert redactor.object("apps", "Deployment", {"spec": {"env": shown}}) == {"spec": {"env": shown}}
    kept: list[Any] = [{"name": "PASSWORD", "value": "hunter-2-hunter"}, {"caBundle": "hunter-2-hunter"}]
    found = redactor.object("apps", "Deployment", {"spec": {"env": kept, "credentials": shown[2]}})
    assert "hunter" not in str(found)


@pytest.mark.parametrize(
    "shown",
    [
        {"name": None, "key": "password", "value": "hunter-2-hunter"},
        {"name": 7, "key": "password", "value": "hunter-2-hunter"},
        {"name": "", "key": "password", "value": "hunter-2-hunter"},
        {"credentials": [{"name": "first", "value": "hunter-2-hunter"}]},
        {"credentials": [{"key": "first", "value": 123_456_789}]},
    ],
)
def test_a_value_is_secret_by_the_name_beside_it_or_by_what_it_is_in(shown: Any) -> None:
    found = redactor.object("apps", "Deployment", {"spec": shown})
    assert "hunter" not in str(found)
    assert "123456789" not in str(found)


_any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["\x7f", "\0"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=1000)
@given(_any_json.filter(lambda value: not isinstance(value, str)))
@example({"b": [1, {}, []], "a": {"c": -0.0, "d": 1e16, "e": 2**70}})
@example({"a": "\ud800"})
@example({"at": datetime(2026, 11, 22, tzinfo=UTC)})
def test_fingerprints_are_those_that_were_recorded(value: Any) -> None:
    recorded = json.dumps(value, sort_keys=True, default=str).encode("utf-8", "replace")
    assert redactor.fingerprint(value) == f"<redacted:{hmac.digest(KEY, recorded, 'sha256').hex()[:8]}>"


@pytest.mark.parametrize("tail", [b"", b'"\\ud800"'])
def test_how_deep_json_may_go_is_the_same_in_each_version_of_python(tail: bytes) -> None:
    def nested(levels: int) -> bytes:
        return b"[" * levels + tail + b"]" * levels

    assert decode(nested(900))
    for levels in (1100, 9_000, 200_000):
        with pytest.raises(ValueError, match="nested too deeply"):
            decode(nested(levels))
