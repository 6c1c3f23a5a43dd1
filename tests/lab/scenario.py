"""What a family is: a story, and an asynchronous generator that prepares, yields, and strikes."""

from __future__ import annotations

import hashlib
import importlib
import json
import pkgutil
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.lab import families
from tests.lab.lab import Lab

Play = Callable[[Lab], AsyncIterator[None]]
EVEN_SINCE = 4
"""From this ``joined`` on, those without a culprit are dealt after those with one, in the same turn."""
SPLIT = Path(__file__).with_name("split.json")


@dataclass(frozen=True)
class Family:
    """``flags`` are further ones of kube-apiserver, ``store_flags`` of etcd.

    Without ``culprit`` no change of the recording is to blame.

    ``joined`` numbers those that came together: they are split among themselves, so what was split before stays.
    """

    name: str
    story: str
    play: Play
    flags: Sequence[str] = ()
    culprit: bool = True
    joined: int = 1
    store_flags: Sequence[str] = ()


_FAMILIES: dict[str, Family] = {}


def family(
    story: str,
    *,
    flags: Sequence[str] = (),
    culprit: bool = True,
    joined: int = 1,
    store_flags: Sequence[str] = (),
) -> Callable[[Play], Play]:
    """The function below, called like the family with underscores, is one. What it does before it yields is past."""

    def enter(play: Play) -> Play:
        name = str(getattr(play, "__name__", "")).replace("_", "-")
        assert name not in _FAMILIES, name
        _FAMILIES[name] = Family(name, story, play, flags, culprit, joined, store_flags)
        return play

    return enter


def load() -> dict[str, Family]:
    """Every family of the folder, by name."""
    for module in pkgutil.iter_modules(families.__path__, f"{families.__name__}."):
        importlib.import_module(module.name)
    return dict(sorted(_FAMILIES.items()))


def split(families: Iterable[Family]) -> dict[str, str]:
    """``dev`` or ``test`` for each: in the order of a hash of their names, in turn; those without a culprit apart.

    So nobody chose, and both parts have of both. What was split once stays so: those that join later are dealt apart.
    Since the fourth time those without a culprit take the turn where those with one have left it: the halves are equal.
    """
    parts = {}
    groups: dict[tuple[int, bool], list[str]] = {}
    for one in families:
        groups.setdefault((one.joined, one.culprit), []).append(one.name)
    for (joined, culprit), group in groups.items():
        first = 0 if culprit or joined < EVEN_SINCE else len(groups.get((joined, True), ()))
        names = sorted(group, key=_hash)
        parts.update({name: ("dev", "test")[turn % 2] for turn, name in enumerate(names, first)})
    return dict(sorted(parts.items()))


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def part(name: str) -> str:
    """Which part a family is in. Raises KeyError for one that split.json does not have."""
    return str(json.loads(SPLIT.read_text())[name])
