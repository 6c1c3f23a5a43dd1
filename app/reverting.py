"""Undoing changes in clusters for the people who ask, as themselves: where that is done and how, and the doing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import yaml

from app.collect.acting import Undoing, acting
from app.core.access import Identity, Impersonation
from app.core.changes.revert_write import Tried, UndoError, Write
from app.core.clusters import cluster_name
from app.failures import Expected, told
from app.settings import Settings
from app.store.database import Database
from app.store.redaction import read_redactor
from app.written import Written
from app.yaml_file import read_yaml

Ways = Mapping[str, Impersonation]
"""By the name of the cluster."""


class RevertsError(Expected):
    """The file of reverts cannot be used; the message says where and why."""


def read(path: Path) -> Ways:
    """How people act in which clusters. Raises RevertsError."""
    try:
        found = msgspec.convert(read_yaml(path) or {}, dict[str, Impersonation])
        for name in found:
            cluster_name(name)
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise RevertsError(f"{path}: {told(error)}") from None
    return found


def ways_of(settings: Settings) -> Callable[[], Ways]:
    """Of the file that is named; none where none is: it is off unless somebody asks for it. None, too, from when the
    file is gone or no good: whoever empties it wants it off. Raises RevertsError."""
    if settings.reverts_file is None:
        return dict
    read(settings.reverts_file)
    written: Written[Ways] = Written(settings.reverts_file, read, without={})

    def ways() -> Ways:
        found = written()
        return {} if written.error else found

    return ways


class Reverts:
    """Undoes changes where ``ways`` says how. As web.deps.Undoes."""

    def __init__(self, database: Database, ways: Callable[[], Ways]) -> None:
        self._database, self._ways = database, ways

    def is_offered(self, cluster: str) -> bool:
        """Whether that is done in a cluster at all."""
        return cluster in self._ways()

    def known_as(self, cluster: str, person: Identity) -> Identity:
        """Who somebody is there. Raises UndoError."""
        try:
            return self._way(cluster).of(person)
        except ValueError as error:
            raise UndoError(str(error)) from None

    async def attempt(self, write: Write, person: Identity, *, seen: str | None) -> Tried:
        """A dry run; and where that does what was ``seen`` before, the write itself. Raises UndoError."""
        cluster = write.resource.cluster
        way, who = self._way(cluster), self.known_as(cluster, person)
        async with self._database.write.begin() as conn:
            redactor = await read_redactor(conn)
        async with acting(way.kubeconfig, way.context or None, who) as server:
            return await Undoing(server, write, redactor, who).attempt(seen)

    def _way(self, cluster: str) -> Impersonation:
        way = self._ways().get(cluster)
        if way is None:
            raise UndoError(f"nothing is undone from here in {cluster}")
        return way
