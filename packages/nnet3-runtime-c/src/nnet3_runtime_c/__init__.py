"""Kaldi nnet3 computations as C99 source: one .c and one .h file, no allocation, math.h alone."""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

__version__ = "0.2.0"

if TYPE_CHECKING:
    from nnet3_runtime_c.calls import ConversionError as ConversionError
    from nnet3_runtime_c.conversion import CSource as CSource
    from nnet3_runtime_c.conversion import to_c as to_c
    from nnet3_runtime_c.rounding import compiler as compiler
    from nnet3_runtime_c.rounding import rounding_error as rounding_error
else:
    __getattr__, __dir__ = on_first_use(__name__)
