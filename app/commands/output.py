"""Standard output and error that take all that is printed, or say why not.

Python itself writes an unbuffered standard output (PYTHONUNBUFFERED) with one write(2) and drops what that call left
over, with no error. A pipe takes only a part when its reader is slow and the write is interrupted, or when it was
made not to block; pipe(7) says when.
"""

from __future__ import annotations

import os
import select
import sys
from io import BufferedWriter, RawIOBase, TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from app.failures import Exit, Expected

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class NotWrittenError(Expected):
    """The output could not be written: a full disk, mostly."""

    code = Exit.NOT_WRITTEN


class NotReadError(Expected):
    """Who read the output went away, as ``head`` does. Nobody is left to be told anything."""

    code = Exit.NOT_READ


class _Whole(RawIOBase):
    """A file descriptor whose ``write`` returns when everything is written."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        left = memoryview(data)
        size = len(left)
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:
                select.select([], [self._descriptor], [])
            except BrokenPipeError:
                self._give_up()
                raise NotReadError from None
            except OSError as error:
                self._give_up()
                raise NotWrittenError(f"the output cannot be written: {error.strerror}") from None
        return size

    def _give_up(self) -> None:
        """What is still to be written goes nowhere: it would fail once more at our end, and louder."""
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), self._descriptor)


def whole(stream: TextIO) -> TextIO:
    """``stream`` with every line written whole, at once; characters that it cannot hold become ``?``.

    Writing raises NotWrittenError or NotReadError.
    """
    raw = BufferedWriter(_Whole(stream.fileno()))
    return TextIOWrapper(raw, encoding=stream.encoding, errors="replace", line_buffering=True)


def say(error: BaseException, code: Exit) -> Exit:
    """Says on stderr why a command ends, where there is anything to say; answers ``code``."""
    if str(error):
        print(f"foreshock: {error}", file=sys.stderr)
    return code
