"""What Slack's errors mean, and what to do: of chat.postMessage, chat.update, conversations.history and .replies.

The codes are those of the methods' own pages (https://docs.slack.dev/reference/methods/chat.postMessage, and so on).
"""

from __future__ import annotations

GONE = "message_not_found"
DELETED = frozenset({GONE, "thread_not_found"})
"""Errors that say that somebody deleted the message, or the one that its thread is of."""
BUSY = frozenset({"ratelimited", "rate_limited"})
UNSURE = frozenset({"fatal_error", "internal_error", "request_timeout", "service_unavailable", "update_failed"})
"""Errors after which it may have succeeded all the same."""
PASSING = {
    **dict.fromkeys(
        ("team_added_to_org", "org_login_required"), "the workspace is being moved into an organisation (Enterprise)"
    ),
    "external_channel_migrating": "the channel is being moved into another workspace",
    "message_limit_exceeded": "the workspace sends more messages than its plan lets it",
}
"""Errors that end by themselves: it is not there, and is tried again."""
_TOKEN = "FORESHOCK_SLACK_TOKEN is not good any more: copy the bot token (xoxb-…) anew, and restart"  # noqa: S105
_ARCHIVED = (
    "the channel is archived: unarchive it, or name another one in FORESHOCK_SLACK_CHANNEL, or in the file of routes,"
    " and send this again"
)
_NOT_LET = "the workspace does not let the app post there: ask who administers it"
_ORGANISATION = "the organisation does not let the app call Slack: ask who administers it"
OF_THE_PLACE = {
    "channel_not_found": "no such channel is known to the app, or it is deleted: FORESHOCK_SLACK_CHANNEL, or a route,"
    " names it by the ID at the end of its details (C…); into a private channel the app has to be invited",
    "not_in_channel": "the app is not in the channel: /invite it there",
    "is_archived": _ARCHIVED,
    "is_inactive": _ARCHIVED,  # what chat.update says of one
    "messages_tab_disabled": "these are messages to the app itself, which takes none: name a channel by its ID (C…)",
    "method_not_supported_for_channel_type": "it is no channel: name one by its ID (C…)",
    "invalid_auth": _TOKEN,
    "not_authed": _TOKEN,
    "account_inactive": _TOKEN,
    "token_revoked": _TOKEN,
    "token_expired": _TOKEN,
    "not_allowed_token_type": "FORESHOCK_SLACK_TOKEN has to be a bot token (xoxb-…)",
    "metadata_must_be_sent_from_app": "FORESHOCK_SLACK_TOKEN has to be the bot token of an app of your own: make it of"
    " deploy/slack-app.yaml",
    "missing_scope": "the app lacks a scope: install it again with deploy/slack-app.yaml",
    "no_permission": "the app is not in the channel: /invite it there",
    **dict.fromkeys(
        (
            "restricted_action",
            "restricted_action_read_only_channel",
            "restricted_action_thread_only_channel",
            "restricted_action_non_threadable_channel",
            "ekm_access_denied",
        ),
        _NOT_LET,
    ),
    "access_denied": _ORGANISATION,
    "enterprise_is_restricted": _ORGANISATION,
    "accesslimited": "Slack is not to be asked from this network: ask who administers the workspace to allow its"
    " addresses",
    "two_factor_setup_required": "the workspace asks for two-factor authentication: who installed the app sets it up in"
    " Slack, and installs it again if need be",
    "team_access_not_granted": "the app is not installed in this workspace of the organisation: install it there",
    "team_not_found": "the workspace that the channel is in is not known to the app: install it there",
}
"""What is refused for where it goes, or for who asks, and not for what it is: it may be taken once anything is."""
_OURS = "this message is not as Slack wants it, which is a mistake of Foreshock: please report it"
_SHARED = (
    "who administers the workspace blocks such content where a channel is shared with another one (Slack Connect): ask"
    " them, or name another channel"
)
_OLD = "Slack has taken back what this version calls: take a newer Foreshock"
_LOCKED = "nobody may reply to this message: its thread is locked, or it is none"
WORDS = OF_THE_PLACE | {
    GONE: "somebody deleted the message in Slack, so it is left alone",
    "thread_not_found": "somebody deleted the message in Slack, so nothing is said in its thread",
    "cannot_reply_to_message": _LOCKED,
    "restricted_action_thread_locked": _LOCKED,
    "cant_update_message": "the message is another app's: it was posted with the token of that one",
    "edit_window_closed": "the workspace does not let messages be edited any more after a while",
    "deprecated_endpoint": _OLD,
    "method_deprecated": _OLD,
    "unknown_method": "FORESHOCK_SLACK_API is not where Slack's Web API is",
    **dict.fromkeys(
        (
            f"slack_connect_{what}"
            for what in (
                "blocked_file_type",
                "canvas_sharing_blocked",
                "clip_sharing_blocked",
                "file_link_sharing_blocked",
                "file_upload_sharing_blocked",
                "lists_sharing_blocked",
            )
        ),
        _SHARED,
    ),
    **dict.fromkeys(
        (
            "as_user_not_supported",
            "attachment_payload_limit_exceeded",
            "block_mismatch",
            "cant_broadcast_message",
            "duplicate_channel_not_found",
            "duplicate_message_not_found",
            "invalid_arg_name",
            "invalid_arguments",
            "invalid_array_arg",
            "invalid_attachments",
            "invalid_blocks",
            "invalid_blocks_format",
            "invalid_charset",
            "invalid_cursor",
            "invalid_form_data",
            "invalid_metadata_filter_keys",
            "invalid_metadata_format",
            "invalid_metadata_schema",
            "invalid_post_type",
            "invalid_ts_latest",
            "invalid_ts_oldest",
            "markdown_text_conflict",
            "metadata_too_large",
            "missing_post_type",
            "msg_blocks_too_long",
            "msg_too_long",
            "no_dual_broadcast_content_update",
            "no_text",
            "streaming_state_conflict",
            "too_many_attachments",
            "too_many_contact_cards",
        ),
        _OURS,
    ),
}
UNKNOWN = "Slack refused it, and says no more: its documentation of chat.postMessage has errors by this name"
