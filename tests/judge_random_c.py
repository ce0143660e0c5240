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
from c_targets import CHOSEN, arrays_of, data_of
from judged_cases import Case, case_of_seed
from judged_seeds import TOO_FEW_DIGITS, Judged, command_line, differences, judge_seeds
from nnet3_computation import NnetComputation
from nnet3_runtime_c import ConversionError, to_c
from nnet3_runtime_reference import ReferenceComputer

SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


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
    options = (*SANITIZERS, optimize) if CHOSEN.name == "cc" else (f"-O{case.seed % 3 + 1}",)
    program = CHOSEN.build(folder, "net", *options)
    given = data_of(array for arrays in case.inputs() for array in arrays.values())
    return CHOSEN.run(program, given, *([] if in_source else ["net.weights"]))


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
    exact, rounded = (
        case.outputs_of(ReferenceComputer(case.nnet, computation, dtype))
        for dtype in (np.float64, np.float32)
    )
    found = arrays_of(data, {name: array.shape for name, array in exact.items()})
    unknown = differences(rounded, exact, TOO_FEW_DIGITS)
    known = {name: array for name, array in exact.items() if name not in unknown}
    problems = differences(found, known)
    return Judged(
        "; ".join(problems.values()), [*kinds, "too few digits" if unknown else "compared"]
    )


if __name__ == "__main__":
    os.environ.setdefault("ASAN_OPTIONS", "detect_leaks=0")
    sys.exit(judge_seeds(judge, command_line(__doc__.splitlines()[0]).parse_args()))
