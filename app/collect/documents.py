"""The JSON documents in lines that are no event each: printed over several lines, several on one, in a list.

What surrounds events is passed over (an array; a List; the EventList that a webhook gets: kubernetes.io/docs/tasks/
debug/debug-cluster/audit; what clouds export entries in, collect/exports.py), and nothing of it is remembered: behind
any event an import can go on.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from itertools import chain

import msgspec

from app.collect.files import BOM, MAX_LINE, Line

_BESIDE = (
    rb'"(?:kind|apiVersion|metadata|nextToken|NextToken|next(?:Forward|Backward)Token|searchedLogStreams|messageType|owner'
    rb'|logGroup|logStream|subscriptionFilters|policyLevel)"\s*:\s*(?:"[^"]*"|\{[^{}]*\}|\[[^][]*\]|null)'
)
_NAME = rb'"(?:items|events|logEvents|records)"'
_LIST = re.compile(rb"\{\s*(?:%s\s*,\s*)*%s\s*:\s*\[" % (_BESIDE, _NAME))
_NAMED = re.compile(_NAME)
_END_OF_LIST = re.compile(rb"\]\s*(?:,\s*%s\s*)*\}" % _BESIDE)
_LAST_ITEM = re.compile(rb'[\s,\[}]*(\])\s*,\s*(?:"|\Z)')
_BETWEEN = re.compile(rb"[\s,\[\]}]*")
_SPACE = re.compile(rb"\s*")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_BRACKET = re.compile(rb"[][{}]")
_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
_CONTINUES = (b" ", b"\t", b"}", b"]")
"""How a line in the middle of a printed document begins."""
MOST_BESIDE = 100
"""Lines that the end of a list takes at most."""
MOST_UNREADABLE = 10_000
"""Lines that are told as one at most."""


class Documents:
    """Lines to go through; of one that is no event by itself, ``within`` tells the documents that begin in it."""

    def __init__(self, source: Iterator[Line]) -> None:
        self._source = source
        self._again: deque[Line] = deque()

    def __iter__(self) -> Iterator[Line]:
        """Every line but those that ``within`` went on to."""
        for line in self._source:
            yield line
            while self._again:
                yield self._again.popleft()

    def within(self, line: Line) -> Iterator[Line]:
        """The documents that begin in a line, each as a Line; what is none, as it stands, in as few as can be told.

        A document ends at the latest where another line begins with a brace: it was cut there.
        """
        at = 0
        while True:
            line, at = self._past_end_of_list(line, at)
            text = line.data
            at = _past(text, at)
            if at == len(text):
                return
            if text[at : at + 1] != b"{":
                yield self._unreadable(line, at)
                return
            if surrounds := _LIST.match(text, at):
                at = surrounds.end()
                continue
            size = _size(text, at)
            if size is not None:
                begins, at = at, at + size if size else len(text)
                yield _piece(line, begins, [], line, at)
                continue
            found, line, at = self._over_lines(line, at)
            if found is not None:
                yield found

    def _next(self) -> Line | None:
        return self._again.popleft() if self._again else next(self._source, None)

    def _over_lines(self, first: Line, begins: int) -> tuple[Line | None, Line, int]:
        """A document that goes on in other lines, or None where it is a list; and where to go on."""
        last, more, text, is_open = first, list[Line](), bytearray(first.data[begins:]), False
        depth = _depth(first.data[begins:], 0)
        while depth:
            following = self._next()
            if following is None:
                is_open = True
                break
            if following.too_long or following.data.startswith(b"{") or len(text) > MAX_LINE:
                self._again.appendleft(following)
                break
            last = following
            more.append(last)
            before = len(text) + 1
            text += b"\n" + last.data
            if _NAMED.search(last.data) and (surrounds := _LIST.match(text)):
                return None, last, surrounds.end() - before
            depth = _depth(last.data, depth)
            if depth == 0 and (size := _size(bytes(text), 0)):
                return _piece(first, begins, more, last, size - before), last, size - before
        return _piece(first, begins, more, last, len(last.data), is_open=is_open), last, len(last.data)

    def _past_end_of_list(self, line: Line, at: int) -> tuple[Line, int]:
        """Where to go on behind the ``],`` that ends the items of a list, and what the list says after them."""
        bracket = _LAST_ITEM.match(line.data, at)
        if bracket is None:
            return line, at
        at = bracket.start(1)
        text, last, taken = line.data[at:], line, list[Line]()
        while not (found := _END_OF_LIST.match(text)) and len(taken) < MOST_BESIDE:
            following = self._next()
            if following is None:
                break
            taken.append(following)
            last, text = following, text + b"\n" + following.data
        if found:
            return last, found.end() - (len(text) - len(last.data)) if taken else at + found.end()
        self._again.extendleft(reversed(taken))
        return line, at

    def _unreadable(self, line: Line, at: int) -> Line:
        """What is no document, to the end of the line; with the lines after it that go on in the midst of one too."""
        more: list[Line] = []
        last, is_open = line, False
        while line.data.startswith(_CONTINUES):
            following = self._next()
            if following is None:
                is_open = True
                break
            begins = following.data.startswith(b"{", _past(following.data, 0))
            if (
                following.too_long
                or begins
                or not following.data.startswith(_CONTINUES)
                or len(more) == MOST_UNREADABLE
            ):
                self._again.appendleft(following)
                break
            more.append(following)
            last = following
        return _piece(line, at, more, last, len(last.data), is_open=is_open)


def split(body: bytes) -> Iterator[Line]:
    """The documents of a file that is read at once, each as a Line; what is none, up to where the next can begin."""
    at, number = len(BOM) if body.startswith(BOM) else 0, 1
    while at < len(body):
        begins = _behind(_SPACE, body, at)
        number += body.count(b"\n", at, begins)
        size = _size(body, begins)
        following = body.find(b"\n{", begins)
        at = begins + size if size else following if following >= 0 else len(body)
        if begins < at:
            yield Line(number, body[begins:at], at, begins=begins - body.rfind(b"\n", 0, begins) - 1)
        number += body.count(b"\n", begins, at)


def _past(text: bytes, at: int) -> int:
    """Behind what may stand between documents."""
    return _behind(_BETWEEN, text, at)


def _behind(pattern: re.Pattern[bytes], text: bytes, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _size(text: bytes, at: int) -> int | None:
    """The bytes of the document at ``at``: 0 where it is none, None where the text ends within it."""
    try:
        msgspec.json.decode(memoryview(text)[at:], type=msgspec.Raw)
    except msgspec.DecodeError as error:
        trailing = _TRAILING.search(str(error))
        if trailing:
            return int(trailing.group(1)) - 1
        return None if "truncated" in str(error) else 0
    except RecursionError:
        return 0
    return len(text) - at


def _depth(text: bytes, depth: int) -> int:
    """How many brackets are open behind the text, 0 as soon as all are closed, or when it ends within a string."""
    bare = _STRING.sub(b"", text)
    if b'"' in bare:
        return 0
    for bracket in _BRACKET.findall(bare):
        depth += 1 if bracket in b"[{" else -1
        if depth <= 0:
            return 0
    return depth


def _piece(first: Line, begins: int, more: list[Line], last: Line, ends: int, *, is_open: bool = False) -> Line:
    """What stands from ``begins`` in the first line to ``ends`` in the last, as one Line; ``is_open`` if more belongs
    to it that is not there."""
    parts = [line.data for line in chain([first], more)]
    parts[-1] = parts[-1][:ends]
    parts[0] = parts[0][begins:]
    is_last = _past(last.data, ends) == len(last.data)
    start = last.end - len(last.data) - (1 if last.whole else 0)
    return Line(
        first.number,
        b"\n".join(parts),
        last.end if is_last and last.whole else start + ends,  # what lies between may end a list, with more of it
        whole=(last.whole or not is_last) and not is_open,
        further=last.number - first.number - (0 if is_last else 1),
        begins=first.begins + begins,
    )
