"""Whom an app calls is told where developers tell it, and stays there."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import httpx2
import pytest

from tests.cluster.control_plane import ControlPlane
from tests.lab import objects
from tests.lab.addresses import Told, protocol, told
from tests.lab.api import MERGE, Answer, Caller, Json
from tests.lab.apps import App
from tests.lab.lab import Lab, Variation

HERE, THERE = ("shop", "cart"), ("payments", "ledger")


def drawn(seed: int, app: App, *, env: tuple[Json, ...] = (), has_config: bool = False) -> Told:
    """What frontend of shop is told."""
    return told(app, "shop", "frontend", env=env, has_config=has_config, chance=random.Random(seed))


def values(found: Told) -> list[str]:
    return [*(str(one["value"]) for one in found.env), *found.config.values()]


def place(found: Told) -> str:
    return "env" if found.env else "config" if found.config else "nowhere"


def test_most_are_told_in_the_environment_some_in_a_file_some_nowhere() -> None:
    app = App("", upstreams=(HERE,))
    shares = Counter(place(drawn(seed, app, has_config=True)) for seed in range(600))
    assert 370 < shares["env"] < 430
    assert 70 < shares["config"] < 130
    assert 70 < shares["nowhere"] < 130
    without = Counter(place(drawn(seed, app)) for seed in range(600))
    assert without["config"] == 0
    assert 80 < without["nowhere"] < 160


def test_the_short_name_is_for_the_own_namespace_only() -> None:
    near = {value for seed in range(99) for value in values(drawn(seed, App("", upstreams=(HERE,)), has_config=True))}
    assert {"http://cart", "http://cart.shop.svc.cluster.local", "cart", "cart:80"} <= near
    far = [value for seed in range(99) for value in values(drawn(seed, App("", upstreams=(THERE,)), has_config=True))]
    named = [value for value in far if value != "80"]
    assert named
    assert all("ledger.payments" in value for value in named)


@pytest.mark.parametrize(
    ("upstream", "address"),
    [
        ("cart", r"http://cart(:80)?"),
        ("cart-db", r"postgres://frontend@cart-db:5432/frontend"),
        ("cart-mysql-master", r"mysql://frontend@cart-mysql-master:3306/frontend"),
        ("redis-web", r"redis://redis-web:6379/0"),
    ],
)
def test_an_address_has_the_port_of_the_service_and_no_password(upstream: str, address: str) -> None:
    app = App("", upstreams=(("shop", upstream),))
    found = {value for seed in range(99) for value in values(drawn(seed, app))}
    urls = {value for value in found if "://" in value and "." not in value}
    assert urls
    assert all(re.fullmatch(address, value) for value in urls)
    [port] = objects.service("shop", upstream)["spec"]["ports"]
    assert {value for value in found if value.isdigit()} == {str(port["port"])}
    assert port["targetPort"] == 8080


def test_what_looks_after_databases_is_none() -> None:
    assert protocol("mysql-operator").port == 80


def test_names_outside_are_told_as_they_are() -> None:
    app = App("", abroad=("api.cdn.example", "smtp.mail.example"))
    found = [one for seed in range(99) for one in drawn(seed, app).env]
    names = {one["name"] for one in found}
    assert {"CDN_URL", "CDN_HOST", "SMTP_HOST", "SMTP_URL"} <= names
    assert all(re.search(r"api\.cdn\.example|smtp\.mail\.example|^443$|^587$", one["value"]) for one in found)


def test_what_its_environment_names_is_not_told_again() -> None:
    given: tuple[Json, ...] = ({"name": "DATABASE_HOST", "value": "cart-db.shop"},)
    for seed in range(30):
        found = drawn(seed, App("", upstreams=(("shop", "cart-db"),)), env=given, has_config=True)
        assert found == Told(list(given))
    others = [drawn(seed, App("", upstreams=(("shop", "cart"),)), env=given) for seed in range(30)]
    assert all(one.env[0] == given[0] for one in others)
    assert any(len(one.env) > 1 for one in others)


def test_two_databases_have_no_variable_in_common() -> None:
    app = App("", upstreams=(("shop", "cart-db"), ("shop", "stock-db")))
    for seed in range(99):
        names = [one["name"] for one in drawn(seed, app).env]
        assert len(names) == len(set(names))


class Heard(Caller):
    """Keeps what it is told."""

    async def call(self, method: str, where: str, body: Any = None, *, patch: str = MERGE) -> Answer:
        asked.append((method, where, body))
        return Answer(200, {})


asked: list[tuple[str, str, Any]] = []


async def founded(called: str) -> tuple[Lab, list[tuple[str, str, Any]]]:
    """A laboratory that calls nobody, of that recording, and what it would have written of frontend."""
    asked.clear()
    plane = cast("ControlPlane", SimpleNamespace(token=lambda user: ""))
    async with httpx2.AsyncClient() as client:
        lab = Lab(plane, client, Variation(), called=called)
    lab.who = {one: Heard(client, one, "", "test") for one in ("admin", "ci")}
    await lab.app("shop", "frontend", like=App("", upstreams=(HERE, THERE)), config="frontend")
    return lab, list(asked)


def test_a_company_tells_its_apps_otherwise_in_each_recording() -> None:
    async def play() -> tuple[list[str], str]:
        return [str((await founded(f"quota {seed}"))[1]) for seed in range(12)], str((await founded("quota 0"))[1])

    several, again = asyncio.run(play())
    assert len(set(several)) > 6
    assert again == several[0]
    told_in_file = [one for one in several if "configmaps/frontend" in one]
    assert told_in_file
    assert all(one.index("configmaps/frontend") < one.index("deployments") for one in told_in_file)


def test_a_rollout_keeps_what_the_app_is_told() -> None:
    async def play() -> tuple[list[Json], list[Json]]:
        for seed in range(12):
            lab, written = await founded(f"quota {seed}")
            made = next(body for _, where, body in written if where.endswith("/deployments"))
            if before := made["spec"]["template"]["spec"]["containers"][0].get("env"):
                break
        lab.world._objects["Deployment"] = {("shop", "frontend"): made}
        await lab.roll("ci", "shop", "frontend", "1.0.1", env=[{"name": "POOL_SIZE", "value": "40"}])
        [container] = asked[-1][2]["spec"]["template"]["spec"]["containers"]
        return before, container["env"]

    before, after = asyncio.run(play())
    assert after == [*before, {"name": "POOL_SIZE", "value": "40"}]
