"""An entry of Google Cloud Logging that tells of a request to a GKE cluster -> the audit event that it was made of.

The shape: https://cloud.google.com/kubernetes-engine/docs/how-to/audit-logging, .../logging/docs/reference/v2/rest/v2/
LogEntry and .../logging/docs/reference/audit/auditlog/rest/Shared.Types/AuditLog. What the entry does not say stays
unsaid: there is one time, so no latency; no query of the request, so no class of a LIST; no groups and no pod.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import msgspec

from app.collect.refusals import UnusableError

SERVICE = "k8s.io"
UNKNOWN_USER = "(not told)"
"""Where the entry has no principal: Cloud Logging leaves it out of some refused reads. system:anonymous is told."""
OK = 200
HTTP = MappingProxyType(
    {
        1: 499,
        2: 500,
        3: 400,
        4: 504,
        5: 404,
        6: 409,
        7: 403,
        8: 429,
        9: 400,
        10: 409,
        11: 400,
        12: 501,
        13: 500,
        14: 503,
        15: 500,
        16: 401,
    }
)
"""google.rpc.Code -> the HTTP status that https://github.com/googleapis/googleapis/blob/master/google/rpc/code.proto
maps it to: for a refusal whose answer, which says the status itself, was not recorded."""
TRUNCATED = {"audit.k8s.io/truncated": "true"}
_CORE = "core"
_TYPE = "@type"


class _Principal(msgspec.Struct, gc=False):
    principalEmail: str = ""  # noqa: N815 - the wire's name, as below
    principalSubject: str = ""  # noqa: N815


class _Caller(msgspec.Struct, gc=False):
    callerSuppliedUserAgent: str = ""  # noqa: N815


class _Status(msgspec.Struct, gc=False):
    code: int = 0
    message: str = ""


class _Payload(msgspec.Struct, gc=False):
    methodName: str  # noqa: N815
    serviceName: str = ""  # noqa: N815
    resourceName: str = ""  # noqa: N815
    authenticationInfo: _Principal = msgspec.field(default_factory=_Principal)  # noqa: N815
    requestMetadata: _Caller = msgspec.field(default_factory=_Caller)  # noqa: N815
    status: _Status = msgspec.field(default_factory=_Status)
    request: dict[str, msgspec.Raw] | None = None
    response: dict[str, msgspec.Raw] | None = None


class _Operation(msgspec.Struct, gc=False):
    id: str = ""
    first: bool = False
    last: bool = False


class _Split(msgspec.Struct, gc=False):
    uid: str = ""


class _Entry(msgspec.Struct, gc=False):
    timestamp: str
    protoPayload: _Payload  # noqa: N815
    insertId: str = ""  # noqa: N815
    operation: _Operation = msgspec.field(default_factory=lambda: _Operation(first=True, last=True))
    split: _Split | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)


_entry = msgspec.json.Decoder(_Entry)


def audit_event(data: bytes) -> bytes:
    """The event, as JSON. Raises UnusableError on an entry of another service, and msgspec.MsgspecError."""
    entry = _entry.decode(data)
    told = entry.protoPayload
    if told.serviceName != SERVICE:
        raise UnusableError(
            "an entry of another service than the Kubernetes API: read those with protoPayload.serviceName=k8s.io"
        )
    verb = told.methodName.rpartition(".")[2]
    stage = _stage(entry.operation, verb, is_refused=told.status.code != 0)
    event: dict[str, Any] = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        # A long-running request has several entries, and a split one: each has an insertId of its own.
        "auditID": entry.operation.id or (entry.split.uid if entry.split else entry.insertId),
        "stage": stage,
        "verb": verb,
        "user": {"username": _user(told.authenticationInfo)},
        "userAgent": told.requestMetadata.callerSuppliedUserAgent,
        "requestReceivedTimestamp": entry.timestamp,
        "stageTimestamp": entry.timestamp,
        "annotations": entry.labels | (TRUNCATED if entry.split else {}),
        "responseStatus": _status(told),
    }
    reference = _reference(told.resourceName, told.methodName)
    if reference:
        event["objectRef"] = reference
        if entry.labels.get("command.gke.io/dryRun"):
            event["requestURI"] = "?dryRun=All"
    else:
        event["requestURI"] = f"/{told.resourceName}"
    if not entry.split:  # of a split entry every part has another part of these
        event |= {
            name: {field: value for field, value in body.items() if field != _TYPE}  # which Cloud Logging added
            for name, body in (("requestObject", told.request), ("responseObject", told.response))
            if body
        }
    return msgspec.json.encode(event)


def _stage(operation: _Operation, verb: str, *, is_refused: bool) -> str:
    """The stage that an entry tells of. A watch is counted where it starts, though it may have one entry alone."""
    if operation.first and not is_refused and (verb == "watch" or not operation.last):
        return "ResponseStarted"
    return "ResponseComplete"


def _user(principal: _Principal) -> str:
    return principal.principalEmail or principal.principalSubject or UNKNOWN_USER


def _status(told: _Payload) -> dict[str, Any]:
    """The HTTP status: of a success always 200, also where an object was created; of a refusal what the answer says."""
    code = told.status.code
    if code == 0:
        return {"code": OK}
    answer = (told.response or {}).get("code")
    said = msgspec.json.decode(answer) if answer is not None else None
    found = said if isinstance(said, int) and said >= 400 else HTTP.get(code, 500)
    return {"code": found, "message": told.status.message}


def _reference(name: str, method: str) -> dict[str, str] | None:
    """What a resourceName like ``apps/v1/namespaces/prod/deployments/payments/scale`` is about; None of no resource."""
    group, _, rest = name.partition("/")
    version, _, path = rest.partition("/")
    steps = path.split("/")
    if not path:
        return None
    found = {"apiGroup": "" if group == _CORE else group, "apiVersion": version}
    if steps[0] == "namespaces" and len(steps) > 1 and f".{version}.namespaces." not in method:
        found["namespace"] = steps[1]
        steps = steps[2:]
    names = dict(zip(("resource", "name", "subresource"), steps, strict=False))
    if found["apiGroup"] == "" and names.get("resource") == "namespaces" and "name" in names:
        found["namespace"] = names["name"]  # as the API server refers to a Namespace
    return found | names if names else None
