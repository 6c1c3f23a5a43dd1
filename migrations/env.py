"""Alembic's entry: runs the migrations on the connection it is given, or on DATABASE_URL for `alembic` by hand."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection

from app.store import slack_tables  # noqa: F401 - with it, all tables are known
from app.store.metadata import metadata
from app.store.migrate import connect, ours


def run(connection: Connection) -> None:
    def include(name: str | None, kind: str, _parents: object) -> bool:
        return kind != "table" or ours(connection, str(name))

    context.configure(connection=connection, target_metadata=metadata, include_name=include)
    with context.begin_transaction():
        context.run_migrations()


given: Connection | None = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    from app.settings import load

    url = load().database_url
    if url is None:
        raise SystemExit("set DATABASE_URL to run alembic by hand")
    with connect(url.get_secret_value()) as connection, connection.begin():
        run(connection)
