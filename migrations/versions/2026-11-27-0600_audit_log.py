"""The log of what people and programs did in Foreshock itself: rows are only added, until they are old."""

from alembic import op

revision = "20261127_0600"
down_revision = "20261127_0530"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
        CREATE TABLE audit_log (
            id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT audit_log_pkey PRIMARY KEY,
            at timestamptz NOT NULL,
            action text NOT NULL,
            who text NOT NULL,
            token_id integer,
            address text NOT NULL,
            about text NOT NULL,
            times integer NOT NULL
        )
    """)
    # Rows are kept for 400 days by the program's clock, which may differ from this one.
    op.execute("""
        CREATE FUNCTION audit_log_is_only_added_to() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF TG_OP = 'DELETE' THEN
                IF OLD.at < now() - interval '399 days' THEN
                    RETURN OLD;
                END IF;
            END IF;
            RAISE EXCEPTION 'audit_log is only added to: % refused', TG_OP USING ERRCODE = 'insufficient_privilege';
        END
        $$
    """)
    op.execute("""
        CREATE TRIGGER audit_log_rows BEFORE UPDATE OR DELETE ON audit_log
        FOR EACH ROW EXECUTE FUNCTION audit_log_is_only_added_to()
    """)
    op.execute("""
        CREATE TRIGGER audit_log_whole BEFORE TRUNCATE ON audit_log
        FOR EACH STATEMENT EXECUTE FUNCTION audit_log_is_only_added_to()
    """)


def downgrade() -> None:
    op.execute("DROP TABLE audit_log")
    op.execute("DROP FUNCTION audit_log_is_only_added_to")
