"""Why a message of Slack's waits, and since when it is tried in vain.

Of what waits already that is not known until it is tried again.
"""

from alembic import op

revision = "20261130_0100"
down_revision = "20261129_0300"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE slack_messages ADD COLUMN put_off text NOT NULL DEFAULT ''")
    op.execute("ALTER TABLE slack_messages ADD COLUMN put_off_since timestamptz")


def downgrade() -> None:
    op.execute("ALTER TABLE slack_messages DROP COLUMN put_off_since")
    op.execute("ALTER TABLE slack_messages DROP COLUMN put_off")
