"""Puts the web application together: routes, their policies, what stands before them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from fastapi import FastAPI

from app.web.deps import Deps

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def create_app(deps: Deps, *, lifespan: Lifespan | None = None) -> FastAPI:
    """The whole site. ``lifespan`` starts and stops what runs beside it (workers, the database)."""
    app = FastAPI(title="Foreshock", version="1", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.deps = deps
    return app
