"""The definition of Kaldi nnet3 computations: a plain interpreter, and the components' formulas."""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_runtime_reference.computer import ReferenceComputer
    from nnet3_runtime_reference.draws import Draws, GivenMasks
    from nnet3_runtime_reference.errors import RunError, UnsupportedComponentError
    from nnet3_runtime_reference.formulas import Call, Formula, formula, formula_of

__version__ = "0.2.0"

__all__ = [
    "Call",
    "Draws",
    "Formula",
    "GivenMasks",
    "ReferenceComputer",
    "RunError",
    "UnsupportedComponentError",
    "formula",
    "formula_of",
]

if not TYPE_CHECKING:  # else a type checker would take any name for one of this package
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "nnet3_runtime_reference.computer": ("ReferenceComputer",),
            "nnet3_runtime_reference.draws": (
                "Draws",
                "GivenMasks",
            ),
            "nnet3_runtime_reference.errors": (
                "RunError",
                "UnsupportedComponentError",
            ),
            "nnet3_runtime_reference.formulas": (
                "Call",
                "Formula",
                "formula",
                "formula_of",
            ),
        },
    )
