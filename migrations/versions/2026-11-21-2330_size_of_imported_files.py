"""Know an imported file again when it has grown: by the hash of as many bytes as it had.

What was refused of it because it ended there is known too: it is dropped when it is read again.
"""

from alembic import op

revision = "20261121_2330"
down_revision = "20261121_2230"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE import_positions ADD COLUMN size bigint NOT NULL DEFAULT 0")
    op.execute("ALTER TABLE quarantine ADD COLUMN again boolean NOT NULL DEFAULT false")


def downgrade() -> None:
    op.execute("ALTER TABLE quarantine DROP COLUMN again")
    op.execute("ALTER TABLE import_positions DROP COLUMN size")
