"""From when each source tells of a cluster: before that nobody would have told of a change."""

from alembic import op

revision = "20261201_0200"
down_revision = "20261201_0100"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE recorded ADD COLUMN from_at timestamptz")
    # What is known of it: the oldest change that is still there.
    op.execute("""
        UPDATE recorded SET from_at = least(to_at, coalesce(
            (SELECT min(at) FROM changes WHERE changes.cluster_id = recorded.cluster_id), to_at))
    """)
    op.execute("ALTER TABLE recorded ALTER COLUMN from_at SET NOT NULL")


def downgrade() -> None:
    op.execute("ALTER TABLE recorded DROP COLUMN from_at")
