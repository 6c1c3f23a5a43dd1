"""Everyday work of teams: a strategy, a migration, a timeout, a level of logging."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.apps import App, Container, Problem
from tests.lab.lab import Lab
from tests.lab.manifests import is_done
from tests.lab.scenario import family


@family(
    "A migration drops a column one release early: what runs still reads it and crashes.",
    joined=7,
)
async def migration_column(lab: Lab) -> AsyncIterator[None]:
    namespace, name, column = lab.rng.choice(
        (("payments", "invoices", "vat_id"), ("shop", "accounts", "nickname"), ("media", "albums", "cover_url"))
    )
    run, image = f"{name}-migrate-{lab.rng.randrange(100, 999)}", f"registry.corp.example/{namespace}/{name}-migrate"
    lab.apps[image] = App(image, ends_after=4)

    def check(container: Container) -> Problem | None:
        """Its database is as the migrations left it that are through."""
        through = any(
            is_done(pod) and pod["metadata"].get("labels", {}).get("batch.kubernetes.io/job-name") == run
            for (where, _), pod in lab.world["Pod"].items()
            if where == namespace
        )
        return Problem("crash", f'ERROR: column "{column}" does not exist (SQLSTATE 42703)') if through else None

    await lab.app(namespace, name, tag="1.8.0", like=App("", check=check), replicas=3)
    lab.alert_lacking(namespace, name)
    yield
    template = objects.deployment(namespace, f"{name}-migrate", f"{image}:1.9.0", restartPolicy="Never")
    spec = {"template": template["spec"]["template"], "backoffLimit": 1}
    await lab.culprit("ci", "create", "Job", namespace, run, {"metadata": {"name": run}, "spec": spec})
