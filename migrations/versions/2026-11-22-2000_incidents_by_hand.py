"""Keep where an incident came from, what people said of it, and which one it was merged into."""

from alembic import op

revision = "20261122_2000"
down_revision = "20261122_1930"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "ALTER TABLE incidents"
        " ADD COLUMN origin text NOT NULL DEFAULT 'alerts',"
        " ADD COLUMN opened_by text NOT NULL DEFAULT '',"
        " ADD COLUMN said jsonb NOT NULL DEFAULT '{}',"
        " ADD COLUMN merged_into text,"
        " ADD COLUMN first_alert_at timestamptz"
    )
    op.execute("UPDATE incidents SET first_alert_at = started_at")
    op.execute("ALTER TABLE incidents ALTER COLUMN first_alert_at SET NOT NULL")
    op.execute("ALTER TABLE idempotency_keys RENAME COLUMN change_ids TO made")


def downgrade() -> None:
    op.execute("ALTER TABLE idempotency_keys RENAME COLUMN made TO change_ids")
    op.execute("DELETE FROM incidents WHERE merged_into IS NOT NULL")
    op.execute(
        "ALTER TABLE incidents DROP COLUMN origin, DROP COLUMN opened_by, DROP COLUMN said, DROP COLUMN merged_into,"
        " DROP COLUMN first_alert_at"
    )
