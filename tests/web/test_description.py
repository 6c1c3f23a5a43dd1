"""The OpenAPI description: every path, and examples that are what they stand for."""

from __future__ import annotations

from typing import Any

import jsonschema_rs

from tests.web.conftest import Site


async def test_the_description_covers_every_path_and_its_examples_work(site: Site) -> None:
    async with site.client() as client:
        described = (await client.get("/openapi.json")).json()
    assert len(described["paths"]) == 31
    for path, methods in described["paths"].items():
        for method in methods.values():
            assert method["summary"], path
    names = {one["name"] for one in described["paths"]["/api/v1/changes"]["get"]["parameters"]}
    filters = {"cluster", "from", "to", "namespace", "kind", "actor", "verb", "text", "derived"}
    assert names == filters | {"after", "limit", "follow", "since"}
    kinds = set(described["paths"]["/api/v1/changes"]["get"]["responses"]["200"]["content"])
    assert kinds == {"application/json", "text/plain", "application/x-ndjson"}
    table = described["paths"]["/api/v1/incidents"]["get"]["responses"]["200"]["content"]["text/plain"]["example"]
    assert table.startswith("1 incident, 2026-11-20 14:03:14")


async def test_every_schema_and_every_answer_has_an_example_that_is_one(site: Site) -> None:
    async with site.client() as client:
        described = (await client.get("/openapi.json")).json()

    def wrong(schema: dict[str, Any], example: object) -> list[str]:
        whole = schema | {"components": described["components"]}
        validator = jsonschema_rs.Draft202012Validator(whole, validate_formats=True)
        return [error.message for error in validator.iter_errors(example)]

    schemas = described["components"]["schemas"]
    assert {name for name, schema in schemas.items() if len(schema["examples"]) != 1} == set()
    assert {name: found for name, one in schemas.items() if (found := wrong(one, one["examples"][0]))} == {}
    answers = [
        (f"{method} {path} {status}", content)
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
        for status, answer in operation["responses"].items()
        for content in answer["content"].values()
    ]
    assert {name: found for name, one in answers if (found := wrong(one["schema"], one["example"]))} == {}
    suspects = schemas["Suspects"]["examples"][0]
    assert suspects["items"][0]["change"] == schemas["Change"]["examples"][0]  # one incident, told throughout
    assert wrong(schemas["Change"], suspects) != []


async def test_what_takes_if_match_and_nothing_else_may_answer_412(site: Site) -> None:
    async with site.client() as client:
        described = (await client.get("/openapi.json")).json()
    operations = {
        f"{method} {path}": operation
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    }
    takes = {
        name
        for name, operation in operations.items()
        if any(one["name"] == "If-Match" for one in operation.get("parameters", ()))
    }
    assert "patch /api/v1/incidents/{incident_id}" in takes
    assert {name for name, operation in operations.items() if "412" in operation["responses"]} == takes
