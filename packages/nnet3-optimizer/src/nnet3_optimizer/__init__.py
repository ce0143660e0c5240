"""Analyse, check and improve compiled Kaldi nnet3 computations."""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

__version__ = "0.2.0"

if TYPE_CHECKING:
    from nnet3_computation.analysis import Analysis as Analysis
    from nnet3_computation.analysis import analyze as analyze

    from nnet3_optimizer.checks import check_computation as check_computation
    from nnet3_optimizer.equivalence import verify_equivalent as verify_equivalent
    from nnet3_optimizer.errors import EquivalenceError as EquivalenceError
    from nnet3_optimizer.errors import PassError as PassError
    from nnet3_optimizer.options import OptimizeOptions as OptimizeOptions
    from nnet3_optimizer.pipeline import optimize as optimize
    from nnet3_optimizer.pipeline import optimize_in_steps as optimize_in_steps
    from nnet3_optimizer.pipeline import pass_summaries as pass_summaries
else:
    __getattr__, __dir__ = on_first_use(__name__)
