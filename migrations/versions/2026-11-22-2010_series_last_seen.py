"""Note when a series was last told of: those that are gone do not count against what a cluster may have."""

from alembic import op

revision = "20261122_2010"
down_revision = "20261122_2000"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE series_keys ADD COLUMN seen_at timestamptz NOT NULL DEFAULT now()")


def downgrade() -> None:
    op.execute("DELETE FROM tokens WHERE purpose = 'metrics'")
    op.execute("ALTER TABLE series_keys DROP COLUMN seen_at")
