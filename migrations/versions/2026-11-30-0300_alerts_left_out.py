"""Alerts of a cluster that could not be taken: since when, when last, and why."""

from alembic import op

revision = "20261130_0300"
down_revision = "20261130_0200"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE clusters ADD COLUMN left_out_since timestamptz")
    op.execute("ALTER TABLE clusters ADD COLUMN left_out_at timestamptz")
    op.execute("ALTER TABLE clusters ADD COLUMN left_out_why text NOT NULL DEFAULT ''")


def downgrade() -> None:
    for name in ("why", "at", "since"):
        op.execute(f"ALTER TABLE clusters DROP COLUMN left_out_{name}")
