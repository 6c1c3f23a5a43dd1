"""Jinja2 as every page uses it: autoescaped, and a name that is not there is an error."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse

from app.web import assets
from app.web.filters import FILTERS

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = ROOT / "templates"


@cache
def environment() -> Environment:
    """The one environment; templates are read once in the life of the process."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(FILTERS)
    made.globals["asset"] = assets.address
    return made


def page(name: str, status: int = 200, /, **context: object) -> HTMLResponse:
    """The template ``name`` with its context, as an answer."""
    return HTMLResponse(environment().get_template(name).render(context), status)
