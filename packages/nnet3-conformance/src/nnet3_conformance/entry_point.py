"""The start of the command; Ctrl-C ends it quietly even while modules are being imported.

This module imports nothing that Ctrl-C could interrupt, such as click or NumPy.
"""

import os
import signal

INTERRUPTED = 130
"""The exit status after Ctrl-C: 128 plus the number of the signal, as in shells."""


def _end(*_: object) -> None:
    # Ends at once: an exception could be replaced by another within an extension's import.
    try:
        os.write(2, b"nnet3-conformance: interrupted\n")
    finally:
        os._exit(INTERRUPTED)


def main() -> None:
    """Runs the command; Ctrl-C ends it with one line at any time."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # unless Ctrl-C is ignored
        signal.signal(signal.SIGINT, _end)
    from nnet3_conformance import command

    command.main()
