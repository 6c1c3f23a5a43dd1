"""Know of a change that was found afterwards what it was found in, and how long before its time it may have been."""

from alembic import op

revision = "20261122_0630"
down_revision = "20261122_0600"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
        ALTER TABLE changes ADD COLUMN within_seconds integer NOT NULL DEFAULT 0,
                            ADD COLUMN found_in text NOT NULL DEFAULT ''
    """)
    op.execute("CREATE INDEX changes_cluster_id_at_idx ON changes (cluster_id, at) WHERE sources & 8 <> 0")


def downgrade() -> None:
    op.execute("DROP INDEX changes_cluster_id_at_idx")
    op.execute("ALTER TABLE changes DROP COLUMN within_seconds, DROP COLUMN found_in")
