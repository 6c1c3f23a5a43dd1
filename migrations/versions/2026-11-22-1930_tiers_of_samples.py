"""Keep less of samples for longer: what stands for a minute, and for an hour."""

from alembic import op

revision = "20261122_1930"
down_revision = "20261122_1900"
branch_labels = None
depends_on = None

TABLES = ("samples_minutes", "samples_hours")


def upgrade() -> None:
    for table in TABLES:
        op.execute(
            f"CREATE TABLE {table} ("
            " cluster_id integer NOT NULL,"
            " at timestamptz NOT NULL,"
            " block integer NOT NULL,"
            " payload bytea NOT NULL,"
            f" CONSTRAINT {table}_pkey PRIMARY KEY (cluster_id, at, block)"
            ") PARTITION BY RANGE (at)"
        )
        op.execute(f"ALTER TABLE {table} ALTER COLUMN payload SET STORAGE EXTERNAL")


def downgrade() -> None:
    for table in TABLES:
        op.execute(f"DROP TABLE {table}")
