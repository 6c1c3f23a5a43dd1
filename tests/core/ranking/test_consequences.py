"""What moving pods makes: how many it takes before clients lose their watches, and list anew."""

from __future__ import annotations

import numpy as np
import pytest

from app.core.model import MetricSeries
from app.core.ranking.consequences import LOSE_WATCHES
from app.core.ranking.suspects import Gathered, rank
from tests.core.factories import a_change, a_resource, a_workload, after, an_incident


def requests(verb: str) -> MetricSeries:
    """What an API server counts: hardly any until noon, then 20 a second."""
    times = np.arange(-600.0, 300.0, 15.0)
    labels = (("code", "200"), ("group", ""), ("resource", "pods"), ("verb", verb))
    counted = np.where(times < 0, 0.1 * (times + 600), 60 + 20 * times)
    scraped = tuple(after(at).timestamp() for at in times.tolist())
    return MetricSeries("apiserver_request_total", labels, "counter", scraped, counted.tolist())


@pytest.mark.parametrize(
    ("verb", "pods", "follows"),
    [("LIST", LOSE_WATCHES, True), ("LIST", LOSE_WATCHES - 1, False), ("PUT", LOSE_WATCHES - 1, True)],
)
def test_few_pods_make_nobody_list_anew(verb: str, pods: int, follows: bool) -> None:
    web = a_resource("Deployment", "web")
    scaled = a_change(web, at=after(-20), path=("spec", "replicas"), old=1, new=1 + pods)
    found = rank(
        Gathered(
            an_incident(),
            after(-600),
            after(300),
            changes=(scaled,),
            series=(requests(verb),),
            states=(a_workload(web),),
        )
    )
    said = [one.sentence for one in found.suspects[0].evidence if one.rule == "metrics"]
    assert bool(said) is follows, said
    assert all(f"It moves {pods} pods" in one for one in said)
