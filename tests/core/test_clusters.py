from __future__ import annotations

import pytest

from app.core.clusters import LONGEST, cluster_name

ARN = "gke_acme-production_europe-west1_main"


@pytest.mark.parametrize("name", ["default", "Zürich 2", ARN, "a:b@c?d#e%2F", "x" * LONGEST, "東京"])
def test_what_a_cluster_may_be_called(name: str) -> None:
    assert cluster_name(name) == name


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "needs a name"),
        ("  ", "needs a name"),
        ("na me\n", "one line"),
        ("a\nb", "one line"),
        ("a\0", "one line"),
        (" a", "one line"),
        ("a\u202eb", "one line"),
        ("x" * (LONGEST + 1), "at most 100 characters; this one has 101"),
        ("a/b", "holds no /"),
        ("..", "more than dots"),
    ],
)
def test_what_it_may_not(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        cluster_name(name)
