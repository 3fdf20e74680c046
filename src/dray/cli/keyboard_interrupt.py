"""Ctrl-C at any moment ends a command with a word and exit code 130, also while Python is still importing it.

Imported first of all by `dray.cli.main`, and without anything that takes time.
"""

# Not `signal`, which imports for a while itself.
import _signal as signal  # type: ignore[import-not-found]
import os
import sys

EXIT_INTERRUPTED = 130
PROGRAMS = ("dray", "kubectl-dray", "__main__.py")


def _leave(*_: object) -> None:
    os.write(2, b"Interrupted.\n")
    os._exit(EXIT_INTERRUPTED)


def leave_quietly_while_importing() -> None:
    """Only where this is the program: who imports Dray as a library keeps Ctrl-C."""
    is_ours = os.path.basename(sys.argv[0]) in PROGRAMS if sys.argv else False
    if is_ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def as_usual() -> None:
    """From now on a KeyboardInterrupt finds somebody who knows what to do."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)
