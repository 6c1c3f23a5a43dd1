"""Which changes each batch brought: what those who follow changes have not got yet."""

from alembic import op

revision = "20261127_0240"
down_revision = "20261125_0230"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
        CREATE TABLE arrivals (
            cluster_id integer NOT NULL,
            number bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
            at timestamptz NOT NULL DEFAULT clock_timestamp(),
            times bigint[] NOT NULL,
            keys bigint[] NOT NULL,
            CONSTRAINT arrivals_pkey PRIMARY KEY (cluster_id, number)
        )
    """)


def downgrade() -> None:
    op.execute("DROP TABLE arrivals")
