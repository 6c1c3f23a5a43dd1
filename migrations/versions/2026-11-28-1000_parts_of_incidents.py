"""The parts of an incident are found: what was said of them was said of it."""

from alembic import op

revision = "20261128_1000"
down_revision = "20261127_0800"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("CREATE INDEX ON incidents (merged_into) WHERE merged_into IS NOT NULL")


def downgrade() -> None:
    op.execute("DROP INDEX incidents_merged_into_idx")
