"""What is known of objects from piece to piece of a long log, and how much is learned before it is recorded."""

from __future__ import annotations

from pathlib import Path

from app.collect.importer import Import
from app.collect.inputs import find_inputs
from app.collect.learning import BATCH_BYTES
from app.collect.logs import LINES
from app.core.model import Batch, DiffSource
from tests.collect.test_importer import NOW, Lab, audited, lab, read, watched, write

__all__ = ["lab"]


class Told(Import):
    """An import that remembers what its batches held."""

    batches: list[Batch]

    def _record(self, batch: Batch) -> None:
        self.batches.append(batch)
        super()._record(batch)


async def imported(lab: Lab, path: Path) -> list[Batch]:
    run = Told(lab.database.write, lab.cluster, now=NOW, progress=lambda *_: None)
    run.batches = []
    await run.run(find_inputs([str(path)]))
    return run.batches


async def test_each_piece_knows_what_the_store_and_the_piece_before_knew(lab: Lab, tmp_path: Path) -> None:
    await lab.imported(*write(tmp_path, before=watched(0, 11, "web:1", "ADDED") + "\n"))
    lines = [read(1 + number / 1000) for number in range(3 * LINES)]
    for piece, version in enumerate((12, 13, 14)):
        lines[piece * LINES] = audited(1 + piece * LINES / 1000, version, f"web:{version}")
    [log] = write(tmp_path, log="\n".join(lines) + "\n")
    await imported(lab, log)
    found = await lab.stored()
    assert [(one.diffs[0].old, one.diffs[0].new) for one in found] == [
        ("web:1", "web:12"),
        ("web:12", "web:13"),
        ("web:13", "web:14"),
    ]
    assert {one.diff_source for one in found} == {DiffSource.STATES}


async def test_large_objects_make_a_batch_however_few_they_are(lab: Lab, tmp_path: Path) -> None:
    size = 1 << 20
    manager = "x" * size  # no desired state: quickly read
    lines = [audited(version, version, "web:1").replace("kubectl-set", manager) for version in range(1, 41)]
    [log] = write(tmp_path, log="\n".join(lines) + "\n")
    written = [len(batch.requests) for batch in await imported(lab, log)]
    assert sum(written) == len(lines)
    assert max(written) <= BATCH_BYTES // size + 8, "16 MiB of objects, and a piece more"
