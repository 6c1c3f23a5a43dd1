"""What somebody wrote behind /foreshock -> a command, a length of time, a cluster and words. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from unicodedata import category

from pydantic import TypeAdapter, ValidationError

from app.core.model import SLOT_SECONDS
from app.core.phrases import iso_duration

LONGEST = timedelta(days=400)
"""What is asked for at most."""
HERE = "here"
_LENGTH = re.compile(r"[0-9]{1,6}[smhdw](?:[0-9]{1,6}[smhdw])*")
_LIKE_A_LENGTH = re.compile(
    rf"({_LENGTH.pattern})(?:(?<=s)ec(?:ond)?s?|(?<=m)in(?:ute)?s?|(?<=h)(?:ou)?rs?|(?<=d)ays?|(?<=w)eeks?)?"
)
_ESCAPED = {"&lt;": "<", "&gt;": ">", "&amp;": "&"}
"""https://docs.slack.dev/messaging/formatting-message-text#escaping"""
_AROUND = "\"'`“”„‟‘’‚‛«»‹›"
_length = TypeAdapter(timedelta)


class NotUnderstoodError(Exception):
    """What was asked cannot be answered; the message says why."""


@dataclass(frozen=True, slots=True)
class Asked:
    """``words`` are what stands behind the command beside a length of time, cluster=NAME and a last ``here``: all in
    the channel are to see the answer."""

    command: str
    words: tuple[str, ...]
    minus: timedelta | None
    cluster: str | None
    here: bool = False

    @property
    def word(self) -> str | None:
        """The only word. Raises NotUnderstoodError where there are more."""
        if len(self.words) > 1:
            raise NotUnderstoodError(f"What is meant by {' '.join(map(repr, self.words[1:]))}?")
        return self.words[0] if self.words else None


def asked(text: str) -> Asked:
    """What stands behind /foreshock. Raises NotUnderstoodError."""
    if "\x00" in text:
        raise NotUnderstoodError("What stands behind /foreshock must not hold the character U+0000.")
    command, *rest = [word for word in map(_bare, _seen(text).split()) if word] or ["help"]
    here = [word.lower() for word in rest[-1:]] == [HERE]
    if here:
        rest.pop()
    lengths = [word for word in rest if _LENGTH.fullmatch(word)]
    clusters = [_bare(word.removeprefix("cluster=")) for word in rest if word.startswith("cluster=")]
    for word in rest:
        if word not in lengths and (like := _LIKE_A_LENGTH.fullmatch(word.lower())):
            raise NotUnderstoodError(f"A length of time is written {like[1]}, not {word}.")
    words = tuple(word for word in rest if word not in lengths and not word.startswith("cluster="))
    if len(lengths) > 1 or len(clusters) > 1:
        raise NotUnderstoodError("One length of time, and one cluster, can be asked for at once.")
    minus = _length_of(lengths[0]) if lengths else None
    return Asked(command.lower(), words, minus, clusters[0] if clusters else None, here)


def _seen(text: str) -> str:
    """As it was written: Slack escapes three characters, and what is pasted may hold some that nobody sees."""
    for escaped, written in _ESCAPED.items():
        text = text.replace(escaped, written)
    return "".join(one for one in text if category(one) != "Cf")


def _bare(word: str) -> str:
    """Without the quotes that people, and their keyboards, put around a word."""
    return word.strip(_AROUND)


def _length_of(word: str) -> timedelta:
    try:
        minus = _length.validate_python(iso_duration(word))
    except (ValidationError, OverflowError):
        raise NotUnderstoodError(f"{word!r} is no length of time: 30s, 30m, 2h or 1d.") from None
    if not timedelta(seconds=SLOT_SECONDS) <= minus <= LONGEST:
        raise NotUnderstoodError(f"{word!r} is not between {SLOT_SECONDS} seconds and 400 days.")
    return minus
