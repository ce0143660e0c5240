"""Where the command starts, so that Ctrl-C ends it quietly while modules are imported, too.

This module imports nothing that an interruption could break off, such as click or NumPy.
"""

import os
import signal

INTERRUPTED = 130
"""The exit status after Ctrl-C: 128 and the number of the signal, as shells have it."""


def _end(*_: object) -> None:
    # At once, since an exception may become another one within an extension that is imported.
    try:
        os.write(2, b"nnet3-conformance: interrupted\n")
    finally:
        os._exit(INTERRUPTED)


def main() -> None:
    """Runs the command; Ctrl-C ends it with one line, whatever it is doing."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not if it is ignored
        signal.signal(signal.SIGINT, _end)
    from nnet3_conformance import command

    command.main()
