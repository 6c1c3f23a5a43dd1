"""Remember how far each Prometheus was asked for a cluster's metrics."""

from alembic import op

revision = "20261122_1850"
down_revision = "20261122_0650"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
        CREATE TABLE metric_positions (
            cluster_id integer NOT NULL CONSTRAINT metric_positions_cluster_id_fkey REFERENCES clusters,
            source text NOT NULL,
            until timestamptz NOT NULL,
            CONSTRAINT metric_positions_pkey PRIMARY KEY (cluster_id, source)
        )
    """)


def downgrade() -> None:
    op.execute("DROP TABLE metric_positions")
