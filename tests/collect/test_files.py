from __future__ import annotations

import gzip
from io import BytesIO
from pathlib import Path

import pytest
import zstandard

from app.collect import files
from app.collect.files import DamagedError, UnreadableError, identity, lines, open_stream

TEXT = b'{"a":1}\n\n{"b":2}\n{"c":3}'


@pytest.mark.parametrize("name", ["log.jsonl", "log.jsonl.gz", "log.jsonl.zst", "log"])
def test_a_file_is_decompressed_by_what_it_holds(tmp_path: Path, name: str) -> None:
    packed = {"gz": gzip.compress(TEXT), "zst": zstandard.compress(TEXT)}.get(Path(name).suffix[1:], TEXT)
    (tmp_path / name).write_bytes(packed)
    with open_stream(str(tmp_path / name)) as stream:
        assert [line.data for line in lines(stream)] == [b'{"a":1}', b'{"b":2}', b'{"c":3}']


def test_lines_say_where_they_stand_and_a_reader_goes_on_there() -> None:
    first, second, third = lines(BytesIO(TEXT))
    assert (first.number, second.number, third.number) == (1, 3, 4)
    assert not third.whole
    (again,) = lines(BytesIO(TEXT), skip_to=second.end, first_line=second.number + 1)
    assert (again.data, again.number) == (b'{"c":3}', 4)


def test_a_line_longer_than_the_limit_is_refused_and_the_next_one_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "CHUNK", 10)
    monkeypatch.setattr(files, "MAX_LINE", 30)
    found = list(lines(BytesIO(b"x" * 95 + b"\n" + b"short\n")))
    assert [(line.too_long, line.data) for line in found] == [(True, b""), (False, b"short")]
    assert found[0].end == 96


def test_a_cut_gzip_gives_what_came_before(tmp_path: Path) -> None:
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(TEXT * 1000)[:-20])
    with open_stream(str(path)) as stream, pytest.raises(DamagedError):
        list(lines(stream))


def test_a_missing_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="no such file"):
        open_stream(str(tmp_path / "nothing"))


def test_a_file_that_grew_is_another_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\n")
    before = identity(str(path))
    path.write_bytes(b"one\ntwo\n")
    assert identity(str(path)) != before
