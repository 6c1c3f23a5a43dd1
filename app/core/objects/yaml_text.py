"""YAML inside a text: what of it is secret is replaced where it stands, and all else stays as somebody wrote it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from textwrap import indent

import yaml

from app.core.model import Json, Object
from app.core.objects import redact_rules as rules

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DEEPEST = 64
"""Levels of what is looked at as YAML, as of JSON. The composer goes down in C: some 100,000 levels end the process."""
_COMMENT = re.compile("#.*")
_Span = tuple[int, int, str]
"""From where to where of a text something is to be hidden, and behind what."""
Judge = Callable[[Json], Json]
"""A document without its secrets: what is hidden of it became a text."""


class _PassedOverError(ValueError):
    """What a document of Kubernetes cannot hold, or holds twice."""


def judged(text: str, judge: Judge, word: Callable[[str], str]) -> str | None:
    """The text with what ``judge`` hides of each of its documents hidden, and ``word`` of keys and comments. None where
    it is no YAML of mappings and lists alone.

    Raises LookupError and ValueError where what was judged is not what was asked about: then nobody knows what to hide.
    """
    try:
        _check_depth(text)
        nodes = list(yaml.compose_all(text, _LOADER))
        found = [(node, _value(node, set())) for node in nodes]
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    if not all(isinstance(node, yaml.CollectionNode) for node in nodes):
        return None
    spans = [span for node, value in found for span in _changed(text, node, value, judge(value), seen=set())]
    spans += [span for node in nodes for span in _keys(node, word, set())]
    return _replaced(text, [*spans, *_comments(text, nodes, word)])


def _replaced(text: str, spans: list[_Span]) -> str:
    """What stands within another span goes with that."""
    out, at = [], 0
    for start, end, instead in sorted(spans, key=lambda span: (span[0], -span[1])):
        if start < at:
            continue
        out += [text[at:start], instead]
        at = start + len(text[start:end].rstrip())  # a block ends where the next one begins
    return "".join([*out, text[at:]])


def _check_depth(text: str) -> None:
    """Raises _PassedOverError for what is nested too deeply, before more of it is read."""
    depth = 0
    for event in yaml.parse(text, _LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise _PassedOverError


def _value(node: yaml.Node, seen: set[int]) -> Json:
    """What a node holds. What stands there by its name again is None: it is judged where it is written."""
    if id(node) in seen:
        return None
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        out: Object = {}
        for key, inner in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.value in out:
                raise _PassedOverError
            out[key.value] = _value(inner, seen)
        return out
    if isinstance(node, yaml.SequenceNode):
        return [_value(inner, seen) for inner in node.value]
    text = str(node.value)
    return None if node.tag == "tag:yaml.org,2002:null" else text.rstrip("\n") if _is_block(node) else text


def _is_block(node: yaml.Node) -> bool:
    return getattr(node, "style", None) in ("|", ">")


def _changed(text: str, node: yaml.Node, before: Json, after: Json, *, seen: set[int]) -> Iterator[_Span]:
    if id(node) in seen or before == after:
        return
    seen.add(id(node))
    if isinstance(after, str):
        start, end = node.start_mark.index, node.end_mark.index
        yield start, end, _written(text[start:end], node, after)
    elif isinstance(before, dict) and isinstance(after, dict):
        for key, inner in node.value:
            yield from _changed(text, inner, before[key.value], after[key.value], seen=seen)
    elif isinstance(before, list) and isinstance(after, list):
        for inner, one, other in zip(node.value, before, after, strict=True):
            yield from _changed(text, inner, one, other, seen=seen)
    else:
        raise ValueError("what was judged is neither hidden nor what was asked about")  # noqa: TRY004 - of no argument


def _keys(node: yaml.Node, word: Callable[[str], str], seen: set[int]) -> Iterator[_Span]:
    if id(node) in seen or isinstance(node, yaml.ScalarNode):
        return
    seen.add(id(node))
    for one in node.value:
        key, inner = one if isinstance(node, yaml.MappingNode) else (None, one)
        if key is not None and (clean := word(key.value)) != key.value:
            yield key.start_mark.index, key.end_mark.index, clean
        yield from _keys(inner, word, seen)


def _comments(text: str, nodes: list[yaml.Node], word: Callable[[str], str]) -> Iterator[_Span]:
    """What stands behind a # that is in no value and no key."""
    at = 0
    for start, end in sorted({span for node in nodes for span in _scalars(text, node, set())}):
        yield from _outside(text, at, start, word)
        at = max(at, end)
    yield from _outside(text, at, len(text), word)


def _outside(text: str, start: int, end: int, word: Callable[[str], str]) -> Iterator[_Span]:
    return ((found.start(), found.end(), word(found[0])) for found in _COMMENT.finditer(text, start, end))


def _scalars(text: str, node: yaml.Node, seen: set[int]) -> Iterator[tuple[int, int]]:
    """From where to where values and keys stand; of a block without its first line, which may end with a comment."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        start, end = node.start_mark.index, node.end_mark.index
        yield (text.find("\n", start, end) if _is_block(node) and "\n" in text[start:end] else start), end
        return
    for one in node.value:
        for inner in one if isinstance(node, yaml.MappingNode) else (one,):
            yield from _scalars(text, inner, seen)


def _written(before: str, node: yaml.Node, after: str) -> str:
    """What is left of a value, in the way in which it stood there."""
    if _is_block(node):
        return _as_block(before, after)
    is_quoted = getattr(node, "style", None) in ("'", '"') and not rules.WHOLE_TAG.match(after)
    if not is_quoted:
        return after
    return yaml.safe_dump(after, default_style='"', allow_unicode=True, width=math.inf).rstrip("\n")


def _as_block(written: str, after: str) -> str:
    """What is left of a block, indented as it was, without a comment in its first line."""
    head, _, lines = written.partition("\n")
    head = _COMMENT.sub("", head).rstrip()
    first = lines.lstrip("\n")
    return f"{head}\n{indent(after, first[: len(first) - len(first.lstrip(' '))])}".rstrip()
