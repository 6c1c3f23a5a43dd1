"""The tables of what Slack and other targets are told; tables.py says how they are written.

A ``channel`` is one of Slack, or the name of a target (core/targets.py).
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
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY

from app.store.metadata import MAYBE_JSONB, at, metadata
from app.store.tables import incidents

__all__ = ["channels", "messages", "metadata", "muted", "noticed", "notices", "routed"]

channels = Table(
    "slack_channels",
    metadata,
    Column("id", Text, primary_key=True),  # Slack's, as C0123456789, or a method of Slack's (outbox.OF_WORKSPACE)
    Column("since", at, nullable=False),  # when it was first named: what is older is not told
    Column("quiet_until", at, nullable=False),  # one message a second, or as long as it said
    Column("off", Text, nullable=False, server_default=""),  # why a target is told nothing more; "" while it is
)

notices = Table(  # store/notices.py: one message of changes, or of a rollout, in a channel
    "slack_notices",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("channel", Text, ForeignKey(channels.c.id), nullable=False),
    Column("title", Text, nullable=False),  # of its first change
    Column("opened_at", at, nullable=False),
    Column("joined_at", at, nullable=False),  # when the last change came to it
    Column("digest", Boolean, nullable=False),  # others may come to it
    Column("look_at", at),  # when it is seen to next; NULL: it stays as it is
    Column("wanted", Text, nullable=False, server_default=""),  # which version it is to show; "": what it shows
    Column("reach", ARRAY(Text)),  # workloads that its change reached when it was first looked at; NULL before
    Column("followed", ARRAY(Text), nullable=False, server_default="{}"),  # lines that its thread was told of
    Index(None, "look_at", postgresql_where=text("look_at IS NOT NULL")),  # which are to be seen to
    Index("slack_notices_due_idx", "id", postgresql_where=text("wanted <> ''")),  # which are to be sent
    Index(None, "channel", "opened_at"),  # what was opened in a channel lately
)

noticed = Table(  # the changes of each notice; a channel is told of each once
    "slack_noticed",
    metadata,
    Column("channel", Text, primary_key=True),
    Column("cluster_id", Integer, primary_key=True),
    Column("at", at, primary_key=True),
    Column("version_key", BigInteger, primary_key=True),
    Column("notice_id", BigInteger, ForeignKey(notices.c.id, ondelete="CASCADE"), nullable=False),
    Index(None, "notice_id"),  # the changes of a notice
)

routed = Table(  # of each cluster, up to which arrival it was seen to: arrivals.Place
    "slack_routed",
    metadata,
    Column("cluster_id", Integer, primary_key=True, autoincrement=False),
    Column("number", BigInteger, nullable=False),
    Column("told", Integer, nullable=False),
)

muted = Table(  # what a channel is not told of for a while; "" stands for any
    "slack_mutes",
    metadata,
    Column("channel", Text, primary_key=True),
    Column("cluster", Text, primary_key=True),
    Column("namespace", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("api_group", Text, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("until", at, nullable=False),
    Column("said_by", Text, nullable=False),
    Column("said_at", at, nullable=False),
    Column("reactions", ARRAY(Text), nullable=False, server_default="{}"),  # that keep one object muted; else none
)

messages = Table(  # store/outbox.py: the message of an incident or a notice, and what was said in its thread
    "slack_messages",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("incident_id", Text, ForeignKey(incidents.c.id, ondelete="CASCADE")),  # this or a notice
    Column("notice_id", BigInteger, ForeignKey(notices.c.id, ondelete="CASCADE")),
    Column("part", Integer, nullable=False),  # 0 the message, then its replies in turn
    Column("channel", Text, ForeignKey(channels.c.id), nullable=False),
    Column("ts", Text),  # Slack's name for it; NULL: not posted yet, as far as is known
    Column("body", Text, nullable=False),  # a reply's text, or the outbox.Letter to a target; else it is made anew
    Column("shown", MAYBE_JSONB),  # outbox.Shown
    Column("trying_since", at),  # it may have been posted since then: nobody answered
    Column("attempts", Integer, nullable=False),  # that failed in a row
    Column("not_before", at, nullable=False),
    Column(
        "put_off", Text, nullable=False, server_default=""
    ),  # why it was not taken when it was tried last; "": it was
    Column("put_off_since", at),  # since when it is tried in vain; NULL: it is not
    Column("error", Text, nullable=False),  # why it is given up, and what to do; "" while it is not
    Column("dismissed", Boolean, nullable=False, server_default=text("false")),  # given up, and nobody is to mend that
    UniqueConstraint("incident_id", "channel", "part"),  # the messages of an incident in a channel
    UniqueConstraint("notice_id", "part"),  # those of a notice
    Index(None, "part", postgresql_where=text("ts IS NULL")),  # replies that are to be posted
)
