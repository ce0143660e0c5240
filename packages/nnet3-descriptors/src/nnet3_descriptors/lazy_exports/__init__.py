"""Exports of packages, imported at their first use."""

from nnet3_descriptors.lazy_exports.first_use import on_first_use

__all__ = ["on_first_use"]
