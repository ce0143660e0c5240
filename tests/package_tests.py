"""Lets what is imported after this module use the helpers of the packages' own tests."""

import sys
from pathlib import Path

PACKAGES = Path(__file__).parents[1] / "packages"

sys.path += map(str, [PACKAGES, *sorted(PACKAGES.glob("*/tests"))])
