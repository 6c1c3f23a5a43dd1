"""A setting that is changed, and of which the complaint speaks."""

from __future__ import annotations

import pytest

from app.core.findings import Evidence
from app.core.model import Json, Path
from app.core.ranking.worded import settings, words
from tests.core.company import ranked
from tests.core.factories import a_change, a_resource, a_symptom, a_workload, after, an_alert, an_incident

EDGE = a_resource("Deployment", "edge", "shop")
SETTINGS = a_resource("ConfigMap", "edge-settings", "shop")


def evidence(key: str, says: str) -> Evidence | None:
    """What is said of the words of a setting of this name, where whoever reads it says this."""
    env: Json = [{"configMapRef": {"name": SETTINGS.name}}]
    ranking = ranked(
        a_change(SETTINGS, at=after(-20), path=("data", key), old="16m", new="1m"),
        incident=an_incident(an_alert(after(30), name="ErrorRate", namespace="shop", deployment="edge")),
        symptoms=[a_symptom(EDGE, "Error", at=after(0), message=says, count=9)],
        states=[a_workload(EDGE, containers=[{"name": "a", "envFrom": env}])],
    )
    (suspect,) = (one for one in ranking.suspects if one.change.resource == SETTINGS)
    return next((one for one in suspect.evidence if one.rule == "worded"), None)


def test_a_word_of_the_setting_in_the_complaint_speaks_for_the_change() -> None:
    found = evidence("proxy-body-size", "client intended to send too large body: 24117248 bytes")
    assert found is not None
    assert found.sentence == 'It changed proxy-body-size, and "body" is in what is complained of.'
    assert 0 < found.weight <= 1


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("proxy-body-size", "upstream prematurely closed connection"),
        ("edge-name", "edge: failed to start"),
        ("server-config", "the server has no config"),
    ],
)
def test_other_words_names_and_words_of_all_do_not(key: str, says: str) -> None:
    assert evidence(key, says) is None


def test_words_are_read_out_of_any_spelling() -> None:
    assert words("timeoutSeconds RETENTION_MS proxy-body-size nodepool.limits") >= {
        *("timeout", "second", "retention", "proxy", "body", "size", "nodepool", "limit")
    }


@pytest.mark.parametrize(
    ("path", "old", "new", "keys"),
    [
        (("spec", "limits", "cpu"), "640", "320", ["spec", "limits", "cpu"]),
        (("data", "my.cnf"), "a = 1\nmax_connections = 400\n", "a = 1\nmax_connections=40\n", ["max_connections"]),
        (("spec", "containers", (("name", "db"),), "args"), None, "x", ["db"]),
    ],
)
def test_a_setting_is_a_step_of_a_path_or_a_line(path: Path, old: Json, new: Json, keys: list[str]) -> None:
    found = [key for key, _ in settings(a_change(EDGE, path=path, old=old, new=new))]
    assert set(keys) <= set(found)
    assert "a" not in found
