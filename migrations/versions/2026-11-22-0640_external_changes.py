"""Keep changes that Kubernetes does not see: where more of them can be read, which workload they concern, and the keys of
the requests that told of them."""

from alembic import op

revision = "20261122_0640"
down_revision = "20261122_0630"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "ALTER TABLE changes ADD COLUMN url text NOT NULL DEFAULT '', ADD COLUMN workload text NOT NULL DEFAULT ''"
    )
    op.execute(
        "CREATE TABLE idempotency_keys ("
        " digest bytea CONSTRAINT idempotency_keys_pkey PRIMARY KEY,"
        " body bytea NOT NULL,"
        " change_ids text[] NOT NULL,"
        " at timestamptz NOT NULL"
        ")"
    )


def downgrade() -> None:
    op.execute("DELETE FROM tokens WHERE purpose = 'changes'")
    op.execute("DROP TABLE idempotency_keys")
    op.execute("ALTER TABLE changes DROP COLUMN url, DROP COLUMN workload")
