"""What is to be said of a cluster, not of its alerts alone: since when, when last, and why."""

from alembic import op

revision = "20261201_0100"
down_revision = "20261130_0300"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
        CREATE TABLE remarks (
            cluster_id integer NOT NULL REFERENCES clusters (id),
            about text NOT NULL,
            since timestamptz NOT NULL,
            at timestamptz NOT NULL,
            why text NOT NULL,
            PRIMARY KEY (cluster_id, about)
        )
    """)
    op.execute("""
        INSERT INTO remarks (cluster_id, about, since, at, why)
        SELECT id, 'alerts', left_out_since, left_out_at, left_out_why FROM clusters WHERE left_out_at IS NOT NULL
    """)
    for name in ("why", "at", "since"):
        op.execute(f"ALTER TABLE clusters DROP COLUMN left_out_{name}")


def downgrade() -> None:
    op.execute("ALTER TABLE clusters ADD COLUMN left_out_since timestamptz")
    op.execute("ALTER TABLE clusters ADD COLUMN left_out_at timestamptz")
    op.execute("ALTER TABLE clusters ADD COLUMN left_out_why text NOT NULL DEFAULT ''")
    op.execute("""
        UPDATE clusters SET left_out_since = since, left_out_at = at, left_out_why = why
        FROM remarks WHERE cluster_id = clusters.id AND about = 'alerts'
    """)
    op.execute("DROP TABLE remarks")
