"""What takes no more memory than before is not why a program is killed for its memory."""

from __future__ import annotations

import pytest

from app.core.edges.amounts import holds_no_more
from app.core.model import Json
from tests.core.company import ranked
from tests.core.factories import a_change, a_resource, a_symptom, a_workload, after, an_alert, an_incident

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
        ("MAIL_FOOTER", "Your plan", "https://plan.example", False),
        ("MODE", "stream", "whole", False),
        ("settings", "batch of all", "batch: all", False),
        ("BATCH", None, "400", False),
    ],
)
def test_fewer_at_once_and_words_for_people_take_no_more(key: str, old: Json, new: Json, *, no_more: bool) -> None:
    assert holds_no_more(a_change(SETTINGS, path=("data", key), old=old, new=new)) is no_more


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
