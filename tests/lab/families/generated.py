"""What was told of configurations that nobody writes by hand: what makes them makes a wrong one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from zlib import crc32

from tests.lab import objects
from tests.lab.api import now, path
from tests.lab.apps import App, Container
from tests.lab.lab import Lab
from tests.lab.manifests import uid_of
from tests.lab.programs import every, getting
from tests.lab.scenario import family

GENERATE_EVERY, SPREAD_SECONDS = 19.0, 15
"""How often a configuration is generated, and how long it takes until the last process has it."""


@family(
    "What generates the configuration of all services makes a wrong one, by a fault of its own: it reaches one process"
    " after another, and each that has it answers most requests for data with an error; the next one is right again.",
    joined=17,
)
async def generated_config(lab: Lab) -> AsyncIterator[None]:
    """As Google tells of 24 January 2014 (icco/postmortems 101 has it); nobody had told the generator anything."""
    generator, name = "config-generator", lab.rng.choice(("data-routing", "backends", "shard-map"))
    right = ",".join(f"shard-{letter}" for letter in "abcd"[: lab.rng.choice((3, 4))])
    number, strikes = lab.rng.randrange(1000, 9000), [False]
    made: list[tuple[datetime, bool]] = [(now(), True)]  # when, and whether it was right

    def failing(container: Container) -> float:
        """What it has now was made some time ago, as it comes by way of others."""
        way = timedelta(seconds=crc32(uid_of(container.pod).encode()) % SPREAD_SECONDS)
        has = next((is_right for at, is_right in reversed(made) if at + way <= now()), True)
        return 0.0 if has else 0.8

    async def generate() -> None:
        for generation in range(number, number + 1000):
            await asyncio.sleep(GENERATE_EVERY * lab.rng.uniform(0.95, 1.05))
            is_right = not strikes[0] or bool(lab.culprits)
            body = {"data": {"generation": str(generation), "users": right if is_right else ""}}
            if is_right:
                await lab.edit("generator", "ConfigMap", "platform", name, body)
            else:
                await lab.culprit("generator", "update", "ConfigMap", "platform", name, body)
            made.append((now(), is_right))

    await lab.apply(objects.config_map("platform", name, generation=str(number - 1), users=right))
    rule = ("", "services,configmaps", "get,list,patch")
    await lab.controller("platform", generator, every(5, getting(path("Service"))), rule, replicas=1)
    for place in (("shop", "mail"), ("media", "documents"), ("search", "calendar")):
        await lab.app(*place, like=App("", failing=failing), replicas=3)
        lab.alert_errors(*place)
    await lab.robot("generator", "platform", generator, f"{generator}/2.11.0")
    lab.start(generate())
    yield
    strikes[0] = True
    await lab.until(lambda: lab.culprits)
