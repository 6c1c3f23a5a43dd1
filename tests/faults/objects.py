"""Objects that are hard to take: large ones, and thirty kinds of what an API server stores and others choke on."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable, Iterator
from typing import Any

import httpx2

from tests.cluster.oracle import API_VERSIONS, PATHS
from tests.cluster.programs import wait_until
from tests.faults.stand import CLUSTER, Stand
from tests.faults.trial import Found

LARGE = 200
LARGE_BYTES = 1_000_000
MOST_MEMORY = 512 << 20
"""What is promised: the program never has more."""
RECORDED_SECONDS = 240
_CREATED = """
SELECT count(DISTINCT o.uid) FROM changes c JOIN objects o ON o.id = c.object_id JOIN clusters l ON l.id = c.cluster_id
JOIN words n ON n.id = c.namespace_id WHERE l.name = %s AND n.word = %s AND c.verb = 0
"""
_REFUSED = "SELECT count(*) FROM quarantine q JOIN clusters l ON l.id = q.cluster_id WHERE l.name = %s"


def large(stand: Stand, found: Found) -> None:
    """Many ConfigMaps of a megabyte each, and one change to each of them."""
    draw, namespace = random.Random(1), "large"
    with stand.plane.client() as admin:
        make_namespace(admin, namespace)
        path = PATHS["ConfigMap"].format(namespace)
        for number in range(LARGE):
            text = "".join(draw.choices(string.ascii_letters + " \n", k=LARGE_BYTES))
            sent(admin, path, {"metadata": {"name": f"large-{number}"}, "data": {"value": text}})
    wait_until(lambda: _created(stand, namespace) == LARGE, "all large objects are recorded", seconds=RECORDED_SECONDS)
    peak = stand.program.peak_memory
    found.promise(f"at most {peak >> 20} MiB of memory", holds=peak < MOST_MEMORY)


def poison(stand: Stand, found: Found) -> None:
    """What the API server stores of POISON is recorded, or kept apart, each by itself; the program runs on."""
    namespace, taken, refused = "poison", 0, list[str]()
    before = _quarantined(stand)
    with stand.plane.client() as admin:
        make_namespace(admin, namespace)
        for number, (what, kind, body) in enumerate(_bodies()):
            text = body.replace(b"@NAME@", f"poison-{number}".encode())
            answer = admin.post(
                PATHS[kind].format(namespace), content=text, headers={"Content-Type": "application/json"}
            )
            taken += answer.is_success
            if not answer.is_success:
                refused.append(f"{what} ({answer.status_code})")

    def is_recorded() -> bool:
        return _created(stand, namespace) + _quarantined(stand) - before >= taken

    wait_until(is_recorded, f"{taken} hard objects are recorded or kept apart", seconds=60)
    apart = _quarantined(stand) - before
    found.notes.append(f"of {taken + len(refused)} the API server stored {taken}, {apart} of them kept apart")
    if refused:
        found.notes.append("it refused " + ", ".join(refused))
    found.promise("the program runs on", holds=stand.program.runs)


def _created(stand: Stand, namespace: str) -> int:
    return int(stand.ask(_CREATED, CLUSTER, namespace)[0][0])


def _quarantined(stand: Stand) -> int:
    return int(stand.ask(_REFUSED, CLUSTER)[0][0])


def make_namespace(admin: httpx2.Client, name: str) -> None:
    """Make it; it must not be there."""
    sent(admin, "/api/v1/namespaces", {"metadata": {"name": name}})


def sent(admin: httpx2.Client, path: str, body: dict[str, Any]) -> None:
    """Create an object at the path of its kind; it must be taken."""
    answer = admin.post(path, json=body)
    assert answer.is_success, answer.text[:500]


def _bodies() -> Iterator[tuple[str, str, bytes]]:
    """Each kind of poison: what it is, the kind of object, its JSON with @NAME@ for its name."""
    for what, spec in WIDGETS.items():
        head = f'{{"apiVersion":"{API_VERSIONS["Widget"]}","kind":"Widget","metadata":{{"name":"@NAME@"}},"spec":'
        yield what, "Widget", head.encode() + spec().encode("utf-8", "surrogatepass") + b"}"
    for what, make in OBJECTS.items():
        kind, obj = make()
        obj = {"apiVersion": API_VERSIONS[kind], "kind": kind, **obj}
        obj["metadata"] = {"name": "@NAME@", **obj.get("metadata", {})}
        yield what, kind, json.dumps(obj).encode()


def _nested(opening: str, closing: str, depth: int, *, inner: str = "1") -> str:
    return opening * depth + inner + closing * depth


WIDGETS: dict[str, Callable[[], str]] = {
    "1e308": lambda: '{"n":1e308}',
    "1e100000": lambda: '{"n":1e100000}',
    "-1e-100000": lambda: '{"n":-1e-100000}',
    "an integer of 64 bits": lambda: '{"n":9223372036854775807}',
    "an integer of 20 digits": lambda: '{"n":18446744073709551616}',
    "an integer of 400 digits": lambda: '{"n":' + "9" * 400 + "}",
    "a fraction of 1,000 digits": lambda: '{"n":0.' + "1" * 1000 + "}",
    "minus zero": lambda: '{"n":-0.0}',
    "NUL": lambda: r'{"s":"a\u0000b"}',
    "NUL in a key": lambda: r'{"a\u0000b":"s"}',
    "a lone high surrogate": lambda: r'{"s":"\ud800"}',
    "a lone low surrogate": lambda: r'{"s":"\udfff x"}',
    "surrogates the wrong way round": lambda: r'{"s":"\udc00\ud800"}',
    "a surrogate in a key": lambda: r'{"\ud83d":1}',
    "the end of Unicode": lambda: r'{"s":"\udbff\udfff\uffff\ufffe"}',
    "marks that turn the text": lambda: r'{"s":"\u202e\u2066\u200b\ufeff"}',
    "control characters": lambda: r'{"s":"\u0001\u001b]0;x\u0007\u007f\u0085\u2028"}',
    "an empty key": lambda: '{"":{"":{"":1}}}',
    "a key twice": lambda: '{"a":1,"a":2}',
    "keys with dots, slashes, tabs": lambda: r'{"a.b/c":{"[0]":1,"\t":2,"[name=x":3,"~1~0":4}}',
    "a key of 10,000 characters": lambda: '{"' + "k" * 10_000 + '":1}',
    "nulls and empty things": lambda: '{"a":null,"b":[],"c":{},"d":[null,[],{}],"e":""}',
    "5,000 keys": lambda: json.dumps({f"k{number}": number for number in range(5_000)}),
    "a list of 100,000": lambda: json.dumps({"l": [0] * 100_000}),
    "lists of several types": lambda: '{"l":[1,"1",1.0,true,null,{"name":"a"},{"name":"a"},[1]]}',
    "lists in lists, 90 deep": lambda: '{"l":' + _nested("[", "]", 90) + "}",
    "maps in maps, 900 deep": lambda: _nested('{"a":', "}", 900),
    "maps in maps, 5,000 deep": lambda: _nested('{"a":', "}", 5_000),
    "no map at all": lambda: '"just text"',
    "JSON within text": lambda: json.dumps({"s": json.dumps({"s": json.dumps({"kind": "Secret"})})}),
}
"""The spec of a Widget, which may hold anything, as JSON text."""
OBJECTS: dict[str, Callable[[], tuple[str, dict[str, Any]]]] = {
    "an annotation of 250 kB": lambda: ("ConfigMap", {"metadata": {"annotations": {"a": "x" * 250_000}}}),
    "last-applied that is no JSON": lambda: (
        "ConfigMap",
        {"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": '{"a":' * 50_000}}},
    ),
    "names at their limits": lambda: (
        "ConfigMap",
        {"metadata": {"name": "n" * 63 + ("." + "n" * 63) * 2 + "." + "n" * 61, "labels": {"l" * 63: "v" * 63}}},
    ),
    "binary data": lambda: ("ConfigMap", {"binaryData": {"b": "AP//gACA"}}),
    "a key of data at its limit": lambda: ("ConfigMap", {"data": {"k" * 253: ".", "-._a": "\u202e"}}),
    "1,000 finalizers": lambda: (
        "ConfigMap",
        {"metadata": {"finalizers": [f"faults.example/f{number}" for number in range(1_000)]}},
    ),
}
"""Objects but for what every one has."""
