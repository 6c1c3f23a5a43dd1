"""Let the role of a token hold in some clusters, or namespaces of them, alone."""

from alembic import op

revision = "20261127_0530"
down_revision = "20261127_0500"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE tokens ADD COLUMN scope text[]")


def downgrade() -> None:
    op.execute("DELETE FROM tokens WHERE scope IS NOT NULL")
    op.execute("ALTER TABLE tokens DROP COLUMN scope")
