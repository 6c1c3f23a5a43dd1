"""What became of a value, in a few characters: the part of a line behind its field's name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import cast

import orjson

from app.core.model import FieldDiff, Json, Object, Segment
from app.core.objects.redact_rules import WHOLE_TAG

NUMBER = re.compile(r"\s*(?P<number>-?\d+(?:\.\d+)?)(?P<unit>(?:\s*[a-zA-Zµ%]+)?)\s*")
"""A number as a setting has it: 30, 1.5, 250m, 20 s, 80%."""
_LONGEST = 44
_HIDDEN = "hidden"
_Scalars = Sequence[str | int | float]


def moved(found: FieldDiff) -> str:
    """A diff without its path: "1 → 2", " set to 2", " removed (was 1)", " gained --debug". A space where a verb is."""
    if found.path and isinstance(found.path[-1], tuple) and found.op != "replace":
        return _item(found)
    if found.op == "add" or (found.old is None and found.op != "remove"):
        return f" set to {value_text(found.new)}"
    if found.op == "remove":
        return f" removed (was {value_text(found.old)})" if found.old is not None else " removed"
    old, new = _text(found.old), _text(found.new)
    if max(len(old), len(new)) > _LONGEST and _is_scalars(found.old) and _is_scalars(found.new):
        return _items(cast("_Scalars", found.old), cast("_Scalars", found.new))
    was, now = _short(old), _short(new)
    if was != now:
        return f"{was} → {now}"
    if old == _HIDDEN:
        return " changed (hidden)"
    old, new = _json(found.old), _json(found.new)  # 1 and "1" are the same text
    return f"{old} → {new}" if old != new and max(len(old), len(new)) <= _LONGEST else " changed"


def value_text(value: Json) -> str:
    """A value in a few characters: a scalar as it is, a list by its items, an object by its fields, a secret not."""
    return _short(_text(value))


def name_of(step: Segment) -> str:
    """What an item of a list is called: its name, or what else its key says first."""
    if not isinstance(step, tuple):
        return str(step)
    names = [value for name, value in step if name.rpartition(".")[2] == "name"]
    return next((value for value in (*names, *(value for _, value in step)) if value), "")


def keys_text(order: Json) -> str:
    """The items of a list by their keys, in their order."""
    items = [item for item in order if isinstance(item, dict)] if isinstance(order, list) else []
    return _short(", ".join(" ".join(str(value) for value in item.values() if value) for item in items))


def _text(value: Json) -> str:
    if isinstance(value, str):
        return _HIDDEN if WHOLE_TAG.match(value) else value or '""'
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list):
        if _is_scalars(value):
            return ", ".join(str(item) for item in value) or "none"
        named = [item for item in value if isinstance(item, dict) and isinstance(item.get("name"), str)]
        if named and len(named) == len(value):
            return ", ".join(map(_named, named))
        return f"{len(value)} item{'s' if len(value) != 1 else ''}"
    return _named(value) if isinstance(value.get("name"), str) else _json(value).replace('"', "")


def _named(item: Object) -> str:
    """A named item of a list: an environment variable with its value, anything else by its name."""
    value = item.get("value")
    return f"{item['name']}={value_text(value)}" if isinstance(value, str) else str(item["name"])


def _item(found: FieldDiff) -> str:
    """An item of a list that came or went, whose key is told before it."""
    step = found.path[-1]
    gone = found.op == "remove"
    item = found.old if gone else found.new
    known = {name for name, _ in step} if isinstance(step, tuple) else set()
    more = {name: value for name, value in item.items() if name not in known} if isinstance(item, dict) else {}
    said = more.get("image") or (next(iter(more.values())) if len(more) == 1 else more)
    text = value_text(said) if more else ""
    if gone:
        return f" removed (was {text})" if text else " removed"
    if found.path[-2:-1] == ("env",):
        return f" set to {text}" if text else ' set to ""'
    return f" added: {text}" if text else " added"


def _items(old: _Scalars, new: _Scalars) -> str:
    """What a long list gained and lost."""
    gone, come = list((Counter(old) - Counter(new)).elements()), list((Counter(new) - Counter(old)).elements())
    if len(gone) == len(come) == 1:
        return f"{_short(str(gone[0]))} → {_short(str(come[0]))}"
    lists = ("gained", come), ("lost", gone)
    told = [f"{verb} {_short(', '.join(map(str, items)))}" for verb, items in lists if items]
    return f" {', '.join(told) or 'in another order'}"


def _is_scalars(value: Json) -> bool:
    return isinstance(value, list) and all(isinstance(item, str | int | float) for item in value)


def _json(value: Json) -> str:
    return orjson.dumps(value).decode()


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def image_parts(image: str) -> tuple[str, str]:
    """(repository, tag or short digest) of an image reference; the tag is "latest" where none is given."""
    reference, at, digest = image.partition("@")
    head, slash, tail = reference.rpartition("/")
    name, colon, tag = tail.partition(":")
    shown = tag if colon else digest.partition(":")[2][:12] if at else "latest"
    return head + slash + name, shown


_COMMIT = re.compile(r"[0-9a-f]{40}")
_VERSION = re.compile(r"v?(\d{1,3})\.\d")
"""The major version of a tag (https://semver.org/); more digits are a year."""


def is_major(found: FieldDiff) -> bool:
    """Whether an image of the same repository has a higher major version."""
    if found.path[-1:] != ("image",) or not (isinstance(found.old, str) and isinstance(found.new, str)):
        return False
    (before, old), (after, new) = image_parts(found.old), image_parts(found.new)
    was, now = _VERSION.match(old), _VERSION.match(new)
    return before == after and was is not None and now is not None and int(was[1]) < int(now[1])


_PATCH = re.compile(r"v?(\d+\.\d+)\.(\d+)(?![.\d])")


def is_patch(found: FieldDiff) -> bool:
    """Whether an image of the same repository has the same minor version, with a higher patch."""
    if not (isinstance(found.old, str) and isinstance(found.new, str)):
        return False
    (before, old), (after, new) = image_parts(found.old), image_parts(found.new)
    was, now = _PATCH.match(old), _PATCH.match(new)
    return before == after and was is not None and now is not None and was[1] == now[1] and int(was[2]) < int(now[2])


_BUILD = re.compile(r"(v?\d+\.\d+[\w.]*(?:-\w+)*?)[-_](?:r|build|b)?\.?\d+")
"""A tag that ends in the number of a build or of a package: 7.4.2-r27, 2.15.1-debian-12-r5, 1.9-3."""


def is_rebuilt(found: FieldDiff) -> bool:
    """Whether an image of the same repository has the same version, of another build."""
    if not (isinstance(found.old, str) and isinstance(found.new, str)):
        return False
    (before, old), (after, new) = image_parts(found.old), image_parts(found.new)
    was, now = _BUILD.fullmatch(old), _BUILD.fullmatch(new)
    return before == after and was is not None and now is not None and was[1] == now[1] and old != new


_PRODUCTION = re.compile(r"(?:\A|[._-])(?:prod|production|live)(?:\Z|[._-])")
_TEST = re.compile(r"(?:\A|[._-])(?:dev|develop|test|testing|qa|uat|int|stage|staging|sandbox|local)(?:\Z|[._-])")
"""What tags say of the environment that a build is for."""


def is_for_another(found: FieldDiff) -> bool:
    """Whether an image for production is followed by one for a test."""
    if not (isinstance(found.old, str) and isinstance(found.new, str)):
        return False
    old, new = image_parts(found.old)[1], image_parts(found.new)[1]
    return bool(_PRODUCTION.search(old) and _TEST.search(new) and not _PRODUCTION.search(new))


def images(found: FieldDiff) -> str:
    """Tags where only the tag moved; whole references where the repository did."""
    if not isinstance(found.old, str) or not isinstance(found.new, str):
        return moved(found) if not isinstance(found.new, str) else f" set to {image_parts(found.new)[1]}"
    (before, old), (after, new) = image_parts(found.old), image_parts(found.new)
    if before != after:
        return f"{_tail(found.old)} → {_tail(found.new)}"
    if old == new:
        digests = found.old.partition("@")[2], found.new.partition("@")[2]
        old, new = (f"{tag}@{digest.partition(':')[2][:8]}" for tag, digest in zip((old, new), digests, strict=True))
    return f"{_brief(old)} → {_brief(new)}"


def _brief(tag: str) -> str:
    """A tag; of a commit that is one no more than tells it from others."""
    return tag[:12] if _COMMIT.fullmatch(tag) else tag


def _tail(image: str) -> str:
    """A reference without the digest that stands beside a tag, and, where it is long, without its beginning."""
    repository, shown = image_parts(image)
    reference, _, digest = image.partition("@")
    separator = ":" if reference != repository else "@" if digest else ""
    text = f"{repository}{separator}{_brief(shown) if separator else ''}"
    return text if len(text) <= _LONGEST else "…" + text[-_LONGEST + 1 :]
