from __future__ import annotations

import pytest

from app.core.edges.heaps import outgrows
from app.core.edges.indexing import topology
from app.core.model import Json, ObjectState, Resource
from tests.core.company import ranked
from tests.core.factories import a_change, a_resource, a_symptom, a_workload, after, an_alert, an_incident

APP, FLAGS = a_resource("Deployment", "books", "media"), a_resource("ConfigMap", "books", "media")


def running(*limits: str | None) -> ObjectState:
    """A workload that reads FLAGS, with a container for each limit of memory."""
    containers: list[Json] = [
        {
            "name": f"c{number}",
            "envFrom": [{"configMapRef": {"name": "books"}}],
            "resources": {"limits": {"memory": limit}} if limit else {},
        }
        for number, limit in enumerate(limits)
    ]
    return a_workload(APP, containers=containers)


@pytest.mark.parametrize("resource", [APP, FLAGS])
@pytest.mark.parametrize(
    ("old", "new", "limits", "said"),
    [
        ("-Xmx512m -XX:+UseZGC", "-Xmx1g -XX:+UseZGC", ("768Mi",), "1 GiB, of 768 MiB"),
        (None, ["java", "-Xmx805306369", "-jar", "books.jar"], ("768Mi",), "768 MiB, of 768 MiB"),
        ("--max-old-space-size=256", "--max_old_space_size=2048", ("1Gi",), "2 GiB, of 1 GiB"),
        ("-Xmx512m", {"JAVA_OPTS": "-Xmx4G"}, ("128Mi", "2Gi"), "4 GiB, of 2 GiB"),
        ("-Xmx512m", "-Xmx700m", ("768Mi",), ""),
        ("-Xmx2g", "-Xmx1g", ("768Mi",), ""),
        ("-Xmx512m", "-Xmx1g", ("768Mi", None), ""),
        ("-Xmx512m", "-Xmx1g", (), ""),
        ("info", "debug", ("768Mi",), ""),
        ("-Xmx512m", None, ("768Mi",), ""),
    ],
)
def test_a_heap_may_take_more_than_its_container(
    resource: Resource, old: Json, new: Json, limits: tuple[str | None, ...], said: str
) -> None:
    change = a_change(resource, path=("spec", "told"), old=old, new=new)
    found = outgrows(change, topology([running(*limits)]))
    assert found == (f"It lets a heap take {said} that its container may take in all" if said else "")


@pytest.mark.parametrize("reason", ["OOMKilled", "Unhealthy"])
def test_it_counts_where_containers_are_killed_for_what_they_take(reason: str) -> None:
    raised = a_change(APP, at=after(-20), path=("spec", "template", "env"), old="-Xmx512m", new="-Xmx1g")
    found = ranked(
        raised,
        incident=an_incident(an_alert(name="KubePodCrashLooping", namespace="media", deployment="books")),
        symptoms=[a_symptom(APP, reason, at=after(0), count=3)],
        states=[running("768Mi")],
    )
    assert found.suspects[0].change.id == raised.id
    said = [one.sentence for one in found.suspects[0].evidence if one.rule == "kind of change"]
    heap = "It lets a heap take 1 GiB, of 768 MiB that its container may take in all."
    assert (said == [heap]) is (reason == "OOMKilled")
