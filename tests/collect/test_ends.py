"""What ends among what is learned since the last take keeps what it was."""

from __future__ import annotations

import orjson
import pytest

from app.collect.intake import Tally
from app.collect.learner import Learner
from app.core.changes.sightings import Sighting
from app.core.changes.tracker import Tracker
from app.core.model import Verb
from app.core.objects.redact import Redactor
from tests.core.factories import a_resource, after

POD = a_resource("Pod", "web-7d9c5f9db-2x8sq")


def seen(uid: str, version: int, *, at: float, verb: Verb | None, body: bool = True) -> Sighting:
    metadata = {"name": POD.name, "namespace": "shop", "uid": uid, "resourceVersion": str(version)}
    pod = {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": {"nodeName": "n1", "containers": []}}
    return Sighting(
        POD, after(at), "watch", verb, orjson.dumps(pod) if body else None, uid=uid, resource_version=str(version)
    )


@pytest.mark.parametrize("body", [True, False])
def test_a_pod_that_came_and_went_since_is_known_for_where_it_ran(*, body: bool) -> None:
    learner = Learner("lab", Tracker("lab", Redactor(b"a key of at least 16 bytes"), lambda *_: None), Tally())
    learner.observe(seen("u-1", 5, at=0, verb=Verb.CREATE))
    learner.observe(seen("u-1", 6, at=3, verb=Verb.DELETE, body=body))
    (gone,) = learner.take(()).objects
    assert gone.deleted_at == after(3)
    assert gone.state is not None
    assert "n1" in str(gone.state)


def test_its_successor_is_another() -> None:
    learner = Learner("lab", Tracker("lab", Redactor(b"a key of at least 16 bytes"), lambda *_: None), Tally())
    learner.observe(seen("u-1", 5, at=0, verb=Verb.CREATE))
    learner.observe(seen("u-1", 6, at=3, verb=Verb.DELETE))
    learner.observe(seen("u-2", 7, at=4, verb=Verb.CREATE))
    found = {one.uid: one for one in learner.take(()).objects}
    assert found["u-1"].deleted_at == after(3)
    assert found["u-1"].state is not None
    assert found["u-2"].deleted_at is None
