"""An incident may be told in a channel and to targets, and a target that is gone is told nothing more."""

from alembic import op

revision = "20261127_0700"
down_revision = "20261127_0600"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE slack_channels ADD COLUMN off text NOT NULL DEFAULT ''")
    op.execute("""
        ALTER TABLE slack_messages
            DROP CONSTRAINT slack_messages_incident_id_part_key,
            ADD CONSTRAINT slack_messages_incident_id_channel_part_key UNIQUE (incident_id, channel, part)
    """)


def downgrade() -> None:
    # The names of targets begin with a small letter, the IDs of channels do not.
    op.execute("DELETE FROM slack_messages WHERE channel ~ '^[a-z]'")
    op.execute("DELETE FROM slack_noticed WHERE channel ~ '^[a-z]'")
    op.execute("DELETE FROM slack_notices WHERE channel ~ '^[a-z]'")
    op.execute("DELETE FROM slack_channels WHERE id ~ '^[a-z]'")
    op.execute("""
        ALTER TABLE slack_messages
            DROP CONSTRAINT slack_messages_incident_id_channel_part_key,
            ADD CONSTRAINT slack_messages_incident_id_part_key UNIQUE (incident_id, part)
    """)
    op.execute("ALTER TABLE slack_channels DROP COLUMN off")
