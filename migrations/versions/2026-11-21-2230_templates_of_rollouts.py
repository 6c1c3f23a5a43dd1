"""Know a rollback to a template that an earlier import saw."""

from alembic import op

revision = "20261121_2230"
down_revision = "20261121_2000"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE rollouts ADD COLUMN templates text[] NOT NULL DEFAULT '{}'")


def downgrade() -> None:
    op.execute("ALTER TABLE rollouts DROP COLUMN templates")
