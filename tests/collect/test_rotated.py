"""A log that is rotated during an import: what is hashed is what is read, and nothing is lost or counted twice."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from app.collect import importer
from app.collect.files import UnreadableError
from app.collect.importer import Import
from app.collect.inputs import survey
from app.failures import Exit
from tests.collect.test_grown import AUDIT, BEHIND, at_once, everything, imported
from tests.collect.test_importer import NOW, Lab, lab

__all__ = ["at_once", "lab"]


@pytest.mark.parametrize("after", ["renamed", "copied and emptied", "moved away"])
@pytest.mark.parametrize("apart", [1, 1 << 30], ids=["in another process", "in this one"])
async def test_a_log_that_is_rotated_before_it_is_read_is_not_taken_for_the_new_one(
    lab: Lab, tmp_path: Path, at_once: Any, monkeypatch: pytest.MonkeyPatch, *, after: str, apart: int
) -> None:
    monkeypatch.setattr(importer, "APART_BYTES", apart)
    log, rotated = tmp_path / "audit.jsonl", tmp_path / "audit-2026.jsonl"
    cut = BEHIND[10]
    log.write_text(AUDIT[:cut])
    inputs = list(survey([str(log)]).inputs)
    shutil.copy(log, rotated) if after == "copied and emptied" else log.rename(rotated)
    if after != "moved away":
        log.write_text(AUDIT[cut:] * (3 if after == "renamed" else 1))
    with pytest.raises(UnreadableError, match=str(log)) as refused:
        await Import(lab.database.write, lab.cluster, now=NOW, progress=lambda *_: None).run(inputs)
    assert refused.value.code == (Exit.WRONG_USE if after == "moved away" else Exit.NOT_NOW)
    log.write_text(AUDIT[cut:])
    await imported(lab, rotated)
    await imported(lab, log)
    found = await everything(lab)
    assert found["calls"] == at_once["calls"]
    assert [change[:3] for change in found["changes"]] == [change[:3] for change in at_once["changes"]]


async def test_a_log_that_is_rotated_while_it_is_read_is_read_to_its_end(lab: Lab, tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    log.write_text(AUDIT)
    told: list[int] = []

    def rotate(_path: str, _lines: int, stored_bytes: int) -> None:
        told.append(stored_bytes)
        log.unlink(missing_ok=True)

    inputs = list(survey([str(log)]).inputs)
    await Import(lab.database.write, lab.cluster, now=NOW, progress=rotate).run(inputs)
    assert told[-1] == len(AUDIT.encode())
