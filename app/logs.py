"""What the process says on stderr: one JSON object a line, or columns for a person at a terminal."""

from __future__ import annotations

import logging
import os
import sys
from io import StringIO
from typing import TextIO

import structlog


def configure(level: str) -> None:
    """Sends our log and the libraries' to stderr, from ``level`` (debug, info, warning, error) up.

    Line breaks and control characters are escaped, by JSON or here: no input can forge a line or drive a terminal.
    """
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    coloured = not os.environ.get("NO_COLOR")  # https://no-color.org
    plain = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    rendered: list[structlog.typing.Processor] = (
        [_event_escaped, structlog.dev.ConsoleRenderer(colors=coloured, exception_formatter=_traceback)]
        if sys.stderr.isatty()
        else [structlog.processors.ExceptionRenderer(plain), structlog.processors.JSONRenderer()]
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendered],
        )
    )
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    # What goes wrong with credentials is raised, too, and said with the cluster's name.
    logging.getLogger("kubernetes").setLevel(logging.ERROR)
    # uvicorn tells what our own line tells better.
    logging.getLogger("uvicorn.error").setLevel(max(logging.WARNING, logging.getLevelName(level.upper())))


def _event_escaped(_logger: object, _method: str, entry: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """What libraries say holds whatever they were told; of our own entries the renderer escapes the rest."""
    return {**entry, "event": _escaped(str(entry.get("event", "")))}


def _traceback(to: TextIO, exc_info: structlog.typing.ExcInfo) -> None:
    """Indented: an error's own words may have several lines, of which none may look like an entry."""
    said = StringIO()
    structlog.dev.plain_traceback(said, exc_info)
    to.write("\n".join(line and f"    {_escaped(line)}" for line in said.getvalue().split("\n")))


def _escaped(text: str) -> str:
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
