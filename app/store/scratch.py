"""Databases made for a moment beside the real one, as an evaluation needs."""

from __future__ import annotations

from psycopg import sql
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from app.store.database import sqlalchemy_url


def create_database(dsn: str, name: str) -> None:
    """CREATE DATABASE on the server of ``dsn``. Needs the right to; raises the driver's error otherwise."""
    _execute(dsn, sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))


def drop_database(dsn: str, name: str) -> None:
    """Drops it, ending whatever still uses it."""
    _execute(dsn, sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def _execute(dsn: str, statement: sql.Composed) -> None:
    engine = create_engine(sqlalchemy_url(dsn), poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as conn:
        conn.exec_driver_sql(statement.as_string(None))
