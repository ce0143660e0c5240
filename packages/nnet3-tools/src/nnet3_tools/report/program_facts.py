"""The program of a request: steps, commands, and the effect of each pass of the optimizer."""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_compiler import NnetComputation, compile_computation, format_computation
from nnet3_descriptors import Nnet
from nnet3_graph import ComputationRequest
from nnet3_optimizer import live_bytes, optimize_in_steps, pass_summaries, peak_bytes


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
        listing: The text of that computation.
    """

    stages: tuple[Stage, ...]
    compiled_bytes: npt.NDArray[np.int64]
    optimized_bytes: npt.NDArray[np.int64]
    optimized: NnetComputation
    listing: str


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
    return ProgramFacts(
        stages=tuple(stages),
        compiled_bytes=live_bytes(compiled),
        optimized_bytes=live_bytes(last),
        optimized=last,
        listing=format_computation(last, nnet),
    )


def _stage(name: str, computation: NnetComputation, summary: str) -> Stage:
    return Stage(name, len(computation.command_table), peak_bytes(computation), summary)
