"""Secrets that nobody else has, sown into every kind of input that Foreshock reads, in every way a cluster tells it.

The places are those of tests/core/changes/test_canaries.py; here each is told by files, as an API server, a watch,
Prometheus and Alertmanager would write them.
"""

from __future__ import annotations

import itertools
import json
import random
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tests.benign import BENIGN
from tests.core.changes.test_canaries import ANYWHERE, OWN, OWN_RULES, PLAIN, SHAPES, _merge, _operations

Part = dict[str, Any]
WINDOW = 10
"""So many characters of a secret in a row are a leak: a secret cut short is one too."""

PLURALS = {
    "Secret": "secrets",
    "ConfigMap": "configmaps",
    "Deployment": "deployments",
    "CronJob": "cronjobs",
    "SealedSecret": "sealedsecrets",
    "DatabaseCredential": "databasecredentials",
    "Widget": "widgets",
    "Cache": "caches",
    "Policy": "policies",
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
    "Pod": "pods",
    "Event": "events",
}


class Field:
    """Everything sown so far. Its clock goes on by a tenth of a second with each event."""

    def __init__(self, start: datetime) -> None:
        self.start = start
        self.audit: list[str] = []
        self.watch: list[str] = []
        self.dump: list[Part] = []
        self.metrics: list[str] = []
        self.bad_metrics: list[str] = []
        self.alerts: list[Part] = []
        self.canaries: dict[str, str] = {}
        self._draw = random.Random(11)
        self._ticks = itertools.count(1)
        self._shapes = itertools.cycle(SHAPES)

    def canary(self, where: str, *, shaped: bool = False) -> str:
        """A new secret: one that only its place gives away, or one that is known by its look."""
        plain = f"z{''.join(self._draw.choices('bcdfghjklmnpqrstvwxz', k=18))}9"
        made = next(self._shapes)(self._draw) if shaped else plain
        self.canaries[made] = where
        return made

    def now(self) -> str:
        """The next moment, as an API server writes it."""
        return (self.start + timedelta(seconds=next(self._ticks) / 10)).isoformat().replace("+00:00", "Z")

    def request(self, verb: str, of: Thing, *, more: Part | None = None, **said: Any) -> None:
        """One audit event; ``said`` overrides its fields, ``more`` those of its objectRef."""
        at = self.now()
        path = f"/apis/{of.group}/v1" if of.group else "/api/v1"
        event: Part = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": "RequestResponse",
            "auditID": f"audit-{at}",
            "stage": "ResponseComplete",
            "requestURI": f"{path}/namespaces/{of.namespace}/{of.plural}/{of.name}",
            "verb": verb,
            "user": {"username": "alice"},
            "userAgent": "kubectl/v1.31.0 (linux/amd64)",
            "objectRef": {"resource": of.plural, "namespace": of.namespace, "name": of.name, "apiGroup": of.group},
            "responseStatus": {"code": 201 if verb == "create" else 200},
            "requestReceivedTimestamp": at,
            "stageTimestamp": at,
        }
        event["objectRef"] |= more or {}
        self.audit.append(json.dumps(event | said))

    def seen(self, kind: str, whole: Part) -> None:
        """One watch event."""
        self.watch.append(json.dumps({"at": self.now(), "type": kind, "object": whole}))


@dataclass
class Thing:
    """One object, whose versions go up with each body."""

    group: str
    kind: str
    name: str
    version: int = 0
    seconds: float = field(default=0)
    namespace: str = "shop"

    @property
    def plural(self) -> str:
        return PLURALS[self.kind]

    def body(self, *parts: Part) -> Part:
        """The whole object with these parts in it, as its next version."""
        self.version += 1
        uid = f"uid-{self.name}" if self.namespace == "shop" else f"uid-{self.namespace}-{self.name}"
        meta = {"name": self.name, "namespace": self.namespace, "uid": uid, "resourceVersion": str(self.version)}
        whole: Any = {"apiVersion": f"{self.group}/v1".lstrip("/"), "kind": self.kind, "metadata": meta}
        for part in parts:
            whole = _merge(whole, part)
        return dict(whole)


Way = Callable[[Field, Thing, Any], None]


def _update(field: Field, thing: Thing, part: Part) -> None:
    whole = thing.body(part)
    field.request("update", thing, requestObject=whole, responseObject=whole)


def _update_request_level(field: Field, thing: Thing, part: Part) -> None:
    field.request("update", thing, level="Request", requestObject=thing.body(part))


def _merge_patch(field: Field, thing: Thing, part: Part) -> None:
    field.request("patch", thing, requestObject=part, responseObject=thing.body(part))


def _merge_patch_request_level(field: Field, thing: Thing, part: Part) -> None:
    field.request("patch", thing, level="Request", requestObject=part)


def _strategic_patch(field: Field, thing: Thing, part: Part) -> None:
    patch = {"$retainKeys": list(part), **part}
    field.request("patch", thing, requestObject=patch, responseObject=thing.body(part))


def _apply_patch(field: Field, thing: Thing, part: Part) -> None:
    whole = thing.body(part)
    uri = f"/apis/{thing.group}/v1/namespaces/shop/{thing.plural}/{thing.name}?fieldManager=kubectl&force=true"
    field.request("patch", thing, requestURI=uri, requestObject=whole, responseObject=whole)


def _json_patch(field: Field, thing: Thing, part: Part) -> None:
    field.request("patch", thing, requestObject=list(_operations(part, "")), responseObject=thing.body(part))


def _json_patch_request_level(field: Field, thing: Thing, part: Part) -> None:
    field.request("patch", thing, level="Request", requestObject=list(_operations(part, "")))


def _refused(field: Field, thing: Thing, part: Part) -> None:
    """The server says no; what was asked for is in the log all the same."""
    field.request("update", thing, requestObject=thing.body(part), responseStatus={"code": 409, "reason": "Conflict"})


def _watched(field: Field, thing: Thing, part: Part) -> None:
    field.seen("MODIFIED", thing.body(part))


def _told_twice(field: Field, thing: Thing, part: Part) -> None:
    whole = thing.body(part)
    field.request("update", thing, requestObject=whole, responseObject=whole)
    field.seen("MODIFIED", whole)


def _made_anew(field: Field, thing: Thing, part: Part) -> None:
    field.request("delete", thing, responseObject=thing.body(part))
    whole = thing.body(part)
    field.request("create", thing, requestObject=whole, responseObject=whole)


def _swept(field: Field, thing: Thing, part: Part) -> None:
    """deletecollection, whose answer lists the objects that are gone."""
    gone = {"kind": f"{thing.kind}List", "apiVersion": "v1", "items": [thing.body(part)]}
    field.request("deletecollection", thing, more={"name": ""}, responseObject=gone)


def _read(field: Field, thing: Thing, part: Part) -> None:
    """Reads, whose answers some policies log."""
    field.request("get", thing, responseObject=thing.body(part))
    listed = {"kind": f"{thing.kind}List", "apiVersion": "v1", "items": [thing.body(part)]}
    field.request("list", thing, more={"name": ""}, responseObject=listed)


WAYS: tuple[Way, ...] = (
    _update,
    _update_request_level,
    _merge_patch,
    _merge_patch_request_level,
    _strategic_patch,
    _apply_patch,
    _json_patch,
    _json_patch_request_level,
    _refused,
    _watched,
    _told_twice,
    _made_anew,
    _read,
    _swept,
)


def sow(start: datetime) -> Field:
    """Everything, from ``start`` on."""
    field = Field(start)
    _benign(field)
    _objects(field)
    _requests(field)
    _messages(field)
    _bad_lines(field)
    _metrics(field)
    _alerts(field)
    return field


def _benign(field: Field) -> None:
    """What must stay readable: in a spec, in annotations, in a file of a ConfigMap, in labels."""
    field.seen("ADDED", Thing("acme.io", "Widget", "benign").body({"spec": BENIGN}))
    annotations = {f"shop.example/{key}" if "/" not in key else key: text for key, text in BENIGN.items()}
    field.seen("ADDED", Thing("apps", "Deployment", "benign").body({"metadata": {"annotations": annotations}}))
    field.seen("ADDED", Thing("", "ConfigMap", "benign").body({"data": BENIGN}))


def _objects(field: Field) -> None:
    """One object for each place; its versions carry one canary after another, told in every way."""
    numbers = itertools.count(1)
    for (group, kind), places in [*PLAIN.items(), *OWN.items()]:
        for place in places:
            thing = Thing(group, kind, f"o{next(numbers)}")
            field.seen("ADDED", thing.body())
            for way in WAYS:
                way(field, thing, place(field.canary(f"{kind} {thing.name}{way.__name__}")))
            field.dump.append(Thing(group, kind, f"d{thing.name}").body(place(field.canary(f"dumped {thing.name}"))))
    for group, kind in (("acme.io", "Widget"), ("", "ConfigMap"), ("apps", "Deployment")):
        for place in ANYWHERE:
            thing = Thing(group, kind, f"o{next(numbers)}")
            field.seen("ADDED", thing.body())
            for way in (*WAYS, *WAYS[:7]):
                way(field, thing, place(field.canary(f"{kind} {thing.name}{way.__name__}", shaped=True)))


def _requests(field: Field) -> None:
    """What stands in a request beside objects: its address, its program, its answer; at Metadata level too."""
    pod, account = Thing("", "Pod", "web-1"), {"resource": "serviceaccounts", "subresource": "token", "name": "builder"}
    uri = "/api/v1/namespaces/shop/pods/web-1"
    say = field.canary
    field.request("get", pod, level="Metadata", requestURI=f"{uri}?access_token={say('a query')}")
    field.request("delete", pod, level="Metadata", requestURI=f"{uri}?token={say('a query of a write')}")
    field.request(
        "create", pod, more={"subresource": "exec"}, requestURI=f"{uri}/exec?command={say('exec')}&stdin=true"
    )
    options = {"kind": "PodExecOptions", "apiVersion": "v1", "command": ["login", "--password", say("exec, Request")]}
    field.request("create", pod, more={"subresource": "exec"}, level="Request", requestObject=options)
    answer = {"kind": "TokenRequest", "status": {"token": say("a token request", shaped=True)}}
    field.request("create", pod, more=account, requestObject=answer, responseObject=answer)
    review = {"kind": "TokenReview", "spec": {"token": say("a token review")}}
    field.request(
        "create", pod, more={"resource": "tokenreviews", "apiGroup": "authentication.k8s.io"}, requestObject=review
    )
    agent = f"deployer/2.0 (token={say('a user agent')})"
    field.request("update", pod, userAgent=agent, level="Metadata")
    field.request(
        "get", pod, objectRef=None, requestURI=f"/hooks/{say('a path', shaped=True)}/x?password={say('its query')}"
    )
    for number, shape in enumerate(SHAPES):
        said = shape(random.Random(100 + number))
        field.canaries[said] = "a refusal"
        message = f'Deployment.apps "web" is invalid: spec.x: Invalid value: "{said}": must be short'
        field.request("update", pod, responseStatus={"code": 422, "reason": "Invalid", "message": message})
    for said in (
        f"admission webhook denied: password={say('a refusal, assigned')}",
        f"cannot reach https://robot:{say('a refusal, userinfo')}@registry.example/v2/",
        "x" * 215 + f" cannot reach https://robot:{say('a long refusal')}@registry.example/v2/",
        f"Authorization: Bearer {say('a refusal, bearer')}",
    ):
        field.request("create", pod, responseStatus={"code": 500, "message": said})
    secret = Thing("", "Secret", "db")
    said = f'Secret "db" is invalid: data[k]: Invalid value: "{say("the refusal of a secret")}"'
    field.request("update", secret, responseStatus={"code": 422, "message": said})


def _messages(field: Field) -> None:
    """What the kubelet and others say about pods, and what Events say."""
    pod = Thing("", "Pod", "web-2")
    for shaped in (True, True, True, False):
        waiting, ended, condition = (field.canary(f"a pod's status {n}", shaped=shaped) for n in range(3))
        says = "{}" if shaped else "login failed: password={}"
        died = {"exitCode": 1, "reason": "Error", "finishedAt": field.now()}
        status = {
            "phase": "Running",
            "message": says.format(condition),
            "conditions": [{"type": "Ready", "status": "False", "reason": "No", "message": says.format(condition)}],
            "containerStatuses": [
                {
                    "name": "app",
                    "restartCount": pod.version,
                    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": says.format(waiting)}},
                    "lastState": {"terminated": died | {"message": says.format(ended)}},
                }
            ],
        }
        field.seen("MODIFIED", pod.body({"status": status}))
        web = Thing("apps", "Deployment", "web")
        progressing = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
        failed = {
            "status": {"conditions": [progressing | {"message": says.format(field.canary("a rollout", shaped=shaped))}]}
        }
        field.seen("MODIFIED", web.body(failed))
    told: list[Callable[[Part], None]] = [
        lambda whole: field.seen("ADDED", whole),
        lambda whole: field.request("create", Thing("", "Event", "e"), requestObject=whole, responseObject=whole),
    ]
    for number, tell in enumerate(told * 4):
        event = Thing("", "Event", f"e{number}")
        secret = field.canary("an Event", shaped=True)
        about = {"kind": "Pod", "namespace": "shop", "name": f"web-{number}"}
        said = {"type": "Warning", "reason": "FailedMount", "message": f"cannot use {secret}", "involvedObject": about}
        tell(event.body({**said, "count": 1, "lastTimestamp": field.now()}))


def _bad_lines(field: Field) -> None:
    """Lines that nothing can be made of: what is kept of them is redacted."""
    say = field.canary
    for lines in (field.audit, field.watch):
        secret = {"kind": "Secret", "data": {"k": b64encode(say("a cut secret").encode()).decode()}}
        lines.append(json.dumps({"kind": "Event", "stage": "ResponseComplete", "requestObject": secret})[:-2])
        lines.append(
            json.dumps(
                {
                    "stage": 7,
                    "objectRef": {"resource": "secrets"},
                    "requestObject": {"data": {"k": say("a wrong shape")}},
                }
            )
        )
        lines.append(
            json.dumps(
                {"at": 7, "type": 8, "object": {"kind": "Secret", "stringData": {"k": say("another wrong shape")}}}
            )
        )
        lines.append(f"password={say('no JSON')}")
        lines.append(json.dumps({"verb": 1, "note": f"https://u:{say('userinfo')}@host/"}))
        lines.append("y " * 186 + f" https://u:{say('userinfo at the cut')}@host/")
        lines.append("y " * 186 + f" Bearer {say('bearer at the cut')}")
        lines.append(json.dumps({"verb": 1, "env": [{"name": "DB_PASSWORD", "value": say("env in a bad line")}]}))
        for shape in SHAPES:
            made = shape(random.Random(len(field.canaries)))
            field.canaries[made] = "a bad line"
            lines.append(json.dumps({"stage": 7, "note": made}))


def _metrics(field: Field) -> None:
    """Labels of series that are kept, and a block that is no OpenMetrics."""
    say = field.canary
    at = field.start.timestamp()
    labels = [
        f'client="Bearer {say("a label, bearer")}"',
        f'url="https://robot:{say("a label, userinfo")}@etcd:2379"',
        f'url="https://etcd:2379/?token={say("a label, query")}"',
        f'password="{say("a label by its name")}"',
        *(f'client="{say("a label", shaped=True)}"'.replace("\n", "\\n") for _ in range(12)),
    ]
    field.bad_metrics = [f'apiserver_request_total{{verb="GET",password="{say("a broken sample")}" 1 {at:.3f}']
    field.metrics.append("# TYPE apiserver_request counter")
    for label in labels:
        field.metrics += [f'apiserver_request_total{{verb="GET",{label}}} {n} {at + 15 * n:.3f}' for n in range(1, 9)]


def _alerts(field: Field) -> None:
    say = field.canary
    for number, (labels, said, more) in enumerate(
        [
            ({"token": say("an alert's label by its name")}, {}, {}),
            ({"instance": say("an alert's label", shaped=True)}, {}, {}),
            ({"url": f"https://u:{say('an alert, userinfo')}@x/"}, {}, {}),
            ({}, {"summary": f"password={say('a summary')}"}, {}),
            ({}, {"description": f"cannot use {say('a description', shaped=True)}"}, {}),
            ({}, {"runbook_url": f"https://wiki/?token={say('a runbook')}"}, {}),
            ({}, {}, {"generatorURL": f"https://u:{say('a generator')}@prometheus/"}),
            ({"alertname": f"Down {say('an alert name', shaped=True)}"}, {}, {}),
            ({"severity": say("a severity", shaped=True)}, {}, {}),
            ({"namespace": say("a namespace", shaped=True)}, {}, {}),
            ({"pod": say("a pod", shaped=True)}, {}, {}),
            ({"service": say("a service", shaped=True)}, {}, {"fingerprint": ""}),
            ({}, {}, {"fingerprint": say("a fingerprint", shaped=True)}),
        ]
    ):
        fired = (field.start + timedelta(seconds=60 + number)).isoformat()
        field.alerts.append(
            {
                "status": "firing",
                "labels": {"alertname": f"Broken{number}", "namespace": f"team-{number}", **labels},
                "annotations": said,
                "startsAt": fired,
                "fingerprint": f"f{number}",
                **more,
            }
        )


def payloads(alerts: Iterable[Part]) -> list[str]:
    """Alertmanager's notifications, one alert each: each opens an incident of its own."""
    return [json.dumps({"version": "4", "groupKey": json.dumps(a["labels"]), "alerts": [a]}) for a in alerts]


def write(field: Field, folder: Path) -> None:
    """The files of an import."""
    (folder / "audit.jsonl").write_text("\n".join(field.audit) + "\n")
    (folder / "watch.jsonl").write_text("\n".join(field.watch) + "\n")
    (folder / "metrics.om").write_text("\n".join(field.metrics) + "\n# EOF\n")
    (folder / "bad.om").write_text("# TYPE apiserver_request counter\n" + "\n".join(field.bad_metrics) + "\n# EOF\n")
    (folder / "alerts.json").write_text("\n".join(payloads(field.alerts)) + "\n")
    (folder / "objects.json").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": field.dump}))


def redaction_file(folder: Path) -> str:
    """A file with the rules that some of what is sown needs."""
    path = folder / "redaction.yaml"
    path.write_text(json.dumps({"names": OWN_RULES.names, "kinds": OWN_RULES.kinds}))
    return str(path)


class Search:
    """Finds canaries in a text: whole, cut short, or in base64."""

    def __init__(self, canaries: dict[str, str]) -> None:
        found: Counter[str] = Counter()
        self._where: dict[str, str] = {}
        for canary, where in canaries.items():
            for form in (canary, b64encode(canary.encode()).decode()):
                windows = {form[n : n + WINDOW] for n in range(len(form) - WINDOW + 1)}
                found.update(windows)
                self._where |= dict.fromkeys(windows, where)
        for shared in [window for window, times in found.items() if times > 1]:
            del self._where[shared]  # the head that all tokens of a kind have in common

    def leaks(self, text: str) -> set[str]:
        """Where the canaries were planted that show in ``text``."""
        return {
            self._where[piece] for n in range(len(text) - WINDOW + 1) if (piece := text[n : n + WINDOW]) in self._where
        }
