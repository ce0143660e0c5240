"""Tests across packages use the helpers of the packages' own tests."""

from pathlib import Path

import package_tests  # noqa: F401
import pytest


@pytest.fixture
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which is empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
