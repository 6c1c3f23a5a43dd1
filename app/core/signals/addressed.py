"""Addresses that complaints say, with the names of the Services that have them.

A program that has looked a name up often says only where that led, as Go and Node.js do: ``dial tcp 10.96.14.3:5432:
connect: connection refused``. The address of a Service is in its spec
(https://kubernetes.io/docs/concepts/services-networking/cluster-ip-allocation/).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial

from msgspec.structs import replace

from app.core.model import ObjectState, Symptom
from app.core.objects.untyped import part, texts

_ADDRESS = re.compile(r"(?<![\w.:])(?P<ip>\d{1,3}(?:\.\d{1,3}){3}|\[[0-9a-f:]+\])(?P<port>:\d+)?(?!\.?\w)")
_NAME_SERVER = ":53"
"""Who says which server does not know a name does not complain of that server."""


def with_names(symptoms: tuple[Symptom, ...], states: Iterable[ObjectState]) -> tuple[Symptom, ...]:
    """The complaints; behind each address that is one of a Service stands what that is called, as
    ``10.96.14.3:5432 (orders-db.shop.svc:5432)``."""
    services = {
        address: f"{state.resource.name}.{state.resource.namespace}.svc"
        for state in states
        if state.resource.kind == "Service" and not state.resource.api_group and state.state is not None
        for address in texts(part(state.state, "spec", "clusterIPs"))
    }
    return tuple(_named(one, services) for one in symptoms) if services else symptoms


def _named(symptom: Symptom, services: Mapping[str, str]) -> Symptom:
    message = _ADDRESS.sub(partial(_with_name, services), symptom.message)
    return symptom if message == symptom.message else replace(symptom, message=message)


def _with_name(services: Mapping[str, str], said: re.Match[str]) -> str:
    service, port = services.get(said["ip"].strip("[]")), said["port"] or ""
    return said[0] if service is None or port == _NAME_SERVER else f"{said[0]} ({service}{port})"
