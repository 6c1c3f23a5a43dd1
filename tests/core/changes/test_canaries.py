"""Canaries: secrets planted wherever one can stand, told in every way, and looked for in all that the tracker emits."""

from __future__ import annotations

import random
from base64 import b64encode
from collections.abc import Callable, Iterator

import orjson
from msgspec import structs

from app.core.changes.sightings import Learned, Sighting
from app.core.changes.tracker import Tracker
from app.core.model import Json, Object, ObjectState, Resource, Verb
from app.core.objects.own_rules import NO_RULES, OwnRules
from app.core.objects.redact import LAST_APPLIED, Redactor
from tests.core.factories import after

PLAIN: dict[tuple[str, str], list[Callable[[str], Object]]] = {
    ("", "Secret"): [
        lambda c: {"data": {"k": b64encode(c.encode()).decode()}},
        lambda c: {"data": {"k": c}},
        lambda c: {"stringData": {"k": c}},
        lambda c: {"odd": {"deep": [c]}},
        lambda c: {"metadata": {"annotations": {LAST_APPLIED: _text({"data": {"k": c}})}}},
        lambda c: {"metadata": {"annotations": {LAST_APPLIED: "broken " + c}}},
    ],
    ("", "ConfigMap"): [
        lambda c: {"data": {"db-password": c}},
        lambda c: {"data": {"tls.key": c}},
        lambda c: {"data": {"app.conf": f"a = 1\npassword = {c}\nb = 2\n"}},
        lambda c: {"data": {"app.yaml": f"db:\n  token: '{c}'\n"}},
        lambda c: {"data": {"app.yaml": f"db:\n  token: |\n    {c}\n  host: x\n"}},
        lambda c: {"data": {"app.tmpl": f"{{{{ if .x }}}}\ntoken: |\n  {c}\n{{{{ end }}}}\n"}},
        lambda c: {"data": {"app.yaml": f"env:\n- name: TOKEN\n  value: {c}\n"}},
        lambda c: {"data": {"all.yaml": f"kind: Secret\napiVersion: v1\nstringData:\n  left: {c}\n"}},
        lambda c: {"metadata": {"annotations": {"x/conf": f"credentials:\n  left: x\n  right: {c}\n"}}},
        lambda c: {"data": {"app.json": _text({"a": [{"api_key": c}]})}},
        lambda c: {"data": {"app.json": _text({"inner": _text({"apiKey": c})})}},
        lambda c: {"binaryData": {"x": b64encode(c.encode()).decode()}},
        lambda c: {"data": {"url": f"amqp://guest:{c}@mq:5672/"}},
        lambda c: {"metadata": {"annotations": {LAST_APPLIED: _text({"data": {"secret": c}})}}},
        lambda c: {
            "metadata": {"annotations": {"x/y": _text({"kind": "Secret", "apiVersion": "v1", "data": {"k": c}})}}
        },
    ],
    ("apps", "Deployment"): [
        lambda c: _template({"env": [{"name": "DB_PASSWORD", "value": c}]}),
        lambda c: _template({"env": [{"name": "PGURL", "value": f"postgres://u:{c}@db/x"}]}),
        lambda c: _template({"args": [f"--admin-token={c}"]}),
        lambda c: _template({"args": ["--admin-token", c]}),
        lambda c: _template({"command": ["sh", "-c", f"export API_KEY={c}; run"]}),
        lambda c: _template({"command": ["mysql", f"-p{c}"]}),
        lambda c: _template({"command": ["curl", "-H", f"Authorization: Bearer {c}"]}),
        lambda c: _template({"livenessProbe": {"exec": {"command": ["redis-cli", "--password", c]}}}),
        lambda c: {"spec": {"template": {"metadata": {"annotations": {"x/client-secret": c}}}}},
    ],
    ("batch", "CronJob"): [
        lambda c: {"spec": {"jobTemplate": {"spec": _template({"env": [{"name": "TOKEN", "value": c}]})["spec"]}}},
    ],
    ("bitnami.com", "SealedSecret"): [lambda c: {"spec": {"encryptedData": {"k": c}}}],
    ("vault.acme.io", "DatabaseCredential"): [lambda c: {"spec": {"anything": [c]}}],
    ("acme.io", "Widget"): [
        lambda c: {"spec": {"auth": {"password": c}}},
        lambda c: {"spec": {"credentials": {"left": c, "right": [c]}}},
        lambda c: {"spec": {"podTemplate": _template({"env": [{"name": "SALT", "value": c}]})}},
        lambda c: {"data": {"privateKey": c}},
    ],
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): [
        lambda c: {"webhooks": [{"name": "a.b", "clientConfig": {"caBundle": c}}]},
        lambda c: {"webhooks": [{"name": "a.b", "clientConfig": {"url": f"https://u:{c}@hook/"}}]},
    ],
}
"""Places where the name of the field, or what stands around it, gives the secret away."""

OWN_RULES = OwnRules(names=("pepper", "*_pin"), kinds=("vault.example.com/*", "acme.io/Cache"))
OWN: dict[tuple[str, str], list[Callable[[str], Object]]] = {
    ("", "ConfigMap"): [
        lambda c: {"data": {"pepper": c}},
        lambda c: {"data": {"app.conf": f"a = 1\nshop.pepper = {c}\nb = 2\n"}},
        lambda c: {"data": {"app.yaml": f"db:\n  door_pin: |\n    {c}\n  host: x\n"}},
        lambda c: {"data": {"app.json": _text({"a": [{"PEPPER": c}]})}},
    ],
    ("apps", "Deployment"): [
        lambda c: _template({"env": [{"name": "PEPPER", "value": c}]}),
        lambda c: _template({"args": ["--door_pin", c]}),
        lambda c: {"metadata": {"annotations": {"shop.example/pepper": c}}},
        lambda c: {"metadata": {"annotations": {LAST_APPLIED: _text({"spec": {"pepper": c}})}}},
    ],
    ("acme.io", "Widget"): [
        lambda c: {"spec": {"pepper": {"left": c, "right": [c]}}},
        lambda c: {"pepper": [c]},
    ],
    ("acme.io", "Cache"): [lambda c: {"spec": {"left": c}}, lambda c: {"spec": {"list": [c]}, "more": c}],
    ("vault.example.com", "Policy"): [
        lambda c: {"spec": {"left": c}},
        lambda c: {"metadata": {"annotations": {LAST_APPLIED: _text({"spec": {"left": c}})}}},
    ],
}
"""Places that only rules of one's own, OWN_RULES, give away."""

SHAPES: list[Callable[[random.Random], str]] = [
    lambda r: f"eyJhbGciOiJIUzI1NiJ9.eyJ{_chars(r, 24)}.{_chars(r, 30)}",
    lambda r: f"AKIA{''.join(r.choices('ABCDEFGHIJKLMNOPQRSTUVWXYZ234567', k=16))}",
    lambda r: f"ghp_{_chars(r, 36)}",
    lambda r: f"glpat-{_chars(r, 20)}",
    lambda r: f"xoxb-{r.randrange(10**11)}-{_chars(r, 24)}",
    lambda r: f"-----BEGIN RSA PRIVATE KEY-----\n{_chars(r, 64)}\n{_chars(r, 64)}\n-----END RSA PRIVATE KEY-----",
    lambda r: _chars(r, 48),
]
"""Secrets that are known by their own look, in places whose names say nothing."""

ANYWHERE: list[Callable[[str], Object]] = [
    lambda c: {"spec": {"note": c}},
    lambda c: {"spec": {"list": ["a", f"see {c} there"]}},
    lambda c: {"metadata": {"annotations": {"x/note": f"was {c}."}}},
    lambda c: {"metadata": {"labels": {"x": c}}},
    lambda c: {"data": {"motd": c}},
]


def _text(value: Json) -> str:
    return orjson.dumps(value).decode()


def _chars(r: random.Random, n: int) -> str:
    return "".join(r.choices("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", k=n))


def _template(container: Object) -> Object:
    return {"spec": {"template": {"spec": {"containers": [{"name": "app", "image": "a:1", **container}]}}}}


class Ways:
    """Tells a planted object in every way in which a cluster would."""

    def __init__(self, own: OwnRules = NO_RULES) -> None:
        self.tracker = Tracker("lab", Redactor(b"a key for the canaries", own), self._unknown)
        self.version = 100
        self.emitted: list[str] = []

    @staticmethod
    def _unknown(_resource: Resource, _uid: str) -> ObjectState | None:
        return None

    def tell(self, api_group: str, kind: str, part: Object) -> None:
        for source in ("watch", "audit", "state"):
            self._life(api_group, kind, part, source=source)
        self._requests(api_group, kind, part)

    def _life(self, api_group: str, kind: str, part: Object, *, source: str) -> None:
        """Created clean, changed to hold it, changed again beside it, deleted: each with the whole object."""
        verb = None if source == "state" else Verb.UPDATE
        first = self._sighting(api_group, kind, {}, source=source, verb=verb and Verb.CREATE)
        self._observe(first)
        for beside in ("a", "b"):
            body = _merge(part, {"metadata": {"labels": {"beside": beside}}})
            self._observe(self._sighting(api_group, kind, body, source=source, verb=verb, name=first.resource.name))
        self._observe(self._sighting(api_group, kind, part, source=source, verb=Verb.DELETE, name=first.resource.name))
        self._observe(self._sighting(api_group, kind, part, source=source, verb=verb and Verb.CREATE))

    def _requests(self, api_group: str, kind: str, part: Object) -> None:
        """Only the request was recorded: as a whole object, as a merge patch, as the operations of a JSON Patch."""
        for verb in (Verb.CREATE, Verb.UPDATE):
            whole = self._sighting(api_group, kind, part, source="audit", verb=verb)
            self._observe(structs.replace(whole, patch=whole.body, body=None))
            self._observe(structs.replace(whole, patch=None, body=orjson.dumps(part), resource_version=""))
        one = self._sighting(api_group, kind, {}, source="audit", verb=Verb.UPDATE)
        for operations in (list(_operations(part, "")), [{"op": "replace", "path": "", "value": part}]):
            self._observe(structs.replace(one, body=None, patch=orjson.dumps(operations), resource_version=""))
        known = self._sighting(api_group, kind, {}, source="audit", verb=Verb.CREATE)
        self._observe(known)
        for patch in (part, list(_operations(part, ""))):
            self._observe(
                structs.replace(known, verb=Verb.UPDATE, body=None, patch=orjson.dumps(patch), resource_version="")
            )

    def _sighting(
        self, api_group: str, kind: str, part: Object, *, source: str, verb: Verb | None, name: str = ""
    ) -> Sighting:
        self.version += 1
        name = name or f"o{self.version}"
        meta: Object = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(self.version)}
        body = _merge({"apiVersion": f"{api_group}/v1", "kind": kind, "metadata": meta}, part)
        resource = Resource("lab", api_group, kind, "shop", name)
        return Sighting(
            resource, after(self.version), source, verb, orjson.dumps(body), uid=f"uid-{name}",
            resource_version=str(self.version), audit_id=f"id-{self.version}",
        )  # fmt: skip

    def _observe(self, sighting: Sighting) -> None:
        learned = self.tracker.observe(sighting)
        if learned != Learned():
            self.emitted.append(repr(learned))


def _merge(one: Object, two: Object) -> Object:
    out = dict(one)
    for key, value in two.items():
        before = out.get(key)
        out[key] = _merge(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return out


def _operations(part: Json, pointer: str) -> Iterator[Object]:
    """Every field of a part as an operation at its own path, at every depth."""
    if pointer:
        yield {"op": "add", "path": pointer, "value": part}
    if isinstance(part, dict):
        for key, value in part.items():
            yield from _operations(value, f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}")


def _parts(canary: str) -> list[str]:
    """What must not be found: the canary, its lines, and its base64."""
    lines = [line for line in canary.splitlines() if line and not line.startswith("-----")]
    return [*lines, b64encode(canary.encode()).decode()]


def test_no_canary_comes_through() -> None:
    draw = random.Random(7)
    ways = Ways()
    planted: dict[str, str] = {}
    for (api_group, kind), places in PLAIN.items():
        for number, place in enumerate(places):
            for length in (9, 14, 22):
                canary = f"z{''.join(draw.choices('bcdfghjklmnpqrstvwxz', k=length))}9"
                planted[canary] = f"{kind} place {number}"
                ways.tell(api_group, kind, place(canary))
    for kind, api_group in (("Widget", "acme.io"), ("ConfigMap", ""), ("ServiceAccount", ""), ("Deployment", "apps")):
        for number, place in enumerate(ANYWHERE):
            for shape, make in enumerate(SHAPES * 3):
                canary = make(draw)
                planted[canary] = f"{kind} anywhere {number} shape {shape % len(SHAPES)}"
                ways.tell(api_group, kind, place(canary))
    everything = "\n".join(ways.emitted)
    assert len(planted) >= 500
    assert len(ways.emitted) >= 4 * len(planted)
    leaks = {where for canary, where in planted.items() for part in _parts(canary) if part in everything}
    assert leaks == set()


def test_no_canary_comes_through_in_a_place_of_ones_own_and_each_would() -> None:
    draw = random.Random(9)
    ways, without = Ways(OWN_RULES), Ways()
    planted: dict[str, str] = {}
    for (api_group, kind), places in OWN.items():
        for number, place in enumerate(places):
            canary = f"z{''.join(draw.choices('bcdfghjklmnpqrstvwxz', k=18))}9"
            planted[canary] = f"{kind} place {number}"
            ways.tell(api_group, kind, place(canary))
            without.tell(api_group, kind, place(canary))
    everything, seen = "\n".join(ways.emitted), "\n".join(without.emitted)
    assert [where for canary, where in planted.items() for part in _parts(canary) if part in everything] == []
    assert [where for canary, where in planted.items() if canary not in seen] == []
