"""What takes no more memory than before is not why a program is killed for its memory."""

from __future__ import annotations

import pytest

from app.core.edges.amounts import holds_no_more, only_room, only_words
from app.core.edges.said import NOT_BORNE
from app.core.model import Json, Path
from tests.core.company import ranked
from tests.core.factories import a_change, a_resource, a_state, a_symptom, a_workload, after, an_alert, an_incident

SETTINGS = a_resource("ConfigMap", "plan", "shop")
PLAN = a_resource("Deployment", "plan", "shop")


@pytest.mark.parametrize(
    ("key", "old", "new", "no_more"),
    [
        ("BATCH", "500", "400", True),
        ("BATCH", "400", "500", False),
        ("BATCH", "500", "4k", False),
        ("WORKER_THREADS", "16", "8", True),
        ("cache.size", "512Mi", "256Mi", True),
        ("cache.ttl", "600", "60", False),
        ("POLL_INTERVAL", "60", "5", False),
        ("MAX_HEAP", "512", "256", False),
        ("PRICE", "500", "400", False),
        ("MAIL_FOOTER", "Your plan", "Your plan, with the regards of the town", True),
        ("headline", "New!", "New in spring!", True),
        ("MAIL_FOOTER", "Your plan", "https://plan.example", False),
        ("MODE", "stream", "whole", False),
        ("settings", "batch of all", "batch: all", False),
        ("BATCH", None, "400", False),
    ],
)
def test_fewer_at_once_and_words_for_people_take_no_more(key: str, old: Json, new: Json, *, no_more: bool) -> None:
    assert holds_no_more(a_change(SETTINGS, path=("data", key), old=old, new=new)) is no_more


@pytest.mark.parametrize(
    ("key", "old", "new", "words"),
    [
        ("banner", "On sale soon", "On sale now", True),
        ("BATCH", "500", "400", False),
        ("MODE", "stream", "whole", False),
        ("banner", None, "On sale now", False),
    ],
)
def test_words_for_people_are_told_from_settings(key: str, old: Json, new: Json, *, words: bool) -> None:
    change = a_change(SETTINGS, path=("data", key), old=old, new=new)
    assert only_words(change) is words
    assert not only_words(a_change(PLAN, path=("data", key), old=old, new=new))


def test_a_banner_is_hardly_why_a_program_is_late() -> None:
    def weight(new: str) -> float:
        banner = a_change(SETTINGS, at=after(-6), path=("data", "banner"), old="On sale soon", new=new)
        late = a_symptom(PLAN, "Unhealthy", at=after(0), message="context deadline exceeded", count=4)
        reads = a_workload(PLAN, containers=[{"name": "plan", "envFrom": [{"configMapRef": {"name": "plan"}}]}])
        incident = an_incident(an_alert(after(5), namespace="shop", deployment="plan"))
        suspects = ranked(banner, incident=incident, symptoms=[late], states=[reads]).suspects
        (found,) = (suspect for suspect in suspects if suspect.change.id == banner.id)
        return sum(one.weight for one in found.evidence if one.rule in ("kind of change", "novelty"))

    assert weight("On sale now") < weight("banner: {now}") - 1.5


def believed(old: str, new: str) -> float:
    """How likely an edit of how much a program holds at once is why it is killed for its memory six seconds later."""
    batch = a_change(SETTINGS, at=after(-6), path=("data", "BATCH"), old=old, new=new)
    killed = a_symptom(PLAN, "OOMKilled", at=after(0), message="plan ended with exit code 137", count=4)
    reads = a_workload(PLAN, containers=[{"name": "plan", "envFrom": [{"configMapRef": {"name": "plan"}}]}])
    incident = an_incident(an_alert(after(5), namespace="shop", deployment="plan"))
    suspects = ranked(batch, incident=incident, symptoms=[killed], states=[reads]).suspects
    return next(suspect.probability for suspect in suspects if suspect.change.id == batch.id)


def test_a_smaller_batch_kills_nobody_for_its_memory() -> None:
    assert believed("5000", "400") < 0.7
    assert believed("400", "5000") > 0.9


@pytest.mark.parametrize(
    "message",
    [
        "TypeError: Cannot read properties of undefined (reading 'rooms')",
        "Uncaught TypeError: Cannot read property 'length' of null",
        "TypeError: client.publish is not a function",
        'java.lang.NullPointerException: Cannot invoke "String.trim()" because "<local4>" is null',
        "java.lang.ArrayIndexOutOfBoundsException: Index 3 out of bounds for length 3",
        "System.NullReferenceException: Object reference not set to an instance of an object.",
        "panic: runtime error: invalid memory address or nil pointer dereference",
        "panic: runtime error: index out of range [5] with length 3",
        "panic: assignment to entry in nil map",
        "AttributeError: 'NoneType' object has no attribute 'split'",
        "KeyError: 'amount'",
        "IndexError: list index out of range",
        "NoMethodError (undefined method `name' for nil:NilClass)",
        "PHP Fatal error:  Uncaught Error: Call to a member function format() on null",
        'PHP Warning:  Undefined array key "total" in /app/src/Cart.php on line 31',
        "thread 'main' panicked at src/main.rs:4:37: called `Option::unwrap()` on a `None` value",
    ],
)
def test_a_program_that_breaks_says_so(message: str) -> None:
    assert NOT_BORNE.search(message)


@pytest.mark.parametrize(
    ("path", "is_room"),
    [
        (("spec", "replicas"), True),
        (("spec", "template", "spec", "containers", (("name", "a"),), "resources", "limits", "memory"), True),
        (("spec", "template", "spec", "containers", (("name", "a"),), "readinessProbe", "periodSeconds"), True),
        (("spec", "template", "spec", "containers", (("name", "a"),), "image"), False),
        (("spec", "template", "spec", "containers", (("name", "a"),), "env"), False),
    ],
)
def test_room_is_not_what_a_program_does(path: Path, is_room: bool) -> None:
    workload = a_resource("Deployment", "web", "shop")
    assert only_room(a_change(workload, path=path, old=1, new=2)) is is_room


def test_a_program_that_breaks_does_not_lead_to_its_room() -> None:
    """Its server was released after it had been given more memory, and answers something else since."""
    web, rooms = a_resource("Deployment", "web", "shop"), a_resource("Deployment", "rooms", "shop")
    env: Json = [{"name": "ROOMS_URL", "value": "http://rooms.shop:8080"}]
    service = a_state(a_resource("Service", "rooms", "shop"), {"spec": {"selector": {"app": "rooms"}}})
    limits = ("spec", "template", "spec", "containers", (("name", "a"),), "resources", "limits", "memory")
    ranking = ranked(
        a_change(web, at=after(-60), path=limits, old="256Mi", new="512Mi"),
        a_change(rooms, at=after(-30), old="rooms:1", new="rooms:2"),
        incident=an_incident(an_alert(after(60), name="ErrorRate", namespace="shop", deployment="web")),
        symptoms=[
            a_symptom(web, "Error", at=after(0), message="TypeError: Cannot read properties of undefined", count=9)
        ],
        states=[
            service,
            a_workload(web, containers=[{"name": "a", "env": env}]),
            a_workload(rooms, labels={"app": "rooms"}, containers=[{"name": "a"}]),
        ],
    )
    assert ranking.suspects[0].change.resource == rooms
