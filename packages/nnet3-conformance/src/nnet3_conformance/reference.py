"""Cases made from references: networks with results that Kaldi computed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from nnet3_compiler import compile_computation
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors import read_nnet, set_test_mode, unvectorize
from nnet3_optimizer import optimize

from nnet3_conformance.cases import Case, ConformanceError, Entry
from nnet3_conformance.judge import gradient_arrays

TOLERANCES = {"output": 1e-4, "input_deriv": 1e-3, "gradient": 1e-3}
"""Ten times the tolerances of this project's own runtimes."""

KINDS = ("component", "network")

REFERENCES = Path(__file__).with_name("references")
"""The references of this package, which are those of the repository's tests."""


def reference_cases(folder: Path | None = None, only: str = "") -> Iterator[Case]:
    """Yields the cases of a folder of references, whose names contain a text.

    Each has case.json (about, test_mode, request), the network as nnet.raw, and arrays.npz:
    "input/NODE", "output/NODE", "output_deriv/NODE", "input_deriv/NODE", and "gradient", all
    parameters as one vector. If Kaldi gave statistics to a network in test mode after it wrote
    nnet.raw, the network is read from nnet.txt.

    Args:
        folder: The folder; None for the 89 references that come with this package.
        only: The text.

    Raises:
        ConformanceError: There are no such cases.
        Nnet3Error: A network or request is not valid.
    """
    folder = folder or REFERENCES
    found = sorted(path.parent for kind in KINDS for path in (folder / kind).glob("*/case.json"))
    found = [path for path in found if only in str(path.relative_to(folder))]
    if not found:
        raise ConformanceError(f"{folder}: no case.json of a case with '{only}' in its name")
    for path in found:
        yield _case(path, str(path.relative_to(folder)))


def _case(folder: Path, name: str) -> Case:
    description = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    test_mode = description["test_mode"]
    nnet = read_nnet(folder / ("nnet.txt" if test_mode else "nnet.raw"))
    if test_mode:
        nnet = set_test_mode(nnet)
    wanted = description["request"]
    request = ComputationRequest(
        inputs=[_specification(io) for io in wanted["inputs"]],
        outputs=[_specification(io) for io in wanted["outputs"]],
        need_model_derivative=wanted["need_model_derivative"],
        store_component_stats=wanted["store_component_stats"],
    )
    with np.load(folder / "arrays.npz", allow_pickle=False) as archive:
        arrays = {key: archive[key] for key in archive.files}
    given = {
        key: array for key, array in arrays.items() if key.startswith(("input/", "output_deriv/"))
    }
    expected = {
        key: array for key, array in arrays.items() if key.startswith(("output/", "input_deriv/"))
    }
    if "gradient" in arrays:
        gradient = unvectorize(nnet, arrays["gradient"])
        expected |= {f"gradient/{key}": array for key, array in gradient_arrays(gradient).items()}
    compiled = compile_computation(nnet, request)
    return Case(
        entry=Entry(
            name=name,
            about=description["about"],
            backward=any(io.has_deriv for io in request.outputs),
            tolerances=TOLERANCES,
        ),
        nnet=nnet,
        request=request,
        programs={"compiled": compiled, "optimized": optimize(nnet, compiled)},
        given=given,
        expected=expected,
    )


def _specification(io: dict[str, Any]) -> IoSpecification:
    indexes = np.array(io["indexes"], np.int32).reshape(-1, 3)
    return IoSpecification(name=io["name"], indexes=indexes, has_deriv=io["has_deriv"])
