"""Kaldi's objectives of chain models: the cases below tests/reference/chain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from nnet3_descriptors.files import read_matrix
from nnet3_training import ChainObjective, ChainOptions, ChainSupervision, read_chain_supervision
from reference_cases import CHAIN_REFERENCE

CASES = sorted((CHAIN_REFERENCE / "random").iterdir())
OPTIONS = {"leaky": "leaky_hmm_coefficient", "out_of_range": "out_of_range_regularize"}
"""The keys of case.json that are no names of options, and the options."""

parametrize_chain_cases = pytest.mark.parametrize("folder", CASES, ids=lambda path: path.name)


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
