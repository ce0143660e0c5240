"""What the tests of all packages share; the source archive of each has it, too.

Tests import the helpers that lie beside them or here. In a source archive, which lacks the
repository's conftest.py, this is what draws examples without haste.
"""

import os
import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

HERE = Path(__file__).parent
sys.path[:0] = map(str, [HERE, *sorted(HERE.glob("*/tests"))])
os.environ["NNET3_CACHE_DIR"] = ""  # tests neither read nor leave results in anybody's home
if settings.default.deadline:
    settings.register_profile("nnet3", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("nnet3")
