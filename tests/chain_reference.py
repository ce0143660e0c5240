"""Kaldi's objectives of chain models: the cases below tests/reference/chain."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from nnet3_descriptors.files import read_matrix
from nnet3_training import (
    ChainObjective,
    ChainOptions,
    ChainResult,
    ChainSupervision,
    read_chain_supervision,
)
from reference_cases import CHAIN_REFERENCE, assert_close

CASES = sorted((CHAIN_REFERENCE / "random").iterdir())
OPTIONS = {"leaky": "leaky_hmm_coefficient", "out_of_range": "out_of_range_regularize"}
"""The keys of case.json that are no names of options, and the options."""

parametrize_chain_cases = pytest.mark.parametrize("folder", CASES, ids=lambda path: path.name)


def check_result(
    found: ChainResult,
    case: Mapping[str, Any],
    folder: Path,
    tolerance: float = 5e-6,
    of_objective: float = 1e-6,
    to_host: Callable[[Any], np.ndarray] = np.asarray,
) -> None:
    """Checks that an objective and its derivatives are Kaldi's, each within its tolerance."""
    assert found.is_sound
    assert found.objective == pytest.approx(case["objf"], rel=of_objective)
    assert found.l2_term == pytest.approx(case["l2_term"], rel=of_objective)
    assert found.weight == case["weight_total"]
    for name, array in (("deriv", found.derivative), ("xent_deriv", found.xent_derivative)):
        single = {name: to_host(array).astype(np.float32)}
        assert_close(single, {name: read_matrix(folder / f"{name}.mat")}, tolerance)


def chain_case(
    folder: Path,
) -> tuple[dict[str, Any], ChainObjective, ChainSupervision, np.ndarray]:
    """Options and figures of a case, objective, supervision, and the outputs, (rows, pdfs)."""
    case = json.loads((folder / "case.json").read_text())
    output = read_matrix(folder / "output.mat")
    options = {OPTIONS.get(name, name): value for name, value in case.items()}
    names = {field.name for field in attrs.fields(ChainOptions)} & options.keys()
    known = ChainOptions(**{name: options[name] for name in names})
    objective = ChainObjective(folder / "den.fst", known, num_pdfs=output.shape[1])
    return case, objective, read_chain_supervision(folder / "supervision.bin"), output
