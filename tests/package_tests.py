"""Lets what is imported after this module use the helpers of the packages' own tests."""

import sys
from pathlib import Path

sys.path += map(str, sorted(Path(__file__).parents[1].glob("packages/*/tests")))
