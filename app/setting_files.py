"""The files that say who may do what, where what is told, and what is secret: that one was written stands in the audit
log."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from pathlib import Path

from sqlalchemy.ext.asyncio import AsyncEngine

from app.settings import Settings
from app.store import audit
from app.store.audit import Action

_NONE = "not there"


def files_of(settings: Settings) -> dict[str, Path]:
    """By the setting that names it, or would."""
    usual = {name: settings.data_dir / f"{name}.yaml" for name in ("access", "routes", "clusters", "redaction")}
    found = {
        "access_file": settings.access_file or usual["access"],
        "routes_file": settings.routes_file or usual["routes"],
        "clusters_file": settings.clusters_file or usual["clusters"],
        "redaction_file": settings.redaction_file or usual["redaction"],
    }
    return found | ({"reverts_file": settings.reverts_file} if settings.reverts_file else {})


class Noted:
    """Notes what files hold by their digests, for nobody knows who wrote them, and what they hold is no business of a
    log."""

    def __init__(self, engine: AsyncEngine, files: Mapping[str, Path]) -> None:
        self._engine, self._files = engine, files
        self._last: dict[str, str] = {}

    async def look(self, now: datetime) -> None:
        """Notes each file that is another than when it was noted last, before a restart, too."""
        for name, path in self._files.items():
            holds = await asyncio.to_thread(_digest, path)
            if self._last.get(name) == holds:
                continue
            async with self._engine.begin() as conn:
                before = await audit.last(conn, Action.SETTINGS_READ, f"{name}: ")
                if holds != (before or _NONE):
                    await audit.note(conn, Action.SETTINGS_READ, f"{name}: {holds}", now=now)
            self._last[name] = holds


def _digest(path: Path) -> str:
    try:
        return f"sha256 {sha256(path.read_bytes()).hexdigest()[:16]}"
    except OSError:
        return _NONE
