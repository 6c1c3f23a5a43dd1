"""Secrets within commands, files and other objects, and that no text takes long to look at."""

from __future__ import annotations

import json
from collections.abc import Callable
from time import process_time
from typing import Any

import pytest

from app.core.model import Object
from app.core.objects.redact import Redactor
from app.core.objects.redact_rules import TAG

redactor = Redactor(b"a key that only the tests know..")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mysqldump --password hunter2 --all", "mysqldump --password # --all"),
        ("run --db-password 'hunter2 x' | tee", "run --db-password # | tee"),
        ("docker login --password-stdin registry.example", "docker login --password-stdin registry.example"),
        ("run --token-file /etc/token --secret-name web", "run --token-file /etc/token --secret-name web"),
        ("$c = ['password' => 'hunter2']", "$c = ['password' => '#']"),
        ("<db><password>hunter2</password><user>web</user></db>", "<db><password>#</password><user>web</user></db>"),
        ('<add key="DbPassword" value="hunter2"/>', '<add key="DbPassword" value="#"/>'),
        ("<name>s3.secret.key</name><value>hunter2</value>", "<name>s3.secret.key</name><value>#</value>"),
        ("port 6379\nrequirepass hunter2", "port 6379\nrequirepass #"),
        ("port 6379\nmasterauth hunter2", "port 6379\nmasterauth #"),
        ("AccountName=a;AccountKey=aHVudGVyMg==;End=x", "AccountName=a;AccountKey=#;End=x"),
        ("?sig=16VtPPz5pE3HFmkazauhuKkSZGVDxpd6WkOsJ1PPEBcxIgcR", "?sig=#"),
        ("?X-Amz-Signature=886599b2ac757f8290996dd9de5798121e8fa462d6e85bda6a317873a59e01b2", "?X-Amz-Signature=#"),
        ("git clone https://aVeryLongTokenOfAFriend@git.example/x", "git clone https://#@git.example/x"),
        ("git clone https://alice@git.example/x", None),
        ("root:hunter2@tcp(db:3306)/shop", "root:#@tcp(db:3306)/shop"),
        ("curl -s -u admin:hunter2 https://shop.example", "curl -s -u admin:# https://shop.example"),
        ("docker run -u 1000:1000 web", None),
        ("CREATE USER web IDENTIFIED BY 'hunter2';", "CREATE USER web IDENTIFIED BY '#';"),
        ("ALTER ROLE web WITH PASSWORD 'hunter2';", "ALTER ROLE web WITH PASSWORD '#';"),
        ("openssl rsa -passin pass:hunter2 -in a", "openssl rsa -passin pass:# -in a"),
        ("$c['password'] = 'hunter2';", "$c['password'] = '#';"),
        ("define('DB_PASSWORD', 'hunter2');", "define('DB_PASSWORD', '#');"),
        ('fields: ["password", "email"]', None),
        ("image=web@sha256=886599b2ac757f8290996dd9de5798121e8fa462d6e85bda6a317873a59e01b2", None),
    ],
)
def test_rule_4_values_in_commands_and_files(text: str, expected: str | None) -> None:
    assert TAG.sub("#", redactor.text(text)) == (text if expected is None else expected)


@pytest.mark.parametrize(
    ("piece", "end"),
    [
        ("passwordpassword-", ""),
        ("--password", ""),
        ("-", "token"),
        ("eyJ-", ""),
        ("curl -u a", ""),
        ("https://a", ""),
        ("a:@tcp", "@tcp("),
        ("['a'", "=token"),
    ],
)
def test_no_text_takes_long_however_it_is_made(piece: str, end: str) -> None:
    """By the clock of the process. Without bounds the first one takes a second at 2,000 characters, seven at 4,000."""
    began = process_time()
    redactor.text(piece * (20_000 // len(piece)) + end)
    assert process_time() - began < 10


@pytest.mark.parametrize("piece", ["s.", "-token", "eyJ-"])
def test_a_whole_config_map_of_names_is_looked_through_once(piece: str) -> None:
    """1 MiB, the most that one holds (https://kubernetes.io/docs/concepts/configuration/configmap/). By the clock of
    the process: each name of up to 128 characters looked for by itself took 16 and 18 s, each JWT's header 14."""
    began = process_time()
    redactor.text(piece * ((1 << 20) // len(piece)) + "=x")
    assert process_time() - began < 8


@pytest.mark.parametrize("before", ["", "key-", "eyJ-", "-eyJaaaaaaaa-"])
@pytest.mark.parametrize("size", [12, 300, 4000])
def test_a_jwt_is_found_behind_a_hyphen_however_long_its_header_is(before: str, size: int) -> None:
    found = redactor.text(f"sent {before}eyJ{'header' * (size // 6)}.payload.signature, and refused")
    assert "payload" not in found
    assert "header" not in found
    assert found.endswith("<, and refused".replace("<", TAG.findall(found)[-1]))


@pytest.mark.parametrize("name", ["a." * 400 + "password", "--db-password", "my.dsn", "-pw", "x_y-z.api_key-2"])
def test_a_name_is_known_however_long_and_whatever_stands_before_it(name: str) -> None:
    assert TAG.sub("#", redactor.text(f"{name}=hunter2")) == f"{name}=#"


@pytest.mark.parametrize(
    "around",
    [
        lambda secret: {"spec": {"forProvider": {"manifest": secret}}},  # Crossplane's Object
        lambda secret: {"kind": "Template", "objects": [secret]},
        lambda secret: {"kind": "List", "items": [secret]},
        lambda secret: {"spec": {"values": json.dumps({"kind": "List", "items": [secret]})}},
    ],
)
def test_rule_1_secrets_that_stand_in_other_objects(around: Callable[[Any], Any]) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db"}, "stringData": {"host": "hunter2"}}
    obj = around(secret)
    assert "hunter2" not in json.dumps(redactor.object("acme.io", obj.get("kind", "Object"), obj))
    reference: Object = {"spec": {"resources": [{"kind": "Secret", "name": "db"}]}}
    assert redactor.object("acme.io", "Set", reference) == reference
