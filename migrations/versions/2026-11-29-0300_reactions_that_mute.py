"""Whose reactions mute an object: it is muted while one of them is left.

Of what is muted already that is not known: the first who takes theirs away ends it, as before.
"""

from alembic import op

revision = "20261129_0300"
down_revision = "20261129_0200"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE slack_mutes ADD COLUMN reactions text[] NOT NULL DEFAULT '{}'")


def downgrade() -> None:
    op.execute("ALTER TABLE slack_mutes DROP COLUMN reactions")
