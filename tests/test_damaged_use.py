"""Damaged or extreme values that can still be read are used in all ways, and raise only Nnet3Error.

In the environment, DAMAGED_USES is the number of files, of containers and texts, and of components
with extreme fields that are tried; DAMAGED_SEED is the seed. A use that takes 512 MB or ten seconds
is a fault, too; by itself `damaged.using` allows two seconds, too short on a busy machine.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TRIED = int(os.environ.get("DAMAGED_USES", "100"))
SEED = int(os.environ.get("DAMAGED_SEED", "1"))
SECONDS = 10

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="bounds memory in Linux's way")


def report_of(what: str) -> dict[str, Any]:
    """The report of a separate process."""
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-m", "damaged.using", what, str(SEED), f"0:{TRIED}", str(SECONDS)],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.parametrize("what", ["files", "texts", "fields"])
def test_use_of_what_is_damaged(what: str) -> None:
    """Failures name seed, number and use; messages are short and have no control characters.

    `python -m damaged.using files 1 300:301`, with `tests` as PYTHONPATH, does file 300 again.
    """
    report = report_of(what)

    assert report["faults"] == []
    assert report["tried"] == TRIED
    assert report["used"] > 0.03 * TRIED
    assert report["uses"] > 10 * report["used"]
