"""The wrapper of the library that writes tables."""

import os

import pytest
from nnet3_tables.native import LOG


def test_interrupted_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard error is restored, even if Ctrl-C comes while it is being redirected."""
    before, replace = os.fstat(2), os.dup2

    def interrupted(file: int, other: int) -> int:
        monkeypatch.undo()
        replace(file, other)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "dup2", interrupted)
    with pytest.raises(KeyboardInterrupt), LOG.capture():
        pass

    assert os.path.samestat(os.fstat(2), before)
