"""Logs as pieces, read by a process beside this one: while a piece is learned from, the next is decoded.

Pieces come as MessagePack over a pair of sockets. When this process dies, the other ends at its next piece: nobody
takes it. Why a process: docs/decisions/0010.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe

import msgspec

from app.collect.files import UnreadableError
from app.collect.intake import Piece
from app.collect.logs import Job, pieces


class ReadingError(Exception):
    """The process that reads ended before the logs did; what it said of that is on stderr."""


class _Unreadable(msgspec.Struct, tag=True):
    """The logs cannot be read; ``why`` is for a person."""

    why: str


class _Said(msgspec.Struct, tag=True):
    piece: Piece


class _End(msgspec.Struct, tag=True):
    """Every log was read."""


_job = msgspec.msgpack.Decoder(Job)
_message = msgspec.msgpack.Decoder(_Said | _Unreadable | _End)
_encoder = msgspec.msgpack.Encoder()


def pieces_apart(job: Job) -> Iterator[Piece]:
    """As logs.pieces. Raises UnreadableError and ReadingError; ends the process when it is closed early."""
    ours, theirs = Pipe()
    command = [sys.executable, "-P", "-m", "app.collect.apart", str(theirs.fileno())]  # -P: not what lies here
    with subprocess.Popen(command, pass_fds=[theirs.fileno()]) as process, ours:  # noqa: S603 - ourselves
        theirs.close()
        try:
            yield from _received(ours, job, process)
        finally:
            process.kill()


def _received(ours: Connection, job: Job, process: subprocess.Popen[bytes]) -> Iterator[Piece]:
    try:
        ours.send_bytes(_encoder.encode(job))
        while not isinstance(message := _message.decode(ours.recv_bytes()), _End):
            if isinstance(message, _Unreadable):
                raise UnreadableError(message.why)
            yield message.piece
    except (EOFError, ConnectionError):
        raise ReadingError(f"the process that reads the logs ended with {process.wait()}: import again") from None


def main() -> None:
    """Read the job that comes through the socket of that number, and answer with its pieces."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who started us
    with Connection(int(sys.argv[1])) as out, suppress(EOFError, ConnectionError):  # nobody takes it any more
        try:
            for piece in pieces(_job.decode(out.recv_bytes())):
                out.send_bytes(_encoder.encode(_Said(piece)))
            out.send_bytes(_encoder.encode(_End()))
        except UnreadableError as error:
            out.send_bytes(_encoder.encode(_Unreadable(str(error))))


if __name__ == "__main__":
    main()
