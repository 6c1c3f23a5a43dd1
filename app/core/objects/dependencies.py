"""Which Services a workload calls, read from its configuration and its complaints: who fails when one of them does.

Kubernetes has no edge from a client to what it calls. But a client has to be told where that is, and is told in its
environment, its arguments or its ConfigMaps, by the names that the cluster's DNS serves:
https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/ .
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from app.core.objects.untyped import objects, texts

Named = tuple[str, str]  # (namespace, name)

LONGEST = 20_000
"""Characters of one value that are read: a configuration names its peers early, a bundle of certificates never."""
_HOST = re.compile(
    r"(?<![\w.%-])(?P<name>[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)(?P<rest>(?:\.[a-z0-9-]+)*)(?P<port>:\d{2,5})?(?![\w-])"
)
_SERVICE_RECORD = re.compile(r"(?<![\w.-])_[a-z0-9-]+\._(?:tcp|udp)\.(?=[a-z0-9])")
"""What stands before a host where its ports are asked for, too (RFC 2782): ``_memcache._tcp.cache.shop``."""
VARIABLE = re.compile(r"\b[A-Z][A-Z0-9_]*_(?:PORT|SERVICE_HOST)\b")
"""What may be a variable by which a container is told where a Service is."""
_LINK = re.compile(r"\btcp://\d+(?:\.\d+){3}:\d+")
"""What such a variable says."""
_BEFORE = ("//", "@")
_SAID = re.compile(r"(?:host|server|backend|upstream|addr(?:ess)?|endpoint)[\s:=]+[\"']$", re.IGNORECASE)
"""What stands before a quoted host in configuration: ``.host = "products"``."""
_SAYS_HOST = re.compile(
    r"(?:host|addr|address|url|uri|endpoint|server|service|upstream|target|broker)s?$", re.IGNORECASE
)


def hosts(name: str, text: str, namespace: str, *, known: frozenset[Named]) -> Iterator[Named]:
    """The Services that a value, of a variable or key of that name, says to be called from ``namespace``.

    NAME.NAMESPACE.svc is one whether it is ``known`` or was deleted; NAME.NAMESPACE and NAME only where a Service of
    that name is known, and NAME alone only where it stands as a host: behind "//" or "@", before a port, or as the
    whole value of a variable that says so. So is POD.NAME and POD.NAME.NAMESPACE, by which a StatefulSet's pods call
    one another.
    """
    if not ("." in text or ":" in text or _SAYS_HOST.search(name)):
        return
    text = _SERVICE_RECORD.sub("", text[:LONGEST])
    for match in _HOST.finditer(text):
        first, rest = match["name"], match["rest"].split(".")[1:]
        if (len(rest) >= 2 and rest[1] == "svc") or (len(rest) == 1 and (rest[0], first) in known):
            yield rest[0], first
        elif rest and (namespace, rest[0]) in known:
            yield namespace, rest[0]
        elif len(rest) >= 2 and (rest[1], rest[0]) in known:
            yield rest[1], rest[0]
        elif not rest and (namespace, first) in known:
            before = text[: match.start()].endswith(_BEFORE) or _SAID.search(
                text[max(0, match.start() - 20) : match.start()]
            )
            whole = match.group(0) == text.strip() and _SAYS_HOST.search(name)
            if before or match["port"] or whole:
                yield namespace, first


def variables(service: str) -> tuple[str, ...]:
    """By which variables a container that starts is told where a Service of its namespace is
    (https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables)."""
    prefix = service.upper().replace("-", "_")
    return tuple(f"{prefix}_{of}" for of in ("PORT", "SERVICE_HOST", "SERVICE_PORT"))


def variables_in(text: str) -> Iterator[str]:
    """What a value or a message names of that sort; by a program's own setting where its value is one of theirs."""
    text = text[:LONGEST]
    yield from (match.group(0) for match in VARIABLE.finditer(text.upper() if _LINK.search(text) else text))


def told(spec: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The (name, text) of everything that a pod spec itself tells its containers."""
    for container in [*objects(spec.get("initContainers")), *objects(spec.get("containers"))]:
        for variable in objects(container.get("env")):
            if isinstance(variable.get("value"), str):
                yield str(variable.get("name", "")), variable["value"]
        for argument in [*texts(container.get("command")), *texts(container.get("args"))]:
            yield argument.partition("=")[0], argument


def closure(start: Iterable[Named], upstream: dict[Named, set[Named]], *, depth: int) -> dict[Named, int]:
    """What the workloads of ``start`` call, and what that calls, with the number of steps: 1 to ``depth``."""
    found: dict[Named, int] = {}
    border = set(start)
    here = set(border)
    for steps in range(1, depth + 1):
        border = {other for one in border for other in upstream.get(one, ())} - here
        here |= border
        found |= dict.fromkeys(border, steps)
    return found
