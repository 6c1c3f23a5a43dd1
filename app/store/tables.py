"""The tables, as SQLAlchemy Core. migrations/ makes them; tests hold the two together.

Logs (changes, rollouts, symptoms, requests, call_minutes, samples and their tiers, gaps, rankings) are partitioned by
time and their keys begin with the cluster and hold the time. Strings that repeat are coded in ``words``: an index on
an int costs a third of one on text (docs/decisions/0004). Each index names the query that needs it.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    Sequence,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from app.store.metadata import MAYBE_JSONB, at, metadata

clusters = Table(
    "clusters",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("name", Text, nullable=False, unique=True),  # the code of a name
)

remarks = Table(  # what is to be said of a cluster
    "remarks",
    metadata,
    Column("cluster_id", Integer, ForeignKey("clusters.id"), primary_key=True),
    Column("about", Text, primary_key=True),  # core.clusters.About
    Column("since", at, nullable=False),
    Column("at", at, nullable=False),  # the last time
    Column("why", Text, nullable=False),
)

recorded = Table(  # from when to when each source tells of a cluster
    "recorded",
    metadata,
    Column("cluster_id", Integer, ForeignKey("clusters.id"), primary_key=True),
    Column("source", Text, primary_key=True),  # store/reach.py: audit log, watch, dump, metrics, alerts, external
    Column("from_at", at, nullable=False),
    Column("to_at", at, nullable=False),
)

words = Table(  # user names, namespaces, user agents, pod names: every string that repeats
    "words",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("word", Text, nullable=False, unique=True),  # the codes of a batch's words
)

kinds = Table(
    "kinds",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("api_group", Text, nullable=False),
    Column("kind", Text, nullable=False),
    UniqueConstraint("api_group", "kind"),  # the codes of a batch's kinds
)

objects = Table(  # the last known state of every object, deleted ones too until retention takes them
    "objects",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("cluster_id", Integer, nullable=False),
    Column("kind_id", Integer, nullable=False),
    Column("namespace_id", Integer, nullable=False),  # words.id; 0 for cluster-scoped
    Column("name", Text, nullable=False),
    Column("uid", Text, nullable=False),  # "" where only the name is known (Metadata-level audit)
    Column("resource_version", Text, nullable=False),
    Column("generation", BigInteger),
    Column("owner_kind", Text, nullable=False, server_default=""),
    Column("owner_name", Text, nullable=False, server_default=""),
    Column("seen_at", at, nullable=False),
    Column("deleted_at", at),
    Column("state", LargeBinary),  # zstd of canonical JSON, normalised, redacted
    UniqueConstraint("cluster_id", "kind_id", "namespace_id", "name", "uid"),  # find by name: history page, tracker
)

changes = Table(
    "changes",
    metadata,
    Column("at", at, primary_key=True),
    Column("version_key", BigInteger, primary_key=True),
    Column("object_id", BigInteger, nullable=False),
    Column("cluster_id", Integer, primary_key=True),
    Column("kind_id", Integer, nullable=False),
    Column("namespace_id", Integer, nullable=False),
    Column("actor_id", Integer, nullable=False),
    Column("agent_id", Integer, nullable=False),
    Column("pod_id", Integer, nullable=False),
    Column("verb", SmallInteger, nullable=False),  # position in model.Verb
    Column("actor_source", SmallInteger, nullable=False),  # position in model.ActorSource
    Column("diff_source", SmallInteger, nullable=False),  # position in model.DiffSource
    Column("sources", SmallInteger, nullable=False),  # bits: 1 audit, 2 watch, 4 state, 8 history, 16 external
    Column("generation", Integer),
    Column("noise", Boolean, nullable=False),  # derived edits and write-fight members: drawn as state, not as rows
    Column("resource_version", Text, nullable=False),
    # "" and not NULL: a row without nulls has no null bitmap, eight bytes less
    Column("begun_by", Text, nullable=False, server_default=""),  # a change id
    Column("impersonator", Text, nullable=False, server_default=""),
    Column("audit_id", LargeBinary, nullable=False, server_default=""),
    Column("summary", Text, nullable=False),
    Column("diff", JSONB, nullable=False),
    Column("within_seconds", Integer, nullable=False, server_default="0"),  # how long before ``at`` it may have been
    Column("found_in", Text, nullable=False, server_default=""),
    Column("url", Text, nullable=False, server_default=""),  # both of external changes only
    Column("workload", Text, nullable=False, server_default=""),
    Index(None, "cluster_id", "version_key"),  # record: do we have this write already?
    Index(None, "cluster_id", "namespace_id", "at"),  # changes of one namespace
    Index(None, "cluster_id", "kind_id", "at"),  # changes of one kind
    Index(None, "object_id", "at"),  # one object's history
    Index(None, "cluster_id", "at", postgresql_where=text("sources & 8 <> 0")),  # record: was it rebuilt?
    postgresql_partition_by="RANGE (at)",
)
"""Primary key order in the database is (cluster_id, at, version_key): the timeline's window query. Columns stand
by their width, so that none is padded."""

rollouts = Table(
    "rollouts",
    metadata,
    Column("cluster_id", Integer, primary_key=True),
    Column("started_at", at, primary_key=True),
    Column("object_id", BigInteger, primary_key=True),
    Column("generation", Integer, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("ended_at", at),
    Column("change_id", Text),
    Column("images", ARRAY(Text), nullable=False),
    Column("images_before", ARRAY(Text), nullable=False),
    Column("progress", JSONB, nullable=False),  # [[epoch seconds, desired, updated, available], ...]
    Column("reason", Text, nullable=False),
    # fingerprints of its template and of those before it: what a later import knows a rollback by
    Column("templates", ARRAY(Text), nullable=False, server_default="{}"),
    postgresql_partition_by="RANGE (started_at)",
)

symptoms = Table(
    "symptoms",
    metadata,
    Column("cluster_id", Integer, primary_key=True),
    Column("at", at, primary_key=True),
    Column("fingerprint", Text, primary_key=True),
    Column("source", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("resource", MAYBE_JSONB),  # [api_group, kind, namespace, name]
    Column("workload", MAYBE_JSONB),
    Column("namespace_id", Integer, nullable=False),
    Column("message", Text, nullable=False),
    Column("severity", Text, nullable=False),
    Column("count", Integer, nullable=False),
    Column("ended_at", at),
    Column("labels", JSONB, nullable=False),  # [[name, value], ...]
    Column("told_at", at),
    postgresql_partition_by="RANGE (at)",
)

call_keys = Table(
    "call_keys",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    # blake2b-128 of the key: text would not fit an index
    Column("digest", LargeBinary, nullable=False, unique=True),  # the codes of a batch's keys
    Column("user_id", Integer, nullable=False),
    Column("pod_id", Integer, nullable=False),
    Column("agent_id", Integer, nullable=False),
    Column("namespace_id", Integer, nullable=False),
    Column("verb", Text, nullable=False),
    Column("api_group", Text, nullable=False),
    Column("resource", Text, nullable=False),
    Column("code", Integer, nullable=False),
    Column("list_class", Text, nullable=False),
    Column("error", Text, nullable=False),
    Column("waited_for", Text, nullable=False, server_default=""),
    Index(None, "user_id"),  # the calls of a few users, before and after a change
)

call_minutes = Table(  # append-only: several rows of one minute add up
    "call_minutes",
    metadata,
    Column("cluster_id", Integer, nullable=False),
    Column("at", at, nullable=False),  # start of the minute
    Column("total", Integer, nullable=False),
    Column("payload", LargeBinary, nullable=False),  # store/calls.py: zstd columns of (key id, slot, count, latency)
    Index(None, "cluster_id", "at"),  # top talkers of a window
    postgresql_partition_by="RANGE (at)",
)

requests = Table(  # write requests one by one
    "requests",
    metadata,
    Column("at", at, nullable=False),
    Column("event_key", BigInteger, nullable=False),
    Column("cluster_id", Integer, nullable=False),
    Column("key_id", Integer, nullable=False),
    Column("latency_us", Integer, nullable=False),
    Column("name", Text, nullable=False),
    Index(None, "cluster_id", "at"),  # who wrote in these seconds
    postgresql_partition_by="RANGE (at)",
)

series_keys = Table(
    "series_keys",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("cluster_id", Integer, nullable=False),
    Column("digest", LargeBinary, nullable=False, unique=True),  # the codes of a batch's series
    Column("name", Text, nullable=False),
    Column("labels", JSONB, nullable=False),
    Column("kind", Text, nullable=False),
    Column("seen_at", at, nullable=False, server_default=text("now()")),  # last told of, to the day
    Index(None, "cluster_id", "name"),  # the series of a metric
    Index(None, "labels", postgresql_using="gin", postgresql_ops={"labels": "jsonb_path_ops"}),  # those of a namespace
)

_NUMBER = Sequence("samples_told_number", metadata=metadata)
samples_told = Table(  # as they came; store/compaction.py makes chunks of them once their hour has ended
    "samples_told",
    metadata,
    Column("cluster_id", Integer, nullable=False),
    Column("at", at, nullable=False),  # the start of the hour they are of
    Column("number", BigInteger, nullable=False, server_default=_NUMBER.next_value()),  # the later told counts
    Column("count", Integer, nullable=False),  # of samples
    Column("blocks", ARRAY(Integer), nullable=False),  # that they will be in: who asks for others need not unpack them
    Column("payload", LargeBinary, nullable=False),  # store/chunks.py
    Index(None, "cluster_id", "at"),  # samples of a window that are not in chunks yet; hours to be compacted
    postgresql_partition_by="RANGE (at)",
)

samples = Table(
    "samples",
    metadata,
    Column("cluster_id", Integer, primary_key=True),
    Column("at", at, primary_key=True),  # the start of the hour
    Column("block", Integer, primary_key=True),  # series_keys.id // chunks.BLOCK
    Column("payload", LargeBinary, nullable=False),  # store/chunks.py
    postgresql_partition_by="RANGE (at)",
)

samples_minutes = Table(
    "samples_minutes",
    metadata,
    Column("cluster_id", Integer, primary_key=True),
    Column("at", at, primary_key=True),  # the start of six hours
    Column("block", Integer, primary_key=True),
    Column("payload", LargeBinary, nullable=False),  # as of samples, but what core/metrics/series_bins.py keeps
    postgresql_partition_by="RANGE (at)",
)

samples_hours = Table(
    "samples_hours",
    metadata,
    Column("cluster_id", Integer, primary_key=True),
    Column("at", at, primary_key=True),  # the start of the week
    Column("block", Integer, primary_key=True),
    Column("payload", LargeBinary, nullable=False),  # as of samples, but what core/metrics/series_bins.py keeps
    postgresql_partition_by="RANGE (at)",
)

gaps = Table(
    "gaps",
    metadata,
    Column("cluster_id", Integer, primary_key=True),
    Column("from_at", at, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("to_at", at, nullable=False),
    Column("why", Text, nullable=False),
    postgresql_partition_by="RANGE (from_at)",
)

incidents = Table(
    "incidents",
    metadata,
    Column("id", Text, primary_key=True),  # 12 hex digits of a hash of cluster and group: idempotent by nature
    Column("cluster_id", Integer, nullable=False),
    Column("title", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("severity", Text, nullable=False),
    Column("started_at", at, nullable=False),
    Column("resolved_at", at),
    Column("onset", MAYBE_JSONB),  # {at, low, high, found_in}
    Column("scope", JSONB, nullable=False),
    Column("alerts", JSONB, nullable=False),  # the alerts as symptoms, whole
    Column("ranked_at", at),  # as of when
    Column("last_alert_at", at, nullable=False),  # the latest alert's start
    Column("news_at", at, nullable=False),  # when what may matter to it was last recorded, by the database's clock
    Column("ranked_news_at", at),  # up to which news it is ranked
    Column("origin", Text, nullable=False, server_default="alerts"),  # findings.Origin
    Column("opened_by", Text, nullable=False, server_default=""),
    Column("said", JSONB, nullable=False, server_default="{}"),  # what people said, which alerts do not change
    Column("merged_into", Text),  # the id of the incident that it is a part of now
    Column("first_alert_at", at, nullable=False),  # the earliest alert's start: a person may have said another
    Index(None, "cluster_id", "started_at"),  # newest incidents of a cluster
    Index(None, "started_at"),  # those that Slack may have to be told of
    Index(None, "merged_into", postgresql_where=text("merged_into IS NOT NULL")),  # the parts of an incident
)

rankings = Table(  # every ranking is kept: what moved between +0, +3 and +10 minutes
    "rankings",
    metadata,
    Column("cluster_id", Integer, primary_key=True),
    Column("at", at, primary_key=True),
    Column("incident_id", Text, primary_key=True),
    Column("payload", JSONB, nullable=False),  # store/incidents.py: the whole findings.Ranking
    Index(None, "incident_id", "at"),  # the newest ranking of an incident
    postgresql_partition_by="RANGE (at)",
)

verdicts = Table(  # what people said of suspects
    "verdicts",
    metadata,
    Column("incident_id", Text, ForeignKey("incidents.id", ondelete="CASCADE"), primary_key=True),
    Column("change_id", Text, primary_key=True),  # or core.verdicts.NONE
    Column("opinion", Text, nullable=False),
    Column("said_by", Text, nullable=False),
    Column("said_at", at, nullable=False),
)

quarantine = Table(
    "quarantine",
    metadata,
    Column("cluster_id", Integer, nullable=False),
    Column("at", at, nullable=False),  # when it was refused
    Column("source", Text, nullable=False),
    Column("line", BigInteger, nullable=False),
    Column("column", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    Column("excerpt", Text, nullable=False),
    Column("again", Boolean, nullable=False, server_default="false"),  # its file ended within it
    Index(None, "cluster_id", "at"),  # the newest refusals
)

import_positions = Table(
    "import_positions",
    metadata,
    Column("cluster_id", Integer, ForeignKey("clusters.id"), primary_key=True),
    Column("file_hash", Text, primary_key=True),
    Column("path", Text, nullable=False),
    Column("offset", BigInteger, nullable=False),
    Column("lines", BigInteger, nullable=False),
    Column("done", Boolean, nullable=False),
    Column("updated_at", at, nullable=False),
    Column("size", BigInteger, nullable=False, server_default="0"),  # of the file as it is stored; 0: nobody noted it
)

spool_positions = Table(
    "spool_positions",
    metadata,
    Column("cluster_id", Integer, ForeignKey("clusters.id"), primary_key=True),
    Column("spool", Text, primary_key=True),  # the random name of its folder: another folder begins anew
    Column("position", BigInteger, nullable=False),
    Column("recent", LargeBinary, nullable=False),  # digests of the last bodies, to know one that is sent again
    Column("updated_at", at, nullable=False),
)

watch_positions = Table(
    "watch_positions",
    metadata,
    Column("cluster_id", Integer, ForeignKey("clusters.id"), primary_key=True),
    Column("api_group", Text, primary_key=True),
    Column("plural", Text, primary_key=True),
    Column("resource_version", Text, nullable=False),  # "" where it is lost
    Column("at", at, nullable=False),
    Column("lost", Text, nullable=False),
)

metric_positions = Table(
    "metric_positions",
    metadata,
    Column("cluster_id", Integer, ForeignKey("clusters.id"), primary_key=True),
    Column("source", Text, primary_key=True),  # the address that is asked
    Column("until", at, nullable=False),
)

call_edges = Table(  # who calls whom, as meshes count it: a few thousand rows, each written every ten minutes
    "call_edges",
    metadata,
    Column("cluster_id", Integer, ForeignKey("clusters.id"), primary_key=True),
    Column("caller_namespace", Text, primary_key=True),
    Column("caller", Text, primary_key=True),
    Column("kind", Text, primary_key=True),  # of the callee: Service, or Workload
    Column("callee_namespace", Text, primary_key=True),
    Column("callee", Text, primary_key=True),
    Column("first_seen", at, nullable=False),
    Column("last_seen", at, nullable=False),
)

arrivals = Table(  # a row a batch that brought changes, for a day: one place to ask what is new, whatever its time
    "arrivals",
    metadata,
    Column("cluster_id", Integer, primary_key=True),
    Column("number", BigInteger, Identity(always=True), primary_key=True),  # as they were committed, of one cluster
    Column("at", at, nullable=False, server_default=text("clock_timestamp()")),
    Column("times", ARRAY(BigInteger), nullable=False),  # of each change, microseconds; its key has the same place
    Column("keys", ARRAY(BigInteger), nullable=False),
)

collectors = Table(
    "collectors",
    metadata,
    Column("cluster_id", Integer, ForeignKey("clusters.id"), primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("holder", Text, nullable=False),
    Column("standing", Text, nullable=False),
    Column("renewed_at", at, nullable=False),
    Column("watching", JSONB, nullable=False),  # core.watching.Watching
    Column("past_known", Boolean, nullable=False, server_default="false"),  # what it remembered at first was recorded
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("digest", LargeBinary, nullable=False, unique=True),  # a request's credential, by sha256 of it
    Column("role", Text, nullable=False),
    Column("purpose", Text, nullable=False),  # api, login (one use), session, audit or changes
    Column("note", Text, nullable=False),
    Column("created_at", at, nullable=False),
    Column("expires_at", at, nullable=False),
    Column("revoked_at", at),
    Column("last_used_at", at),
    Column("cluster", Text, nullable=False, server_default=""),  # the only one it is for; "" with changes: any
    Column("scope", ARRAY(Text)),  # core.roles.Scope of a role, as people write it; NULL: it holds everywhere
    Column("groups", ARRAY(Text)),  # of whom a provider named, of a session that it began; NULL of all others
)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    # a request that came already: sha256 of whose key, and the key
    Column("digest", LargeBinary, primary_key=True),
    Column("body", LargeBinary, nullable=False),  # sha256 of what it told, redacted
    Column("made", ARRAY(Text), nullable=False),  # ids of the changes, or of the incident, that it made
    Column("at", at, nullable=False),
)

views = Table(  # questions of the explorer that a team shares
    "views",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("name", Text, nullable=False, unique=True),  # a name stands for one question
    Column("query", Text, nullable=False),  # of the address, without cluster and time
    Column("created_at", at, nullable=False),
)

audit_log = Table(  # what was done in Foreshock itself; a trigger refuses UPDATE, TRUNCATE, and DELETE of what is young
    "audit_log",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("at", at, nullable=False),
    Column("action", Text, nullable=False),
    Column("who", Text, nullable=False),
    Column("token_id", Integer),  # tokens.id, which may be forgotten
    Column("address", Text, nullable=False),
    Column("about", Text, nullable=False),
    Column("times", Integer, nullable=False),
)

installation = Table(  # one row a fact of this installation, e.g. the key of redaction's fingerprints
    "installation",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", LargeBinary, nullable=False),
)
