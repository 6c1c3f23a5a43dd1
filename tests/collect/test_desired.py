"""What a watch tells of an object whose desired state it told before: its status, and never less than is needed."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from app.collect import desired as remembered
from app.collect import told
from app.collect.desired import Desired, KindDesired
from app.collect.watch import follow, read_event, read_events
from app.collect.words import Lost, Moved, Saw, Served, Word, reached
from tests.collect.scripted import SILENCE, Answer, serving
from tests.collect.test_watch import NOON, PODS, Waits, bookmark, error

NODES = Served("", "v1", "Node", "nodes")
WIDGETS = Served("example.com", "v1", "Widget", "widgets")


def an_object(served: Served, version: int, *, status: Any = None, spec: Any = None, **metadata: Any) -> dict[str, Any]:
    whole = {"name": "a", "namespace": "shop", "uid": "u", "resourceVersion": str(version), **metadata}
    return {
        "kind": served.kind,
        "apiVersion": served.api_version,
        "metadata": whole,
        "spec": spec or {"containers": []},
        "status": status or {"beat": version},
    }


def line(kind: str, one: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": one}, separators=(",", ":")).encode()


def pod(version: int, kind: str = "MODIFIED", **rest: Any) -> bytes:
    return line(kind, an_object(PODS, version, **rest)) + b"\n"


def read(kept: KindDesired, *lines: bytes) -> list[Word]:
    return [read_event(one.rstrip(), NOON, first=False, desired=kept) for one in lines]


def names(words: list[Word]) -> list[str]:
    return [type(word).__name__ for word in words]


def test_a_status_is_told_without_the_desired_state_that_was_told() -> None:
    created = "2026-11-20T00:00:00Z"
    managed = [{"manager": "kubelet", "time": created}]
    words = read(
        KindDesired(PODS), *(pod(v, generation=3, creationTimestamp=created, managedFields=managed) for v in (5, 6))
    )
    assert names(words) == ["Saw", "Moved"]
    moved = words[1]
    assert isinstance(moved, Moved)
    assert moved.resource_version == "6"
    [now] = moved.objects
    assert (now.namespace, now.name) == ("shop", "a")
    assert (now.uid, now.version, now.generation, now.deleting) == ("u", 6, 3, False)
    assert json.loads(now.status()) == {"beat": 6}
    assert now.created
    assert now.created.isoformat() == "2026-11-20T00:00:00+00:00"


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"containers": [1]}},
        {"labels": {"a": "b"}},
        {"annotations": {"a": "b"}},
        {"ownerReferences": []},
        {"finalizers": ["x"]},
        {"deletionTimestamp": "2026-11-22T12:00:00Z"},
    ],
)
def test_any_desired_state_that_differs_is_told_and_so_is_the_way_back(change: dict[str, Any]) -> None:
    words = read(KindDesired(PODS), pod(5), pod(6, **change), pod(7, **change), pod(8), pod(9))
    assert names(words) == ["Saw", "Saw", "Moved", "Saw", "Moved"]


def test_what_stands_beside_spec_and_status_is_told() -> None:
    odd = an_object(PODS, 6) | {"more": 1}
    assert names(read(KindDesired(PODS), pod(5), line("MODIFIED", odd))) == ["Saw", "Saw"]


def test_a_nodes_version_is_desired_state() -> None:
    versions = ["v1", "v1", "v2", "v2"]
    info = [{"nodeInfo": {"kubeletVersion": one}, "beat": n} for n, one in enumerate(versions)]
    lines = [line("MODIFIED", an_object(NODES, n + 1, status=one)) for n, one in enumerate(info)]
    assert names(read(KindDesired(NODES), *lines)) == ["Saw", "Moved", "Saw", "Moved"]


def test_custom_resources_and_what_names_nothing_are_told_whole() -> None:
    widgets = [line("MODIFIED", an_object(WIDGETS, n)) for n in (5, 6)]
    assert names(read(KindDesired(WIDGETS), *widgets)) == ["Saw", "Saw"]
    nobody = [pod(n, uid="") for n in (5, 6)]
    assert names(read(KindDesired(PODS), *nobody)) == ["Saw", "Saw"]
    others = [line("MODIFIED", an_object(NODES, n)) for n in (5, 6)]
    assert names(read(KindDesired(PODS), *others)) == ["Saw", "Saw"], "not of the kind that is watched"


def test_what_is_gone_or_is_to_be_told_again_is_told_whole() -> None:
    desired = Desired()
    kept = desired.of(PODS)
    assert names(read(kept, pod(5, "ADDED"), pod(6, "DELETED"), pod(7))) == ["Saw", "Saw", "Saw"]
    desired.forget({"another"})
    assert names(read(kept, pod(8))) == ["Moved"]
    desired.forget({"u"})
    assert names(read(kept, pod(9), pod(10))) == ["Saw", "Moved"]
    desired.forget()
    assert names(read(kept, pod(11))) == ["Saw"]
    assert names(read(desired.of(PODS), pod(12))) == ["Saw"], "a watch that begins remembers nothing"


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "LIMIT", 2)
    kept = KindDesired(PODS)
    read(kept, *(pod(5, uid=uid) for uid in "abc"))
    assert names(read(kept, pod(6, uid="a"), pod(6, uid="c"), pod(7, uid="a"))) == ["Saw", "Moved", "Moved"]


WELL = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
UNREADY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}


def test_a_pod_that_stays_well_is_told_of_no_more_until_it_is_not() -> None:
    kept = KindDesired(PODS)
    words = read(kept, *(pod(5 + n, status={**WELL, "podIP": str(n)}) for n in range(4)))
    assert names(words) == ["Saw", "Moved", "Reached", "Reached"]
    assert [reached(word) for word in words] == ["5", "6", "7", "8"], "how far the watch is goes on"
    words = read(kept, pod(9, status=UNREADY), pod(10, status=UNREADY), *(pod(n, status=WELL) for n in (11, 12)))
    assert names(words) == ["Moved", "Moved", "Moved", "Reached"]
    words = read(kept, pod(13, status=WELL, labels={"a": "b"}), *(pod(n, status=WELL) for n in (14, 15, 16)))
    assert names(words) == ["Saw", "Saw", "Moved", "Reached"]


def test_who_is_to_be_told_again_is_told_of_what_rests() -> None:
    kept = KindDesired(PODS)
    read(kept, *(pod(n, status=WELL) for n in (5, 6, 7)))
    kept.forget({"u"})
    assert names(read(kept, *(pod(n, status=WELL) for n in (8, 9, 10)))) == ["Saw", "Moved", "Reached"]


def test_what_is_told_late_counts_as_told() -> None:
    kept = KindDesired(PODS)
    read(kept, *(pod(n, status=WELL) for n in (5, 6, 7)))
    kept.resumed()
    assert names(read(kept, pod(8, status=WELL), pod(9, status=UNREADY))) == ["Saw", "Saw"]
    kept.reached()
    assert names(read(kept, pod(10, status=WELL), pod(11, status=WELL))) == ["Moved", "Reached"]


def test_after_an_object_that_has_more_than_most_all_of_it_is_told() -> None:
    kept = KindDesired(PODS)
    odd = line("MODIFIED", an_object(PODS, 7) | {"more": 1})
    assert names(read(kept, pod(5), pod(6), odd, pod(8), pod(9))) == ["Saw", "Moved", "Saw", "Saw", "Moved"]
    unnamed = pod(10, name="")
    assert names(read(kept, unnamed, pod(11))) == ["Saw", "Saw"]


def test_an_objects_status_that_nobody_reads_is_told_once() -> None:
    claims = Served("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
    lines = [line("MODIFIED", an_object(claims, n)) for n in (5, 6, 7)]
    assert names(read(KindDesired(claims), *lines)) == ["Saw", "Moved", "Reached"]


def test_every_status_of_a_custom_resource_is_told() -> None:
    """Its conditions turn bad while nobody writes it."""
    releases = Served("helm.toolkit.fluxcd.io", "v2", "HelmRelease", "helmreleases")
    lines = [line("MODIFIED", an_object(releases, n)) for n in (5, 6, 7)]
    assert names(read(KindDesired(releases), *lines)) == ["Saw", "Moved", "Moved"]


async def test_after_a_break_objects_are_told_whole_until_nothing_is_late() -> None:
    """Only their managedFields say when it happened that is told late."""
    script = [
        Answer([pod(5), bookmark(5, all_told=True), pod(6)]),
        Answer([pod(7) + pod(8) + bookmark(9) + pod(10)]),
        Answer([error(410)]),
        Answer([pod(11), bookmark(12, all_told=True), pod(13), SILENCE]),
    ]
    found: list[str] = []
    async with serving(*script) as server:
        watch = follow(server.api, PODS, since="", lists=asyncio.Semaphore(1), pace=Waits().pace())
        async with aclosing(watch) as words, asyncio.timeout(20):
            async for word in words:
                if isinstance(word, Saw | Moved):
                    found.append(f"{type(word).__name__} {word.resource_version}")
                elif isinstance(word, Lost):
                    found.append("Lost")
                if found[-1:] == ["Moved 13"]:
                    break
    before = ["Saw 5", "Moved 6", "Saw 7", "Saw 8", "Moved 10"]
    assert found == [*before, "Lost", "Saw 11", "Moved 13"]


def test_what_is_told_at_once_is_one_record_and_keeps_its_order() -> None:
    pods, nodes = KindDesired(PODS), KindDesired(NODES)
    read(pods, *(pod(1, uid=uid) for uid in "abc"))
    read(nodes, line("MODIFIED", an_object(NODES, 1)))
    several = read(pods, pod(2, uid="a"), pod(3, uid="b"), pod(4, uid="new"), pod(5, uid="c"), pod(6, uid="a"))
    other = read(nodes, line("MODIFIED", an_object(NODES, 7)))
    held = [told.Watched(PODS, one, 1) for one in several] + [told.Watched(NODES, one, 1) for one in other]
    records = [told.decode(told.encode(one)) for one in told.joined(held)]
    found = [
        (one.served, [now.version for now in one.word.objects] if isinstance(one.word, Moved) else reached(one.word))
        for one in records
        if isinstance(one, told.Watched)
    ]
    assert found == [(PODS, [2, 3]), (PODS, "4"), (PODS, [5, 6]), (NODES, [7])]
    assert [reached(one.word) for one in records if isinstance(one, told.Watched)] == ["3", "4", "6", "7"]
    later = told.Watched(PODS, msgspec.structs.replace(several[0], at=NOON + timedelta(seconds=1)), 1)
    assert len(told.joined([held[0], held[1], later])) == 2, "each keeps its time"
    assert len(told.joined([held[0], msgspec.structs.replace(held[1], epoch=2)])) == 2


def test_of_what_is_only_reached_at_once_the_last_is_told() -> None:
    kept = KindDesired(PODS)
    lines = [
        *(pod(n, status=WELL) for n in (5, 6, 7, 8)), pod(9, status=UNREADY), *(pod(n, status=WELL) for n in (10, 11)),
        bookmark(12),
    ]  # fmt: skip
    words = read_events([one.rstrip() for one in lines], NOON, first=False, desired=kept)
    assert [(type(one).__name__, reached(one)) for one in words] == [
        ("Saw", "5"), ("Moved", "6"), ("Reached", "8"), ("Moved", "9"), ("Moved", "10"), ("Reached", "12"),
    ]  # fmt: skip
