"""Analyse, check and improve compiled Kaldi nnet3 computations."""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_computation.analysis import Analysis, analyze

    from nnet3_optimizer.checks import check_computation
    from nnet3_optimizer.equivalence import verify_equivalent
    from nnet3_optimizer.errors import EquivalenceError, PassError
    from nnet3_optimizer.options import OptimizeOptions
    from nnet3_optimizer.pipeline import optimize, optimize_in_steps, pass_summaries

__version__ = "0.2.0"

__all__ = [
    "Analysis",
    "EquivalenceError",
    "OptimizeOptions",
    "PassError",
    "analyze",
    "check_computation",
    "optimize",
    "optimize_in_steps",
    "pass_summaries",
    "verify_equivalent",
]

if not TYPE_CHECKING:  # else a type checker would take any name for one of this package
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "nnet3_computation.analysis": (
                "Analysis",
                "analyze",
            ),
            "nnet3_optimizer.checks": ("check_computation",),
            "nnet3_optimizer.equivalence": ("verify_equivalent",),
            "nnet3_optimizer.errors": (
                "EquivalenceError",
                "PassError",
            ),
            "nnet3_optimizer.options": ("OptimizeOptions",),
            "nnet3_optimizer.pipeline": (
                "optimize",
                "optimize_in_steps",
                "pass_summaries",
            ),
        },
    )
