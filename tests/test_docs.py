"""What the documentation promises to list, it lists; and nothing that is gone.

Each check reads names from the program and from a page. The last test gives each a program with a made-up name.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, is_dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Annotated, Any

import msgspec
import pytest
import typer
import typer.main
from fastapi import APIRouter, FastAPI, Query
from fastapi.routing import iter_route_contexts
from prometheus_client import Counter
from prometheus_client.registry import Collector
from pydantic.fields import FieldInfo
from sqlalchemy import MetaData, Table
from sqlalchemy.ext.asyncio import create_async_engine
from typer.core import TyperGroup

from app.__main__ import cli
from app.client.environment import VARIABLES as OF_CLIENTS
from app.core import findings, model
from app.core.changes.external import External
from app.core.changes.sightings import Sighting
from app.core.ranking.candidates import Candidate
from app.core.signals.signal import Signal
from app.core.vitals import Listening, Vitals
from app.failures import Exit
from app.settings import variables
from app.store.metadata import metadata
from app.store.vitals import Stored
from app.web.deps import Deps
from app.web.metrics import Answers, Exposed
from app.web.routes import create_app
from tests.web.world import END

ROOT = Path(__file__).parents[1]
CONFIGURATION, API, GLOSSARY, CLI = (
    (ROOT / "docs" / name).read_text() for name in ("configuration.md", "api.md", "glossary.md", "cli.md")
)
SHARED = {"--url", "--token-file", "--ca-file"}
"""Options that all commands of cli.md have, and that are told once there."""
ELSEWHERE = {"none of these", Candidate.__name__, Signal.__name__, Sighting.__name__, External.__name__}
"""What the glossary explains beside the nouns of the model: an idea, and nouns that stand in files of their own."""


def site() -> FastAPI:
    engine = create_async_engine("postgresql+psycopg://nobody@127.0.0.1:1/none")
    return create_app(Deps(read=engine, write=engine, public_url="http://foreshock.test", clock=lambda: END))


def rows(page: str) -> Iterator[list[str]]:
    """The cells of every table's rows, without backticks."""
    for line in page.splitlines():
        if line.startswith("|") and not line.startswith(("|--", "| --")):
            yield [cell.strip().replace("`", "") for cell in line.strip("|").split("|")]


# -- settings


def wrong_settings(settings: dict[str, FieldInfo]) -> list[str]:
    """Settings without a row that gives default, allowed form and purpose; rows without a setting."""
    told = {cells[0]: cells[1:] for cells in rows(CONFIGURATION) if len(cells) == 4}
    wrong = []
    for name, field in settings.items():
        default, allowed, purpose = told.get(name, ("", "", ""))
        wanted = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
        right_default = not isinstance(field.default, (int, str)) or default == wanted
        if allowed != field.description or len(purpose) < 20 or not right_default:
            wrong.append(name)
    return wrong + sorted(set(re.findall(r"FORESHOCK_[A-Z_]*[A-Z]", CONFIGURATION)) - set(settings))


def test_every_setting_is_documented_with_its_default_and_allowed_form() -> None:
    assert wrong_settings(variables()) == []


def test_every_variable_of_who_asks_is_documented_and_nothing_else() -> None:
    assert {cells[0] for cells in rows(CLI) if cells[0].startswith("FORESHOCK_")} == set(OF_CLIENTS)
    assert set(re.findall(r"FORESHOCK_[A-Z_]*[A-Z]", CLI)) == set(OF_CLIENTS)


# -- commands and their options


def commands(program: typer.Typer) -> dict[str, set[str]]:
    """Every command with its options."""
    group = typer.main.get_command(program)
    assert isinstance(group, TyperGroup)
    found = {}
    for name, command in group.commands.items():
        inner = command.commands if isinstance(command, TyperGroup) else {"": command}
        for more, one in inner.items():
            said = [option for parameter in one.params for option in (*parameter.opts, *parameter.secondary_opts)]
            options = {option for option in said if option.startswith("--")}
            found[f"{name} {more}".strip()] = options - SHARED if options >= SHARED else options
    return found


def wrong_commands(program: typer.Typer) -> list[str]:
    """Commands and options without a place in the table of commands; what stands there and is gone."""
    told = {}
    for cells in [*rows(CONFIGURATION), *rows(CLI)]:
        if match := re.match(r"foreshock ([a-z]+(?:-[a-z]+)*(?: [a-z]+(?:-[a-z]+)*)?)", cells[0]):
            told[match[1]] = set(re.findall(r"--[a-z-]+", cells[1]))
    real = commands(program)
    return [
        f"{name} {options}"
        for name in sorted(told.keys() | real.keys())
        if (options := sorted(told.get(name, {"not told"}) ^ real.get(name, {"gone"})))
    ]


def test_every_command_and_option_is_documented_and_nothing_else() -> None:
    assert wrong_commands(cli) == []


def shown() -> list[list[str]]:
    """The commands that pages show, in words, without what is to be filled in."""
    pages = (page.read_text() for page in sorted(Path("templates").glob("*.html")))
    found = (command for text in pages for command in re.findall(r"<code>foreshock ([^<{]+)</code>", text))
    return [shlex.split(command) for command in found]


@pytest.mark.parametrize("words", shown(), ids=" ".join)
def test_a_command_that_a_page_shows_lacks_nothing(words: list[str]) -> None:
    command = typer.main.get_command(cli)
    while isinstance(command, TyperGroup):
        command = command.commands[words.pop(0)]
    command.make_context("foreshock", words)


def test_every_exit_code_is_documented() -> None:
    section = CONFIGURATION.split("## Exit codes")[1]
    assert {int(code) for code in re.findall(r"^\| (\d+) ", section, re.MULTILINE)} == set(Exit)


# -- routes


def wrong_rest(app: FastAPI) -> list[str]:
    """Routes of the OpenAPI description without a heading, parameters not named below it; headings of no route."""
    sections = dict(re.findall(r"^### `([A-Z]+ [^`]+)`\n(.*?)(?=^##|\Z)", API, re.MULTILINE | re.DOTALL))
    wrong = []
    real = {
        f"{method.upper()} {re.sub(r'{[a-z]+_id}', '{id}', path)}": [p["name"] for p in operation.get("parameters", ())]
        for path, methods in app.openapi()["paths"].items()
        for method, operation in methods.items()
    }
    for route, parameters in real.items():
        text = sections.get(route, "")
        wrong += [route] if not text else []
        said = re.findall(r"`([^`]+)`", text) + re.findall(r"{([a-z_]+)}", route)
        wrong += [f"{route} {p}" for p in parameters if text and p not in said and not p.endswith("_id")]
    return wrong + sorted(sections.keys() - real.keys())


def test_every_rest_route_and_parameter_is_documented_and_nothing_else() -> None:
    assert wrong_rest(site()) == []


def wrong_pages(app: FastAPI) -> list[str]:
    """Addresses outside the OpenAPI description without a row in the table of pages; rows of no address."""
    told = {cells[0] for cells in rows(API) if cells[0].startswith(("GET /", "POST /"))}
    described = app.openapi()["paths"]
    real = {
        f"{method} {path}"
        for route in iter_route_contexts(app.routes)
        if (path := str(route.path).replace(":rest}", "}")) not in described  # as the description writes it, too
        for method in (route.methods or {"GET"}) - {"HEAD"}
    }
    return sorted(real ^ told)


def test_every_page_is_documented_and_nothing_else() -> None:
    assert wrong_pages(site()) == []


# -- metrics


EXPOSED = Exposed(
    Answers(), Vitals(), Stored({}, {}, 0, 0, None, {}), END, listening=Listening(is_open=False, since=END)
)
"""All of our metrics, of a process that does nothing: its families have no samples."""


def wrong_metrics(registry: Collector) -> list[str]:
    """Metric families of ours that configuration.md does not name, and named ones that are not exposed."""
    real = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in registry.collect()
        if family.name.startswith("foreshock_")
    }
    return sorted(real ^ set(re.findall(r"`(foreshock_[a-z_]+)`", CONFIGURATION)))


def test_every_metric_family_is_documented() -> None:
    assert wrong_metrics(EXPOSED) == []


# -- nouns and tables


def wrong_nouns(*modules: ModuleType | SimpleNamespace) -> list[str]:
    """Dataclasses and Structs of the modules without a row in the glossary; rows of no such noun."""
    real = {
        name
        for module in modules
        for name, found in vars(module).items()
        if isinstance(found, type) and not name.startswith("_") and found.__module__ == module.__name__
        if is_dataclass(found) or (issubclass(found, msgspec.Struct) and not issubclass(found, Enum))
    }
    nouns = GLOSSARY.split("## Tables")[0]
    told = {name.strip() for cells in rows(nouns) if len(cells) == 2 for name in cells[0].split(",")}
    return sorted(real ^ (told - ELSEWHERE - {"noun"}))


def test_every_noun_is_in_the_glossary_and_nothing_else() -> None:
    assert wrong_nouns(model, findings) == []


def wrong_tables(tables: MetaData) -> list[str]:
    """Tables without a row in the glossary, and rows of no table."""
    told = {cells[0] for cells in rows(GLOSSARY.split("## Tables")[1]) if cells[-1]}
    return sorted(set(tables.tables) ^ (told - {"table"}))


def test_every_table_is_in_the_glossary_and_nothing_else() -> None:
    assert wrong_tables(metadata) == []


# -- links, and the proof that the checks above see


def test_every_link_between_documents_leads_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if not target.startswith(("http://", "https://")):
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"


def made_up_setting() -> list[str]:
    return wrong_settings({**variables(), "FORESHOCK_MADE_UP": FieldInfo.from_field(1, description="a number")})


def with_command(name: str, command: Callable[..., None]) -> typer.Typer:
    """The program with one command more, or one more of a name that it has."""
    program = typer.Typer()
    program.registered_commands = list(cli.registered_commands)
    program.registered_groups = list(cli.registered_groups)
    program.command(name=name)(command)
    return program


def made_up_command() -> list[str]:
    return wrong_commands(with_command("made-up", lambda: None))


def made_up_option() -> list[str]:
    def migrate(made_up: Annotated[int, typer.Option()] = 1) -> None:
        """A command that is known, with an option that is not."""

    return wrong_commands(with_command("migrate", migrate))


def made_up_route() -> list[str]:
    app = site()
    app.get("/api/v1/made-up")(lambda: None)
    return wrong_rest(app)


def made_up_parameter() -> list[str]:
    app = site()
    router = APIRouter()

    @router.get("/api/v1/gaps")
    def gaps(made_up: Annotated[str, Query()] = "") -> None:
        """A route that is known, with a parameter that is not."""

    app.include_router(router)
    return wrong_rest(app)


def made_up_page() -> list[str]:
    app = site()
    app.get("/made-up", include_in_schema=False)(lambda: None)
    return wrong_pages(app)


def made_up_metric() -> list[str]:
    answers = Answers()
    Counter("foreshock_made_up", "counts nothing", registry=answers.registry)
    return wrong_metrics(Exposed(answers, EXPOSED.vitals, EXPOSED.stored, END, listening=EXPOSED.listening))


def made_up_noun() -> list[str]:
    @dataclass(frozen=True, slots=True)
    class MadeUp:
        """A noun nobody explains."""

    MadeUp.__module__ = model.__name__
    return wrong_nouns(SimpleNamespace(**{**vars(model), "MadeUp": MadeUp}), findings)


def made_up_table() -> list[str]:
    tables = MetaData()
    for table in metadata.tables.values():
        table.to_metadata(tables)
    Table("made_up", tables)
    return wrong_tables(tables)


@pytest.mark.parametrize(
    ("check", "name"),
    [
        (made_up_setting, "FORESHOCK_MADE_UP"),
        (made_up_command, "made-up ['not told']"),
        (made_up_option, "migrate ['--made-up']"),
        (made_up_route, "GET /api/v1/made-up"),
        (made_up_parameter, "GET /api/v1/gaps made_up"),
        (made_up_page, "GET /made-up"),
        (made_up_metric, "foreshock_made_up_total"),
        (made_up_noun, "MadeUp"),
        (made_up_table, "made_up"),
    ],
)
def test_what_is_made_up_is_reported(check: Callable[[], list[Any]], name: str) -> None:
    assert check() == [name]
