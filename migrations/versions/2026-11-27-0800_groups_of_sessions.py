"""A session keeps the groups of whom a provider named: so people are who they are in their clusters, too."""

from alembic import op

revision = "20261127_0800"
down_revision = "20261127_0700"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE tokens ADD COLUMN groups text[]")


def downgrade() -> None:
    # The role is not known to the program before.
    op.execute("UPDATE tokens SET revoked_at = coalesce(revoked_at, now()) WHERE role = 'operator'")
    op.execute("ALTER TABLE tokens DROP COLUMN groups")
