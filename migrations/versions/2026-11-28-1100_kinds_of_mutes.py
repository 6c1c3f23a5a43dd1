"""What is muted by a reaction is one object: its kind and group belong to it, beside its name.

Those that were muted by a name alone are told again: of which kind they are is not known, and they held for a day.
"""

from alembic import op

revision = "20261128_1100"
down_revision = "20261128_1000"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("DELETE FROM slack_mutes WHERE name <> ''")
    op.execute("""
        ALTER TABLE slack_mutes
            ADD COLUMN api_group text NOT NULL DEFAULT '',
            ADD COLUMN kind text NOT NULL DEFAULT '',
            DROP CONSTRAINT slack_mutes_pkey,
            ADD CONSTRAINT slack_mutes_pkey PRIMARY KEY (channel, cluster, namespace, name, api_group, kind)
    """)
    op.execute("ALTER TABLE slack_mutes ALTER COLUMN api_group DROP DEFAULT, ALTER COLUMN kind DROP DEFAULT")


def downgrade() -> None:
    op.execute("DELETE FROM slack_mutes WHERE name <> ''")
    op.execute("""
        ALTER TABLE slack_mutes
            DROP CONSTRAINT slack_mutes_pkey,
            DROP COLUMN api_group,
            DROP COLUMN kind,
            ADD CONSTRAINT slack_mutes_pkey PRIMARY KEY (channel, cluster, namespace, name)
    """)
