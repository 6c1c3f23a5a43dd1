"""What deploy/ gives to Prometheus and Alertmanager, with a real Prometheus's tools and a real Alertmanager."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import pytest

from app import correlate
from app.collect.alerts import SETTLES, Alertmanager, list_firing
from app.core.findings import Incident
from app.core.model import Symptom
from app.core.objects.redact import Redactor
from app.core.roles import Role
from app.store import tokens
from app.store.database import Database
from app.store.incidents import list_incidents
from app.store.symptoms import read_window
from app.store.tokens import Purpose
from tests.e2e.conftest import Program, serving
from tests.programs import WITHIN, found, free_address, running, wait_for
from tests.serving import program as started
from tests.web.world import END

DEPLOY = Path(__file__).parents[1] / "deploy"
LABELS = {"alertname": "KubeAPIErrors", "severity": "critical", "namespace": "payments"}

INHIBITOR = "InfoInhibitor"


def run(*command: str | Path) -> str:
    """What a command prints, all of it; it must end with 0."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, cwd=DEPLOY)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_prometheus_takes_the_configuration_and_the_rules() -> None:
    promtool = found("promtool", package="prometheus")
    assert "SUCCESS" in run(promtool, "check", "config", "prometheus.yml")
    assert "2 rules found" in run(promtool, "check", "rules", "rules.yml")


def test_the_rules_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    promtool = found("promtool", package="prometheus")
    cases = tmp_path / "rules_test.yml"
    cases.write_text(
        f"""
rule_files: [{DEPLOY / "rules.yml"}]
evaluation_interval: 15s
tests:
  - interval: 15s
    input_series:
      - series: 'apiserver_request_total{{job="apiserver", code="200", cluster="a"}}'
        values: '0+100x80'
      - series: 'apiserver_request_total{{job="apiserver", code="500", cluster="a"}}'
        values: '0+0x40 0+10x40'
      - series: 'apiserver_request_duration_seconds_bucket{{job="apiserver", verb="LIST", le="1"}}'
        values: '0+100x80'
      - series: 'apiserver_request_duration_seconds_bucket{{job="apiserver", verb="LIST", le="+Inf"}}'
        values: '0+100x80'
    alert_rule_test:
      - {{eval_time: 9m, alertname: KubeAPIErrors, exp_alerts: []}}
      - eval_time: 20m
        alertname: KubeAPIErrors
        exp_alerts:
          - exp_labels: {{severity: critical}}
            exp_annotations: {{summary: The API server answers more than 3 % of requests with an error}}
      - {{eval_time: 20m, alertname: KubeAPISlow, exp_alerts: []}}
"""
    )
    assert "SUCCESS" in run(promtool, "test", "rules", cases)


@pytest.fixture(scope="module")
def program(dsn: str, database: Database) -> Iterator[Program]:
    with serving(dsn, database) as started:
        yield started


@pytest.fixture
async def token(program: Program) -> str:
    """Of a responder, as Alertmanager is one."""
    async with program.database.write.begin() as conn:
        return await tokens.create(conn, Role.RESPONDER, purpose=Purpose.API, now=END)


@pytest.fixture
def alertmanager(program: Program, token: str, tmp_path: Path) -> Iterator[str]:
    """The address of an Alertmanager with our configuration; only addresses, the token's file and waits are changed."""
    executable = found("prometheus-alertmanager", "alertmanager", package="prometheus-alertmanager")
    secret = tmp_path / "token"
    secret.write_text(f"{token}\n")
    config = tmp_path / "alertmanager.yml"
    config.write_text(
        (DEPLOY / "alertmanager.yml")
        .read_text()
        .replace("http://foreshock:8000", program.address)
        .replace("/run/secrets/alertmanager_token", str(secret))
        .replace("group_wait: 10s", "group_wait: 0s")
        .replace("group_interval: 1m", "group_interval: 1s")
        + f"inhibit_rules: [{{source_matchers: [alertname={INHIBITOR}], target_matchers: [namespace=inhibited]}}]\n"
    )
    command = [
        executable,
        f"--config.file={config}",
        f"--storage.path={tmp_path / 'data'}",
        "--cluster.listen-address=",
    ]
    with running(*command, address=free_address(), folder=tmp_path) as url:
        yield url


def test_an_alert_opens_an_incident_and_its_end_resolves_it(alertmanager: str, program: Program, token: str) -> None:
    def incidents() -> list[dict[str, object]]:
        signed_in = {"Authorization": f"Bearer {token}"}
        answer = httpx2.get(f"{program.address}/api/v1/incidents", headers=signed_in).raise_for_status()
        return list(answer.json()["items"])

    now = datetime.now(UTC)
    alert = {"labels": LABELS, "startsAt": (now - timedelta(minutes=1)).isoformat()}
    httpx2.post(f"{alertmanager}/api/v2/alerts", json=[alert]).raise_for_status()
    wait_for(lambda: len(incidents()) == 1)
    [incident] = incidents()
    assert incident["cluster"] == "default"
    assert incident["status"] == "open"
    httpx2.post(f"{alertmanager}/api/v2/alerts", json=[alert | {"endsAt": now.isoformat()}]).raise_for_status()
    wait_for(lambda: [one["status"] for one in incidents()] == ["resolved"])


async def test_what_its_webhook_and_its_list_tell_is_one_symptom(alertmanager: str, program: Program) -> None:
    """The one says to the microsecond when it began, the other in milliseconds."""
    started = (datetime.now(UTC) - timedelta(hours=30)).replace(microsecond=123_456)
    alert = {"labels": LABELS | {"namespace": "exact"}, "startsAt": started.isoformat()}
    httpx2.post(f"{alertmanager}/api/v2/alerts", json=[alert]).raise_for_status()

    async def read() -> list[Symptom]:
        async with program.database.read.connect() as conn:
            return await read_window(conn, "default", started - timedelta(seconds=1), started + timedelta(seconds=1))

    async with asyncio.timeout(WITHIN):
        while not await read():  # noqa: ASYNC110 - another program records
            await asyncio.sleep(0.2)
    now, redactor = datetime.now(UTC), Redactor(b"a key of at least 16 bytes")
    firing = await list_firing(Alertmanager(alertmanager), redactor, now=now)
    await correlate.reconcile(program.database.write, "default", firing.alerts, fingerprints=None, asked=now)
    [symptom] = await read()
    assert symptom.at == started.replace(microsecond=123_000)


async def test_what_fired_or_ended_while_nobody_listened_is_known_after_a_start(
    alertmanager: str, dsn: str, database: Database, tmp_path: Path
) -> None:
    """It lists what fires of two clusters; ours is the one that the matchers tell."""
    data = tmp_path / "foreshock"
    data.mkdir()
    source = f"{{url: '{alertmanager}', matchers: ['cluster=\"listed\"']}}"
    (data / "clusters.yaml").write_text(
        f"clusters:\n- {{name: listed, kubeconfig: /nowhere, alertmanager: {source}}}\n"
    )
    now = datetime.now(UTC)
    alerts = [
        {"labels": LABELS | {"cluster": cluster}, "startsAt": (now - timedelta(minutes=1)).isoformat()}
        for cluster in ("listed", "other")
    ]
    httpx2.post(f"{alertmanager}/api/v2/alerts", json=alerts).raise_for_status()

    async def until(status: str) -> Incident:
        async with asyncio.timeout(WITHIN):
            while True:
                async with database.read.connect() as conn:
                    incidents = await list_incidents(conn, cluster="listed")
                if [one.status for one in incidents] == [status] and incidents[0].ranked_at is not None:
                    return incidents[0]
                await asyncio.sleep(0.2)

    with started(dsn, data, "--port", "0"):
        opened = await until("open")
    assert [dict(alert.labels)["cluster"] for alert in opened.alerts] == ["listed"]
    listing, redactor = (
        Alertmanager(alertmanager, matchers=('cluster="listed"',)),
        Redactor(b"a key of at least 16 bytes"),
    )
    await correlate.reconcile(database.write, "listed", (), fingerprints=(), asked=now)
    assert (await until("resolved")).id == opened.id
    firing = await list_firing(listing, redactor, now=now)
    await correlate.reconcile(database.write, "listed", firing.alerts, fingerprints=None, asked=datetime.now(UTC))
    assert (await until("open")).id == opened.id, "an end that was inferred is taken back"
    httpx2.post(f"{alertmanager}/api/v2/alerts", json=[alerts[0] | {"endsAt": now.isoformat()}]).raise_for_status()
    early, later = [await list_firing(listing, redactor, now=now + after) for after in (timedelta(0), SETTLES * 2)]
    assert early.fingerprints is None, "it has just started, and may not have been told of all"
    asked = datetime.now(UTC)
    await correlate.reconcile(database.write, "listed", later.alerts, fingerprints=later.fingerprints, asked=asked)
    ended = await until("resolved")
    assert ended.id == opened.id


@pytest.mark.parametrize("held_back", ["silenced", "inhibited"])
async def test_what_is_held_back_there_stays_open_while_it_fires_and_opens_nothing(
    alertmanager: str, program: Program, held_back: str
) -> None:
    """Its end is not told either: that is known by what fires no more."""
    now = datetime.now(UTC)
    started = now - timedelta(hours=9 if held_back == "silenced" else 18)
    write, over = program.database.write, {"endsAt": now.isoformat()}

    def tell(name: str, namespace: str = held_back, **more: str) -> None:
        alert = {"labels": {"alertname": name, "namespace": namespace}, "startsAt": started.isoformat()} | more
        httpx2.post(f"{alertmanager}/api/v2/alerts", json=[alert]).raise_for_status()

    async def read(namespace: str = held_back) -> dict[str, bool]:
        """Which alerts of a namespace are known, and whether they fire."""
        async with program.database.read.connect() as conn:
            found = [alert for one in await list_incidents(conn, cluster="default") for alert in one.alerts]
        mine = [alert for alert in found if dict(alert.labels)["namespace"] == namespace]
        return {alert.reason: alert.ended_at is None for alert in mine}

    async def until(wanted: dict[str, bool], namespace: str = held_back) -> None:
        async with asyncio.timeout(WITHIN):
            while True:
                if await read(namespace) == wanted:
                    return
                await asyncio.sleep(0.2)

    async def look() -> None:
        later, redactor = datetime.now(UTC) + 2 * SETTLES, Redactor(b"a key of at least 16 bytes")
        firing = await list_firing(Alertmanager(alertmanager), redactor, now=later)
        await correlate.reconcile(write, "default", firing.alerts, fingerprints=firing.fingerprints, asked=later)

    tell("Goes")
    await until({"Goes": True})
    if held_back == "silenced":
        silence = {
            "matchers": [{"name": "namespace", "value": held_back, "isRegex": False}],
            "startsAt": now.isoformat(),
            "endsAt": (now + timedelta(hours=1)).isoformat(),
            "createdBy": "somebody",
            "comment": "known",
        }
        httpx2.post(f"{alertmanager}/api/v2/silences", json=silence).raise_for_status()
    else:
        tell(INHIBITOR, "elsewhere")
    tell("Comes")
    listed = f"{alertmanager}/api/v2/alerts?active=false"
    wait_for(lambda: len(httpx2.get(listed).json()) == 2)
    await look()
    assert await read() == {"Goes": True}
    for name in ("Goes", "Comes"):
        tell(name, **over)
    for fires in (True, False):  # so long, and longer, it takes until something is told
        tell("Seen", f"not {held_back}", **({} if fires else over))
        await until({"Seen": fires}, f"not {held_back}")
    assert await read() == {"Goes": True}
    await look()
    assert await read() == {"Goes": False}
