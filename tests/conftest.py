"""Tests across packages use the helpers of the packages' own tests."""

import package_tests  # noqa: F401
