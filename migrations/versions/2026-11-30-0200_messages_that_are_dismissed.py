"""Messages of Slack's that nobody wants to be told any more: somebody dismissed them, or deleted them in Slack."""

from alembic import op

revision = "20261130_0200"
down_revision = "20261130_0100"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE slack_messages ADD COLUMN dismissed boolean NOT NULL DEFAULT false")
    op.execute(r"UPDATE slack_messages SET dismissed = true WHERE error LIKE '%(message\_not\_found)'")


def downgrade() -> None:
    op.execute("ALTER TABLE slack_messages DROP COLUMN dismissed")
