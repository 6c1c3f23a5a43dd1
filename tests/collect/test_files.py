from __future__ import annotations

import gzip
import random
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest
import zstandard

from app.collect import files
from app.collect.files import CHUNK, DamagedError, Line, UnreadableError, identity, lines, open_stream
from app.collect.unpack import gunzip, unzstd

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


def test_a_last_line_longer_than_the_limit_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "CHUNK", 10)
    monkeypatch.setattr(files, "MAX_LINE", 30)
    (found,) = lines(BytesIO(b"x" * 95))
    assert found.too_long


def pack_zstd(data: bytes) -> bytes:
    """zstd in many blocks: so that something can be read before a cut."""
    return zstandard.ZstdCompressor(level=1).compress(data)


LOG = b"".join(b'{"n":%d,"noise":"%s"}\n' % (n, random.Random(n).randbytes(12).hex().encode()) for n in range(40_000))


@pytest.mark.parametrize("share", [0.3, 0.99])
def test_a_cut_gzip_gives_every_line_before_the_cut(tmp_path: Path, share: float) -> None:
    cut = gzip.compress(LOG)
    cut = cut[: int(len(cut) * share)]
    (tmp_path / "cut").write_bytes(cut)
    found, damage = read_until_damage(tmp_path / "cut")
    assert "ends before" in damage
    readable = zlib.decompressobj(31).decompress(cut)
    assert found == readable[: readable.rindex(b"\n") + 1]


@pytest.mark.parametrize("share", [0.3, 0.99])
def test_a_cut_zstd_gives_every_line_of_its_whole_blocks(tmp_path: Path, share: float) -> None:
    cut = pack_zstd(LOG)
    (tmp_path / "cut").write_bytes(cut[: int(len(cut) * share)])
    found, damage = read_until_damage(tmp_path / "cut")
    assert "ends before" in damage
    assert LOG.startswith(found)
    assert len(found) > len(LOG) * share - 2 * (128 << 10)


@pytest.mark.parametrize("pack", [gzip.compress, pack_zstd])
@pytest.mark.parametrize("end", [1, 3])
def test_an_archive_without_its_very_end_is_told_as_damaged(
    tmp_path: Path, pack: Callable[[bytes], bytes], end: int
) -> None:
    (tmp_path / "cut").write_bytes(pack(LOG)[:-end])
    found, _ = read_until_damage(tmp_path / "cut")
    assert len(found) > len(LOG) - 200_000


@pytest.mark.parametrize("pack", [gzip.compress, pack_zstd])
def test_what_comes_before_a_broken_byte_is_given(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    good, broken = pack(LOG), bytearray(pack(LOG))
    broken[4:12] = b"\xff" * 8  # in the head of the second member
    (tmp_path / "broken").write_bytes(good + broken)
    found, damage = read_until_damage(tmp_path / "broken")
    assert found == LOG
    assert "damaged" in damage


@pytest.mark.parametrize("pack", [gzip.compress, pack_zstd])
def test_members_follow_one_another(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    (tmp_path / "two").write_bytes(pack(TEXT + b"\n") + pack(b"") + pack(TEXT))
    with open_stream(str(tmp_path / "two")) as stream:
        assert len(list(lines(stream))) == 6


def test_a_frame_of_zstd_that_holds_no_content_is_passed_over(tmp_path: Path) -> None:
    note = (0x184D2A50).to_bytes(4, "little") + (5).to_bytes(4, "little") + b"hello"
    (tmp_path / "log").write_bytes(pack_zstd(TEXT) + note)
    with open_stream(str(tmp_path / "log")) as stream:
        assert len(list(lines(stream))) == 3


def test_a_small_archive_that_unpacks_to_much_comes_in_small_parts(tmp_path: Path) -> None:
    for pack in (gzip.compress, pack_zstd):
        (tmp_path / "bomb").write_bytes(pack(bytes(100 << 20)))
        with (tmp_path / "bomb").open("rb") as packed:
            unpack = gunzip if pack is gzip.compress else unzstd
            assert max(len(chunk) for chunk in unpack(packed)) <= CHUNK


def read_until_damage(path: Path) -> tuple[bytes, str]:
    """The whole lines of a damaged file, and what is said of the damage."""
    found: list[Line] = []
    with open_stream(str(path)) as stream, pytest.raises(DamagedError) as damage:
        found.extend(lines(stream))
    return b"".join(line.data + b"\n" for line in found), str(damage.value)


def test_a_missing_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="no such file"):
        open_stream(str(tmp_path / "nothing"))


def test_a_file_that_grew_is_another_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\n")
    before = identity(str(path))
    path.write_bytes(b"one\ntwo\n")
    assert identity(str(path)) != before


@pytest.mark.parametrize("size", [10, CHUNK, 3 * CHUNK // 2, 5 * CHUNK])
def test_files_that_differ_in_one_byte_anywhere_are_not_the_same(tmp_path: Path, size: int) -> None:
    path = tmp_path / "log"
    whole = random.Random(size).randbytes(size)
    found = set()
    places = [None, 0, size // 2, size - 1, min(size - 1, CHUNK + 7), max(0, size - CHUNK - 7)]
    for place in places:
        path.write_bytes(whole if place is None else whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        found.add(identity(str(path)))
    assert len(found) == len(set(places))
