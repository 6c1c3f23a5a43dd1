"""Who calls whom, as service meshes count it."""

from alembic import op

revision = "20261125_0230"
down_revision = "20261125_0200"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
        CREATE TABLE call_edges (
            cluster_id integer NOT NULL CONSTRAINT call_edges_cluster_id_fkey REFERENCES clusters (id),
            caller_namespace text NOT NULL,
            caller text NOT NULL,
            kind text NOT NULL,
            callee_namespace text NOT NULL,
            callee text NOT NULL,
            first_seen timestamptz NOT NULL,
            last_seen timestamptz NOT NULL,
            CONSTRAINT call_edges_pkey
                PRIMARY KEY (cluster_id, caller_namespace, caller, kind, callee_namespace, callee)
        )
    """)


def downgrade() -> None:
    op.execute("DROP TABLE call_edges")
