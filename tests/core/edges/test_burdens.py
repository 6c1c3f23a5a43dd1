"""Clients that ask more of what they call."""

from __future__ import annotations

import pytest

from app.core.edges.burdens import burdens
from app.core.edges.indexing import topology
from app.core.edges.reach import reach
from app.core.edges.served import FAILS
from app.core.model import Change, Json, ObjectState, Path, Verb
from tests.core.company import first, ranked
from tests.core.factories import a_change, a_resource, a_state, a_symptom, a_workload, after, an_alert, an_incident

ENV: Path = ("spec", "template", "spec", "containers", (("name", "a"),), "env")


@pytest.mark.parametrize(
    ("kind", "path", "old", "new", "more"),
    [
        ("CronJob", ("spec", "schedule"), "0 3 * * *", "* * * * *", True),
        ("CronJob", ("spec", "suspend"), True, False, True),
        ("CronJob", ("spec", "suspend"), False, True, False),
        ("Deployment", (*ENV, (("name", "RETRY_MAX"),), "value"), "2", "25", True),
        ("Deployment", (*ENV, (("name", "GREETING"),), "value"), "hello", "welcome", False),
        ("Deployment", ("spec", "template", "spec", "containers", "image"), "a:1", "a:2", False),
        ("ConfigMap", ("data", "poll_interval"), "60s", "1s", True),
        ("ConfigMap", ("data", "default.vcl"), "set ttl = 60s;\nset x;", "set ttl = 0s;\nset x;", True),
        ("ConfigMap", ("data", "default.vcl"), "set ttl = 60s;\nset x;", "set ttl = 60s;\nset y;", False),
        (
            "ConfigMap",
            ("data", "flags.json"),
            '{"localCache":true,"banner":1}',
            '{"localCache":false,"banner":1}',
            True,
        ),
        (
            "ConfigMap",
            ("data", "flags.json"),
            '{"localCache":true,"banner":1}',
            '{"localCache":true,"banner":2}',
            False,
        ),
        ("Deployment", ("metadata", "labels", "cache"), "a", "b", False),
    ],
)
def test_settings_that_say_how_much_and_how_often(kind: str, path: Path, old: Json, new: Json, more: bool) -> None:
    assert burdens(a_change(a_resource(kind, "a", "growth"), path=path, old=old, new=new)) is more


def told(name: str, namespace: str, url: str) -> list[ObjectState]:
    env: Json = [{"name": "URL", "value": url}]
    containers: Json = [{"name": name, "env": env}]
    return [
        a_workload(a_resource("Deployment", name, namespace), labels={"app": name}, containers=containers),
        a_state(a_resource("Service", name, namespace), {"spec": {"selector": {"app": name}}}),
    ]


def test_what_a_client_calls_is_burdened_and_what_that_calls_and_others_share_it() -> None:
    states = [
        *told("export", "growth", "http://api.core.svc"),
        *told("api", "core", "mysql://db.core.svc:3306"),
        *told("db", "core", "-"),
        *told("profile", "members", "mysql://db.core.svc:3306"),
    ]
    change = a_change(
        a_resource("Deployment", "export", "growth"), path=(*ENV, (("name", "BATCH_SIZE"),), "value"), old="1", new="50"
    )
    found = reach(change, topology(states))
    assert found["burdens", "core", "api"] < found["burdens", "core", "db"]
    assert ("shares", "members", "profile") in found
    assert ("burdens", "growth", "export") not in found
    made = a_change(a_resource("Deployment", "export", "growth"), verb=Verb.CREATE)
    assert not any(entity[0] == "burdens" for entity in reach(made, topology(states)))


@pytest.mark.parametrize(
    ("old", "new", "burdened"),
    [
        ("http://api.staging.svc", "http://api.core.svc", {"api"}),
        ("http://api.core.svc", "http://api.core.svc:8080/v2", set()),
        ("http://api.core.svc", "http://api.staging.svc", set()),
    ],
)
def test_what_is_called_by_a_new_address_is_asked_for_more(old: str, new: str, burdened: set[str]) -> None:
    states = [*told("runner", "load-tests", new), *told("api", "core", "-")]
    home = a_resource("Deployment", "runner", "load-tests")
    change = a_change(home, path=(*ENV, (("name", "TARGET"),), "value"), old=old, new=new)
    assert burdened_by(change, states) == burdened


def test_a_cache_that_changes_burdens_what_else_its_clients_call() -> None:
    states = [
        *told("listing-web", "listings", "redis://redis-listings:6379 postgres://listings-pg:5432"),
        *told("redis-listings", "listings", "-"),
        *told("listings-pg", "listings", "-"),
    ]
    cache = a_resource("Deployment", "redis-listings", "listings")
    smaller = a_change(cache, path=(*ENV, (("name", "MAXMEMORY"),), "value"), old="12gb", new="512mb")
    found = reach(smaller, topology(states))
    assert ("burdens", "listings", "listings-pg") in found
    assert ("burdens", "listings", "redis-listings") not in found
    noted = a_change(cache, path=("metadata", "annotations", "corp.example/note"))
    assert not any(entity[0] == "burdens" for entity in reach(noted, topology(states)))


def test_a_job_burdens_what_it_is_named_after_where_nobody_knows_what_it_calls() -> None:
    names = ("search", "search-index", "searches")
    states = [a_workload(a_resource("Deployment", name, "shop")) for name in names]
    job = a_resource("Job", "search-index-rebuild-7", "shop")
    made = a_change(job, path=(), old=None, new={}, verb=Verb.CREATE)
    assert burdened_by(made, states) == {"search-index"}
    knows = [*told("searches", "shop", ""), *told("search-index-rebuild-7", "shop", "http://searches.shop.svc")]
    assert burdened_by(made, [*states, *knows]) == {"searches"}


def burdened_by(made: Change, states: list[ObjectState]) -> set[str]:
    return {entity[2] for entity in reach(made, topology(states)) if entity[0] == "burdens"}


POST = "https://api.post.example/v3"


@pytest.mark.parametrize(
    ("kind", "says", "others", "shares"),
    [
        ("Job", POST, POST, True),
        ("CronJob", POST, POST, True),
        ("Deployment", POST, POST, False),
        ("Job", POST, "https://api.post.example/v2", False),
        ("Job", POST, "https://maps.example/v3", False),
        ("Job", "http://stock:80", "http://stock:80", False),
        ("Job", "https://10.0.3.8/v3", "https://10.0.3.8/v3", False),
        ("Job", "orders", "orders", False),
    ],
)
def test_a_job_shares_a_server_outside_with_who_is_told_the_same_address(
    kind: str, says: str, others: str, shares: bool
) -> None:
    job, mailer = a_resource(kind, "newsletter", "growth"), a_resource("Deployment", "mailer", "shop")
    one, other = (
        a_workload(home, containers=[{"name": "a", "env": [{"name": "URL", "value": url}]}])
        for home, url in ((job, says), (mailer, others))
    )
    made = a_change(job, path=(), old=None, new={}, verb=Verb.CREATE)
    found = reach(made, topology([one, other]))
    assert (("shares", "shop", "mailer") in found) is shares
    assert ("shares", "growth", "newsletter") not in found


@pytest.mark.parametrize(
    ("path", "new", "is_beside"),
    [
        ((*ENV[:-1], "image"), "carts:2", True),
        ((*ENV, (("name", "GREETING"),), "value"), "welcome", False),
        (("spec", "replicas"), 9, False),
    ],
)
def test_a_new_version_is_beside_who_calls_the_same_server(path: Path, new: Json, is_beside: bool) -> None:
    states = [
        *told("carts", "shop", "redis://store.shop.svc:6379"),
        *told("orders", "sales", "redis://store.shop.svc:6379"),
        *told("store", "shop", "-"),
        *told("stock", "shop", "redis://other.shop.svc:6379"),
    ]
    found = reach(a_change(a_resource("Deployment", "carts", "shop"), path=path, new=new), topology(states))
    beside = {entity[1:] for entity in found if entity[0] == "beside"}
    assert beside == ({("sales", "orders")} if is_beside else set())


@pytest.mark.parametrize(
    ("job", "says", "migrated"),
    [
        ("orders-migrate-88", "", {"orders", "history"}),
        ("flyway-42", "postgres://orders-db.shop.svc:5432", {"orders", "history"}),
        ("orders-export-88", "", set()),
        ("migrate-42", "", set()),
    ],
)
def test_a_migration_may_change_what_others_read(job: str, says: str, migrated: set[str]) -> None:
    states = [
        *told("orders", "shop", "postgres://orders-db.shop.svc:5432"),
        *told("history", "shop", "postgres://orders-db.shop.svc:5432"),
        *told("orders-db", "shop", "-"),
        *told("stock", "shop", "postgres://stock-db.shop.svc:5432"),
        *(told(job, "shop", says) if says else []),
    ]
    made = a_change(a_resource("Job", job, "shop"), path=(), old=None, new={}, verb=Verb.CREATE)
    found = reach(made, topology(states))
    assert {entity[2] for entity in found if entity[0] == "migrated"} == migrated


def test_a_migration_is_suspected_where_who_reads_its_tables_answers_with_errors() -> None:
    states = [
        *told("orders", "shop", "postgres://orders-db.shop.svc:5432"),
        *told("history", "shop", "postgres://orders-db.shop.svc:5432"),
        *told("orders-db", "shop", "-"),
    ]
    job = a_resource("Job", "orders-migrate-88", "shop")
    ranking = ranked(
        a_change(job, at=after(-5), path=(), old=None, new={}, verb=Verb.CREATE),
        incident=an_incident(an_alert(after(30), name="HighErrorRate", namespace="shop", service="history")),
        symptoms=[a_symptom(a_resource("Deployment", "history", "shop"), FAILS, at=after(0), message="answers 500")],
        states=states,
    )
    assert first(ranking) == ("Job", "orders-migrate-88")
    assert any("It may change tables that history reads, too" in one.sentence for one in ranking.suspects[0].evidence)


def by_way(change: Change, states: list[ObjectState]) -> set[tuple[str, str]]:
    found = reach(change, topology(states))
    return {(entity[0], entity[2]) for entity in found if entity[0] in ("occupies", "uncleared")}


@pytest.mark.parametrize(
    ("name", "path", "old", "new", "reached"),
    [
        ("curator", ("spec", "suspend"), False, True, {("uncleared", "search")}),
        ("curator", ("spec", "suspend"), True, False, set()),
        ("report", ("spec", "suspend"), False, True, set()),
        ("curator", ("spec", "schedule"), "0 3 * * *", "0 4 * * *", set()),
    ],
)
def test_what_takes_away_and_is_stopped_leaves_it_where_it_was(
    name: str, path: Path, old: Json, new: Json, reached: set[tuple[str, str]]
) -> None:
    states = [*told("search", "logs", "-"), *job(name, "http://search.logs.svc:9200")]
    assert by_way(a_change(a_resource("CronJob", name, "logs"), path=path, old=old, new=new), states) == reached


def job(name: str, url: str) -> list[ObjectState]:
    pod: Json = {"spec": {"containers": [{"name": name, "env": [{"name": "URL", "value": url}]}]}}
    return [a_state(a_resource("CronJob", name, "logs"), {"spec": {"jobTemplate": {"spec": {"template": pod}}}})]


@pytest.mark.parametrize(("field", "occupies"), [("image", True), ("command", False)])
def test_a_new_version_may_hold_more_connections_of_what_it_calls(field: str, *, occupies: bool) -> None:
    states = [*told("beds", "wards", "postgres://db.wards.svc:5432"), *told("db", "wards", "-")]
    place: Path = ("spec", "template", "spec", "containers", (("name", "beds"),), field)
    change = a_change(a_resource("Deployment", "beds", "wards"), path=place, old="beds:1", new="beds:2")
    assert (("occupies", "db") in by_way(change, states)) is occupies


@pytest.mark.parametrize(
    ("name", "value", "field", "is_beside"),
    [
        ("TOPIC", "contributions", "image", True),
        ("KAFKA_TOPICS", "contributions", "image", True),
        ("TITLE", "contributions", "image", False),
        ("TOPIC", "contributions", "command", False),
        ("STREAM_RESPONSES", "contributions", "image", False),
        ("STREAM", "true", "image", False),
        ("TOPIC", "30", "image", False),
        ("TOPIC", "", "image", False),
    ],
)
def test_a_new_version_is_beside_who_is_told_the_same_topic(
    name: str, value: str, field: str, *, is_beside: bool
) -> None:
    def teller(app: str) -> ObjectState:
        env: Json = [{"name": name, "value": value}]
        return a_workload(a_resource("Deployment", app, "wards"), containers=[{"name": app, "env": env}])

    place: Path = ("spec", "template", "spec", "containers", (("name", "ledger"),), field)
    change = a_change(a_resource("Deployment", "ledger", "wards"), path=place, old="a:1", new="a:2")
    found = reach(change, topology([teller("ledger"), teller("statements")]))
    assert (("beside", "wards", "statements") in found) is is_beside


@pytest.mark.parametrize(
    ("message", "explains"), [("FATAL:  sorry, too many clients already", True), ("checkpoint starting", False)]
)
def test_it_is_suspected_where_a_database_has_none_left(message: str, *, explains: bool) -> None:
    place: Path = ("spec", "template", "spec", "containers", (("name", "beds"),), "image")
    ranking = ranked(
        a_change(a_resource("Deployment", "beds", "wards"), at=after(-700), path=place, old="beds:1", new="beds:2"),
        incident=an_incident(an_alert(after(30), name="DatabaseFull", namespace="wards", statefulset="db")),
        symptoms=[a_symptom(a_resource("Deployment", "db", "wards"), "Error", at=after(0), message=message, count=60)],
        states=[*told("beds", "wards", "postgres://db.wards.svc:5432"), *told("db", "wards", "-")],
    )
    (beds,) = (one for one in ranking.suspects if one.change.resource.name == "beds")
    sentences = [one.sentence for one in beds.evidence]
    assert any("It is a new version of what calls db" in one for one in sentences) is explains
