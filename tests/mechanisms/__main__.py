"""How the tables are ranked today, table by table, also in a busier company: ``python -m tests.mechanisms --help``."""

from __future__ import annotations

import argparse
import random
import re
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache

from app.core.evaluation.accuracy import Rank, accuracy, auroc, surprise
from app.core.model import Change
from tests.core.factories import a_change, a_resource, after
from tests.mechanisms.case import Told, cases, files, told
from tests.mechanisms.test_mechanisms import BELIEVED

TABLE = re.compile(r"[0-9][0-9a-z]*-(?P<table>[a-z]+th|twenty-[a-z]+)-")
"""How files of most tables begin; those of the first three and the twelfth do not say theirs."""


@cache
def company(changes: int) -> Sequence[Change]:
    """So many harmless changes of 24 further teams, half of them of the last quarter of an hour and half of the last
    two hours: images, and sizes of pools."""
    drawn = random.Random(5)
    made = []
    for number in range(changes):
        team = f"team-{number % 24}"
        app = f"{team}-{drawn.randrange(30)}"
        at = after(-drawn.uniform(5, 7200 if number % 2 else 900))
        if number % 3:
            one = a_change(a_resource("Deployment", app, team), at=at, old=f"a:{number}", new=f"a:{number + 1}")
        else:
            config, path = a_resource("ConfigMap", f"{app}-config", team), ("data", "pool_size")
            one = a_change(config, at=at, path=path, old=str(number), new=str(number + 1))
        made.append(one)
    return made


def _told(name: str, beside: int) -> tuple[bool, int | None, float, float, float]:
    one: Told = told(cases()[name], company(beside))
    return one.has_culprit, one.rank, one.ranking.none_of_these, one.probability, one.ranking.suspects[0].probability


def main() -> None:
    """Prints a line for each table, and one for all of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.mechanisms", description=__doc__.partition(":")[0] + ".")
    parser.add_argument("--beside", type=int, default=0, metavar="N", help="with N more harmless changes in two hours")
    parser.add_argument("--only", default="", metavar="WORDS", help="of files whose name contains that, as twenty")
    given = parser.parse_args()
    tables: dict[str, list[str]] = defaultdict(list)
    for file, names in files().items():
        if given.only in file:
            fits = TABLE.match(file)
            tables[fits["table"] if fits else "1 to 3, 12"] += names
    if not tables:
        parser.error(f"--only: no file in tests/mechanisms/cases is called {given.only}")
    every = [name for names in tables.values() for name in names]
    with ProcessPoolExecutor(2) as pool:
        found = dict(zip(every, pool.map(_told, every, [given.beside] * len(every), chunksize=8), strict=True))
    for table, names in {**tables, "all": every}.items():
        of = [found[name] for name in names]
        ranks = [None if rank is None else Rank(rank - 1) for has, rank, *_ in of if has]
        figures = accuracy(ranks)
        none = auroc([none for has, _, none, *_ in of if has], [none for has, _, none, *_ in of if not has])
        believed = [top > BELIEVED for has, *_, top in of if not has]
        print(
            f"{table:16} first {round(figures.ac1 * len(ranks)):4} of {len(ranks):4} ({figures.ac1:.2f}), "
            f"among three {figures.ac3:.2f}, AUROC {'-' if none is None else f'{none:.2f}'}, "
            f"believed {sum(believed)} of {len(believed)}, surprise {surprise([p for *_, p, _ in of]):.2f}"
        )


if __name__ == "__main__":
    main()
