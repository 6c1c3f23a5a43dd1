"""What whoever runs Foreshock calls secret, besides what redact_rules knows: names of fields, and kinds of which only
the metadata is kept. Pure; app/redaction_file.py reads the file that holds them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Annotated

from msgspec import Meta, Struct

from app.core.objects import redact_rules as rules
from app.core.objects.kinds import kind_of, plural_guess

_NAME = re.compile(r"[A-Za-z0-9_.*-]{1,100}\Z")
_KIND = re.compile(r"(?:(?P<group>[a-z0-9.-]{1,253})/)?(?P<kind>[A-Za-z][A-Za-z0-9]{0,62}|\*)\Z")
_SHORTEST = 3
"""Letters and digits in a row that each name has: with fewer, most texts would have to be looked through for it."""
_NEEDED = (
    *("apiVersion", "kind", "metadata", "name", "namespace", "uid", "resourceVersion", "generation", "labels"),
    *("annotations", "ownerReferences", "spec", "status", "template", "containers", "image", "replicas", "value"),
)
"""What objects are known and compared by."""
_ANY = r"[\w-]{0,64}"
"""What ``*`` stands for. Bounded, so that no text is slow to search."""


class OwnRules(Struct, frozen=True, forbid_unknown_fields=True):
    """``names`` of fields whose values are secret: the whole name, or all of it behind its last ``/`` or ``.``, in
    capitals or not; ``*`` stands for up to 64 letters, digits, ``_`` and ``-``. ``kinds`` are cut down to their
    metadata: ``group/Kind``, ``group/*``, and ``Kind`` for one of the core group.
    """

    names: Annotated[tuple[str, ...], Meta(max_length=200)] = ()
    kinds: Annotated[tuple[str, ...], Meta(max_length=200)] = ()

    def __post_init__(self) -> None:
        """Raises ValueError for what is neither, or hides too much."""
        for name in self.names:
            _check_name(name)
        for kind in self.kinds:
            found = _KIND.match(kind)
            if found is None or (found["kind"] == "*" and not found["group"]):
                raise ValueError(f"kinds: {kind!r} is neither group/Kind, group/* nor a Kind of the core group")


NO_RULES = OwnRules()


def _check_name(name: str) -> None:
    if not _NAME.match(name):
        raise ValueError(f"names: {name!r} is no name: letters, digits, _ . - and * for any of them")
    if len(_literal(name)) < _SHORTEST:
        raise ValueError(f"names: {name!r} would hide nearly everything: at least {_SHORTEST} letters in a row")
    whole = re.compile(_pattern([name]) + r"\Z", re.IGNORECASE)
    needed = next((one for one in _NEEDED if whole.match(one)), None)
    if needed is not None:
        raise ValueError(f"names: {name!r} would hide {needed}, by which objects are known and compared")


def _literal(name: str) -> str:
    """The longest part of a name without wildcards and punctuation."""
    return max(re.split(r"[^A-Za-z0-9]+", name), key=len)


def _pattern(names: Iterable[str]) -> str:
    return "(?:" + "|".join(re.escape(name).replace(r"\*", _ANY) for name in names) + ")"


class Names:
    """Names of fields, compiled: how they stand as a key, and within texts."""

    def __init__(self, names: Iterable[str]) -> None:
        """At least one name."""
        names = tuple(names)
        pattern = _pattern(names)
        of_key = re.compile(rf"(?:.*[./])?{pattern}\Z", re.IGNORECASE | re.DOTALL)
        self.holds = lru_cache(maxsize=16384)(lambda key: of_key.match(key) is not None)
        self.may_stand_in = re.compile("|".join(map(re.escape, map(_literal, names))), re.IGNORECASE).search
        """A necessary condition, quickly looked for: what none of the names stands in."""
        self.assigned = rules.assigned(rf"(?<!-){pattern}(?![\w-])")
        self.flag = rules.flag(pattern)
        self.block = rules.block(rf"(?:[\w.-]{{0,64}}[./])?{pattern}")
        self.query = rules.query(rf"(?:[\w.-]{{0,64}}\.)?{pattern}")


class Kinds:
    """Kinds of which only the metadata is kept, also where one is guessed from the plural in a URL."""

    def __init__(self, kinds: Iterable[str]) -> None:
        found = [match for match in map(_KIND.match, kinds) if match]
        self._groups = frozenset(one["group"] for one in found if one["kind"] == "*")
        self._kinds = frozenset((one["group"] or "", _form(one["kind"])) for one in found)

    def hold(self, api_group: str, kind: str) -> bool:
        """Whether it is one of them."""
        return api_group in self._groups or (api_group, _form(kind)) in self._kinds


@lru_cache(maxsize=4096)
def _form(kind: str) -> str:
    """A kind as it would be guessed from its own plural, in small letters: equal for the guess and for the kind."""
    return kind_of("", plural_guess(kind)).lower()
