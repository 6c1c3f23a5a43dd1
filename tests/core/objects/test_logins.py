"""Of a DSN the server is told, and nothing that logs in to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.edges.indexing import topology
from app.core.model import Json, Object
from app.core.objects.dependencies import Named
from app.core.objects.logins import is_masked, server
from app.core.objects.redact import Redactor
from tests.core.factories import a_resource, a_state, a_workload

KEY = b"0123456789abcdef"
REDACTOR = Redactor(KEY)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("postgres://app:hunter2@ledger.payments:5432/ledger", "postgres://…@ledger.payments:5432"),
        ("postgresql+psycopg://app:p%40ss@10.0.0.7/ledger?sslmode=require", "postgresql+psycopg://…@10.0.0.7"),
        ("amqp://guest:gu@est@broker:5672/%2fvhost", "amqp://…@broker:5672"),
        ("https://0a1b2c3d@errors.example/42", "https://…@errors.example"),
        (
            "app:hunter2@tcp(mysql.shop.svc.cluster.local:3306)/orders?parseTime=true",
            "…@tcp(mysql.shop.svc.cluster.local:3306)",
        ),
        ("host=ledger port=5432 user=app password=hunter2", "host=ledger port=5432 …"),
        ("host=ledger user=app password='hun ter@2'", "host=ledger …"),
        ("oracle-erp.erp:1521/ERPPROD", "oracle-erp.erp:1521/…"),
        ("scott/hunter2@oracle-erp.erp:1521/ERPPROD", "…"),
        ("scott:1234/x", "…"),
        ("postgres://app:hun/ter2@ledger/ledger", "…"),
        ("postgres://app:hunter2@ledger/a@b", "…"),
        ("postgres://ledger/x", "…"),
        ("user=app password=hunter2 host=ledger", "…"),
        ("Server=ledger;Database=x;User Id=app;Password=hunter2", "…"),
        ("x://u:p@" + "3fA9zQ7LmN2xV8bR4tY6wK1cD5eG0hJ" * 2, "…"),
        ("hunter2", "…"),
    ],
)
@pytest.mark.parametrize("key", ["DSN", "LEDGER_DSN", "CONNECTION_STRING", "DB_CONNECTION_URI"])
def test_the_server_of_a_dsn_is_shown(key: str, value: str, shown: str) -> None:
    env: Object = {
        "spec": {"template": {"spec": {"containers": [{"name": "app", "env": [{"name": key, "value": value}]}]}}}
    }
    once = REDACTOR.object("apps", "Deployment", env)
    found = once["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"]  # type: ignore[index,call-overload]
    assert found == shown.replace("…", REDACTOR.fingerprint(value))
    assert REDACTOR.object("apps", "Deployment", once) == once
    assert "hunter2" not in str(once)


@pytest.mark.parametrize("key", ["PASSWORD", "TOKEN", "SECRET_KEY", "LEDGER_PASSWORD"])
def test_of_any_other_secret_nothing_is_shown(key: str) -> None:
    assert server(key, "postgres://app:hunter2@ledger:5432/x") is None


def test_in_a_file_too() -> None:
    text = "log: debug\ndsn: postgres://app:hunter2@ledger.payments/x\n"
    once = REDACTOR.text(text)
    assert "@ledger.payments\n" in once
    assert "hunter2" not in once
    assert REDACTOR.text(once) == once


@given(
    st.text(alphabet="abAB01:/@.?#=() -'%", max_size=40),
    st.sampled_from(["{}", "postgres://u:{}@h/x", "u:{}@tcp(h:1)/x", "host=h p={}"]),
)
def test_a_password_never_shows(password: str, form: str) -> None:
    value = form.format(f"{password}HUNTER{password}")
    told = server("DSN", value)
    assert told is None or "HUNTER" not in "".join(told)
    masked = REDACTOR.text(f"DSN={value}")
    assert REDACTOR.text(masked) == masked


@given(st.text(max_size=60))
def test_what_is_masked_is_masked_once(value: str) -> None:
    told = server("DSN", value)
    if told is not None:
        assert is_masked("DSN", f"{told[0]}{REDACTOR.fingerprint(value)}{told[1]}")


def test_it_says_whom_a_program_calls() -> None:
    value = "postgres://app:hunter2@ledger.payments:5432/x"
    env: Json = [{"name": "LEDGER_DSN", "value": f"postgres://{REDACTOR.fingerprint(value)}@ledger.payments:5432"}]
    top = topology(
        [
            a_workload(a_resource("Deployment", "cart", "shop"), containers=[{"name": "cart", "env": env}]),
            a_workload(a_resource("Deployment", "ledger", "payments"), labels={"app": "ledger"}),
            a_state(a_resource("Service", "ledger", "payments"), {"spec": {"selector": {"app": "ledger"}}}),
        ]
    )
    caller: Named = ("shop", "cart")
    assert ("payments", "ledger") in top.rests_on[caller]
