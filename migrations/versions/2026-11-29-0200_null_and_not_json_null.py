"""What is not known of a symptom, an incident or a message is NULL, and no longer the JSON value null.

A symptom of what no workload owns, as of a node, was listed without a name: null stood in the workload's place.
"""

from alembic import op

revision = "20261129_0200"
down_revision = "20261128_1100"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
        UPDATE symptoms SET resource = nullif(resource, 'null'), workload = nullif(workload, 'null')
        WHERE resource = 'null' OR workload = 'null'
    """)
    op.execute("UPDATE incidents SET onset = NULL WHERE onset = 'null'")
    op.execute("UPDATE slack_messages SET shown = NULL WHERE shown = 'null'")


def downgrade() -> None:
    """Nothing: NULL was always allowed."""
