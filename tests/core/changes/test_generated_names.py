"""Objects of which the request says how the name begins alone, as ``kubectl create`` with a ``generateName`` does."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from app.core.changes.sightings import Sighting
from app.core.model import Change, Verb
from tests.core.learning import ALICE, an_object, changes, learn, seen, told

BOB = structs.replace(ALICE, name="bob")
ASKED = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "build-"}, "data": {"x": "1"}}


def made(name: str, seconds: float, **more: Any) -> Sighting:
    """A watch tells of an object that was made."""
    obj = an_object("ConfigMap", name, version=6, data={"x": "1"}, meta={"uid": f"uid-{name}", **more})
    return seen(obj, seconds, verb=Verb.CREATE)


def asked(seconds: float, begin: str = "build-", **more: Any) -> Sighting:
    """The audit log tells of the request, as at the level Request, or Metadata (no ``patch``, nothing of the name)."""
    return told("ConfigMap", f"{begin}*", seconds, verb=Verb.CREATE, audit_id=f"audit-{seconds}", **more)


def of(*sightings: Sighting) -> list[tuple[str, str, list[str]]]:
    def brief(change: Change) -> tuple[str, str, list[str]]:
        return change.resource.name, change.actor.name, sorted(change.sources)

    return [brief(change) for change in changes(learn(*sightings))]


@pytest.mark.parametrize("watched_first", [True, False])
@pytest.mark.parametrize("request_of", [asked(0, patch=ASKED), asked(0, "")], ids=["Request", "Metadata"])
def test_what_a_watch_told_and_what_was_asked_for_is_one_change(request_of: Sighting, *, watched_first: bool) -> None:
    told_in = [made("build-x7k2p", 0.1), request_of]
    [change] = changes(learn(*(told_in if watched_first else reversed(told_in))))
    assert (change.actor.name, sorted(change.sources)) == (ALICE.name, ["audit", "watch"])
    assert (change.summary, change.uid) == ("ConfigMap build-x7k2p created: x", "uid-build-x7k2p")


@pytest.mark.parametrize("watched_first", [True, False])
def test_of_several_each_has_who_asked_for_it_in_their_order(*, watched_first: bool) -> None:
    both = [made("build-x7k2p", 0.1), made("build-a2c4e", 0.3)]
    requests = [asked(0, patch=ASKED), asked(0.2, patch=ASKED, actor=BOB)]
    expected = [("build-x7k2p", ALICE.name, ["audit", "watch"]), ("build-a2c4e", "bob", ["audit", "watch"])]
    assert of(*both, *requests) == expected if watched_first else of(*requests, *both) == expected


def test_what_is_told_of_it_once_more_finds_it_by_its_name() -> None:
    again = made("build-x7k2p", 0.1)
    edited = seen(an_object("ConfigMap", "build-x7k2p", version=7, data={"x": "2"}, meta={"uid": "uid-build-x7k2p"}), 1)
    assert [name for name, _, _ in of(asked(0, patch=ASKED), again, again, edited)] == ["build-x7k2p"] * 2


@pytest.mark.parametrize(
    "other",
    [made("deploy-x7k2p", 0.1), made("build-x7k2p", 2.5)],
    ids=["another name", "later"],
)
def test_another_object_stays_one_of_its_own(other: Sighting) -> None:
    assert [(name, sources) for name, _, sources in of(other, asked(0, patch=ASKED))] == [
        (other.resource.name, ["watch"]),
        ("build-*", ["audit"]),
    ]


def test_one_of_another_namespace_is_not_meant() -> None:
    other = made("build-x7k2p", 0.1)
    elsewhere = structs.replace(other, resource=structs.replace(other.resource, namespace="other"))
    assert len(of(elsewhere, asked(0, patch=ASKED))) == 2


def test_what_somebody_asked_for_by_its_name_is_nobody_elses() -> None:
    by_name = told("ConfigMap", "build-x7k2p", 0, verb=Verb.CREATE, patch=ASKED, actor=BOB)
    assert of(made("build-x7k2p", 0.1), by_name, asked(0.2, patch=ASKED)) == [
        ("build-x7k2p", "bob", ["audit", "watch"]),
        ("build-*", ALICE.name, ["audit"]),
    ]
