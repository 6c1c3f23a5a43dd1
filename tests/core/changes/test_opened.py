"""What is kept of an object in its parts, and was one fingerprint: of another version of us, or of other rules."""

from __future__ import annotations

from app.core.changes.sightings import Sighting
from app.core.changes.tracker import Tracker
from app.core.model import Json, Object, ObjectState, Resource
from app.core.objects.redact import Redactor
from tests.core.learning import KEY, an_object, at, seen


def test_what_is_kept_of_it_in_its_parts_now_nobody_wrote() -> None:
    api = "external-secrets.io/v1"
    resource = Resource("c", "external-secrets.io", "SecretStore", "shop", "vault")
    kept: Object = {"metadata": {"name": "vault", "namespace": "shop"}, "spec": "<redacted:5f0a1c22d3e4>"}
    hidden = ObjectState(resource, "uid-vault", "5", at(0), kept, generation=1)

    def written(version: int, generation: int, path: str, **meta: Json) -> Sighting:
        spec = {"provider": {"vault": {"path": path}}}
        meta |= {"generation": generation}
        return seen(an_object("SecretStore", "vault", version=version, api=api, spec=spec, meta=meta), version)

    tracker = Tracker("c", Redactor(KEY), lambda _resource, _uid: hidden)
    opened, edited = tracker.observe(written(6, 1, "kv")), tracker.observe(written(7, 2, "kv-stage"))
    assert opened.changes == ()
    assert opened.states[0].state is not None
    assert opened.states[0].state["spec"] == {"provider": {"vault": {"path": "kv"}}}
    (change,) = edited.changes
    assert [found.path_text for found in change.diffs] == ["spec.provider.vault.path"]
    (at_once,) = Tracker("c", Redactor(KEY), lambda _resource, _uid: hidden).observe(written(6, 2, "kv")).changes
    assert [found.path_text for found in at_once.diffs] == ["spec"]
    called = written(6, 1, "kv", labels={"team": "payments"})
    labelled = Tracker("c", Redactor(KEY), lambda _resource, _uid: hidden).observe(called)
    assert [found.path_text for found in labelled.changes[0].diffs] == ["metadata.labels.team"]
