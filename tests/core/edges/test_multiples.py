"""By how many times something is done more often, or more of it at once."""

from __future__ import annotations

import pytest

from app.core.edges.multiples import multiplied
from app.core.model import Json, Path
from tests.core.company import ranked
from tests.core.edges.test_burdens import told
from tests.core.factories import a_change, a_resource, a_symptom, after, an_alert, an_incident

ENV: Path = ("spec", "template", "spec", "containers", (("name", "a"),), "env")
SCHEDULE: Path = ("spec", "schedule")


@pytest.mark.parametrize(
    ("path", "old", "new", "times"),
    [
        (SCHEDULE, "0 3 * * *", "* * * * *", 1440),
        (SCHEDULE, "*/10 * * * *", "*/5 * * * *", 2),
        (SCHEDULE, "*/5 * * * *", "0 3 * * *", None),
        (SCHEDULE, "0 3 * * *", "0 4 * * *", None),
        (SCHEDULE, "0 3 * * *", "never at all, I hope", None),
        (SCHEDULE, "0 3 31 2 *", "* * * * *", None),
        ((*ENV, (("name", "POLL_INTERVAL"),), "value"), "15m", "15s", 60),
        ((*ENV, (("name", "POLL_INTERVAL"),), "value"), "15s", "15m", None),
        ((*ENV, (("name", "POLL_INTERVAL"),), "value"), "900", "15s", None),
        ((*ENV, (("name", "WORKERS"),), "value"), "4", "64", 16),
        ((*ENV, (("name", "WORKER_TIMEOUT"),), "value"), "4s", "64s", None),
        ((*ENV, (("name", "GREETING"),), "value"), "4", "64", None),
        (("spec", "replicas"), 2, 20, None),
        (("data", "feed.toml"), 'interval = "15m"\npage = 1000', 'interval = "15s"\npage = 1000', 60),
        (("data", "a.json"), '{"batch": 10, "ttl": 1}', '{"batch": 100, "ttl": 9}', 10),
        (("data", "interval"), "60s", "1s", 60),
        (SCHEDULE, "@daily", "@hourly", 24),
        (("data", "interval"), "1h30m", "30m0s", 3),
        (("data", "autosave_seconds"), "60", "2", 30),
        (("data", "SAMPLE_RATE"), "1", "10", 10),
        (("data", "sampleRate"), "1", "10", 10),
        (("data", "THROTTLE_RATE"), "1", "10", 10),
        (("data", "generated"), "1", "10", None),
        (("data", "RETRY_BACKOFF"), "10s", "1s", 10),
        (("data", "RETRY_BACKOFF"), "1s", "10s", None),
        (("data", "RETENTION_PERIOD"), "30d", "7d", None),
        (("data", "cooldownPeriod"), "300", "30", None),
        (("data", "WORKER_MEMORY_MB"), "512", "4096", None),
        (("data", "interval"), "60s", "0s", None),
        (("data", "interval"), None, "1s", None),
        (
            ("data", "flags"),
            '{"a": {"percent": 5}, "b": {"percent": 25}}',
            '{"a": {"percent": 100}, "b": {"percent": 25}}',
            20,
        ),
    ],
)
def test_how_many_times_as_much(path: Path, old: Json, new: Json, times: float | None) -> None:
    found = multiplied(a_change(a_resource("CronJob", "a", "sales"), path=path, old=old, new=new))
    assert (found and found[0]) == (None if times is None else pytest.approx(times))


@pytest.mark.parametrize(("new", "weight"), [("*/10 * * * *", 1.6), ("0 2,14 * * *", 0.4), ("0 4 * * *", None)])
def test_it_weighs_against_what_its_calls_lead_to(new: str, weight: float | None) -> None:
    late = "Readiness probe failed: context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
    figures = a_resource("Deployment", "figures", "sales")
    ranking = ranked(
        a_change(figures, at=after(-40), path=SCHEDULE, old="0 2 * * *", new=new),
        incident=an_incident(an_alert(after(30), name="Slow", namespace="sales", deployment="desk")),
        symptoms=[
            a_symptom(a_resource("Deployment", "desk", "sales"), "Unhealthy", at=after(0), message=late, count=9)
        ],
        states=[
            *told("figures", "sales", "mysql://db.sales.svc"),
            *told("desk", "sales", "mysql://db.sales.svc"),
            *told("db", "sales", "-"),
        ],
    )
    (suspect,) = (one for one in ranking.suspects if one.change.resource == figures)
    assert next((one.weight for one in suspect.evidence if one.rule == "more often"), None) == weight
