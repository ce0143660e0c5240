"""Judge any runtime of Kaldi nnet3 computations by a folder of files with known results."""

from nnet3_conformance.cases import VERSION, Case, read_cases, write_case
from nnet3_conformance.errors import ConformanceError
from nnet3_conformance.judge import Verdict, judge_class, judge_program
from nnet3_conformance.reference import reference_cases

__version__ = "0.1.0"

__all__ = [
    "VERSION",
    "Case",
    "ConformanceError",
    "Verdict",
    "judge_class",
    "judge_program",
    "read_cases",
    "reference_cases",
    "write_case",
]
