"""How an answer of REST is printed."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any

import typer

from app.client.server import Server
from app.core.screen.tables import TABLES, as_wide_text


class Output(StrEnum):
    """A table of 80 columns; of lists one with more columns, as wide as it needs; REST's answer as JSON, or as YAML."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


OutputOption = Annotated[
    Output,
    typer.Option(
        "--output", "-o", help="A table of 80 columns; of lists a wide one with ids, too; everything as JSON or YAML."
    ),
]


def shown(server: Server, output: Output, *path: str, table: str = "", **asked: object) -> str:
    """The answer to a GET as it is printed. ``table`` is a name of TABLES, "" where there is no wide one: the text is
    then as wide as it is. Raises as Server does."""
    if output is Output.TABLE or (output is Output.WIDE and not table):
        return server.text(*path, **asked)
    answer = server.json(*path, **asked)
    if output is Output.WIDE:
        return as_wide_text(answer, TABLES[table])
    return written(answer, output)


def done(answer: Any, output: Output, line: str) -> str:
    """What was done, as it is printed: ``line`` for who reads it, the answer for a program."""
    return f"{line}\n" if output in (Output.TABLE, Output.WIDE) else written(answer, output)


def line(item: Any, output: Output) -> str:
    """One of many that come one after the other: an object of JSON in a line, or a document of YAML."""
    return f"---\n{written(item, output)}" if output is Output.YAML else json.dumps(item, ensure_ascii=False) + "\n"


def written(answer: Any, output: Output) -> str:
    """An answer as JSON or YAML."""
    if output is Output.JSON:
        return json.dumps(answer, indent=2, ensure_ascii=False) + "\n"
    import yaml  # noqa: PLC0415 - who asks for a table need not wait for it

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    dumper.add_multi_representer(dict, dumper.represent_dict)  # an answer's objects are dicts that say what they lack
    text: str = yaml.dump(answer, Dumper=dumper, sort_keys=False, allow_unicode=True, width=10**9)
    return text
