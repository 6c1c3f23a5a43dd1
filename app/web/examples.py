"""The examples of the REST description: one incident, told by every answer. The nouns are made into JSON as always."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, RootModel

from app.core import findings, model
from app.core.changes.external import change_of
from app.core.changes.report import what_changed
from app.core.changes.revert import revert_recipe
from app.core.changes.revert_report import report
from app.core.metrics.measures import Measure
from app.core.screen import tables
from app.core.screen.incident_report import incident_report
from app.core.screen.shown_tables import ALL
from app.core.screen.tables import as_text
from app.core.screen.talkers import Side, Talker
from app.store.audit import Action
from app.store.incidents import FirstSuspect
from app.web import answers, marks, shapes, shown
from app.web.accept import JSON, NDJSON, TEXT
from app.web.change_report import change_report
from app.web.deps import Taken
from app.web.differences import difference_report
from app.web.representations import as_lines
from app.web.telling import ToldChange

AT = datetime(2026, 11, 20, 14, 2, 27, 804000, tzinfo=UTC)
ONSET, ALERT, END = (AT + timedelta(seconds=seconds) for seconds in (5, 47, 78))
ARGOCD = model.Actor(
    "system:serviceaccount:argocd:argocd-application-controller",
    model.ActorSource.AUDIT,
    user_agent="argocd-application-controller",
    pod="argocd-0",
)
CHECKOUT = model.Resource("shop", "apps", "Deployment", "payments", "checkout-api")
OLD, NEW = "registry.example/checkout-api:v1.41.0", "registry.example/checkout-api:v1.42.0"


def _change(resource: model.Resource, at: datetime, summary: str, **more: Any) -> model.Change:
    key = model.version_key(resource.cluster, resource.name, "1")
    return model.Change(
        resource, at, more.pop("verb", model.Verb.UPDATE), key, summary=summary, sources=frozenset({"audit"}), **more
    )


CULPRIT = _change(
    CHECKOUT,
    AT,
    "image of checkout-api: v1.41.0 → v1.42.0",
    actor=ARGOCD,
    generation=2,
    diffs=(
        model.FieldDiff(("spec", "template", "spec", "containers", (("name", "app"),), "image"), "replace", OLD, NEW),
    ),
)
BEGUN = _change(
    model.Resource("shop", "apps", "ReplicaSet", "payments", "checkout-api-7d9f8c6b5"),
    AT + timedelta(seconds=1),
    "ReplicaSet checkout-api-7d9f8c6b5 created",
    verb=model.Verb.CREATE,
    actor=model.Actor("system:serviceaccount:kube-system:deployment-controller", model.ActorSource.AUDIT),
    generation=1,
    begun_by=CULPRIT.id,
)
WORKER = model.Resource("shop", "apps", "Deployment", "payments", "checkout-worker")
HARMLESS = _change(
    model.Resource("shop", "", "ConfigMap", "growth", "growth-mailer"),
    AT - timedelta(seconds=31),
    "timeout_ms of growth-mailer: 500 → 600",
    actor=model.Actor("alice@shop.example", model.ActorSource.AUDIT, user_agent="kubectl"),
    diffs=(model.FieldDiff(("data", "timeout_ms"), "replace", "500", "600"),),
)
TELLING = {
    "source": "launchdarkly",
    "kind": "feature flag",
    "name": "new-checkout",
    "cluster": "shop",
    "namespace": "payments",
    "workload": "checkout-api",
    "actor": "alice@shop.example",
    "summary": "new-checkout is on for everybody",
    "url": "https://app.launchdarkly.com/default/production/features/new-checkout",
    "fields": [{"path": "rollout", "old": 0, "new": 100}],
}
"""What a sender tells; TOLD is what is made of it."""
OPENING = {
    "cluster": "shop",
    "title": "Checkout answers with errors",
    "started_at": "2026-11-20T14:03:14Z",
    "namespaces": ["payments"],
    "severity": "critical",
}
TOLD = change_of(ToldChange.model_validate(TELLING).noun(), "shop", request="deploy-1234", now=AT)
ROLLOUT = model.Rollout(
    CHECKOUT,
    "0b7e2c5a-6d0e-4f64-9f0e-5a1f9d3c7b21",
    2,
    AT,
    model.Outcome.RUNNING,
    change_id=CULPRIT.id,
    images=(NEW,),
    images_before=(OLD,),
    progress=(model.Progress(AT, 3, 0, 3), model.Progress(AT + timedelta(seconds=4), 3, 1, 2)),
    reason="1 of 3 replicas are updated",
)
ALERTED = model.Symptom(
    model.SymptomSource.ALERT,
    "CheckoutErrorsHigh",
    ALERT,
    "6c1f0e2a9b7d4835",
    message="5xx of checkout are at 12 %",
    severity="critical",
    labels=(("alertname", "CheckoutErrorsHigh"), ("namespace", "payments"), ("severity", "critical")),
    annotations=(("runbook_url", "https://wiki.example/runbooks/checkout"),),
)
INCIDENT = findings.Incident(
    id="5f0a1c22d3e4",
    cluster="shop",
    title="Checkout errors high",
    status="open",
    severity="critical",
    started_at=ALERT,
    scope=findings.Scope(namespaces=("payments",), workloads=("Deployment payments/checkout-api",)),
    onset=findings.Onset(ONSET, ONSET - timedelta(seconds=2), ONSET + timedelta(seconds=2), "5xx of checkout"),
    alerts=(ALERTED,),
    ranked_at=END,
    verdicts=(findings.Verdict(CULPRIT.id, findings.Opinion.IT, "Alice", END),),
)
SUSPECT = findings.Suspect(
    rank=1,
    probability=0.91,
    score=6.4,
    change=CULPRIT,
    evidence=(
        findings.Evidence("rollout", 2.1, "Its rollout hangs: 1 of 3 replicas are updated, and that one is not ready."),
        findings.Evidence("scope", 1.4, "It is in the namespace of the alert."),
        findings.Evidence("load", 0.0, "Not measured: calls of its pods.", measured=False),
    ),
    derived=(BEGUN.id,),
    t_minus=ONSET - AT,
    would_flip="rollout",
    also=(findings.Also(HARMLESS.id, AT + timedelta(seconds=2), WORKER),),
)
RAREST = findings.Suspect(
    2,
    0.03,
    0.2,
    HARMLESS,
    (findings.Evidence("scope", -0.8, "It is in another namespace."),),
    t_minus=ONSET - HARMLESS.at,
)
TALKER = Talker(
    {
        "user": "system:serviceaccount:payments:checkout",
        "verb": "patch",
        "api_group": "",
        "resource": "serviceaccounts",
    },
    Side(12_000, 1_200, 30.0),
    Side(120, 0, 0.24),
    300.0,
)
GAP = model.Gap("shop", "Pod", ONSET, ONSET + timedelta(seconds=5), "the watch of pods was behind")

_rollout = shapes.Rollout.of(ROLLOUT)
_first = FirstSuspect("Deployment", "checkout-api", 0.91, 0.06)
_incident = shapes.Incident.of(INCIDENT, _first)
_suspects = [shapes.Suspect.of(one) for one in (SUSPECT, RAREST)]
_changes = [shapes.Change.of(one) for one in (CULPRIT, HARMLESS)]
_call = shapes.Call.of(TALKER)
_gap = shapes.Gap.model_validate(GAP)
_fresh = shapes.Freshness(cluster="shop", since=BEGUN.at, at=END, sources={"audit log": END, "metrics": BEGUN.at})
_around: dict[str, Any] = {"freshness": [_fresh], "gaps": [_gap]}

_recipe = revert_recipe(CULPRIT)
_marks = [marks.of_change(CULPRIT, "https://foreshock.example")]
_ARGO_CD = shapes.Link(words="Argo CD", url="https://argocd.example/applications/checkout")
_revert = answers.Revert(
    change_id=CULPRIT.id,
    command=_recipe.command,
    dry_run=_recipe.dry_run,
    steps=[shapes.Step.model_validate(step) for step in _recipe.steps],
    warnings=[shapes.Warned(text=one.text, change_id=one.change_id or None) for one in _recipe.cautions],
    **_around,
)
_difference = answers.Difference(
    resource=_changes[0].resource,
    from_at=AT - timedelta(minutes=2),
    to_at=END,
    diffs=_changes[0].diffs,
    unknown="",
    changes=_changes[:1],
    **_around,
)
_one_change = answers.OneChange(change=_changes[0], began=[shapes.Change.of(BEGUN)], links=[_ARGO_CD], **_around)
_one_incident = answers.OneIncident(incident=_incident, **_around)
_of_incident = answers.Suspects(
    items=_suspects,
    none_of_these=0.06,
    ranked_at=END,
    candidates=2,
    findings=[
        shapes.Evidence(
            rule="errors", weight=0.0, sentence="409 Conflict rose from 0 to 12/s for checkout.", measured=True
        )
    ],
    not_measured=["etcd latency"],
    **_around,
)
_metric = shapes.Metric(name="apiserver_request_total")
_line = shapes.Line(of={"verb": "LIST"}, others=0, values=[0.4, None, 41.5])
_cluster = shapes.Cluster(name="shop", followed=True, server="v1.36.3", kinds=64, unseen=[], remarks=[])

_entry = shapes.AuditEntry(
    at=END, action=Action.VERDICT_SAID, who="alice", token=7, address="192.0.2.7", about=INCIDENT.id, times=1
)

_problem = shown.Problem(
    cluster="shop",
    namespace="payments",
    kind="Deployment",
    name="checkout-api",
    reason="CrashLoopBackOff",
    first_at=ONSET,
    last_at=END,
    count=3,
)
_move = shown.Move(at=ONSET, title="Requests that fail", who="checkout-api", unit="/s", before=0.2, after=41, harm=True)
_panel = shown.Panel(
    group="Is it serving?",
    title="Requests by verb",
    unit="/s",
    measure=Measure.RATE,
    lines=[_line],
    query="metric=apiserver_request_total&by=verb&where=verb%21%3DWATCH%7CCONNECT&measure=rate&most=20",
)
_share = shown.Share(share=0.8, low=0.58, high=0.92)
_found = shown.Found(cases=20, unnamed=2, left_out=1, share=0.8, low=0.58, high=0.92)
_ranked = shown.Ranked(when="at first", first=_found, among_three=_found)
_odds = shown.Odds(said=0.91, cases=11, right=_share)
_said = shown.SaidOf(
    incident_id=INCIDENT.id,
    title=INCIDENT.title,
    change_id=CULPRIT.id,
    name="checkout-api",
    place=1,
    opinion="it",
    by="Alice",
    at=END,
)
_view = shown.View(id=7, name="Who lists pods", query="of=calls&by=user&where=verb%3Dlist%2Cresource%3Dpods")
_undelivered = shown.Undelivered(
    at=AT,
    message="n12/1",
    channel="C0123456789",
    incident_id=None,
    title="image of checkout-api: v1.41.0 → v1.42.0",
    is_reply=False,
    posted=False,
    error="invite the app into the channel: /invite @Foreshock (not_in_channel)",
)
_late = shown.Late(
    channel="C0123456789",
    messages=3,
    since=AT,
    why="Slack is not reached: look at the network, at HTTPS_PROXY and FORESHOCK_SLACK_API (ClientConnectorError)",
)
_quiet = shown.QuietHours(begins="22:00", ends="07:00", zone="Europe/Zurich")
_muted = shown.Muted(
    channel="C0123456789",
    cluster="",
    namespace="shop",
    name="",
    api_group="",
    kind="",
    until=END,
    said_by="alice in Slack",
)
_route = shown.RouteTold(
    place="C0123456789",
    of="Slack",
    tells=["changes"],
    clusters=["prod-*"],
    namespaces=[],
    kinds=[],
    severities=[],
    labels={"team": "shop"},
    quiet=_quiet,
    off="",
    remarks=["nothing is recorded yet of a cluster prod-*; known are shop"],
)
_goes = shown.Goes(place="C0123456789", tells=True, why_not="", quiet_until=None, muted_by="")
_SHOWN: tuple[BaseModel, ...] = (
    *(_problem, _move, _panel, _share, _found, _ranked, _odds, _said, _view, _undelivered, _goes, _route, _late),
    *(_quiet, _muted),
    shown.RoutesTold(items=[_route], incidents="C0123456789", muted=[_muted], file_error="", **_around),
    shown.Problems(items=[_problem], **_around),
    shown.After(items=[_move], looked_at=["calls", "metrics", "requests of apps"], problems=[_problem], **_around),
    shown.ControlPlane(
        items=[_panel], missing=["Leases"], calls_left_out=False, start=BEGUN.at, step_seconds=30, **_around
    ),
    shown.Accuracy(
        items=[_said],
        judged=18,
        without_culprit=0,
        none_led=0,
        unnamed=3,
        ranked=[_ranked],
        odds=[_odds],
        **_around,
    ),
    shown.Views(items=[_view], **_around),
    shown.Deliveries(items=[_undelivered], there=412, waiting=3, late=[_late], **_around),
    shown.Routing(items=[_goes], places=None, resource=_changes[0].resource, change_id=CULPRIT.id, never="", **_around),
)
SHAPES: tuple[BaseModel, ...] = (
    *_SHOWN,
    *(_fresh, _gap, _call, _incident, _rollout, _changes[0], _suspects[0]),
    shapes.FirstSuspect.model_validate(_first),
    *(_changes[0].resource, _changes[0].diffs[0], _rollout.progress[1], _incident.alerts[0], _incident.verdicts[0]),
    *(_suspects[0].evidence[0], _suspects[0].also[0]),
    *(_revert, _revert.steps[0], _revert.warnings[0]),
    _ARGO_CD,
    _marks[0],
    answers.Annotations(items=_marks, **_around),
    answers.Changes(items=_changes, next=None, **_around),
    shapes.ToldChanges(items=[shapes.Change.of(TOLD)]),
    _one_change,
    answers.History(
        resource=_changes[0].resource,
        state={"spec": {"replicas": 3, "template": {"spec": {"containers": [{"name": "app", "image": NEW}]}}}},
        deleted_at=None,
        items=_changes[:1],
        next=None,
        **_around,
    ),
    _difference,
    answers.Rollouts(items=[_rollout], next=None, **_around),
    answers.Calls(
        items=[_call], now_from=END - timedelta(minutes=5), before_from=END - timedelta(minutes=10), to=END, **_around
    ),
    _metric,
    answers.Metrics(items=[_metric], **_around),
    _line,
    answers.Lines(items=[_line], start=BEGUN.at, step_seconds=30, measure=Measure.RATE, unit="/s", **_around),
    answers.Evaluated(
        items=[_line], start=BEGUN.at, step_seconds=30, measure=Measure.LEVEL, unit="", warnings=[], **_around
    ),
    answers.Incidents(items=[_incident], next=None, **_around),
    _one_incident,
    answers.SaidIncident(incident=_incident, remarks=[], **_around),
    _of_incident,
    answers.Gaps(items=[_gap], **_around),
    _cluster,
    answers.Clusters(items=[_cluster], **_around),
    _entry,
    answers.AuditLog(items=[_entry], next=None, **_around),
)
TAKEN = Taken(incidents=[INCIDENT.id], left_out=[])
TABLE = what_changed(
    [CULPRIT, HARMLESS],
    from_at=END - timedelta(minutes=30),
    to_at=END,
    gaps=[GAP],
    total=2,
    recorded={CULPRIT.resource.cluster: BEGUN.at},
)
PLAIN = {
    "/api/v1/what-changed": TABLE,
    "/api/v1/changes/{change_id}": change_report(CULPRIT, _one_change),
    "/api/v1/changes/{change_id}/revert": report(
        CULPRIT, _recipe, tables.seen(answers.Answer(**_around).model_dump(mode="json"))
    ),
    "/api/v1/incidents/{incident_id}": incident_report(
        _one_incident.model_dump(mode="json"), _of_incident.model_dump(mode="json")
    ),
    "/api/v1/diff": difference_report(CHECKOUT, _difference, CULPRIT.diffs),
}
MANIFEST = f"""\
# Deployment payments/checkout-api of cluster shop, right before change {CULPRIT.id} of 2026-11-20 14:02:27 UTC.
# Without status and what the server adds itself.
apiVersion: apps/v1
kind: Deployment
metadata:
  name: checkout-api
  namespace: payments
spec:
  replicas: 3
"""
REFUSALS = {
    400: "this cursor is not one of ours: start again without it",
    401: "sign in with a login link, or send Authorization: Bearer TOKEN",
    403: "this takes the role responder; yours is viewer",
    404: "there is no change of this id",
    406: "Accept asks for none of what there is of this: application/json or text/plain or application/x-ndjson",
    408: "the body did not come within 10 s",
    409: "it was merged into incident 3f9c1a70b2d8, of which it is a part now: say it of that one",
    412: "the incident is not as If-Match says: read it again, see what changed, and send its ETag of now",
    413: "the body is too large; the answer says how large it may be",
    415: "send the body as it is, without Content-Encoding",
    422: "from must be before to",
    429: "this credential asks more than it may: try again in 1 s",
    503: "the database cannot be reached at the moment; nothing is lost, try again shortly",
}


def illustrate(described: dict[str, Any]) -> None:
    """Gives the schemas and the answers of an OpenAPI document their examples."""
    found = {type(one).__name__: one.model_dump(mode="json") for one in SHAPES}
    found["Taken"] = RootModel[Taken](TAKEN).model_dump(mode="json")
    schemas = described["components"]["schemas"]
    found |= {name: schema["enum"][0] for name, schema in schemas.items() if "enum" in schema}
    for name in found.keys() & schemas.keys():
        schemas[name]["examples"] = [found[name]]
    for path, methods in described["paths"].items():
        for operation in methods.values():
            for status, answer in operation["responses"].items():
                contents = answer.get("content", {})
                name = contents.get(JSON, {}).get("schema", {}).get("$ref", "").rpartition("/")[2]
                for kind, content in contents.items():
                    content["example"] = _text_of(path, kind) or _answer(int(status), kind, name, found)


def _text_of(path: str, kind: str) -> str:
    """The example of an answer that is text of its own, "" of any other."""
    return {"text/plain": PLAIN.get(path, ""), "application/yaml": MANIFEST}.get(kind, "")


def _answer(status: int, kind: str, name: str, found: dict[str, Any]) -> Any:
    """The example of an answer whose JSON has a name; its table and its lines are made of that."""
    if kind == "application/problem+json":
        title = HTTPStatus(status).phrase
        said = {"type": "about:blank", "title": title, "status": status, "detail": REFUSALS[status]}
        return {**said, "request_id": "3f9c1a70b2d84e65"}
    if kind == TEXT:
        return as_text(found[name], ALL[name])
    return as_lines(found[name]) if kind == NDJSON else found.get(name)
