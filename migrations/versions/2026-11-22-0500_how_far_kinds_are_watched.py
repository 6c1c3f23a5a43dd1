"""Remember how far each kind of a cluster has been watched: what makes a watch go on after a restart, without a LIST."""

from alembic import op

revision = "20261122_0500"
down_revision = "20261122_0430"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
        CREATE TABLE watch_positions (
            cluster_id integer NOT NULL CONSTRAINT watch_positions_cluster_id_fkey REFERENCES clusters,
            api_group text NOT NULL,
            plural text NOT NULL,
            resource_version text NOT NULL,
            at timestamptz NOT NULL,
            lost text NOT NULL,
            CONSTRAINT watch_positions_pkey PRIMARY KEY (cluster_id, api_group, plural)
        )
    """)


def downgrade() -> None:
    op.execute("DROP TABLE watch_positions")
