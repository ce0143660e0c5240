"""Random networks of all kinds in ONNX Runtime: outputs are those of the definition.

JUDGED_NETWORKS and JUDGED_NETWORKS_SEED in the environment have the meaning that they have in
`test_judged_networks`. A twelfth as many networks are judged here, because ONNX Runtime takes
longer to begin than these networks to run. `judge_random_onnx.py` judges any number of models that
nnet3-to-onnx writes.
"""

from __future__ import annotations

import os

import attrs
import numpy as np
import pytest
from judge_random_onnx import judged
from judged_cases import LOOP, Case, case_of_seed, is_masked
from judging import Tolerances, differences, ill_conditioned
from nnet3_runtime_onnx import OnnxComputer
from nnet3_runtime_reference import ReferenceComputer

COUNT = int(os.environ.get("JUDGED_NETWORKS", "1000")) // 12
FIRST = int(os.environ.get("JUDGED_NETWORKS_SEED", "0"))
BLOCK = 25

TOLERANCES = Tolerances(outputs=1e-4, derivatives=np.inf, smallest=1e-2)
"""Of the largest value of an output, or of 0.01 if that is more."""

MOST_SKIPPED = 0.1
"""The largest share of cases that float32 cannot tell."""

OF_THE_TOOL = range(15)
"""The seeds of models that the tool writes."""


def without_masks(case: Case) -> Case:
    """The case with components in test mode that draw random masks: those are refused."""
    masked = {
        name: attrs.evolve(component, test_mode=True)
        for name, component in zip(case.nnet.component_names, case.nnet.components, strict=True)
        if is_masked(component)
    }
    return attrs.evolve(case, nnet=case.nnet.with_components(masked))


def problem_of(seed: int) -> str | None:
    """The fault of the outputs of a case; "" for none, None if float32 cannot tell."""
    case = without_masks(case_of_seed(seed))
    is_optimized = seed % 2 == 1 or case.form == LOOP  # as compiled, the case has segments
    computation = case.optimized if is_optimized else case.compiled
    found = case.outputs_of(OnnxComputer(case.nnet, computation))
    expected = case.outputs_of(ReferenceComputer(case.nnet, case.compiled))
    problems = differences(found, expected, attrs.evolve(TOLERANCES, smallest_share=0.0))
    if problems and any(
        name.startswith("output ")
        for name in ill_conditioned(case, masks={}, tolerances=TOLERANCES)
    ):
        return None
    return "\n".join([f"seed {seed}:", *problems.values(), case.config]) if problems else ""


@pytest.mark.parametrize(
    "first", range(FIRST, FIRST + COUNT, BLOCK), ids=lambda first: f"from{first}"
)
def test_outputs_are_those_of_the_definition(first: int) -> None:
    """Outputs agree within 1e-4, of computations as compiled or optimized, and of loops."""
    problems = [problem_of(seed) for seed in range(first, min(first + BLOCK, FIRST + COUNT))]

    assert not any(problems), "\n".join(filter(None, problems))
    assert problems.count(None) <= MOST_SKIPPED * BLOCK


def test_models_of_the_tool_run_by_their_metadata() -> None:
    """Chunks, streams and x-vectors of nnet3-to-onnx give what the definition and Model give."""
    problems = {seed: judged(seed).problem for seed in OF_THE_TOOL}

    assert {seed: problem for seed, problem in problems.items() if problem} == {}
