"""From what breaks a cluster to the incident that says so: a real API server, a Prometheus that scrapes it and has the
rules of deploy/, an Alertmanager that has its receiver, and the real program, which follows the cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from app.core.roles import Role
from app.store import tokens
from app.store.database import Database
from app.store.tokens import Purpose
from tests.cluster.control_plane import ControlPlane, running
from tests.cluster.test_metrics import break_webhooks, make
from tests.programs import found, free_address, wait_for
from tests.programs import running as ready
from tests.serving import program
from tests.test_alertmanager import DEPLOY
from tests.test_prometheus import asked

ALERT = "KubeAdmissionWebhookFails"
KIND = "ValidatingWebhookConfiguration"
WEBHOOKS = f"/apis/admissionregistration.k8s.io/v1/{KIND.lower()}s"
WEBHOOK = "fail.example.com"
"""The one of ``break_webhooks`` without which no pod is let in."""
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
PODS = "/api/v1/namespaces/default/pods"
POD = {
    "metadata": {"generateName": "broken-", "labels": {"app": "broken"}},
    "spec": {"containers": [{"name": "app", "image": "app:1"}]},
}


def shipped(name: str, **changed: str) -> str:
    """A file of deploy/, with these of its words replaced by others; each must stand in it."""
    told = (DEPLOY / name).read_text()
    for was, becomes in changed.items():
        assert was in told, f"{name} has no {was}"
        told = told.replace(was, becomes)
    return told


def rules() -> str:
    """The rules as the operator writes them for Prometheus: what stands under spec. Only the one that fires here waits
    otherwise: over five minutes it looks, and for five its condition must hold. A test cannot wait so long."""
    spec = yaml.safe_load(shipped("prometheus-rules.yaml"))["spec"]
    [rule] = [one for group in spec["groups"] for one in group["rules"] if one.get("alert") == ALERT]
    assert "[5m]" in rule["expr"]
    rule["expr"], rule["for"] = rule["expr"].replace("[5m]", "[30s]"), "0s"
    return str(yaml.safe_dump(spec))


@contextmanager
def alertmanager(folder: Path, told: str) -> Iterator[str]:
    """The address of an Alertmanager with the receiver as it ships. Address and token's file are ours; what is told
    together is waited for no longer than a second."""
    executable = found("prometheus-alertmanager", "alertmanager", package="prometheus-alertmanager")
    folder.mkdir()
    config = folder / "alertmanager.yml"
    config.write_text(told)
    command = [executable, f"--config.file={config}", f"--storage.path={folder / 'data'}", "--cluster.listen-address="]
    with ready(*command, address=free_address(), folder=folder) as url:
        yield url


@contextmanager
def prometheus(folder: Path, plane: ControlPlane, alerts_to: str) -> Iterator[str]:
    """The address of a Prometheus with the rules, which scrapes the API server as the job that they ask for."""
    executable = found("prometheus", package="prometheus")
    folder.mkdir()
    (folder / "rules.yml").write_text(rules())
    apiserver = {
        "job_name": "apiserver",
        "scheme": "https",
        "authorization": {"credentials": plane.token("admin")},
        "tls_config": {"ca_file": str(plane.ca)},
        "static_configs": [{"targets": [httpx2.URL(plane.url).netloc.decode()]}],
    }
    config = {
        "global": {"scrape_interval": "3s", "scrape_timeout": "3s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yml"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alerts_to.removeprefix("http://")]}]}]},
        "scrape_configs": [apiserver],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    command = [
        executable,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--rules.alert.resend-delay=1s",
    ]
    with ready(*command, address=free_address(), folder=folder) as url:
        yield url


class Foreshock:
    """What its REST says of the one cluster."""

    def __init__(self, address: str, token: str) -> None:
        self._address, self._signed_in = address, {"Authorization": f"Bearer {token}"}

    def _get(self, path: str, **asked: str) -> list[dict[str, Any]]:
        url = f"{self._address}/api/v1/{path}"
        answer = httpx2.get(url, params={"cluster": "default"} | asked, headers=self._signed_in)
        return list(answer.raise_for_status().json()["items"])

    def knows(self, kind: str, name: str) -> bool:
        """Whether a change of this object is recorded."""
        return any(one["resource"]["name"] == name for one in self._get("changes", kind=kind))

    def incident_while(self, goes_on: Callable[[], bool], *, status: str) -> dict[str, Any]:
        """The only incident, once it stands so and is ranked. Until then ``goes_on`` is called, and must say so."""

        def stands() -> bool:
            assert goes_on()
            found = self._get("incidents")
            assert len(found) <= 1
            return any(one["status"] == status and one["ranked_at"] for one in found)

        wait_for(stands)
        [found] = self._get("incidents")
        return found


def is_refused(admin: httpx2.Client) -> bool:
    """Whether a pod is not let in, for the reason that the alert is about."""
    answer = admin.post(PODS, json=POD)
    return answer.status_code == 500 and f'failed calling webhook "{WEBHOOK}"' in answer.json()["message"]


@pytest.fixture
async def responder(database: Database) -> str:
    """As Alertmanager is one."""
    async with database.write.begin() as conn:
        return await tokens.create(conn, Role.RESPONDER, purpose=Purpose.API, now=datetime.now(UTC))


def test_a_webhook_that_nobody_answers_is_an_incident_until_it_is_gone(
    dsn: str, responder: str, tmp_path: Path
) -> None:
    data = tmp_path / "foreshock"
    data.mkdir()
    (tmp_path / "token").write_text(f"{responder}\n")
    with running() as plane, plane.client() as admin:
        followed = {"name": "default", "kubeconfig": str(plane.kubeconfig())}
        (data / "clusters.yaml").write_text(json.dumps({"clusters": [followed]}))
        with program(dsn, data, "--port", "0") as (_, address):
            receiver = shipped(
                "alertmanager-receiver.yaml",
                **{
                    "http://foreshock.foreshock.svc:8000": address,
                    "/etc/alertmanager/secrets/foreshock/token": str(tmp_path / "token"),
                    "group_wait: 10s": "group_wait: 1s",
                    "group_interval: 1m": "group_interval: 1s",
                },
            )
            with (
                alertmanager(tmp_path / "alertmanager", receiver) as alerts_to,
                prometheus(tmp_path / "prometheus", plane, alerts_to) as metrics,
            ):
                foreshock = Foreshock(address, responder)
                wait_for(lambda: asked(metrics, 'up{job="apiserver"}') == 1)
                make(admin, ACCOUNTS, {"metadata": {"name": "default"}})  # no controller makes it, and pods need one
                break_webhooks(admin)
                wait_for(lambda: foreshock.knows(KIND, "unanswered"))
                wait_for(lambda: is_refused(admin))  # the API server learns of it as everybody does

                opened = foreshock.incident_while(lambda: is_refused(admin), status="open")
                assert opened["severity"] == "critical"
                assert opened["control_plane"] is True
                assert opened["first_suspect"]["kind"] == KIND
                assert opened["first_suspect"]["name"] == "unanswered"
                [alert] = opened["alerts"]
                assert alert["reason"] == ALERT
                assert alert["message"] == f"The admission webhook {WEBHOOK} cannot be called, and requests fail for it"

                assert admin.delete(f"{WEBHOOKS}/unanswered").is_success
                over = foreshock.incident_while(lambda: True, status="resolved")
                assert over["id"] == opened["id"]
                assert over["resolved_at"] == over["alerts"][0]["ended_at"] > over["started_at"]
