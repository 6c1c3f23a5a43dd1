"""Let a token belong to the API server of one cluster, and be good for nothing but what that sends."""

from alembic import op

revision = "20261122_0430"
down_revision = "20261122_0400"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE tokens ADD COLUMN cluster text NOT NULL DEFAULT ''")


def downgrade() -> None:
    op.execute("DELETE FROM tokens WHERE purpose = 'audit'")
    op.execute("ALTER TABLE tokens DROP COLUMN cluster")
