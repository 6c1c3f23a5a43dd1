"""Remember what people say of suspects: this was it, this was not."""

from alembic import op

revision = "20261122_2030"
down_revision = "20261122_2020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
        CREATE TABLE verdicts (
            incident_id text NOT NULL CONSTRAINT verdicts_incident_id_fkey REFERENCES incidents ON DELETE CASCADE,
            change_id text NOT NULL,
            opinion text NOT NULL,
            said_by text NOT NULL,
            said_at timestamptz NOT NULL,
            CONSTRAINT verdicts_pkey PRIMARY KEY (incident_id, change_id)
        )
    """)


def downgrade() -> None:
    op.execute("DROP TABLE verdicts")
