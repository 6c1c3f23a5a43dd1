"""What deploy/ ships for who has Prometheus and Alertmanager already, checked with their own tools."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from app.collect.alerts import parse
from app.core.objects.redact import Redactor
from app.core.signals.collected import SUMMED
from tests.programs import found
from tests.test_alertmanager import DEPLOY, run

ALERTS = (
    "KubeAPIErrors",
    "KubeAPISlow",
    "KubeAPIRejectsRequests",
    "KubeAPIListsRise",
    "KubeAdmissionWebhookFails",
    "EtcdSlow",
    "EtcdNearlyFull",
    "KubeAuditEventsLost",
    "ForeshockDown",
    "ForeshockDatabaseDown",
    "ForeshockNotFollowing",
    "ForeshockWatchesSilent",
    "ForeshockBlind",
    "ForeshockBehind",
    "ForeshockSpoolFilling",
    "ForeshockAuditRefused",
    "ForeshockAlertsRefused",
    "ForeshockAlertsLeftOut",
    "ForeshockTokenExpired",
    "ForeshockTokenExpires",
    "ForeshockIntakeSlow",
    "ForeshockQuarantines",
    "ForeshockWorkerFails",
    "ForeshockRankingLate",
    "ForeshockSlackRefuses",
    "ForeshockSlackInVain",
    "ForeshockSlackDeaf",
    "ForeshockSourceFails",
)
FIRST_LOSS = {'apiserver_audit_error_total{job="apiserver", cluster="a", plugin="buffered"}': "_x460 400+0x19"}
"""Audit events of one batch, the first that were ever lost: 0 was never told."""
BAD = {
    'apiserver_request_total{job="apiserver", cluster="a", verb="GET", code="200"}': "0+100x480",
    'apiserver_request_total{job="apiserver", cluster="a", verb="GET", code="500"}': "0+100x480",
    'apiserver_request_total{job="apiserver", cluster="a", verb="LIST", resource="pods", code="200"}': (
        "0+1x360 600+600x120"
    ),
    'apiserver_request_duration_seconds_bucket{job="apiserver", cluster="a", verb="GET", le="1"}': "0+90x480",
    'apiserver_request_duration_seconds_bucket{job="apiserver", cluster="a", verb="GET", le="2"}': "0+100x480",
    'apiserver_request_duration_seconds_bucket{job="apiserver", cluster="a", verb="GET", le="+Inf"}': "0+100x480",
    'apiserver_flowcontrol_rejected_requests_total{job="apiserver", cluster="a", priority_level="catch-all"}': (
        "0+60x480"
    ),
    'apiserver_admission_webhook_rejection_count{job="apiserver", cluster="a", name="v.example", '
    'error_type="calling_webhook_error"}': "0+10x480",
    'etcd_request_duration_seconds_bucket{job="apiserver", cluster="a", le="0.5"}': "0+90x480",
    'etcd_request_duration_seconds_bucket{job="apiserver", cluster="a", le="1"}': "0+100x480",
    'etcd_request_duration_seconds_bucket{job="apiserver", cluster="a", le="+Inf"}': "0+100x480",
    'etcd_mvcc_db_total_size_in_bytes{job="etcd", cluster="a"}': "1800+0x480",
    'etcd_server_quota_backend_bytes{job="etcd", cluster="a"}': "2000+0x480",
    'apiserver_audit_error_total{job="apiserver", cluster="a", plugin="webhook"}': "0+1x480",
    'up{job="foreshock", instance="a"}': "0+0x480",
    'foreshock_database_up{job="foreshock", instance="a"}': "1+0x100 0+0x379",
    'foreshock_collector_renewed_timestamp_seconds{job="foreshock", cluster="a"}': "0+0x480",
    'foreshock_watch_last_heard_timestamp_seconds{job="foreshock", cluster="a"}': "0+0x480",
    'foreshock_open_gaps{job="foreshock", cluster="a"}': "0+0x400 1+0x79",
    'foreshock_recorded_timestamp_seconds{job="foreshock", cluster="a", source="watch"}': "0+0x480",
    'foreshock_recorded_timestamp_seconds{job="foreshock", cluster="a", source="metrics"}': "0+15x480",
    'foreshock_spool_unrecorded_bytes{job="foreshock", cluster="a"}': "10+1000x480",
    'foreshock_spool_bytes{job="foreshock", cluster="a"}': "0+2x480",
    'foreshock_spool_capacity_bytes{job="foreshock", cluster="a"}': "1000+0x480",
    'foreshock_intake_answers_total{job="foreshock", intake="audit", code="503"}': "0+1x480",
    'foreshock_intake_answers_total{job="foreshock", intake="alertmanager", code="400"}': "_x470 1+0x9",
    'foreshock_alerts_left_out_total{job="foreshock", intake="alertmanager", reason="truncated"}': "_x470 2+0x9",
    'foreshock_intake_expired_total{job="foreshock", intake="alertmanager"}': "_x470 1+0x9",
    'foreshock_token_expires_in_seconds{job="foreshock", role="responder", cluster=""}': "1210000-15x480",
    'foreshock_intake_duration_seconds_bucket{job="foreshock", intake="audit", le="1"}': "0+98x480",
    'foreshock_intake_duration_seconds_bucket{job="foreshock", intake="audit", le="2"}': "0+100x480",
    'foreshock_intake_duration_seconds_bucket{job="foreshock", intake="audit", le="+Inf"}': "0+100x480",
    'foreshock_quarantined_total{job="foreshock", cluster="a"}': "0+0x400 1+0x79",
    'foreshock_worker_failures_total{job="foreshock", worker="rankings"}': "0+1x480",
    'foreshock_unranked_incidents{job="foreshock"}': "0+0x400 1+0x79",
    'foreshock_slack_refused{job="foreshock"}': "0+0x400 2+0x79",
    'foreshock_slack_in_vain_seconds{job="foreshock"}': "0+0x400 0+15x79",
    'foreshock_slack_connected{job="foreshock"}': "1+0x400 0+0x79",
    'foreshock_remarks{job="foreshock", cluster="a", severity="error"}': "0+0x300 1+0x179",
}
"""Every alert's reason, at a sample every 15 s over two hours."""
WELL = {
    'apiserver_request_total{job="apiserver", cluster="a", verb="GET", code="200"}': "0+100x480",
    'apiserver_request_total{job="apiserver", cluster="a", verb="GET", code="500"}': "0+1x480",
    'apiserver_request_total{job="apiserver", cluster="a", verb="LIST", resource="pods", code="200"}': "0+600x480",
    'apiserver_request_duration_seconds_bucket{job="apiserver", cluster="a", verb="GET", le="1"}': "0+100x480",
    'apiserver_request_duration_seconds_bucket{job="apiserver", cluster="a", verb="GET", le="+Inf"}': "0+100x480",
    'apiserver_request_duration_seconds_bucket{job="apiserver", cluster="a", verb="WATCH", le="+Inf"}': "0+100x480",
    'apiserver_flowcontrol_rejected_requests_total{job="apiserver", cluster="a", priority_level="catch-all"}': (
        "0+1x480"
    ),
    'apiserver_admission_webhook_rejection_count{job="apiserver", cluster="a", name="v.example", '
    'error_type="no_error"}': "0+100x480",
    'etcd_request_duration_seconds_bucket{job="apiserver", cluster="a", le="0.5"}': "0+100x480",
    'etcd_request_duration_seconds_bucket{job="apiserver", cluster="a", le="+Inf"}': "0+100x480",
    'etcd_mvcc_db_total_size_in_bytes{job="etcd", cluster="a"}': "1500+0x480",
    'etcd_server_quota_backend_bytes{job="etcd", cluster="a"}': "2000+0x480",
    'apiserver_audit_error_total{job="apiserver", cluster="a", plugin="webhook"}': "7+0x420 _x30 7+0x29",
    'up{job="foreshock", instance="a"}': "1+0x480",
    'up{job="foreshock", instance="b"}': "0+0x480",  # the other one goes on
    'foreshock_database_up{job="foreshock", instance="a"}': "1+0x480",
    'foreshock_collector_renewed_timestamp_seconds{job="foreshock", cluster="a"}': "0+15x480",
    'foreshock_watch_last_heard_timestamp_seconds{job="foreshock", cluster="a", instance="a"}': "-60+15x480",
    'foreshock_watch_last_heard_timestamp_seconds{job="foreshock", cluster="a", instance="b"}': "0+0x80",
    'foreshock_open_gaps{job="foreshock", cluster="a"}': "1+0x10 0+0x469",
    'foreshock_recorded_timestamp_seconds{job="foreshock", cluster="a", source="watch"}': "-60+15x480",
    'foreshock_recorded_timestamp_seconds{job="foreshock", cluster="a", source="audit log"}': "0+0x480",
    'foreshock_spool_unrecorded_bytes{job="foreshock", cluster="a"}': "500+0x480",
    'foreshock_recorded_timestamp_seconds{job="foreshock", cluster="quiet", source="watch"}': "0+0x480",
    'foreshock_spool_unrecorded_bytes{job="foreshock", cluster="quiet"}': "0+0x480",
    'foreshock_spool_bytes{job="foreshock", cluster="a"}': "125+0x480",
    'foreshock_spool_capacity_bytes{job="foreshock", cluster="a"}': "1000+0x480",
    'foreshock_intake_answers_total{job="foreshock", intake="audit", code="200"}': "0+100x480",
    'foreshock_intake_answers_total{job="foreshock", intake="audit", code="503"}': "3+0x480",
    'foreshock_intake_answers_total{job="foreshock", intake="prometheus", code="400"}': "0+100x480",
    'foreshock_intake_answers_total{job="foreshock", intake="alertmanager", code="400"}': "3+0x480",
    'foreshock_intake_answers_total{job="foreshock", intake="pagerduty", code="401"}': "0+1x480",
    'foreshock_alerts_left_out_total{job="foreshock", intake="alertmanager", reason="truncated"}': "3+0x480",
    'foreshock_intake_expired_total{job="foreshock", intake="alertmanager"}': "3+0x480",
    'foreshock_token_expires_in_seconds{job="foreshock", role="responder", cluster=""}': "1220000-15x480",
    'foreshock_intake_duration_seconds_bucket{job="foreshock", intake="audit", le="1"}': "0+100x480",
    'foreshock_intake_duration_seconds_bucket{job="foreshock", intake="audit", le="+Inf"}': "0+100x480",
    'foreshock_intake_duration_seconds_bucket{job="foreshock", intake="alertmanager", le="+Inf"}': "0+100x480",
    'foreshock_quarantined_total{job="foreshock", cluster="a"}': "9+0x480",
    'foreshock_worker_failures_total{job="foreshock", worker="rankings"}': "0+0x200 1+0x279",
    'foreshock_unranked_incidents{job="foreshock"}': "0+0x476 1+0x3",
    'foreshock_slack_refused{job="foreshock"}': "0+0x476 1+0x3",
    'foreshock_slack_in_vain_seconds{job="foreshock"}': "0+0x439 0+15x40",
    'foreshock_slack_connected{job="foreshock", instance="a"}': "1+0x480",
    'foreshock_slack_connected{job="foreshock", instance="b"}': "0+0x480",
    'foreshock_remarks{job="foreshock", cluster="a", severity="error"}': "0+0x400 1+0x79",
    'foreshock_remarks{job="foreshock", cluster="a", severity="warning"}': "2+0x480",
}
"""The same, where all is well."""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """The rules as Prometheus itself takes them: the operator writes what stands under spec."""
    told = yaml.safe_load((DEPLOY / "prometheus-rules.yaml").read_text())
    assert (told["apiVersion"], told["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump(told["spec"]))
    return path


def test_the_buckets_that_pages_read_are_recorded() -> None:
    """As they are kept of what is scraped directly, and of which target: a restart of one is no reset of all."""
    promtool, path = found("promtool", package="prometheus"), DEPLOY / "recording-rules.yml"
    assert f"{len(SUMMED)} rules found" in run(promtool, "check", "rules", path)
    [group] = yaml.safe_load(path.read_text())["groups"]
    assert {rule["record"]: rule["expr"] for rule in group["rules"]} == {
        f"foreshock:{name}": f"sum by ({', '.join(sorted({'instance', 'job', *labels}))}) ({name})"
        for name, labels in SUMMED.items()
    }


def test_each_alert_has_a_runbook_to_which_a_page_of_its_incident_leads(rules: Path) -> None:
    told = (DEPLOY.parent / "docs" / "reliability.md").read_text()
    for rule in (rule for group in yaml.safe_load(rules.read_text())["groups"] for rule in group["rules"]):
        annotations, path = rule["annotations"], f"docs/reliability.md#{rule['alert'].lower()}"
        assert annotations["runbook"] == path
        assert f"### {rule['alert']}\n" in told
        fired = {"startsAt": "2026-11-30T10:00:00Z", "labels": {"alertname": "A"}, "annotations": annotations}
        body = json.dumps({"version": "4", "alerts": [fired]}).encode()
        (alert,), _ = parse(body, Redactor(b"k" * 32), received=datetime(2026, 11, 30, 11, tzinfo=UTC))
        assert dict(alert.annotations)["runbook_url"] == f"https://git.example/foreshock/blob/main/{path}"


def test_each_alert_asks_for_metrics_that_there_are(rules: Path) -> None:
    """Of Foreshock's own, whose names the documentation is checked to have."""
    told = (DEPLOY.parent / "docs" / "configuration.md").read_text()
    asked = {re.sub("_bucket$", "", name) for name in re.findall(r"foreshock_\w+", rules.read_text())}
    assert asked
    assert {name for name in asked if f"`{name}`" not in told} == set()


def test_prometheus_takes_the_rules(rules: Path) -> None:
    promtool = found("promtool", package="prometheus")
    assert f"{len(ALERTS)} rules found" in run(promtool, "check", "rules", rules)


@pytest.mark.parametrize(
    ("series", "firing"), [(BAD, ALERTS), (WELL, ()), (WELL | FIRST_LOSS, ("KubeAuditEventsLost",))]
)
def test_each_alert_fires_when_it_should_and_only_then(
    rules: Path, series: dict[str, str], firing: tuple[str, ...]
) -> None:
    promtool = found("promtool", package="prometheus")
    # ALERTS{alertstate="firing"} is what Prometheus itself records: what it says is compared, not each sentence.
    fires = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(firing)]
    case = {
        "rule_files": [str(rules)],
        "evaluation_interval": "15s",
        "tests": [
            {
                "interval": "15s",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": [
                    {
                        "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                        "eval_time": "119m",
                        "exp_samples": fires,
                    }
                ],
            }
        ],
    }
    cases = rules.with_name("cases.yml")
    cases.write_text(yaml.safe_dump(case))
    assert "SUCCESS" in run(promtool, "test", "rules", cases)


def test_alertmanager_takes_the_receiver_and_sends_it_everything_but_heartbeats() -> None:
    amtool = found("amtool", package="prometheus-alertmanager")
    config = DEPLOY / "alertmanager-receiver.yaml"
    assert "SUCCESS" in run(amtool, "check-config", config)

    def receivers(severity: str) -> list[str]:
        printed = run(amtool, "config", "routes", "test", f"--config.file={config}", f"severity={severity}")
        return printed.strip().splitlines()[-1].split(",")

    assert receivers("critical") == ["foreshock", "yours"]
    assert receivers("none") == ["yours"]
