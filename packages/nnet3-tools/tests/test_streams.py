"""Commands in place of model files."""

import os
import signal

import pytest
from nnet3_tools.streams import readable


@pytest.mark.skipif(os.name != "posix", reason="runs commands of POSIX")
def test_interrupted_command() -> None:
    """A command is ended when its reader is interrupted."""
    written = []

    def read() -> None:
        with readable("echo $$; exec sleep 20 |") as source:
            assert hasattr(source, "readline")
            written.append(source.readline())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read()

    try:
        _, status = os.waitpid(int(written[0]), 0)
    except ChildProcessError:
        return  # it has ended: Python waits for it only a moment
    assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM
