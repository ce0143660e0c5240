"""The definition of Kaldi nnet3 computations: a plain interpreter, and the components' formulas."""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

__version__ = "0.2.0"

if TYPE_CHECKING:
    from nnet3_runtime_reference.computer import ReferenceComputer as ReferenceComputer
    from nnet3_runtime_reference.draws import Draws as Draws
    from nnet3_runtime_reference.draws import GivenMasks as GivenMasks
    from nnet3_runtime_reference.draws import RunError as RunError
    from nnet3_runtime_reference.draws import (
        UnsupportedComponentError as UnsupportedComponentError,
    )
    from nnet3_runtime_reference.formulas import Call as Call
    from nnet3_runtime_reference.formulas import Formula as Formula
    from nnet3_runtime_reference.formulas import formula as formula
    from nnet3_runtime_reference.formulas import formula_of as formula_of
else:
    __getattr__, __dir__ = on_first_use(__name__)
