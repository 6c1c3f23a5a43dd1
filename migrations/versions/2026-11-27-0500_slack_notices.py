"""Messages in Slack of changes and rollouts, beside those of incidents; and what is muted there."""

from alembic import op

revision = "20261127_0500"
down_revision = "20261127_0240"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
        CREATE TABLE slack_notices (
            id bigint GENERATED ALWAYS AS IDENTITY NOT NULL CONSTRAINT slack_notices_pkey PRIMARY KEY,
            channel text NOT NULL CONSTRAINT slack_notices_channel_fkey REFERENCES slack_channels,
            title text NOT NULL,
            opened_at timestamptz NOT NULL,
            joined_at timestamptz NOT NULL,
            digest boolean NOT NULL,
            look_at timestamptz,
            wanted text NOT NULL DEFAULT '',
            reach text[],
            followed text[] NOT NULL DEFAULT '{}'
        )
    """)
    op.execute("CREATE INDEX slack_notices_look_at_idx ON slack_notices (look_at) WHERE look_at IS NOT NULL")
    op.execute("CREATE INDEX slack_notices_due_idx ON slack_notices (id) WHERE wanted <> ''")
    op.execute("CREATE INDEX slack_notices_channel_opened_at_idx ON slack_notices (channel, opened_at)")
    op.execute("""
        CREATE TABLE slack_noticed (
            channel text NOT NULL,
            cluster_id integer NOT NULL,
            at timestamptz NOT NULL,
            version_key bigint NOT NULL,
            notice_id bigint NOT NULL
                CONSTRAINT slack_noticed_notice_id_fkey REFERENCES slack_notices ON DELETE CASCADE,
            CONSTRAINT slack_noticed_pkey PRIMARY KEY (channel, cluster_id, at, version_key)
        )
    """)
    op.execute("CREATE INDEX slack_noticed_notice_id_idx ON slack_noticed (notice_id)")
    op.execute("""
        CREATE TABLE slack_routed (
            cluster_id integer NOT NULL CONSTRAINT slack_routed_pkey PRIMARY KEY,
            number bigint NOT NULL,
            told integer NOT NULL
        )
    """)
    op.execute("""
        CREATE TABLE slack_mutes (
            channel text NOT NULL,
            cluster text NOT NULL,
            namespace text NOT NULL,
            name text NOT NULL,
            until timestamptz NOT NULL,
            said_by text NOT NULL,
            said_at timestamptz NOT NULL,
            CONSTRAINT slack_mutes_pkey PRIMARY KEY (channel, cluster, namespace, name)
        )
    """)
    op.execute("ALTER TABLE slack_messages DROP CONSTRAINT slack_messages_pkey")
    op.execute("""
        ALTER TABLE slack_messages
            ALTER COLUMN incident_id DROP NOT NULL,
            ADD COLUMN notice_id bigint
                CONSTRAINT slack_messages_notice_id_fkey REFERENCES slack_notices ON DELETE CASCADE,
            ADD COLUMN id bigint GENERATED ALWAYS AS IDENTITY NOT NULL CONSTRAINT slack_messages_pkey PRIMARY KEY,
            ADD CONSTRAINT slack_messages_incident_id_part_key UNIQUE (incident_id, part),
            ADD CONSTRAINT slack_messages_notice_id_part_key UNIQUE (notice_id, part)
    """)
    op.execute("CREATE INDEX slack_messages_part_idx ON slack_messages (part) WHERE ts IS NULL")


def downgrade() -> None:
    op.execute("DELETE FROM slack_messages WHERE notice_id IS NOT NULL")
    op.execute("DROP INDEX slack_messages_part_idx")
    op.execute("""
        ALTER TABLE slack_messages
            DROP CONSTRAINT slack_messages_incident_id_part_key, DROP CONSTRAINT slack_messages_notice_id_part_key,
            DROP COLUMN id, DROP COLUMN notice_id,
            ALTER COLUMN incident_id SET NOT NULL,
            ADD CONSTRAINT slack_messages_pkey PRIMARY KEY (incident_id, part)
    """)
    op.execute("DROP TABLE slack_mutes, slack_routed, slack_noticed, slack_notices")
