"""Know when the API server was told of a symptom: more exact than the whole second that an Event holds."""

from alembic import op

revision = "20261122_0030"
down_revision = "20261122_0000"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE symptoms ADD COLUMN told_at timestamptz")


def downgrade() -> None:
    op.execute("ALTER TABLE symptoms DROP COLUMN told_at")
