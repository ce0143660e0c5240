"""Analyse, check and improve compiled Kaldi nnet3 computations."""

from nnet3_compiler.memory import MemoryPlan, live_bytes, peak_bytes, plan_memory

from nnet3_optimizer.analysis import Analysis, analyze
from nnet3_optimizer.bisecting import FaultyOption, find_faulty_option
from nnet3_optimizer.caching import CachingCompiler
from nnet3_optimizer.checks import check_computation
from nnet3_optimizer.equivalence import verify_equivalent
from nnet3_optimizer.errors import (
    CacheError,
    CheckError,
    ComputationError,
    EquivalenceError,
    OptionError,
    PassError,
)
from nnet3_optimizer.options import OptimizeOptions
from nnet3_optimizer.pipeline import optimize, optimize_in_steps

__version__ = "0.1.0"

__all__ = [
    "Analysis",
    "CacheError",
    "CachingCompiler",
    "CheckError",
    "ComputationError",
    "EquivalenceError",
    "FaultyOption",
    "MemoryPlan",
    "OptimizeOptions",
    "OptionError",
    "PassError",
    "analyze",
    "check_computation",
    "find_faulty_option",
    "live_bytes",
    "optimize",
    "optimize_in_steps",
    "peak_bytes",
    "plan_memory",
    "verify_equivalent",
]
