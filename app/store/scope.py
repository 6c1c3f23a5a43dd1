"""What somebody may read whose token is limited to clusters or namespaces: the one place where that is decided.

Beside the tables stands a schema of views with their names, each of which holds the rows of the transaction's scope
alone (docs/decisions/0051). The connections that a limited token reads with (database.Database.scoped) see this schema
and no other: every statement of the program answers them their part, and a table without a view is not there for them.
Without a scope the views are empty.
"""

from __future__ import annotations

from hashlib import sha256

import msgspec
from sqlalchemy import Connection, Table, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.ranking.precedents import ELSEWHERE_RULE
from app.core.roles import NOT_NAMESPACED, Scope
from app.failures import Exit, Expected
from app.store import tables

SCHEMA = "foreshock_scoped"
SETTING = "foreshock.scope"
"""The scope of a transaction: a list of objects with ``cluster`` and ``namespace``, null for the whole cluster."""

_GRANTED = f"""
SELECT c.id AS cluster_id, g.namespace, CASE g.namespace WHEN '{NOT_NAMESPACED}' THEN 0 ELSE w.id END AS namespace_id
FROM jsonb_to_recordset(CAST(nullif(current_setting('{SETTING}', true), '') AS jsonb))
  AS g (cluster text, namespace text)
JOIN clusters c ON c.name = g.cluster LEFT JOIN words w ON w.word = g.namespace
"""  # noqa: S608 - our own text only
"""The places of the scope, by the database's numbers. ``namespace`` NULL: the whole cluster; ``namespace_id`` is NULL
there, too, and for a namespace of which nothing is recorded."""
_PART, _ALL = "g.namespace IS NOT NULL", "g.namespace IS NULL"


def _among(expression: str, column: str = "g.cluster_id", *, of: str = "true", kind: str = "int") -> str:
    """Whether it is among those of the places: these are looked up once for a statement, not for each row."""
    return f"{expression} = ANY(CAST((SELECT array_agg({column}) FROM {SCHEMA}.granted g WHERE {of}) AS {kind}[]))"  # noqa: S608


def _whole(cluster: str = "t.cluster_id") -> str:
    """Of a cluster that the scope reaches as a whole."""
    return _among(cluster, of=_ALL)


def _placed(row: str = "t") -> str:
    """In a namespace of the scope; what is in none, where the scope says so."""
    place = "CAST({0}.cluster_id AS bigint) << 32 | {0}.namespace_id"
    return " AND ".join(
        [
            _among(f"{row}.cluster_id", of=_PART),
            _among(f"{row}.namespace_id", "g.namespace_id", of=_PART),
            _among(place.format(row), place.format("g"), of=_PART, kind="bigint"),
        ]
    )


_KNOWN = _among("t.cluster_id")
_NAMES = f"""coalesce((
    SELECT jsonb_agg(g.namespace) FROM {SCHEMA}.granted g WHERE g.cluster_id = t.cluster_id AND {_PART}), '[]')"""  # noqa: S608
_INCIDENT = f"""{_whole()} OR (
  {_among("t.cluster_id", of=_PART)}
  AND t.scope -> 'namespaces' <> '[]' AND t.scope -> 'namespaces' <@ {_NAMES}
  AND t.scope ->> 'control_plane' = 'false'
  AND NOT EXISTS (
    SELECT FROM jsonb_array_elements_text(t.scope -> 'workloads') AS w (name)
    WHERE NOT {_NAMES} @> to_jsonb(split_part(w.name, '/', 1)))
  AND NOT EXISTS (SELECT FROM jsonb_path_query(t.alerts, '$[*].*.namespace') AS r (name) WHERE NOT {_NAMES} @> r.name)
  AND NOT EXISTS (
    SELECT FROM jsonb_array_elements(t.alerts) AS a (alert)
    WHERE NOT EXISTS (
        SELECT FROM jsonb_array_elements(a.alert -> 'labels') AS l (label)
        WHERE l.label ->> 0 IN ('namespace', 'exported_namespace'))
      OR EXISTS (
        SELECT FROM jsonb_array_elements(a.alert -> 'labels') AS l (label)
        WHERE strpos(l.label ->> 0, 'namespace') > 0 AND NOT {_NAMES} @> (l.label -> 1)))
)"""  # noqa: S608
"""Incidents that are about the scope's namespaces alone: by what they are about, and by each alert of theirs. One that
names no namespace is the whole cluster's."""

VISIBLE = {
    "clusters": _among("t.id"),
    "recorded": _KNOWN,
    "remarks": _whole(),  # they name what they like
    "words": "true",  # reached by the numbers of rows that are shown; nothing lists them
    # names may be a project's; each is looked for by the index of objects
    "kinds": f"""(SELECT true FROM objects o WHERE {_whole("o.cluster_id")} AND o.kind_id = t.id LIMIT 1)
      OR (SELECT true FROM objects o WHERE {_placed("o")} AND o.kind_id = t.id LIMIT 1)""",  # noqa: S608
    "objects": f"{_whole()} OR {_placed()}",
    "changes": f"{_whole()} OR {_placed()}",
    "rollouts": f"{_whole()} OR EXISTS (SELECT FROM {SCHEMA}.objects o WHERE o.id = t.object_id)",
    # of no namespace are alerts, too, whose labels name one that nobody resolved
    "symptoms": f"{_whole()} OR {_placed()} AND t.namespace_id <> 0",
    "call_keys": f"EXISTS (SELECT FROM {SCHEMA}.granted g WHERE {_ALL})",  # reached by the numbers in payloads
    "call_minutes": _whole(),  # of all namespaces in one payload
    "requests": _whole(),
    "series_keys": _whole(),  # labels name what they like
    "samples_told": _whole(),
    "samples": _whole(),
    "samples_minutes": _whole(),
    "samples_hours": _whole(),
    "gaps": _KNOWN,  # who reads a part is told what was not seen, too
    "collectors": _KNOWN,  # the same, of now
    "incidents": _INCIDENT,
    "rankings": f"{_whole()} OR EXISTS (SELECT FROM {SCHEMA}.incidents i WHERE i.id = t.incident_id)",
    "verdicts": f"EXISTS (SELECT FROM {SCHEMA}.incidents i WHERE i.id = t.incident_id AND {_whole('i.cluster_id')})",
    "arrivals": _whole(),  # a number of each batch, whatever it is of
    "views": "false",  # a question names what it likes
}
"""By table, which of its rows (``t``) a scope reaches."""
HIDDEN = {
    "slack_channels": "of the whole installation",
    "slack_notices": "of the whole installation",
    "slack_noticed": "of the whole installation",
    "slack_routed": "of the whole installation",
    "slack_mutes": "of the whole installation",
    "slack_messages": "of the whole installation",
    "quarantine": "an excerpt may be of anything",
    "import_positions": "for who records",
    "spool_positions": "for who records",
    "watch_positions": "for who records",
    "metric_positions": "for who records",
    "call_edges": "for who ranks",
    "tokens": "credentials",
    "audit_log": "of the whole installation",
    "idempotency_keys": "for who writes",
    "installation": "holds a key",
}
"""Tables that are not there for a limited token, and why."""
_FOUND_IN = """'{"found_in": "what was measured"}'"""


def _theirs(resource: str) -> str:
    """Whether a resource in a document is of the scope."""
    named = f"coalesce({resource} ->> 'namespace', '{NOT_NAMESPACED}')"
    cluster = "(SELECT c.name FROM clusters c WHERE c.id = t.cluster_id)"
    return f"{resource} ->> 'cluster' = {cluster} AND {_NAMES} @> to_jsonb({named})"


def _parts(name: str) -> str:
    """Of what else a suspect stands for, what is of the scope."""
    of = f"jsonb_array_elements(s.suspect -> '{name}') WITH ORDINALITY AS p (part, place)"
    theirs = _theirs("(p.part -> 'resource')")
    found = f"SELECT jsonb_agg(p.part ORDER BY p.place) FROM {of} WHERE {theirs}"  # noqa: S608
    return f"'{name}', coalesce(({found}), '[]')"


_SUSPECTS = f"""
    SELECT row_number() OVER (ORDER BY s.place) AS rank, CAST(s.suspect ->> 'probability' AS float) AS share,
      s.suspect - CAST('{{derived,would_flip}}' AS text[])
        || jsonb_build_object('score', 0, 'evidence', CAST('[]' AS jsonb), {_parts("also")}, {_parts("beside")})
        AS suspect
    FROM jsonb_array_elements(t.payload -> 'suspects') WITH ORDINALITY AS s (suspect, place)
    WHERE {_theirs("(s.suspect #> '{change,resource}')")}"""  # noqa: S608
_RANKING = f"""(
  SELECT t.payload - CAST('{{fights,sparks,callers,findings,not_measured,scope}}' AS text[]) || jsonb_build_object(
    'onset', t.payload -> 'onset' || {_FOUND_IN}, 'candidates', count(*),
    'none_of_these', greatest(0, 1 - coalesce(sum(o.share), 0)),
    'suspects', coalesce(jsonb_agg(o.suspect || jsonb_build_object('rank', o.rank) ORDER BY o.rank), '[]'))
  FROM ({_SUSPECTS}) o)"""  # noqa: S608
"""A ranking of the scope's own changes: the chance of none of them is what is left, whatever has it. Without reasons
and figures, which name what they like."""
_NEAR = f"""(
  SELECT t.payload || jsonb_build_object('suspects', coalesce(jsonb_agg(
    s.suspect || jsonb_build_object(
      'evidence', (
        SELECT coalesce(jsonb_agg(e.one ORDER BY e.place), '[]')
        FROM jsonb_array_elements(s.suspect -> 'evidence') WITH ORDINALITY AS e (one, place)
        WHERE e.one ->> 'rule' <> '{ELSEWHERE_RULE}'),
      'would_flip', coalesce(nullif(s.suspect ->> 'would_flip', '{ELSEWHERE_RULE}'), ''))
    ORDER BY s.place), '[]'))
  FROM jsonb_array_elements(t.payload -> 'suspects') WITH ORDINALITY AS s (suspect, place))"""  # noqa: S608
"""A ranking without what it says of other clusters: their names, and their incidents."""
_COVERED = {
    (
        "incidents",
        "onset",
    ): f"CASE WHEN {_whole()} THEN t.onset ELSE t.onset || {_FOUND_IN} END",
    ("rankings", "payload"): f"CASE WHEN {_whole()} THEN {_NEAR} ELSE {_RANKING} END",
    ("collectors", "watching"): f"CASE WHEN {_whole()} THEN t.watching ELSE t.watching - 'remarks' END",
}
"""Columns that are not told, or not whole, to who reaches a part of the cluster: they name what they like."""


class NoViewsError(Expected):
    """This database has no views for scopes; the message says why and what to do."""

    code = Exit.NOT_NOW


def statements() -> list[str]:
    """What makes the views, in their order: some look into others."""
    order = sorted(VISIBLE, key=lambda name: name not in ("objects", "incidents"))
    return [
        f"CREATE VIEW {SCHEMA}.granted AS {_GRANTED}",
        *(view(tables.changes.metadata.tables[name], VISIBLE[name]) for name in order),
        f"CREATE VIEW {SCHEMA}.arrivals_number_seq AS SELECT last_value, is_called FROM arrivals_number_seq",  # noqa: S608
    ]


def view(table: Table, where: str) -> str:
    """The statement that makes the view of a table."""
    columns = (_COVERED.get((table.name, one.name), f't."{one.name}"') + f' AS "{one.name}"' for one in table.columns)
    return f"CREATE VIEW {SCHEMA}.{table.name} AS SELECT {', '.join(columns)} FROM {table.name} t WHERE {where}"  # noqa: S608


def make_views(connection: Connection) -> None:
    """Makes the views anew unless they are those of this program. Where the user of the database may make no schema,
    there are none: whoever makes or uses a limited token is told."""
    made_of = sha256("\n".join(statements()).encode()).hexdigest()
    told = text("SELECT obj_description(to_regnamespace(:schema), 'pg_namespace')")
    if connection.scalar(told, {"schema": SCHEMA}) == made_of:
        return
    remove_views(connection)
    if not connection.scalar(text("SELECT has_database_privilege(current_database(), 'CREATE')")):
        return
    connection.exec_driver_sql(f"CREATE SCHEMA {SCHEMA}")
    for statement in statements():
        connection.exec_driver_sql(statement)
    connection.exec_driver_sql(f"COMMENT ON SCHEMA {SCHEMA} IS '{made_of}'")


def remove_views(connection: Connection) -> None:
    """Removes the views, which keep a table from being altered."""
    connection.exec_driver_sql(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")


async def limit(conn: AsyncConnection, scope: Scope) -> None:
    """Limits a transaction to a scope; one of ``Database.scoped`` sees nothing before. Raises NoViewsError."""
    places = [{"cluster": cluster, "namespace": namespace} for cluster, namespace in scope.places]
    told = {"name": SETTING, "places": msgspec.json.encode(places).decode(), "view": f"{SCHEMA}.granted"}
    found = await conn.execute(text("SELECT to_regclass(:view), set_config(:name, :places, true)"), told)
    if found.scalar() is None:
        raise NoViewsError(
            f"this database has no schema {SCHEMA}, by which tokens are limited: let its user make one"
            " (GRANT CREATE ON DATABASE … TO …), then run foreshock migrate"
        )
