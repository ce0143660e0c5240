"""Runs models in an old version of ONNX Runtime, beside Kaldi's outputs.

`python tests/onnx_versions.py write FOLDER --opset=19` writes a model for each reference case, and
of the forms that `nnet3.export_onnx` makes, each with inputs and outputs. `python
tests/onnx_versions.py run FOLDER` runs them, and needs only NumPy and ONNX Runtime.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

TOLERANCE = 1e-4
"""Of the largest value of an output."""

OF_8_BITS = 2e-2
"""The same for models in 8 bits, which round otherwise from processor to processor."""

Arrays = dict[str, np.ndarray]


def session_of(model: str | bytes) -> onnxruntime.InferenceSession:
    """A model, ready to run."""
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])


def models(opset: int) -> Iterator[tuple[str, Any, Arrays, Arrays]]:
    """Yields the name of each model, the model, its inputs and its outputs."""
    import nnet3
    from nnet3_runtime_onnx import quantized, to_onnx
    from reference_cases import (
        DIGITS_EXAMPLE,
        TOOLS_REFERENCE,
        case_names,
        load_case,
        network,
    )
    from reference_programs import optimized

    for case in map(load_case, case_names()):
        nnet = network(case)
        computation = optimized(nnet, case.request)
        outputs = dict(case.node_arrays("output"))
        yield case.name, to_onnx(nnet, computation, opset=opset), case.node_arrays("input"), outputs
    for path, options in (
        (DIGITS_EXAMPLE / "final.raw", {}),
        (DIGITS_EXAMPLE / "final.raw", {"frames": 40}),
        (TOOLS_REFERENCE / "xvector-stats.raw", {"xvector": True}),
        (TOOLS_REFERENCE / "tdnnf-chain.raw", {"frames": 60, "frame_subsampling_factor": 3}),
        (TOOLS_REFERENCE / "lstmp.raw", {"frames": 30}),
    ):
        [model] = nnet3.export_onnx(path, opset=opset, **options)
        for bits, each in ((32, model), (8, quantized(model))):
            session = session_of(each.SerializeToString())
            rng = np.random.default_rng(0)
            inputs = {
                given.name: rng.standard_normal(
                    [size if isinstance(size, int) else 100 for size in given.shape]
                ).astype(np.float32)
                for given in session.get_inputs()
            }
            names = [output.name for output in session.get_outputs()]
            outputs = dict(zip(names, session.run(names, inputs), strict=True))
            yield f"{path.stem} {json.dumps(options)} {bits} bits", each, inputs, outputs


def write(folder: Path, opset: int) -> None:
    """Writes the models, with their inputs and outputs."""
    for number, (name, model, inputs, outputs) in enumerate(models(opset)):
        (folder / f"{number}.onnx").write_bytes(model.SerializeToString())
        (folder / f"{number}.txt").write_text(name)
        np.savez(folder / f"{number}.inputs.npz", **inputs)
        np.savez(folder / f"{number}.outputs.npz", **outputs)


def run(folder: Path) -> list[str]:
    """Returns the names of the models whose outputs are others."""
    wrong = []
    found = sorted(folder.glob("*.onnx"))
    for path in found:
        name = path.with_suffix(".txt").read_text()
        inputs = dict(np.load(path.with_suffix(".inputs.npz")))
        expected = dict(np.load(path.with_suffix(".outputs.npz")))
        outputs = session_of(str(path)).run(list(expected), inputs)
        most = OF_8_BITS if name.endswith(" 8 bits") else TOLERANCE
        for rows, (node, wanted) in zip(outputs, expected.items(), strict=True):
            scale = np.abs(wanted).max(initial=1e-2)
            error = np.abs(rows - wanted).max(initial=0.0) / scale
            if rows.shape != wanted.shape or not error <= most:
                wrong.append(f"{name}: '{node}' differs by {error:.1e}")
    version = onnxruntime.__version__
    print(f"{len(found)} models in ONNX Runtime {version}, {len(wrong)} with other outputs")
    return wrong


def main() -> int:
    """Does what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["write", "run"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--opset", type=int, default=21)
    arguments = parser.parse_args()
    if arguments.action == "write":
        arguments.folder.mkdir(parents=True, exist_ok=True)
        write(arguments.folder, arguments.opset)
        return 0
    wrong = run(arguments.folder)
    print(*wrong, sep="\n")
    return 1 if wrong or not list(arguments.folder.glob("*.onnx")) else 0


if __name__ == "__main__":
    sys.exit(main())
