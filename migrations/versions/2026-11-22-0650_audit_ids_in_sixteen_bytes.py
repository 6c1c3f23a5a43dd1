"""Keep an audit ID in the sixteen bytes that it is, not in the thirty-six characters in which it is written.

A zero stands before them: anybody may send another text as Audit-ID, which is kept as it is and holds none.
"""

from alembic import op

revision = "20261122_0650"
down_revision = "20261122_0640"
branch_labels = None
depends_on = None

_UUID = "'^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$'"


def upgrade() -> None:
    op.execute("ALTER TABLE changes ALTER COLUMN audit_id DROP DEFAULT")
    op.execute(f"""
        ALTER TABLE changes ALTER COLUMN audit_id TYPE bytea USING CASE
            WHEN audit_id ~ {_UUID} THEN decode('00' || replace(audit_id, '-', ''), 'hex')
            ELSE convert_to(audit_id, 'UTF8') END
    """)
    op.execute("ALTER TABLE changes ALTER COLUMN audit_id SET DEFAULT ''")


def downgrade() -> None:
    op.execute("ALTER TABLE changes ALTER COLUMN audit_id DROP DEFAULT")
    op.execute("""
        ALTER TABLE changes ALTER COLUMN audit_id TYPE text USING CASE
            WHEN substr(audit_id, 1, 1) = decode('00', 'hex') THEN encode(substr(audit_id, 2), 'hex')::uuid::text
            ELSE convert_from(audit_id, 'UTF8') END
    """)
    op.execute("ALTER TABLE changes ALTER COLUMN audit_id SET DEFAULT ''")
