"""What is harmless stays readable: fields as they stand in real clusters, of which hardly one may be hidden."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from app.core.model import Json
from app.core.objects.redact import Redactor
from tests.benign import BENIGN

LEAST = 0.95
FIELDS = Path(__file__).with_name("benign.txt")


def fields() -> list[tuple[str, str]]:
    """A field and its value a line; ``env``, ``config``, ``message``, ``requestURI`` say how it is told."""
    told = [line.partition(" = ") for line in FIELDS.read_text().splitlines()]
    return [*BENIGN.items(), *((name, value) for name, _, value in told)]


def is_kept(redactor: Redactor, name: str, value: str) -> bool:
    """Whether a field comes through as it went in, where it stands in a cluster."""
    kind, _, rest = name.partition(" ")
    if kind == "env":
        variable: Json = {"name": rest, "value": value}
        container: Json = {"name": "app", "env": [variable]}
        return _same(redactor, "apps", "Deployment", {"spec": {"template": {"spec": {"containers": [container]}}}})
    if kind == "config":
        return _same(
            redactor, "", "ConfigMap", {"data": {rest: value, "app.conf": f"a = 1\n{rest} = {value}\nb = 2\n"}}
        )
    if name == "requestURI":
        return redactor.uri(value) == value
    if name in ("message", "reason", "user", "userAgent"):
        return redactor.text(value) == value
    if name in ("args", "command"):
        return _same(redactor, "apps", "Deployment", {"spec": {name: [value]}})
    if name.startswith(("metadata.annotations.", "metadata.labels.")):
        _, part, key = name.split(".", 2)
        return _same(redactor, "apps", "Deployment", {"metadata": {part: {key: value}}})
    nested: Json = value
    for step in reversed(name.split(".")):
        nested = {step: nested}
    assert isinstance(nested, dict)
    return _same(redactor, "acme.io", "Widget", nested)


def _same(redactor: Redactor, group: str, kind: str, body: dict[str, Json]) -> bool:
    return redactor.object(group, kind, body) == body


def test_what_is_harmless_is_kept(record_property: Callable[[str, object], None]) -> None:
    redactor, told = Redactor(b"a key for what is harmless"), fields()
    hidden = [f"{name} = {value}" for name, value in told if not is_kept(redactor, name, value)]
    record_property("harmless fields kept", f"{len(told) - len(hidden)} of {len(told)}")
    assert len(told) >= 300
    assert len(hidden) <= (1 - LEAST) * len(told), hidden


def test_the_test_sees_what_is_hidden() -> None:
    redactor = Redactor(b"a key for what is harmless")
    for name, value in (
        ("env DB_PASSWORD", "correct-horse-battery"),
        ("config api_key", "correct-horse-battery"),
        ("message", "cannot log in: password=correct-horse-battery"),
        ("args", "--token=correct-horse-battery"),
        ("metadata.annotations.x/client-secret", "correct-horse-battery"),
        ("requestURI", "/x?access_token=correct-horse-battery"),
        ("spec.auth.password", "correct-horse-battery"),
    ):
        assert not is_kept(redactor, name, value), name
