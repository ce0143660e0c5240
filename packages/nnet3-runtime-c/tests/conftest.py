"""Shared by the tests: the helpers beside them are modules."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
