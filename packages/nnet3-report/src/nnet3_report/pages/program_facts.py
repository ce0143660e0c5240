"""The program of a request: steps, commands, and the effect of each pass of the optimizer."""

from __future__ import annotations

import re
from collections.abc import Iterator

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_compiler import compile_computation
from nnet3_computation import (
    ComputationRequest,
    NnetComputation,
    format_computation,
    live_bytes,
    peak_bytes,
)
from nnet3_descriptors import Nnet
from nnet3_optimizer import optimize_in_steps, pass_summaries

from nnet3_report.memory_curve import with_unit


@attrs.frozen
class Stage:
    """A computation after a pass.

    Attributes:
        name: The name of the pass that made it; "compiled" for the first stage.
        commands: The number of its commands.
        peak_bytes: The most bytes of its matrices at one time.
        summary: A sentence on what the pass does.
    """

    name: str
    commands: int
    peak_bytes: int
    summary: str


@attrs.frozen(eq=False)
class ProgramFacts:
    """The program of a request.

    Attributes:
        stages: The computation as compiled, and after each pass that changed it.
        compiled_bytes: Bytes of matrices after each command, as compiled.
        optimized_bytes: Bytes of matrices after each command, after all passes.
        optimized: The computation after all passes.
        listing: Its commands, each with the bytes of matrices after it; then its matrices, and its
            lists of rows.
    """

    stages: tuple[Stage, ...]
    compiled_bytes: npt.NDArray[np.int64]
    optimized_bytes: npt.NDArray[np.int64]
    optimized: NnetComputation
    listing: tuple[str, ...]


def program_facts(nnet: Nnet, request: ComputationRequest) -> ProgramFacts:
    """Compiles a request, and applies the passes one by one.

    Raises:
        NotComputableError: An output cannot be computed.
        RequestError: The request does not fit the network.
    """
    compiled = compile_computation(nnet, request)
    summaries = pass_summaries()
    stages, last = [_stage("compiled", compiled, "The program as the compiler made it.")], compiled
    for name, last in optimize_in_steps(nnet, compiled):
        summary = summaries[name]
        stages.append(_stage(name, last, f"{summary[0].upper()}{summary[1:]}"))
    optimized_bytes = live_bytes(last)
    return ProgramFacts(
        stages=tuple(stages),
        compiled_bytes=live_bytes(compiled),
        optimized_bytes=optimized_bytes,
        optimized=last,
        listing=tuple(_listing(format_computation(last, nnet), optimized_bytes)),
    )


def _listing(text: str, held: npt.NDArray[np.int64]) -> Iterator[str]:
    """The lines of the text form that people read: commands, matrices and lists."""
    lines = text.splitlines()
    commands = [line for line in lines if re.match(r"c\d+: ", line)]
    for line, size in zip(commands, held.tolist(), strict=True):
        yield f"{with_unit(size):>9}  {line}"
    for kind in "mijrp":
        found = [line for line in lines if re.match(rf"{kind}\d+ = ", line)]
        if found:
            yield ""
            yield from found


def _stage(name: str, computation: NnetComputation, summary: str) -> Stage:
    return Stage(name, len(computation.command_table), peak_bytes(computation), summary)
