"""Lets the tests of this package import the helpers that lie beside them."""

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

# How long an example takes says more about the machine than about the code.
settings.register_profile("nnet3-graph")
settings.load_profile("nnet3-graph")
