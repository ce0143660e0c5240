"""Running the compiled computation gives Kaldi's numbers, optimized or not."""

import pytest
from nnet3_runtime_cuda import NnetComputer
from nnet3_runtime_cuda.cpu import recorder
from reference_cases import ReferenceCase, network, parametrize_cases
from reference_programs import (
    Compile,
    check_training_steps,
    check_values,
    optimized,
    parametrize_programs,
)


@parametrize_programs
@parametrize_cases()
def test_values(case: ReferenceCase, compile_program: Compile) -> None:
    """Outputs agree within 1e-5, derivatives of inputs and parameters within 1e-4."""
    nnet = network(case)

    check_values(NnetComputer(nnet, compile_program(nnet, case.request)), case)


@parametrize_cases()
def test_threads_that_share_all_work(case: ReferenceCase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three threads that share even the smallest operations compute the same."""
    monkeypatch.setattr(recorder, "FEWEST_SHARED", 1)
    nnet = network(case)

    check_values(NnetComputer(nnet, optimized(nnet, case.request), threads=3), case)


@pytest.mark.parametrize("threads", [1, 3])
@parametrize_cases(only=lambda case: "params_after4" in case.arrays)
def test_training_steps(case: ReferenceCase, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four steps along the natural gradient end at Kaldi's parameters, within 1e-3.

    This holds for optimized programs only: they update a component that is used at many times once
    for all of them, and the natural gradient depends on how rows are grouped.
    """
    monkeypatch.setattr(recorder, "FEWEST_SHARED", 1)

    check_training_steps(case, threads=threads)
