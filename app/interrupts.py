"""Ctrl-C while a command is still being loaded: it ends as any program does that has not begun, without a traceback.

Imported before all else, as to load the rest takes most of what a command takes.
"""

from __future__ import annotations

import signal
from threading import current_thread, main_thread

_python = signal.default_int_handler
if current_thread() is main_thread() and signal.getsignal(signal.SIGINT) is _python:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def are_heard() -> None:
    """From here on Ctrl-C is a KeyboardInterrupt again, unless somebody has us ignore it (nohup)."""
    if current_thread() is main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, _python)
