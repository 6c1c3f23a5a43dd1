"""Know up to when each source tells of a cluster, also where nothing changed.

What is recorded already is looked at once, by the newest rows of its logs.
"""

from alembic import op

revision = "20261122_0000"
down_revision = "20261121_2330"
branch_labels = None
depends_on = None

_AUDITED = """
    SELECT id, 'audit log', greatest((SELECT max(at) FROM requests WHERE cluster_id = id),
                                     (SELECT max(at) FROM call_minutes WHERE cluster_id = id)) FROM clusters
"""
_CHANGED = """
    SELECT id, CASE WHEN sources & 1 > 0 THEN 'audit log' WHEN sources & 2 > 0 THEN 'watch' ELSE 'dump' END, at
    FROM clusters, LATERAL (SELECT at, sources FROM changes WHERE cluster_id = id ORDER BY at DESC LIMIT 1) AS newest
"""
_MEASURED = """
    SELECT id, 'metrics', until
    FROM clusters, LATERAL (SELECT until FROM samples WHERE cluster_id = id ORDER BY at DESC LIMIT 1) AS newest
"""
_ALERTED = """
    SELECT cluster_id, 'alerts', max(last_alert_at) FROM incidents GROUP BY cluster_id
"""


def upgrade() -> None:
    op.execute(
        "CREATE TABLE recorded (cluster_id int NOT NULL CONSTRAINT recorded_cluster_id_fkey REFERENCES clusters (id),"
        " source text NOT NULL, to_at timestamptz NOT NULL, CONSTRAINT recorded_pkey PRIMARY KEY (cluster_id, source))"
    )
    for found in (_AUDITED, _CHANGED, _MEASURED, _ALERTED):
        op.execute(
            f"INSERT INTO recorded (cluster_id, source, to_at) SELECT * FROM ({found}) AS found (id, source, to_at)"  # noqa: S608
            " WHERE to_at IS NOT NULL ON CONFLICT (cluster_id, source) DO UPDATE"
            " SET to_at = greatest(recorded.to_at, excluded.to_at)"
        )


def downgrade() -> None:
    op.execute("DROP TABLE recorded")
