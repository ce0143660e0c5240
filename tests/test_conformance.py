"""The runtimes of this project pass the cases that nnet3-conformance makes of the references."""

from pathlib import Path

import pytest
from nnet3_conformance import Case, judge_class, read_cases, reference_cases, write_case
from nnet3_runtime_cuda import NnetComputer
from nnet3_runtime_onnx import ExportError, OnnxComputer
from nnet3_runtime_reference import ReferenceComputer

NAMES = (
    "component/tdnn",
    "component/batch-norm",
    "network/lstmp-forward-only",
    "network/tdnnf-inf",
)


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    """Some cases, written and read again."""
    folder = tmp_path_factory.mktemp("cases")
    for name in NAMES:
        for case in reference_cases(only=name):
            write_case(Path(folder), case)
    return list(read_cases(Path(folder)))


def test_the_three_runtimes_pass(cases: list[Case]) -> None:
    """Forward and, where they exist, backward passes; ONNX refuses what it cannot express."""
    for runtime, refusal in (
        (ReferenceComputer, ()),
        (NnetComputer, ()),
        (OnnxComputer, (ExportError,)),
    ):
        verdicts = list(judge_class(cases, runtime, unsupported=refusal))

        assert len(verdicts) == 2 * len(cases)
        assert [str(each) for each in verdicts if each.outcome == "failed"] == []
        roles = {role for each in verdicts for role in each.differences}
        wanted = {"output", "input_deriv", "gradient"} if not refusal else {"output"}
        assert roles == wanted
        assert sum(each.outcome == "passed" for each in verdicts) >= len(cases)
