"""What all tables share: how their constraints are called, and that times have a zone."""

from __future__ import annotations

from sqlalchemy import DateTime, MetaData
from sqlalchemy.dialects.postgresql import JSONB

metadata = MetaData(
    naming_convention={
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
        "pk": "%(table_name)s_pkey",
    }
)
at = DateTime(timezone=True)
MAYBE_JSONB = JSONB(none_as_null=True)
"""Of a column that may be NULL. JSONB itself writes None as the JSON value null, which to ``coalesce`` is something."""
