"""Find the series of a namespace among all of a cluster: a change's page reads those of few of a hundred thousand."""

from alembic import op

revision = "20261124_1930"
down_revision = "20261122_2030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("CREATE INDEX series_keys_labels_idx ON series_keys USING gin (labels jsonb_path_ops)")


def downgrade() -> None:
    op.execute("DROP INDEX series_keys_labels_idx")
