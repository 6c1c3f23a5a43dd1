"""What Slack's messages are made of: texts that are nothing but text, and Block Kit's parts. Pure.

Texts from the cluster are escaped as Slack asks (https://docs.slack.dev/messaging/formatting-message-text#escaping)
and never turned into links, mentions or channels (``verbatim``).
"""

from __future__ import annotations

import re
from datetime import datetime
from itertools import accumulate, takewhile
from typing import Any
from unicodedata import category
from urllib.parse import quote

from app.core.phrases import LONGEST_WORD, in_parts

Json = dict[str, Any]

SENTENCE, NAME = 240, 100
"""Characters of a sentence and of a name that are shown, so that no message gets longer than Slack takes."""
HEADER = 150
"""Characters that Slack takes in a header block (https://docs.slack.dev/reference/block-kit/blocks/header-block)."""
URL_CHARACTERS = ":/?#[]@!$&'()*+,;=%~"
"""Those that mean something in a URL, or escape another (https://www.rfc-editor.org/rfc/rfc3986#section-2.2)."""
_LONG = re.compile(rf"\S{{{LONGEST_WORD + 1},}}")
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def label(words: str) -> Json:
    return {"type": "plain_text", "text": words, "emoji": False}


def code(text: str) -> Json:
    """As it is, each character as wide as any other: nothing in it is a mention, a link or a format."""
    shown = {"type": "rich_text_preformatted", "elements": [{"type": "text", "text": text}]}
    return {"type": "rich_text", "elements": [shown]}


def section(text: str) -> Json:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}}


def context(text: str) -> Json:
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": text, "verbatim": True}]}


def moment(at: datetime) -> str:
    """A moment, in the reader's own zone, with its day where that is not today's."""
    return f"<!date^{int(at.timestamp())}^{{date_short_pretty}} {{time_secs}}|{at:%Y-%m-%d %H:%M:%S} UTC>"


def link(url: str, words: str) -> str:
    return f"<{quote(url, safe=':/[]')}|{escape(words).replace('|', '¦')}>"


def link_out(url: str, words: str) -> str:
    """To an address that others wrote: nothing in it ends the link."""
    return f"<{_escaped(quote(url, safe=URL_CHARACTERS), 3 * len(url) + 9)}|{escape(words)}>"


def plain(text: str) -> str:
    """On one line, and without what turns text around or cannot be seen."""
    return "".join("\ufffd" if category(c) in {"Cf", "Cc", "Cs"} else c for c in " ".join(text.split()))


def cut(text: str, most: int) -> str:
    """At most so many characters, of which no word takes more than LONGEST_WORD: of those the middle is left out."""
    return clip(_LONG.sub(_without_middle, text), most)


def clip(text: str, most: int) -> str:
    """The first of it, with every character of its words: where two texts are compared, each may be the one that
    differs."""
    return text if len(text) <= most else text[: most - 1] + "…"


def escape(text: str, most: int = NAME) -> str:
    """What Slack reads as text and as nothing else, in at most so many characters as it counts them; long words without
    their middle, as ``cut`` has them."""
    return _escaped(cut(plain(text), max(most, len(text))), most)


def _without_middle(word: re.Match[str]) -> str:
    begin, _, end = in_parts(word[0])
    return f"{begin}…{end}"


def _escaped(text: str, most: int) -> str:
    parts = [_ESCAPES.get(c, c) for c in text]
    if sum(map(len, parts)) <= most:
        return "".join(parts)
    kept = takewhile(lambda at: at[1] < most, zip(parts, accumulate(map(len, parts)), strict=True))
    return "".join(part for part, _ in kept) + "…"
