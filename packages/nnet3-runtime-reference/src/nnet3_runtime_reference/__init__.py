"""The definition of Kaldi nnet3 computations: a plain interpreter, and the components' formulas."""

from nnet3_runtime_reference.computer import ReferenceComputer
from nnet3_runtime_reference.draws import Draws, GivenMasks
from nnet3_runtime_reference.errors import RunError, UnsupportedComponentError
from nnet3_runtime_reference.formulas import Call, Formula, formula, formula_of

__version__ = "0.1.0"

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
