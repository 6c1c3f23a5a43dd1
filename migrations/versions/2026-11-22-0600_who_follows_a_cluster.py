"""Remember who follows each cluster, under which epoch, and how well: one process at a time writes what watches tell."""

from alembic import op

revision = "20261122_0600"
down_revision = "20261122_0500"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
        CREATE TABLE collectors (
            cluster_id integer NOT NULL CONSTRAINT collectors_cluster_id_fkey REFERENCES clusters,
            epoch bigint NOT NULL,
            holder text NOT NULL,
            standing text NOT NULL,
            renewed_at timestamptz NOT NULL,
            watching jsonb NOT NULL,
            past_known boolean NOT NULL DEFAULT false,
            CONSTRAINT collectors_pkey PRIMARY KEY (cluster_id)
        )
    """)


def downgrade() -> None:
    op.execute("DROP TABLE collectors")
