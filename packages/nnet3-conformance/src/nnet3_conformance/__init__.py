"""Judge any runtime of Kaldi nnet3 computations by files with known results."""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_conformance.cases import (
        VERSION,
        Case,
        Entry,
        read_cases,
        write_case,
    )
    from nnet3_conformance.errors import ConformanceError
    from nnet3_conformance.judge import Verdict, judge_class, judge_program
    from nnet3_conformance.reference import reference_cases

__version__ = "0.2.0"

__all__ = [
    "VERSION",
    "Case",
    "ConformanceError",
    "Entry",
    "Verdict",
    "judge_class",
    "judge_program",
    "read_cases",
    "reference_cases",
    "write_case",
]

if not TYPE_CHECKING:  # a type checker would accept any name for one of this package
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "nnet3_conformance.cases": (
                "VERSION",
                "Case",
                "Entry",
                "read_cases",
                "write_case",
            ),
            "nnet3_conformance.errors": ("ConformanceError",),
            "nnet3_conformance.judge": ("Verdict", "judge_class", "judge_program"),
            "nnet3_conformance.reference": ("reference_cases",),
        },
    )
