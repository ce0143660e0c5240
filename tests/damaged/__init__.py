"""Damages model files by their structure, and reads them."""

import package_tests  # noqa: F401
