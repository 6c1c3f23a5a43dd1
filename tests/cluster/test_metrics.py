"""What the page of the control plane draws, and the ranking watches, is there under these names: a real Prometheus
scrapes a real API server, etcd, controller manager and scheduler, and is asked as production asks it."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import httpx2

from app.collect.live import QUESTIONS
from app.collect.prometheus import Asking, Prometheus
from app.core.matching import Match
from app.core.metrics.families import FAMILIES
from app.core.metrics.measures import PARTS, Measure, SeriesQuery
from app.core.metrics.panels import PANELS
from app.core.objects.redact import Redactor
from tests.cluster.control_plane import ControlPlane, running
from tests.cluster.programs import wait_until
from tests.test_prometheus import DOCS, prometheus

WITHIN_SECONDS = 60
ELSEWHERE = "of a program that runs in test_scrape_others.py"
NOWHERE = "of a program that runs in no test"
AT_FIRST_USE = {
    "apiserver_audit_error_total": "an audit event is lost",
    "apiserver_terminated_watchers_total": "a client is too slow for its watch",
}
"""What Kubernetes tells from when something first happens that no traffic here makes happen, and what that is."""
NOT_HERE = {
    "apiserver_storage_db_total_size_in_bytes": "its name before apiserver_storage_size_bytes",
    "apiserver_watch_events_total{kind}": "its label before Kubernetes 1.34, resource since",
    "controller_runtime_reconcile_errors_total": ELSEWHERE,
    "controller_runtime_reconcile_time_seconds": ELSEWHERE,
    "coredns_dns_request_duration_seconds": ELSEWHERE,
    "coredns_dns_responses_total": ELSEWHERE,
    "coredns_proxy_request_duration_seconds": ELSEWHERE,
    "felix_int_dataplane_apply_time_seconds": NOWHERE,
    "felix_int_dataplane_failures": NOWHERE,
    "typha_connections_active": NOWHERE,
    "typha_connections_dropped": NOWHERE,
    "typha_ping_latency": NOWHERE,
}
"""What else panels and families name and Kubernetes 1.36 does not tell, each with the reason."""

Labels = dict[str, str]
Found = Mapping[str, list[Labels]]


def scraping(plane: ControlPlane) -> str:
    """Four jobs of Prometheus, called as docs/metrics.md has them."""
    programs = {
        "apiserver": plane.apiserver,
        "etcd": plane.etcd,
        "kube-controller-manager": plane.controller_manager,
        "kube-scheduler": plane.scheduler,
    }
    jobs = ""
    for name, program in programs.items():
        assert program is not None
        address = httpx2.URL(program.health)
        job = {
            "job_name": name,
            "scheme": address.scheme,
            "authorization": {"credentials": plane.token("admin")},
            "tls_config": {"insecure_skip_verify": True},
            "static_configs": [{"targets": [address.netloc.decode()], "labels": {"cluster": "shop"}}],
        }
        jobs += f"  - {json.dumps(job)}\n"  # JSON is YAML
    return jobs


def matchers() -> str:
    """Those that the documentation shows."""
    [told] = re.findall(r"`matchers: (.*?)`", (DOCS / "metrics.md").read_text())
    return str(told)


def make(admin: httpx2.Client, path: str, body: object) -> None:
    answer = admin.post(path, json=body)
    assert answer.is_success, answer.text


def deployment(name: str) -> dict[str, object]:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "app", "image": "app:1"}]}}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"metadata": {"name": name}, "spec": spec}


def break_webhooks(admin: httpx2.Client) -> None:
    """Two that nobody answers, for pods of the app broken: one lets them in, the other does not."""
    webhooks = [
        {
            "name": f"{policy.lower()}.example.com",
            "failurePolicy": policy,
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
            "objectSelector": {"matchLabels": {"app": "broken"}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        for policy in ("Fail", "Ignore")
    ]
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    make(admin, path, {"metadata": {"name": "unanswered"}, "webhooks": webhooks})


def narrow(admin: httpx2.Client, user: str) -> None:
    """A priority level without a seat, where one request runs at a time, for a user who may read /metrics."""
    path = "/apis/flowcontrol.apiserver.k8s.io/v1"
    limited = {"nominalConcurrencyShares": 0, "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"}}
    level = {"metadata": {"name": "closed"}, "spec": {"type": "Limited", "limited": limited}}
    rule = {
        "subjects": [{"kind": "User", "user": {"name": user}}],
        "resourceRules": [
            {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"], "namespaces": ["*"], "clusterScope": True}
        ],
        "nonResourceRules": [{"nonResourceURLs": ["/metrics"], "verbs": ["*"]}],
    }
    spec = {"priorityLevelConfiguration": {"name": "closed"}, "matchingPrecedence": 2, "rules": [rule]}
    make(admin, f"{path}/prioritylevelconfigurations", level)
    make(admin, f"{path}/flowschemas", {"metadata": {"name": "closed"}, "spec": spec})
    rbac = "rbac.authorization.k8s.io"
    role = {"apiGroup": rbac, "kind": "ClusterRole", "name": "system:monitoring"}
    subject = {"apiGroup": rbac, "kind": "User", "name": user}
    binding = {"metadata": {"name": "scraper"}, "roleRef": role, "subjects": [subject]}
    make(admin, f"/apis/{rbac}/v1/clusterrolebindings", binding)


def is_turned_away(client: httpx2.Client) -> bool:
    """Whether a request is answered 429 while another, which takes longer, is worked on."""
    with ThreadPoolExecutor() as pool:
        other = pool.submit(client.get, "/metrics")
        while not other.done():
            if client.get("/api/v1/pods").status_code == 429:
                return True
    return False


def cause_traffic(plane: ControlPlane) -> None:
    """Of everything that panels show a little: writes, lists, churn; what is refused, fails, or is too old.

    Controllers and the scheduler watch, and work on it.
    """
    pods, deployments = "/api/v1/pods", "/apis/apps/v1/namespaces/default/deployments"
    with plane.client() as admin, plane.client("alice") as alice:
        break_webhooks(admin)
        narrow(admin, "alice")
        make(admin, "/api/v1/nodes", {"metadata": {"name": "worker"}})
        for name in ("web", "broken"):
            make(admin, deployments, deployment(name))
        wait_until(lambda: len(admin.get(pods).json()["items"]) >= 2, "pods are made")
        merge = {"Content-Type": "application/merge-patch+json"}
        scaled = admin.patch(f"{deployments}/web/scale", content='{"spec": {"replicas": 1}}', headers=merge)
        assert scaled.is_success, scaled.text
        wrong = admin.patch(f"{deployments}/web/scale", content='{"spec": {"replicas": -1}}', headers=merge)
        assert wrong.status_code == 422, wrong.text
        assert admin.delete("/api/v1/nodes/worker").is_success
        wait_until(lambda: is_turned_away(alice), "alice is turned away")
        plane.compact()
        old = {"resourceVersion": "1", "resourceVersionMatch": "Exact"}
        # The server's cache may still know old pods; Events it does not keep.
        assert admin.get("/api/v1/events", params=old).status_code == 410


async def told(url: str) -> Found:
    """What a Prometheus says of the last minute: name of a series -> its labels."""
    source, now = Prometheus(url, matchers=matchers()), datetime.now(UTC)
    asking = Asking(source, QUESTIONS[0], Redactor(b"k" * 32), step=timedelta(seconds=1))
    found = defaultdict[str, list[Labels]](list)
    for one in (await asking.read(now, now)).series:
        found[one.name].append(dict(one.labels))
    return found


def lacking(found: Found) -> Iterable[str]:
    """What of panels and families is not there: the name of a metric, or name{label}."""
    for panel in PANELS.values():
        if isinstance(query := panel.query, SeriesQuery):
            labels = {*query.by, *(one.name for one in query.where)}
            yield from _lacking(found, query.metrics, query.measure, labels, partial(_fits, query.where))
    for family in FAMILIES:
        measure = Measure.MEAN if family.measure == "mean" else Measure.LEVEL
        yield from _lacking(found, family.metrics, measure, family.by, family.keep)


def _fits(where: Iterable[Match], labels: Labels) -> bool:
    return all(one.fits(labels.get(one.name, "")) for one in where)


def _lacking(
    found: Found, metrics: Iterable[str], measure: Measure, labels: Iterable[str], fits: Callable[[Labels], bool]
) -> Iterable[str]:
    for metric in metrics:
        for part in PARTS.get(measure, ("",)):
            series = found[f"{metric}{part}"]
            if not any(fits(one) for one in series):
                yield metric
            else:
                yield from (f"{metric}{{{label}}}" for label in labels if not any(one.get(label) for one in series))


async def test_what_panels_and_families_name_is_what_a_control_plane_tells(tmp_path: Path) -> None:
    with running(controllers=True) as plane, prometheus(tmp_path, scraping(plane)) as url:
        await asyncio.to_thread(cause_traffic, plane)
        until = time.monotonic() + WITHIN_SECONDS
        while True:
            left = set(lacking(await told(url)))
            if left <= {*NOT_HERE, *AT_FIRST_USE} or time.monotonic() > until:
                break
            await asyncio.sleep(0.5)
    assert left | AT_FIRST_USE.keys() == {*NOT_HERE, *AT_FIRST_USE}
