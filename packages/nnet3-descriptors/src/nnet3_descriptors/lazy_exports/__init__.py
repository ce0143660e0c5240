"""What packages export, imported when it is first asked for."""

from nnet3_descriptors.lazy_exports.first_use import on_first_use

__all__ = ["on_first_use"]
