"""Know which incidents are to be ranked again: those of which something was recorded after their newest ranking.

The mark is set in the transaction that records, so that no kill in between leaves an incident without its ranking.
"""

from alembic import op

revision = "20261121_1700"
down_revision = "20261121_1400"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE incidents ADD COLUMN last_alert_at timestamptz")
    op.execute("ALTER TABLE incidents ADD COLUMN news_at timestamptz")
    op.execute("ALTER TABLE incidents ADD COLUMN ranked_news_at timestamptz")
    op.execute(
        "UPDATE incidents SET news_at = clock_timestamp(), last_alert_at = coalesce("
        "(SELECT max(CAST(alert ->> 'at' AS timestamptz)) FROM jsonb_array_elements(alerts) AS alert), started_at)"
    )
    op.execute("ALTER TABLE incidents ALTER COLUMN last_alert_at SET NOT NULL")
    op.execute("ALTER TABLE incidents ALTER COLUMN news_at SET NOT NULL")


def downgrade() -> None:
    op.execute("ALTER TABLE incidents DROP COLUMN ranked_news_at, DROP COLUMN news_at, DROP COLUMN last_alert_at")
