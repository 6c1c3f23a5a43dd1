"""Words of a change that an error may quote."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.core.model import FieldDiff, Json, Path, Verb
from app.core.objects.brought import MOST, quoted
from tests.core.factories import a_change, a_resource


@pytest.mark.parametrize(
    ("path", "old", "new", "words"),
    [
        (("data", "run"), "-agent /otel/agent.jar", "-agent /opt/agent.jar", {"/otel/agent.jar", "/opt/agent.jar"}),
        (("spec", "url"), "https://a.example", "https://charts.b.example", {"a.example", "charts.b.example"}),
        (("data", "DATABASE_URL"), "postgres", None, {"DATABASE_URL"}),
        (("spec", "env", (("name", "CACHE_HOST"),)), {"name": "CACHE_HOST"}, None, {"CACHE_HOST"}),
        (("data", "size"), "1024-2048", "2048-4096", set()),
        (("data", "version"), "v1.24.11-rc", "v1.24.12-rc", set()),
        (("data", "mode"), "strict", "permissive", set()),
        (("metadata", "annotations", "note"), "see /wiki/page-1", "see /wiki/page-2", set()),
        (("spec", "template", "spec", "containers", "image"), "shop/web-app:1", "shop/web-app:2", set()),
    ],
)
def test_what_an_edit_put_in_or_took_away(path: Path, old: Json, new: Json, words: set[str]) -> None:
    assert quoted(a_change(path=path, old=old, new=new)) == words


def test_an_image_of_what_is_no_workload_counts() -> None:
    policy = a_resource("ClusterPolicy", "registry", None)
    assert "mirror-b.corp.example" in quoted(
        a_change(policy, path=("spec", "image"), old="x", new="mirror-b.corp.example/{{name}}")
    )


def test_a_text_of_more_words_than_anybody_quotes_tells_nothing() -> None:
    many = " ".join(f"/path/number-{n}" for n in range(MOST + 1))
    assert quoted(a_change(path=("data", "x"), old="", new=many)) == set()


def test_what_is_made_or_deleted_has_no_words_of_its_own() -> None:
    whole: Json = {"data": {"a": "/otel/agent.jar"}}
    made = replace(a_change(verb=Verb.CREATE), diffs=(FieldDiff((), "add", None, whole),))
    assert quoted(made) == set()
