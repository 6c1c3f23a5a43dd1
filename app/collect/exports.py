"""What managed clusters export of their audit logs: each entry -> the audit event (audit.k8s.io/v1) that it holds.

Of EKS and AKS an entry holds the event as the API server wrote it; a GKE entry is told anew (collect/cloud_logging.py).
"""

from __future__ import annotations

import re
from enum import StrEnum
from types import MappingProxyType

import msgspec

from app.collect.cloud_logging import TRUNCATED, audit_event
from app.collect.files import Readable
from app.collect.refusals import UnusableError


class Export(StrEnum):
    """The forms, by what one entry of them is."""

    CLOUDWATCH_LINE = "a line of a CloudWatch Logs export to S3"
    CLOUDWATCH_EVENT = "a log event of CloudWatch Logs"
    AZURE_RECORD = "a resource log record of Azure Monitor"
    CLOUD_LOGGING = "a log entry of Google Cloud Logging"


class _LogEvent(msgspec.Struct, gc=False):
    """https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_FilteredLogEvent.html; of a subscription
    it has the same field (.../logs/SubscriptionFilters.html).
    """

    message: str


class _Properties(msgspec.Struct, gc=False):
    log: str


class _Record(msgspec.Struct, gc=False):
    """https://learn.microsoft.com/azure/azure-monitor/platform/resource-logs-schema; ``log`` of category kube-audit."""

    properties: _Properties
    category: str = ""


_log_event = msgspec.json.Decoder(_LogEvent)
_record = msgspec.json.Decoder(_Record)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_annotations = msgspec.json.Decoder(dict[str, str])
_OBJECTS = frozenset({"requestObject", "responseObject"})
LINE = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z (?=\S)")
"""Before each message of an export to S3: when CloudWatch Logs got it."""
_SKIPPED = b'"skipped-too-big-size-object"'
"""What AKS writes in place of a large object: https://learn.microsoft.com/azure/azure-monitor/reference/tables/aksaudit"""


def _of_line(data: bytes) -> bytes:
    found = LINE.match(data)
    return _an_event(data[found.end() :] if found else data, "what follows the time")


def _of_log_event(data: bytes) -> bytes:
    return _an_event(_log_event.decode(data).message.encode(), "its message")


def _of_record(data: bytes) -> bytes:
    record = _record.decode(data)
    if not record.category.startswith("kube-audit"):
        raise UnusableError("a record of another category than kube-audit: export that one alone")
    event = _an_event(record.properties.log.encode(), "its properties.log")
    return _without_skipped(event) if _SKIPPED in event else event


def _without_skipped(event: bytes) -> bytes:
    """The event without the objects that were left out of it, marked as truncated where there were any."""
    fields = _fields.decode(event)
    left = {name: value for name, value in fields.items() if name not in _OBJECTS or bytes(value) != _SKIPPED}
    if len(left) < len(fields):
        annotations = _annotations.decode(fields.get("annotations", b"{}"))
        left["annotations"] = msgspec.Raw(msgspec.json.encode(annotations | TRUNCATED))
    return msgspec.json.encode(left)


def _an_event(message: bytes, where: str) -> bytes:
    if not message.startswith(b"{"):
        raise UnusableError(f"no audit event: {where} is no JSON object; is the log of another component in it?")
    return message


EVENT_IN = MappingProxyType(
    {
        Export.CLOUDWATCH_LINE: _of_line,
        Export.CLOUDWATCH_EVENT: _of_log_event,
        Export.AZURE_RECORD: _of_record,
        Export.CLOUD_LOGGING: audit_event,
    }
)
"""The bytes of an entry -> those of its audit event. Each raises UnusableError, or msgspec.MsgspecError."""


class Parted:
    """A stream in which each subscription record begins a line: they come one behind the other, with nothing between.

    Within a string the quote would be escaped, so only the end of a record can be what is parted.
    """

    _END, _PARTED = b']}{"', b']}\n{"'

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._held = self._rest = b""

    def read(self, size: int, /) -> bytes:
        while not self._rest:
            chunk = self._stream.read(size)
            found = (self._held + chunk).replace(self._END, self._PARTED)
            begun = next((size for size in (3, 2, 1) if chunk and found.endswith(self._END[:size])), 0)
            self._rest, self._held = found[: len(found) - begun], found[len(found) - begun :]
            if not chunk:
                break
        found, self._rest = self._rest[:size], self._rest[size:]
        return found
