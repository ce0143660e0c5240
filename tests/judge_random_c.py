"""Compares C programs of random computations with the definition, for any number of seeds.

`python tests/judge_random_c.py --count 500 --first-seed 1000` prints the seeds whose outputs
differ, and counts what was drawn. A seed draws a network with components of all types, a request,
or chunks of a loop, and options of the optimizer: see `judged_cases`. `to_c` converts the
computation, as compiled or as optimized; a C compiler builds it as strict C99 with AddressSanitizer
and UndefinedBehaviorSanitizer; the program gets the inputs of all rounds on standard input.
C_TARGET=wasm32 in the environment takes another target of `c_targets`, without sanitizers.

The definition is nnet3-runtime-reference in float64.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import package_tests  # noqa: F401  the helpers of the packages
from c_computer import COMPILER
from c_targets import CBLAS, TARGETS, Target
from judged_cases import Arrays, Case, case_of_seed
from judged_seeds import Judged, difference_of, judge_seeds
from nnet3_computation import NnetComputation
from nnet3_runtime_c import ConversionError, to_c
from nnet3_runtime_reference import ReferenceComputer

LARGEST_DIFFERENCE = 1e-5
"""Of an output, relative to the largest one, or to 1."""

TOO_FEW_DIGITS = 0.1
"""If the definition in float32 differs by this share of that, nothing is known."""

SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
CHOSEN = os.environ.get("C_TARGET", "cc")
TARGET = {each.name: each for each in (*TARGETS, CBLAS, Target("cc", COMPILER and [COMPILER]))}[
    CHOSEN
]


def outputs_of_program(
    case: Case, computation: NnetComputation, folder: Path, *, in_source: bool
) -> bytes:
    """What the C program of a computation writes for the inputs of all rounds.

    Raises:
        ConversionError: it cannot be expressed in C.
    """
    source = to_c(case.nnet, computation, name="net", weights_in_source=in_source)
    source.write(folder)
    optimize = ("-O1", "-O2", "-O3", "-march=native")[case.seed % 4]
    options = (*SANITIZERS, optimize) if CHOSEN == "cc" else (f"-O{case.seed % 3 + 1}",)
    program = TARGET.build(folder, "net", *options)
    given = b"".join(
        np.ascontiguousarray(arrays[name], np.float32).tobytes()
        for arrays in case.inputs()
        for name in arrays
    )
    return TARGET.run(program, given, *([] if in_source else ["net.weights"]))


def definition(case: Case, computation: NnetComputation, dtype: type) -> list[Arrays]:
    """The outputs of all rounds."""
    computer = ReferenceComputer(case.nnet, computation, dtype)
    return [computer.forward(arrays) for arrays in case.inputs()]


def judge(seed: int) -> Judged:
    """Judges the program of a seed."""
    case = case_of_seed(seed)
    computation = case.optimized if seed % 3 else case.compiled
    kinds = [case.form, *(f"component {kind}" for kind in case.kinds)]
    with tempfile.TemporaryDirectory() as name:
        try:
            data = outputs_of_program(case, computation, Path(name), in_source=seed % 2 == 0)
        except ConversionError as error:
            expected = "draws random numbers" in str(error) or "some rows of the mini" in str(error)
            return Judged("" if expected else str(error), [*kinds, "refused"])
    exact, rounded = (definition(case, computation, dtype) for dtype in (np.float64, np.float32))
    found = np.frombuffer(data, np.float32)
    size = sum(array.size for arrays in exact for array in arrays.values())
    if len(found) != size:
        return Judged(f"{len(found)} numbers, expected {size}", kinds)
    problems, at, unknown = [], 0, False
    for number, (arrays, others) in enumerate(zip(exact, rounded, strict=True)):
        for name, array in arrays.items():
            part = found[at : at + array.size].reshape(array.shape)
            at += array.size
            if not difference_of(others[name], array) < TOO_FEW_DIGITS * LARGEST_DIFFERENCE:
                unknown = True
            elif not (largest := difference_of(part, array)) < LARGEST_DIFFERENCE:
                problems.append(f"round {number}, '{name}': {largest:.1e}")
    return Judged("; ".join(problems), [*kinds, "too few digits" if unknown else "compared"])


if __name__ == "__main__":
    os.environ.setdefault("ASAN_OPTIONS", "detect_leaks=0")
    sys.exit(judge_seeds(__doc__.splitlines()[0], judge))
