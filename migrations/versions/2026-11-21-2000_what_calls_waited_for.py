"""Know what slow calls waited for, as the API server tells it in its audit log."""

from alembic import op

revision = "20261121_2000"
down_revision = "20261121_1700"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE call_keys ADD COLUMN waited_for text NOT NULL DEFAULT ''")


def downgrade() -> None:
    op.execute("ALTER TABLE call_keys DROP COLUMN waited_for")
