"""The spool: whatever happens to it, what was durable is there once, and in order."""

from __future__ import annotations

import errno
import os
import tempfile
import threading
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from app.collect.seal import NONCE, Opening, Sealing, sealed
from app.collect.segments import HEADER, SpoolFullError, SpoolTakenError
from app.collect.spool import CLOSED, Spool

ROOM = 1 << 20
KEY = b"k" * 32


def open_spool(folder: Path, most_bytes: int = ROOM) -> Spool:
    return Spool(folder, most_bytes=most_bytes, key=KEY)


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    with open_spool(tmp_path) as opened:
        yield opened


def payloads(spool: Spool, position: int = 0) -> list[bytes | None]:
    return [frame.payload for frame in spool.read(position)]


def kill(spool: Spool) -> None:
    """What the kernel does with the files of a process that is killed."""
    if spool._file != CLOSED:
        os.close(spool._file)
        spool._file = CLOSED
    spool._taken.close()


def newest(folder: Path) -> Path:
    return max(folder.glob("*.log"))


def test_what_is_appended_is_read_in_order_and_goes_on_from_any_position(spool: Spool) -> None:
    ends = [spool.append(b"record %d" % number, durable=number % 2 == 0) for number in range(5)]
    assert [frame.after for frame in spool.read(0)] == ends
    for number, end in enumerate(ends):
        assert payloads(spool, end) == [b"record %d" % later for later in range(number + 1, 5)]
    assert spool.end == ends[-1] == spool.size


def test_what_is_appended_at_once_is_read_from_each_record_of_it(spool: Spool) -> None:
    """One keystream seals all of them: each is opened by itself, too, and no two share a block of it."""
    several = [b"", b"a" * 15, b"b" * 16, b"c" * 17, b"d" * 4096, b"e"]
    spool.append_all(several)
    ends = [0, *(frame.after for frame in spool.read(0))]
    for number, position in enumerate(ends):
        assert payloads(spool, position) == several[number:]


@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_counter_that_begins_again_seals_as_any_other(before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.collect.seal.token_bytes", lambda size: ((1 << 8 * size) - 1 - before).to_bytes(size))
    several = [b"a" * 20, b"b" * 5, b"c" * 40]
    records = sealed(KEY, several)
    together = Opening(KEY)
    assert [together.opened(record) for record in records] == several
    assert [Opening(KEY).opened(record) for record in reversed(records)] == several[::-1]
    assert len({record[:NONCE] for record in records}) == len(records)


def test_sealed_at_once_or_as_it_comes_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.collect.seal.token_bytes", bytes)
    sealing = Sealing(KEY)
    assert sealed(KEY, [b"some words"]) == [sealing.nonce + sealing.add(b"some ") + sealing.add(b"words")]


def test_a_reopened_spool_goes_on_where_it_was(tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool:
        spool.append(b"one", durable=True)
        end, identity = spool.end, spool.identity
    with open_spool(tmp_path) as spool:
        assert (spool.end, spool.identity) == (end, identity)
        spool.append(b"two", durable=True)
        assert payloads(spool) == [b"one", b"two"]


def test_one_process_alone_has_the_folder(spool: Spool) -> None:
    with pytest.raises(SpoolTakenError, match="another process has the spool"):
        open_spool(spool.folder)


def test_a_full_spool_says_so_and_takes_again_what_is_recorded(tmp_path: Path) -> None:
    with open_spool(tmp_path, 1000) as spool:
        for _ in range(9):
            spool.append(b"x" * 76, durable=False)
        with pytest.raises(SpoolFullError, match="holds 900 of 1,000 bytes"):
            spool.append(b"x" * 76, durable=False)
        assert spool.size <= 1000
        assert len(payloads(spool)) == 9
        half = [frame.after for frame in spool.read(0)][4]
        spool.trim(half)
        spool.append(b"y", durable=True)
        assert payloads(spool, half) == [b"x" * 76] * 4 + [b"y"]
        spool.trim(spool.end)
        assert spool.size == 0
        end = spool.end
    with open_spool(tmp_path, 1000) as spool:
        assert spool.end == end, "an empty spool remembers where it is"


def test_several_records_are_kept_in_one_write_all_or_none(tmp_path: Path) -> None:
    with open_spool(tmp_path, 1000) as spool:
        grown = list[int]()
        spool.on_growth = lambda: grown.append(spool.end)
        end = spool.append_all([b"a", b"b", b"c"])
        assert grown == [end]
        with pytest.raises(SpoolFullError):
            spool.append_all([b"d", b"x" * 1000])
        spool.append_all([])
        assert payloads(spool) == [b"a", b"b", b"c"]


def test_a_streamed_record_lies_between_those_before_and_after_it(spool: Spool) -> None:
    spool.append(b"before", durable=False)
    incoming = spool.incoming()
    incoming.write(b"????")
    incoming.write(b"bcd" * 1000)
    spool.append(b"meanwhile", durable=False)
    assert payloads(spool) == [b"before", b"meanwhile"]
    incoming.finish(b"head")
    spool.append(b"after", durable=True)
    assert payloads(spool) == [b"before", b"meanwhile", b"head" + b"bcd" * 1000, b"after"]


def test_a_stream_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    with open_spool(tmp_path, 1000) as spool:
        incoming = spool.incoming()
        incoming.write(b"x" * 600)
        with pytest.raises(SpoolFullError):
            spool.append(b"y" * 600, durable=True)
        incoming.discard()
        incoming.discard()
        spool.append(b"y" * 600, durable=True)
        spool.incoming().write(b"z")
        kill(spool)
    with open_spool(tmp_path, 1000) as spool:
        assert payloads(spool) == [b"y" * 600]
        assert not list(tmp_path.glob("*.incoming"))


def test_zeros_that_a_power_loss_left_are_no_records(tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool:
        spool.append(b"one", durable=True)
        end = spool.end
    with newest(tmp_path).open("ab") as file:
        file.write(bytes(4096))
    with open_spool(tmp_path) as spool:
        assert spool.end == end
        assert payloads(spool) == [b"one"]


def test_behind_a_damaged_record_the_next_segment_is_read_and_the_loss_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_spool(tmp_path, 800) as spool:
        for number in range(7):
            spool.append(b"record %d " % number * 5, durable=True)
        first = min(tmp_path.glob("*.log"))
        data = bytearray(first.read_bytes())
        data[HEADER.size + 3] ^= 1
        first.write_bytes(data)
        found = payloads(spool)
    assert found[0] is None
    assert found[1:] == [b"record %d " % number * 5 for number in range(8 - len(found), 7)]
    assert len(found) >= 4
    assert "the spool is damaged" in capsys.readouterr().out


def test_a_disk_too_full_for_another_file_gets_room_from_what_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with open_spool(tmp_path, most_bytes=800) as spool:  # of eight segments
        for _ in range(5):
            end = spool.append(b"a" * 60, durable=True)
        before = spool.size
        with monkeypatch.context() as patched:
            patched.setattr("app.collect.spool.os.open", full)
            with pytest.raises(OSError, match="No space"):
                spool.trim(end)
        assert spool.size < before / 2
        spool.append(b"more", durable=True)
        assert payloads(spool, end) == [b"more"]


def test_a_disk_that_gets_full_within_a_record_leaves_no_half(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    spool.append(b"one", durable=True)
    real = os.pwrite

    def full(file: int, data: bytes, at: int) -> int:
        if len(data) > 5:
            return real(file, bytes(data[:5]), at)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(SpoolFullError, match=r"the disk of .* is full"):
            spool.append(b"x" * 8, durable=True)
    spool.append(b"two", durable=True)
    assert payloads(spool) == [b"one", b"two"]


def test_after_a_sync_that_failed_nothing_is_promised_any_more(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_file: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", failing)
        with pytest.raises(OSError, match="Input/output error"):
            spool.append(b"one", durable=True)
    with pytest.raises(OSError, match="when Foreshock is started again"):
        spool.append(b"two", durable=True)
    with pytest.raises(OSError, match="when Foreshock is started again"):
        payloads(spool)


def test_appenders_that_wait_together_share_a_sync(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    real, syncs, go = os.fdatasync, 0, threading.Event()

    def slow(file: int) -> None:
        nonlocal syncs
        syncs += 1
        assert go.wait(30)
        real(file)

    monkeypatch.setattr(os, "fdatasync", slow)
    with ThreadPoolExecutor(20) as threads:
        done = [threads.submit(spool.append, b"record %d" % number, durable=True) for number in range(20)]
        while spool.end < sum(HEADER.size + NONCE + len(b"record %d" % number) for number in range(20)):
            assert not any(one.done() for one in done)
        go.set()
    assert max(one.result() for one in done) == spool.end
    assert syncs <= 2
    assert len(payloads(spool)) == 20


class Disturbed(RuleBasedStateMachine):
    """Appends, streams, reads and trims, with kills and power losses between: what is durable is there, once."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="fs")
        self.path = Path(self.folder.name)
        self.spool = open_spool(self.path, 4000)
        self.model: list[tuple[int, bytes]] = []  # the end of each record that is there, and the record
        self.durable = 0
        self.recorded = 0
        self.number = 0

    def made(self, size: int) -> bytes:
        self.number += 1
        return b"%d:" % self.number + zlib.crc32(b"%d" % self.number).to_bytes(4) * (size // 4)

    @rule(size=st.integers(0, 700), durable=st.booleans())
    def append(self, size: int, durable: bool) -> None:
        payload = self.made(size)
        try:
            end = self.spool.append(payload, durable=durable)
        except SpoolFullError:
            return
        self.model.append((end, payload))
        if durable:
            self.durable = end

    @rule(sizes=st.lists(st.integers(1, 400), max_size=4), whole=st.booleans())
    def stream(self, sizes: list[int], whole: bool) -> None:
        try:
            incoming = self.spool.incoming()
        except SpoolFullError:
            return
        parts = [self.made(size) for size in sizes]
        try:
            for part in parts:
                incoming.write(part)
        except SpoolFullError:
            incoming.discard()
            return
        if not whole:
            incoming.discard()
            return
        self.durable = incoming.finish()
        self.model.append((self.durable, b"".join(parts)))

    @rule(count=st.integers(1, 5))
    def record(self, count: int) -> None:
        for frame, _ in zip(self.spool.read(self.recorded), range(count), strict=False):
            expected = next(one for one in self.model if one[0] > self.recorded)
            assert (frame.after, frame.payload) == expected
            self.recorded = frame.after
        self.durable = max(self.durable, self.recorded)
        self.spool.trim(self.recorded)

    @rule()
    def restart(self) -> None:
        self.spool.close()
        self.spool = open_spool(self.path, 4000)
        self.durable = self.spool.end

    @rule()
    def killed(self) -> None:
        kill(self.spool)
        self.spool = open_spool(self.path, 4000)
        self.durable = self.spool.end

    @precondition(lambda self: self.model)
    @rule(share=st.floats(0, 1), zeros=st.integers(0, 40))
    def power_lost(self, share: float, zeros: int) -> None:
        """All that was durable is there, and of the rest any part."""
        kill(self.spool)
        file = newest(self.path)
        start, size = int(file.stem), file.stat().st_size
        least = max(0, self.durable - start)
        os.truncate(file, least + int(share * (size - least)))
        if zeros:
            with file.open("ab") as torn:
                torn.write(bytes(zeros))
        self.spool = open_spool(self.path, 4000)
        assert self.spool.end >= self.durable
        self.model = [one for one in self.model if one[0] <= self.spool.end]
        self.durable = self.spool.end

    @invariant()
    def each_record_is_there_once(self) -> None:
        assert self.spool.end == (self.model[-1][0] if self.model else self.spool.end)
        assert self.spool.size <= 4000

    def teardown(self) -> None:
        rest = [one for one in self.model if one[0] > self.recorded]
        assert [(frame.after, frame.payload) for frame in self.spool.read(self.recorded)] == rest
        self.spool.close()
        self.folder.cleanup()


Disturbed.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestDisturbed = Disturbed.TestCase
