"""Judge any runtime of Kaldi nnet3 computations by files with known results."""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

__version__ = "0.2.0"

if TYPE_CHECKING:
    from nnet3_conformance.cases import VERSION as VERSION
    from nnet3_conformance.cases import Case as Case
    from nnet3_conformance.cases import ConformanceError as ConformanceError
    from nnet3_conformance.cases import Entry as Entry
    from nnet3_conformance.cases import read_cases as read_cases
    from nnet3_conformance.cases import write_case as write_case
    from nnet3_conformance.judge import Verdict as Verdict
    from nnet3_conformance.judge import judge_class as judge_class
    from nnet3_conformance.judge import judge_program as judge_program
    from nnet3_conformance.reference import reference_cases as reference_cases
else:
    __getattr__, __dir__ = on_first_use(__name__)
