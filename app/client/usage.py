"""What the command line says of an option that it cannot take, in words of people."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from app.core.phrases import refusal


class Group(TyperGroup):
    """Commands; typer says of a wrong value what pydantic does ("Value error, ...", "Input should be ...")."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = refusal(error.message)
            raise
