"""Writing tools that are killed, two at work on one target."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks the processes that it kills")
def test_no_file_is_half_a_file() -> None:
    """Whatever has the name of a target is whole; `killed_writers.py` kills all tools, and more."""
    program = Path(__file__).with_name("killed_writers.py")
    tools = "nnet3-copy,nnet3-copy-egs,nnet3-compute,nnet3-report"

    done = subprocess.run(
        [sys.executable, program, "--kills", "8", "--tools", tools],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout.splitlines()[-1:] == ["0 faults"], done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == 5
