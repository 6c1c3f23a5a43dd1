"""Remember how far each spool is recorded: what makes a record count once, however the program ends."""

from alembic import op

revision = "20261122_0400"
down_revision = "20261122_0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
        CREATE TABLE spool_positions (
            cluster_id integer NOT NULL CONSTRAINT spool_positions_cluster_id_fkey REFERENCES clusters,
            spool text NOT NULL,
            position bigint NOT NULL,
            recent bytea NOT NULL,
            updated_at timestamptz NOT NULL,
            CONSTRAINT spool_positions_pkey PRIMARY KEY (cluster_id, spool)
        )
    """)


def downgrade() -> None:
    op.execute("DROP TABLE spool_positions")
