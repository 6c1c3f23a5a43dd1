"""How a recording names a webhook, or an API, that pods answer: by their Service, not by where it is asked here."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from tests.lab.api import Json
from tests.lab.webhook import PATH, Webhook

Place = tuple[str, str]
PORT = 443
"""What a ``clientConfig.service`` means that says no port."""
OUTSIDE = "-outside"
"""Ends the name of the Service by which the API server finds an API here, where the recording says the one without."""
_FIELDS: Json = {".": {}, "f:name": {}, "f:namespace": {}, "f:path": {}, "f:port": {}}


class NoServiceError(Exception):
    """What the API server asks is said to be answered by a Service that was never there."""


def naming(webhooks: Collection[Webhook], addresses: Mapping[Place, str]) -> Callable[[str], str]:
    """From a line that is recorded to what it says of a real cluster; ``addresses`` are the Services' own.

    Raises NoServiceError.
    """
    served: dict[str, tuple[Place, str]] = {}
    apis: dict[str, tuple[Place, str]] = {}
    for one in webhooks:
        if one.service is None:
            continue
        if one.service not in addresses:
            raise NoServiceError(f"no Service {'/'.join(one.service)}, whose pods answer the API server")
        if one.is_aggregated:
            apis[one.address.rsplit(":", 1)[1]] = (one.service, addresses[one.service])
        else:
            served[one.address] = (one.service, addresses[one.service])

    def named(line: str) -> str:
        for port, (service, cluster_ip) in apis.items():
            line = re.sub(rf"\blocalhost:{port}(?!\d)", f"{cluster_ip}:{PORT}", line)
            line = re.sub(rf"\b(service/{re.escape(service[1])}){OUTSIDE} in\b", r"\1 in", line)  # it is not present
            if line.startswith("{") and f'"{service[1]}{OUTSIDE}"' in line:
                line = json.dumps(_inside(json.loads(line), service))
        for address, (service, cluster_ip) in served.items():
            if address in line:
                told = partial(_told, address=address, service=service, cluster_ip=cluster_ip)
                url = f"https://{address}{PATH}"
                is_json = line.startswith("{")
                line = json.dumps(_walk(json.loads(line), url, service, told)) if is_json else told(line)
        return line

    return named


def _told(text: str, *, address: str, service: Place, cluster_ip: str) -> str:
    """As the API server says it: the Service's name in what it asks, its address in what it dials.

    With nobody behind the Service, the node refuses the connection; the laboratory's own end takes it and hangs up.
    """
    host = rf"{re.escape(address)}(?!\d)"
    name = f"{service[1]}.{service[0]}.svc:{PORT}"
    refused = rf"\1dial tcp {cluster_ip}:{PORT}: connect: connection refused"
    text = re.sub(rf'(https://{host}[^"\\]*\\*": )(?:EOF|read tcp \S+: read: connection reset by peer)', refused, text)
    text = re.sub(rf"((?:dial|read|write) tcp (?:\S+->)?){host}", rf"\g<1>{cluster_ip}:{PORT}", text)
    return re.sub(host, name, text)


def _walk(value: Any, url: str, service: Place, told: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return told(value)
    if isinstance(value, list):
        return [_walk(one, url, service, told) for one in value]
    if not isinstance(value, dict):
        return value
    made: Json = {}
    for key, one in value.items():
        if key == "url" and one == url:
            made["service"] = {"namespace": service[0], "name": service[1], "path": PATH, "port": PORT}
        elif key == "f:clientConfig" and "f:url" in one:
            made[key] = {**{field: own for field, own in one.items() if field != "f:url"}, "f:service": _FIELDS}
        else:
            made[key] = _walk(one, url, service, told)
    return made


def _inside(value: Any, service: Place) -> Any:
    """With the Service in place of the one by which the API server finds an API outside."""
    if isinstance(value, list):
        return [_inside(one, service) for one in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"namespace", "name", "port"} and value["name"] == f"{service[1]}{OUTSIDE}":
        return {"namespace": service[0], "name": service[1], "port": PORT}
    return {key: _inside(one, service) for key, one in value.items()}
