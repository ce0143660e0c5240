"""Runs of programs in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def printed_by(command: Sequence[str | Path], **options: Any) -> str:
    """What a program prints, which must succeed; options are those of `subprocess.run`."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{command}\n{done.stderr[-3000:]}"
    return done.stdout


def printed_by_python(*arguments: str | Path, **options: Any) -> str:
    """What Python prints with these arguments: the name of a script, or code behind "-c"."""
    return printed_by([sys.executable, *arguments], **options)
