"""`foreshock evaluate --pool`: what several evaluations come to together, from what each wrote by --json."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from app.collect.files import UnreadableError
from app.commands.evaluate import Result, summed


def pooled(files: Sequence[Path]) -> Result:
    """As if all their recordings had been evaluated at once, but for --ablate. Raises UnreadableError for a file that
    is none, and for an incident that is in two of them."""
    results = [_read(file) for file in files]
    counted = Counter(one.name for result in results for one in result.verdicts if one.when == "alert")
    twice = sorted(name for name, times in counted.items() if times > 1)
    if twice:
        raise UnreadableError(f"{', '.join(twice[:3])}: evaluated in two of these files; each incident counts once")
    methods = {name: None for result in results for name in result.ranks}
    return summed(
        [one for result in results for one in result.verdicts],
        [one for result in results for one in result.not_judged],
        [one for result in results for one in result.remarks],
        {name: tuple(rank for result in results for rank in result.ranks[name]) for name in methods},
        {},
    )


def _read(file: Path) -> Result:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Result)
    except OSError as error:
        raise UnreadableError(f"{file}: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise UnreadableError(
            f"{file}: not what `foreshock evaluate DIR --json` of this version prints ({error})"
        ) from None
