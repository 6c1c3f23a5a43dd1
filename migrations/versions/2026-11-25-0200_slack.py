"""Remember what Slack was told of each incident, and what it still is to be told."""

from alembic import op

revision = "20261125_0200"
down_revision = "20261124_1930"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
        CREATE TABLE slack_channels (
            id text NOT NULL CONSTRAINT slack_channels_pkey PRIMARY KEY,
            since timestamptz NOT NULL,
            quiet_until timestamptz NOT NULL
        )
    """)
    op.execute("""
        CREATE TABLE slack_messages (
            incident_id text NOT NULL CONSTRAINT slack_messages_incident_id_fkey REFERENCES incidents ON DELETE CASCADE,
            part integer NOT NULL,
            channel text NOT NULL CONSTRAINT slack_messages_channel_fkey REFERENCES slack_channels,
            ts text,
            body text NOT NULL,
            shown jsonb,
            trying_since timestamptz,
            attempts integer NOT NULL,
            not_before timestamptz NOT NULL,
            error text NOT NULL,
            CONSTRAINT slack_messages_pkey PRIMARY KEY (incident_id, part)
        )
    """)
    op.execute("CREATE INDEX incidents_started_at_idx ON incidents (started_at)")


def downgrade() -> None:
    op.execute("DROP INDEX incidents_started_at_idx")
    op.execute("DROP TABLE slack_messages, slack_channels")
