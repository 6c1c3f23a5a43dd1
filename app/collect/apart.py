"""Logs as pieces, read by a process beside this one: while a piece is learned from, the next is decoded.

Pieces come as MessagePack over a pair of sockets, each behind its length; a thread receives the next ones while one is
learned from. When this process dies, the other ends at its next piece: nobody takes it. Why a process:
docs/decisions/0010.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from socket import MSG_WAITALL, socket, socketpair

import msgspec

from app.collect.files import ReplacedError, UnreadableError
from app.collect.garbage import garbage_rarely
from app.collect.intake import Piece
from app.collect.logs import Job, pieces
from app.failures import Exit, Expected


class ReadingError(Expected):
    """The process that reads ended before the logs did; what it said of that is on stderr."""

    code = Exit.NOT_NOW


class _Unreadable(msgspec.Struct, tag=True):
    """The logs cannot be read, or not now, since one was ``replaced``; ``why`` is for a person."""

    why: str
    replaced: bool = False


class _Said(msgspec.Struct, tag=True):
    piece: Piece


class _End(msgspec.Struct, tag=True):
    """Every log was read."""


_job = msgspec.msgpack.Decoder(Job)
_message = msgspec.msgpack.Decoder(_Said | _Unreadable | _End)
_encoder = msgspec.msgpack.Encoder()
AHEAD = 3
"""Pieces that are received before they are asked for: the other process reads on while a batch is recorded."""
_LENGTH = 8
"""Bytes of a message's length before it, the most significant first."""


def pieces_apart(job: Job) -> Generator[Piece]:
    """As logs.pieces. Raises UnreadableError, ReplacedError and ReadingError; ends its process when closed early."""
    ours, theirs = socketpair()
    command = [sys.executable, "-P", "-m", "app.collect.apart", str(theirs.fileno())]  # -P: not what lies here
    with (
        subprocess.Popen(command, pass_fds=[theirs.fileno()]) as process,  # noqa: S603 - ourselves
        ours,
        ThreadPoolExecutor(1, "receive") as receiver,
    ):
        theirs.close()
        try:
            yield from _received(ours, job, process, receiver)
        finally:
            process.kill()  # which ends what the receiver waits for


def _received(
    ours: socket, job: Job, process: subprocess.Popen[bytes], receiver: ThreadPoolExecutor
) -> Iterator[Piece]:
    try:
        _send(ours, job)
        following = deque(receiver.submit(_receive, ours) for _ in range(AHEAD))
        while not isinstance(message := _message.decode(following.popleft().result()), _End):
            if isinstance(message, _Unreadable):
                raise (ReplacedError if message.replaced else UnreadableError)(message.why)
            following.append(receiver.submit(_receive, ours))
            yield message.piece
    except (EOFError, ConnectionError):
        raise ReadingError(f"the process that reads the logs ended with {process.wait()}: import again") from None


def _send(to: socket, message: Job | _Said | _Unreadable | _End) -> None:
    encoded = _encoder.encode(message)
    to.sendall(len(encoded).to_bytes(_LENGTH))
    to.sendall(encoded)


def _receive(sender: socket) -> bytearray:
    """The next message. Raises EOFError where none follows."""
    return _exactly(sender, int.from_bytes(_exactly(sender, _LENGTH)))


def _exactly(sender: socket, size: int) -> bytearray:
    """So many bytes, in one call: the interpreter is another thread's until the last of them is there."""
    received = bytearray(size)
    left = memoryview(received)
    while left:  # once, but for signals
        count = sender.recv_into(left, flags=MSG_WAITALL)
        if not count:
            raise EOFError
        left = left[count:]
    return received


def main() -> None:
    """Read the job that comes through the socket of that number, and answer with its pieces."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who started us
    with socket(fileno=int(sys.argv[1])) as out, suppress(EOFError, ConnectionError):  # nobody takes it any more
        try:
            with garbage_rarely():
                for piece in pieces(_job.decode(_receive(out))):
                    _send(out, _Said(piece))
            _send(out, _End())
        except UnreadableError as error:
            _send(out, _Unreadable(str(error), isinstance(error, ReplacedError)))


if __name__ == "__main__":
    main()
