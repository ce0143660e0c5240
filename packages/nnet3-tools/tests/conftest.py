"""Lets the tests import the helpers that lie beside them, and draw examples without haste."""

import os
import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))
os.environ["NNET3_CACHE_DIR"] = ""  # tests neither read nor leave results in anybody's home
if settings.default.deadline:  # in a source archive, which lacks the repository's conftest.py
    settings.register_profile("nnet3", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("nnet3")
