"""How each route is asked of a place, and what of a scope it takes: one that is added tomorrow is to be added here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Any
from urllib.parse import quote, urlencode

from app.core.roles import Role
from tests.web import world
from tests.web.scoped import PLACES, Place, place


class Takes(Enum):
    """What somebody must reach to be answered; to who reaches less, it is as if it was not there."""

    PLACE = "the place"
    INCIDENT = "the place; of one that is no namespace, the whole cluster"
    CLUSTER = "anything of the cluster"
    WHOLE = "the whole cluster; who reaches a part of it is told so"
    WHOLE_INCIDENT = "the same, where they reach the incident"
    SENDING = "the whole cluster; who does not is told so, whichever it is"
    UNLIMITED = "everything; who does not is told so"


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    path: str
    json: Any = None
    form: dict[str, str] | None = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Case:
    """A route, how it is asked of a place (None: not of this one), what that takes, and what then answers. ``shows``:
    the places whose own word the answer holds."""

    method: str
    route: str
    ask: Callable[[Place], Asked | None]
    takes: Takes
    role: Role = Role.VIEWER
    statuses: frozenset[int] = frozenset({200})
    shows: frozenset[str] = frozenset(PLACES)

    @property
    def writes(self) -> bool:
        return self.method != "GET"


def get(route: str, takes: Takes, ask: Callable[[Place], Asked | str | None], **more: Any) -> Case:
    def asked(of: Place) -> Asked | None:
        found = ask(of)
        return Asked(found) if isinstance(found, str) else found

    return Case("GET", route, asked, takes, **more)


def post(route: str, takes: Takes, ask: Callable[[Place], Asked | None], *, method: str = "POST", **more: Any) -> Case:
    return Case(method, route, ask, takes, **({"role": Role.RESPONDER} | more))


def query(**named: str | None) -> str:
    return urlencode({name.rstrip("_"): value for name, value in named.items() if value is not None})


def _object(under: str, of: Place) -> str | None:
    one = of.resource
    if of.name == "aw":
        return None
    return (
        f"{under}/objects/{quote(one.cluster)}/{one.api_group or 'core'}/{one.kind}/{one.namespace or '-'}/{one.name}"
    )


def _diff(of: Place) -> str | None:
    if of.name == "aw":
        return None
    one = of.resource
    kind = f"{one.kind}.{one.api_group}" if one.api_group else one.kind
    asked = query(cluster=one.cluster, namespace=one.namespace, object=f"{kind}/{one.name}")
    return f"/api/v1/diff?{asked}&{urlencode({'from': LONG_BEFORE.isoformat()})}"


def _change(template: str) -> Callable[[Place], str | None]:
    return lambda of: None if of.name == "aw" else template.format(of.change.id)


def _rollout(of: Place) -> str | None:
    return f"/_/changes/{of.change.id}/rollout" if of.namespace else None


def _incident(template: str) -> Callable[[Place], str | None]:
    return lambda of: template.format(of.incident)


def _window(path: str, **more: str) -> Callable[[Place], str | None]:
    """Of a cluster and a namespace, which takes the former alone: of what is in the latter nothing may be told."""
    between = {"from": world.START.isoformat(), "to": world.END.isoformat()}
    return lambda of: f"{path}?{urlencode({'cluster': of.cluster, **between, **more})}"


def _spaced(path: str) -> Callable[[Place], str | None]:
    return lambda of: f"{path}?{query(cluster=of.cluster, namespace=of.namespace)}" if of.namespace else None


NOTHING: frozenset[str] = frozenset()
SPACES = frozenset({"a1", "a2", "b1"})
OBJECTS = SPACES | {"a0"}
WHOLES = frozenset({"aw", "b1"})
OWN = place("a1")
ONE: dict[str, Any] = {"statuses": frozenset({201, 200})}
BACK: dict[str, Any] = {"statuses": frozenset({303}), "shows": NOTHING}
NAMELESS: dict[str, Any] = {"role": Role.OPERATOR, "statuses": frozenset({403}), "shows": NOTHING}
LONG_BEFORE = world.ALERT_AT - timedelta(days=2)  # so that it joins none of the incidents
ALERT = {"version": "4", "alerts": [{"status": "firing", "startsAt": LONG_BEFORE.isoformat(), "labels": {}}]}
GRAPH = "metric=apiserver_request_total&by=instance"


def _opened(of: Place) -> dict[str, Any]:
    return {"cluster": of.cluster, "title": f"{of.word} is slow", "namespaces": [of.namespace] if of.namespace else []}


def _merged(part: Place, into: Place) -> Asked:
    return Asked(f"/api/v1/incidents/{part.part}/merge", json={"into": into.incident})


def _told(of: Place) -> Asked:
    said = {"source": "ci", "kind": "deploy", "name": "app", "summary": "deploys", "cluster": of.cluster}
    return Asked("/api/v1/changes", json=said)


def _flux(of: Place) -> Asked:
    event = {
        "involvedObject": {"kind": "Kustomization", "namespace": "flux-system", "name": "apps"},
        "severity": "info",
        "timestamp": world.END.isoformat(),
        "message": "applied",
        "reason": "ReconciliationSucceeded",
        "metadata": {"kustomize.toolkit.fluxcd.io/revision": f"main@sha1:{of.incident}"},
    }
    return Asked(f"/intake/flux?{query(cluster=of.cluster)}", json=event)


SAME: dict[str, Any] = {"json": {"opinion": "it"}}
CASES = [
    # REST that reads
    get("/api/v1/changes", Takes.CLUSTER, _window("/api/v1/changes"), shows=OBJECTS),
    get("/api/v1/changes", Takes.PLACE, _spaced("/api/v1/changes")),
    get(
        "/api/v1/changes",
        Takes.WHOLE,
        lambda of: f"/api/v1/changes?follow=1&{query(cluster=of.cluster)}",
        shows=OBJECTS,
    ),
    get("/api/v1/changes/{change_id}", Takes.PLACE, _change("/api/v1/changes/{}")),
    get("/api/v1/changes/{change_id}/revert", Takes.PLACE, _change("/api/v1/changes/{}/revert")),
    get("/api/v1/changes/{change_id}/manifest", Takes.PLACE, _change("/api/v1/changes/{}/manifest?which=after")),
    get(
        "/api/v1/objects/{cluster}/{api_group}/{kind}/{namespace}/{name:rest}",
        Takes.PLACE,
        lambda of: _object("/api/v1", of),
    ),
    get("/api/v1/diff", Takes.PLACE, _diff),
    get("/api/v1/audit", Takes.UNLIMITED, lambda _: "/api/v1/audit", role=Role.ADMIN, shows=NOTHING),
    get("/api/v1/rollouts", Takes.CLUSTER, _window("/api/v1/rollouts"), shows=SPACES),
    get("/api/v1/calls", Takes.WHOLE, lambda of: f"/api/v1/calls?{query(cluster=of.cluster)}", shows=WHOLES),
    get(
        "/api/v1/calls/rates", Takes.WHOLE, lambda of: f"/api/v1/calls/rates?{query(cluster=of.cluster)}", shows=WHOLES
    ),
    get("/api/v1/metrics", Takes.WHOLE, lambda of: f"/api/v1/metrics?{query(cluster=of.cluster)}", shows=WHOLES),
    get("/api/v1/series", Takes.WHOLE, lambda of: f"/api/v1/series?{query(cluster=of.cluster)}&{GRAPH}", shows=WHOLES),
    get(
        "/api/v1/promql",
        Takes.UNLIMITED,
        lambda of: f"/api/v1/promql?{query(cluster=of.cluster, query='up')}",
        role=Role.RESPONDER,
        statuses=frozenset({503}),  # there is no Prometheus to ask
        shows=NOTHING,
    ),
    get(
        "/api/v1/incidents",
        Takes.CLUSTER,
        lambda of: f"/api/v1/incidents?{query(cluster=of.cluster)}",
        shows=SPACES | WHOLES,
    ),
    get(
        "/api/v1/incidents",
        Takes.CLUSTER,
        lambda of: f"/api/v1/incidents?follow=1&{query(cluster=of.cluster)}",
        shows=SPACES | WHOLES,
    ),
    get("/api/v1/incidents/{incident_id}", Takes.INCIDENT, _incident("/api/v1/incidents/{}")),
    get("/api/v1/incidents/{incident_id}/suspects", Takes.INCIDENT, _incident("/api/v1/incidents/{}/suspects")),
    get("/api/v1/annotations", Takes.PLACE, _spaced("/api/v1/annotations")),
    get("/api/v1/gaps", Takes.CLUSTER, _window("/api/v1/gaps"), shows=NOTHING),
    get("/api/v1/clusters", Takes.CLUSTER, lambda _: "/api/v1/clusters", shows=NOTHING),
    get("/api/v1/what-changed", Takes.PLACE, _spaced("/api/v1/what-changed")),
    # REST that writes
    post("/api/v1/changes", Takes.SENDING, _told, **ONE, shows=NOTHING),
    post("/api/v1/incidents", Takes.INCIDENT, lambda of: Asked("/api/v1/incidents", json=_opened(of)), **ONE),
    post(
        "/api/v1/incidents/{incident_id}",
        Takes.INCIDENT,
        lambda of: Asked(f"/api/v1/incidents/{of.incident}", json={"severity": "error"}),
        method="PATCH",
    ),
    post(
        "/api/v1/incidents/{incident_id}/merge",
        Takes.INCIDENT,
        lambda of: _merged(of, of),
    ),
    post(
        "/api/v1/incidents/{incident_id}/verdicts/{change_id}",
        Takes.WHOLE_INCIDENT,
        lambda of: Asked(f"/api/v1/incidents/{of.incident}/verdicts/{of.change.id}", **SAME),
        method="PUT",
    ),
    post(
        "/api/v1/incidents/{incident_id}/verdicts/{change_id}",
        Takes.WHOLE_INCIDENT,
        lambda of: Asked(f"/api/v1/incidents/{of.incident}/verdicts/{'0' * 28}"),
        method="DELETE",
        statuses=frozenset({404}),  # nobody said so
        shows=NOTHING,
    ),
    # of what is theirs, with what is not
    post(
        "/api/v1/incidents/{incident_id}/merge",
        Takes.INCIDENT,
        lambda of: _merged(OWN, of) if of.name == "b1" else None,
        statuses=frozenset({404, 422}),  # theirs is not there for them, or of another cluster
        shows=NOTHING,
    ),
    post(
        "/api/v1/incidents/{incident_id}",
        Takes.INCIDENT,
        lambda of: (
            Asked(f"/api/v1/incidents/{of.incident}", json={"namespaces": [of.namespace]}) if of.namespace else None
        ),
        method="PATCH",
    ),
    get(
        "/api/v1/changes",
        Takes.CLUSTER,
        lambda of: f"/api/v1/changes?{query(actor=f'{of.word}@example.com')}",
        shows=OBJECTS,
    ),
    get("/api/v1/changes", Takes.CLUSTER, lambda of: f"/api/v1/changes?{query(text=of.word)}", shows=OBJECTS),
    get("/changes", Takes.CLUSTER, lambda of: f"/changes?{query(kind=f'{of.word}kind')}", shows=OBJECTS),
    get(
        "/api/v1/what-changed",
        Takes.CLUSTER,
        lambda of: f"/api/v1/what-changed?format=text&{query(cluster=of.cluster)}",
        shows=OBJECTS,
    ),
    # what others send
    post(
        "/intake/alertmanager/{cluster}",
        Takes.SENDING,
        lambda of: Asked(f"/intake/alertmanager/{of.cluster}", json=ALERT),
        shows=NOTHING,
    ),
    post(
        "/intake/opsgenie/{cluster}",
        Takes.SENDING,
        lambda of: Asked(f"/intake/opsgenie/{of.cluster}", json={"action": "Acknowledge", "alert": {"alertId": "1"}}),
        shows=NOTHING,
    ),
    post("/intake/flux", Takes.SENDING, _flux, shows=NOTHING),
    # pages
    get("/", Takes.CLUSTER, lambda of: f"/?{query(cluster=of.cluster)}", shows=SPACES | WHOLES),
    get("/incidents", Takes.CLUSTER, lambda _: "/incidents", statuses=frozenset({301}), shows=NOTHING),
    get(
        "/_/incidents",
        Takes.CLUSTER,
        lambda of: f"/_/incidents?{query(cluster=of.cluster, since='0' * 16)}",
        shows=SPACES | WHOLES,
    ),
    get("/incidents/{incident_id}", Takes.INCIDENT, _incident("/incidents/{}")),
    get("/_/incidents/{incident_id}", Takes.INCIDENT, _incident("/_/incidents/{}"), shows=NOTHING),
    get("/_/incidents/{incident_id}/news", Takes.INCIDENT, _incident("/_/incidents/{}/news?since=0.open")),
    get("/incidents/new", Takes.CLUSTER, lambda _: "/incidents/new", role=Role.RESPONDER, shows=NOTHING),
    post(
        "/incidents",
        Takes.INCIDENT,
        lambda of: Asked(
            "/incidents",
            form={
                "cluster": of.cluster,
                "title": "slow",
                "since": "",
                "namespaces": of.namespace or "",
                "workloads": "",
                "nodes": "",
                "severity": "",
                "once": of.incident.zfill(32),
            },
        ),
        **BACK,
    ),
    post(
        "/incidents/{incident_id}/status",
        Takes.INCIDENT,
        lambda of: Asked(f"/incidents/{of.incident}/status", form={"status": "open"}),
        **BACK,
    ),
    get(
        "/incidents/{incident_id}/correct",
        Takes.INCIDENT,
        _incident("/incidents/{}/correct"),
        role=Role.RESPONDER,
        shows=NOTHING,
    ),
    post(
        "/incidents/{incident_id}/correct",
        Takes.INCIDENT,
        lambda of: Asked(
            f"/incidents/{of.incident}/correct",
            form={
                "since": "2026-11-20 14:02:00",
                "namespaces": of.namespace or "",
                "workloads": "",
                "nodes": "",
                "known": '{"since": "2026-11-20 14:01:00", "namespaces": "known", "workloads": "", "nodes": ""}',
            },
        ),
        **BACK,
    ),
    post(
        "/incidents/{incident_id}/merge",
        Takes.INCIDENT,
        lambda of: Asked(f"/incidents/{of.part}/merge", form={"into": of.incident}),
        **BACK,
    ),
    post(
        "/incidents/{incident_id}/verdicts",
        Takes.WHOLE_INCIDENT,
        lambda of: Asked(f"/incidents/{of.incident}/verdicts", form={"change": of.change.id, "opinion": "it"}),
        **BACK,
    ),
    get("/changes", Takes.PLACE, _spaced("/changes")),
    get("/_/changes", Takes.PLACE, _spaced("/_/changes")),
    get("/changes/{change_id}", Takes.PLACE, _change("/changes/{}")),
    post(
        "/changes/{change_id}/dry-run",
        Takes.PLACE,
        lambda of: None if of.name == "aw" else Asked(f"/changes/{of.change.id}/dry-run", form={}),
        **NAMELESS,
    ),
    post(
        "/changes/{change_id}/undo",
        Takes.PLACE,
        lambda of: None if of.name == "aw" else Asked(f"/changes/{of.change.id}/undo", form={"seen": "0" * 64}),
        **NAMELESS,
    ),
    get("/_/changes/{change_id}/rollout", Takes.PLACE, _rollout, shows=NOTHING),
    get("/objects/{cluster}/{api_group}/{kind}/{namespace}/{name:rest}", Takes.PLACE, lambda of: _object("", of)),
    get("/api/v1/changes/{change_id}/after", Takes.PLACE, _change("/api/v1/changes/{}/after"), shows=NOTHING),
    get("/api/v1/problems", Takes.PLACE, _spaced("/api/v1/problems"), shows=NOTHING),
    get(
        "/api/v1/clusters/{cluster}/control-plane",
        Takes.WHOLE,
        lambda of: f"/api/v1/clusters/{of.cluster}/control-plane",
        shows=NOTHING,
    ),
    get("/api/v1/accuracy", Takes.UNLIMITED, lambda _: "/api/v1/accuracy", shows=WHOLES),
    get("/api/v1/views", Takes.UNLIMITED, lambda _: "/api/v1/views", shows=NOTHING),
    get("/api/v1/deliveries", Takes.UNLIMITED, lambda _: "/api/v1/deliveries", shows=NOTHING),
    get("/api/v1/routes", Takes.UNLIMITED, lambda _: "/api/v1/routes", shows=NOTHING),
    get(
        "/api/v1/routing",
        Takes.UNLIMITED,
        lambda of: f"/api/v1/routing?{query(cluster=of.cluster, namespace=of.namespace)}",
        shows=NOTHING,
    ),
    get("/clusters", Takes.CLUSTER, lambda _: "/clusters", shows=NOTHING),
    get(
        "/clusters/{cluster}/control-plane",
        Takes.WHOLE,
        lambda of: f"/clusters/{of.cluster}/control-plane",
        shows=NOTHING,
    ),
    get("/explore", Takes.WHOLE, lambda of: f"/explore?{query(cluster=of.cluster)}&{GRAPH}", shows=WHOLES),
    # of the whole installation
    get("/accuracy", Takes.UNLIMITED, lambda _: "/accuracy", shows=WHOLES),
    get("/audit", Takes.UNLIMITED, lambda _: "/audit", role=Role.ADMIN, shows=NOTHING),
    get("/slack", Takes.UNLIMITED, lambda _: "/slack", shows=NOTHING),
    post("/slack/again", Takes.UNLIMITED, lambda _: Asked("/slack/again", form={}), **BACK),
    post("/slack/forget", Takes.UNLIMITED, lambda _: Asked("/slack/forget", form={"message": "0" * 12 + "/0"}), **BACK),
    post(
        "/views",
        Takes.UNLIMITED,
        lambda of: Asked("/views", form={"name": of.word, "query": "metric=up"}),
        statuses=frozenset({303, 409}),
        shows=NOTHING,
    ),
    post(
        "/views/{view_id}/rename",
        Takes.UNLIMITED,
        lambda _: Asked("/views/1/rename", form={"name": "canaryall view"}),
        **BACK,
    ),
    post(
        "/views/{view_id}/delete",
        Takes.UNLIMITED,
        lambda _: Asked("/views/99/delete", form={}),
        statuses=frozenset({404}),
        shows=NOTHING,
    ),
    post("/demo", Takes.UNLIMITED, lambda _: Asked("/demo", form={}), role=Role.ADMIN, **BACK),
    get("/metrics", Takes.UNLIMITED, lambda _: "/metrics", shows=NOTHING),
    get("/openapi.json", Takes.CLUSTER, lambda _: "/openapi.json", shows=NOTHING),
]
WITHOUT_SCOPE = {
    ("GET", "/healthz"): "open",
    ("GET", "/readyz"): "open",
    ("GET", "/login"): "open",
    ("POST", "/login"): "open",
    ("GET", "/login/oidc"): "open",
    ("GET", "/login/oidc/back"): "open",
    ("POST", "/logout"): "ends what who asks holds",
    ("GET", "/static"): "open",
    ("POST", "/intake/audit/{cluster}"): "a cluster's own token",
    ("POST", "/intake/prometheus/{cluster}"): "a cluster's own token",
    ("POST", "/intake/pagerduty/{cluster}"): "signed",
    ("POST", "/intake/launchdarkly"): "signed",
    ("POST", "/intake/slack"): "signed",
}
"""Routes that no role leads to, and why."""
