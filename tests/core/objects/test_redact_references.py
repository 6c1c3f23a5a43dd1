"""Custom resources that are called after secrets and say where these are kept (decision 0074)."""

from __future__ import annotations

from typing import Any

from app.core.model import Object
from tests.core.objects.test_redact import masked, redactor


def test_of_what_only_refers_to_secrets_it_is_kept_to_what() -> None:
    asked: Object = {"key": "creds/of/shop", "property": "password"}
    external: Object = {
        "spec": {
            "refreshInterval": "1h",
            "secretStoreRef": {"kind": "ClusterSecretStore", "name": "vault"},
            "target": {"name": "shop-db", "template": {"data": {"username": "bob", "host": "a-word"}}},
            "data": [{"secretKey": "password", "remoteRef": asked}],
        }
    }
    found = masked(redactor.object("external-secrets.io", "ExternalSecret", external))["spec"]
    assert found == {
        "refreshInterval": "1h",
        "secretStoreRef": {"kind": "ClusterSecretStore", "name": "vault"},
        "target": {"name": "shop-db", "template": {"data": {"username": "#", "host": "#"}}},
        "data": [{"secretKey": "#", "remoteRef": {"key": "#", "property": "password"}}],
    }
    vault: Any = {"server": "https://vault.example", "path": "kv", "auth": {"kubernetes": {"role": "reader"}}}
    fake: Any = {
        "data": [
            {"key": "/app/username", "value": "bob"},
            {"key": "host", "value": "a-word", "valueMap": {"host": "x"}},
        ]
    }
    store: Object = {"spec": {"provider": {"vault": vault, "fake": fake, "webhook": {"headers": {"name": "a-word"}}}}}
    kept = masked(redactor.object("external-secrets.io", "ClusterSecretStore", store))["spec"]["provider"]
    hidden = {
        "data": [{"key": "/app/username", "value": "#"}, {"key": "host", "value": "#", "valueMap": {"host": "#"}}]
    }
    assert kept == {"vault": vault, "fake": hidden, "webhook": {"headers": {"name": "#"}}}
    assert masked(redactor.object("x.io", "ClusterSecretStore", store))["spec"] == "#", "of nobody else's kinds"
