"""Small networks and their computations, for tests."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
import pytest
from emulated_device import compiler
from nnet3_compiler import compile_computation, compile_looped
from nnet3_computation import ComputationRequest, NnetComputation, parse_computation
from nnet3_computation.text import SUBMATRIX
from nnet3_descriptors import Nnet
from nnet3_optimizer import optimize
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from nnet3_runtime_cuda.kernels.nonlinear import SaturatingKernel
from nnet3_runtime_cuda.lowering.recurrences import MOST_STEP_ROWS, ROWS_AT_ONCE
from small_networks import network, request_for

needs_compiler = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")


def assert_near(
    found: Sequence[np.ndarray], expected: Sequence[np.ndarray], limit: float = 1e-5
) -> None:
    """Compares arrays; differences are relative to the largest value of each."""
    for ours, theirs in zip(found, expected, strict=True):
        scale = max(np.abs(theirs).max(initial=0.0), 1e-3)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=limit * scale)


def single(component: str, *, dim: int, descriptor: str = "input", seed: int = 0) -> Nnet:
    """A network of one component with random parameters.

    Args:
        component: `type=... key=value ...`.
        dim: Columns of the input node.
        descriptor: The input of the component.
        seed: Seed of the parameters.
    """
    return network(
        f"input-node name=input dim={dim}\ncomponent name=c {component}\n"
        f"component-node name=c component=c input={descriptor}\noutput-node name=output input=c\n",
        seed,
    )


def request(
    inputs: range, outputs: range, *, sequences: int = 2, training: bool = True
) -> ComputationRequest:
    """A request for times of 'input' and 'output'; for training, with all derivatives."""
    return request_for(
        inputs,
        outputs,
        sequences,
        derivs=("input", "output") if training else (),
        need_model_derivative=training,
        store_component_stats=training,
    )


def compiled(
    nnet: Nnet,
    inputs: range,
    outputs: range | None = None,
    *,
    optimized: bool = False,
    **asked: Any,
) -> NnetComputation:
    """The computation of a `request`, for outputs at the times of the inputs if not at others."""
    computation = compile_computation(nnet, request(inputs, outputs or inputs, **asked))
    return optimize(nnet, computation) if optimized else computation


def bound(
    nnet: Nnet,
    inputs: range,
    outputs: range | None = None,
    *,
    sequences: int = 2,
    training: bool = True,
    optimized: bool = False,
    **options: Any,
) -> NnetComputer:
    """A computer of a `compiled` computation, on a `DeviceNnet` with options."""
    asked = {"sequences": sequences, "training": training, "optimized": optimized}
    computation = compiled(nnet, inputs, outputs, **asked)
    return NnetComputer(DeviceNnet(nnet, **options), computation)


def passes(computer: NnetComputer, seed: int = 1) -> list[np.ndarray]:
    """Runs a computer on random numbers: outputs and, if it trains, derivatives and direction."""
    rng = np.random.default_rng(seed)
    given = computer._program.forward[0].inputs
    outputs = computer.forward(
        {node: rng.standard_normal(view.shape) for node, view in given.items()}
    )
    if computer._program.backward is None:
        return [*outputs.values()]
    derivatives = {name: rng.standard_normal(array.shape) for name, array in outputs.items()}
    found = computer.backward(derivatives)
    return [*outputs.values(), *found.values(), computer.device_nnet.direction.copy()]


def interruptions(patch: pytest.MonkeyPatch) -> list[BaseException]:
    """What the next pass through a tanh raises, of a computer that is bound after this; empty."""
    due: list[BaseException] = []

    def interrupt() -> None:
        if due:
            raise due.pop()

    def interruptible(record: Callable[..., None]) -> Callable[..., None]:
        def and_interrupt(kernel: SaturatingKernel, operands: Any) -> None:
            record(kernel, operands)
            operands.tape.note(interrupt)

        return and_interrupt

    for name in ("propagate", "backprop"):
        patch.setattr(SaturatingKernel, name, interruptible(getattr(SaturatingKernel, name)))
    return due


def program(nnet: Nnet, text: str) -> NnetComputation:
    """A computation, given as its matrices, lists of rows and commands, one on each line."""
    lines = [line.strip() for line in text.strip().splitlines()]
    sizes = [line for line in lines if re.match(r"m\d+ = \d+ x ", line)]
    lists = [line for line in lines if re.match(r"j\d+ = ", line)]
    commands = [line for line in lines if line not in (*sizes, *lists)]
    matrices = [line.split(" =")[0] for line in sizes]
    named = re.findall(SUBMATRIX, "\n".join(commands))
    return parse_computation(
        "\n".join(
            [
                "nnet3 computation 1",
                "debug_info = false",
                "need_model_derivative = true",
                *(f"node {node.name} = {number}" for number, node in enumerate(nnet.nodes)),
                *(f"component {name} = {n}" for n, name in enumerate(nnet.component_names)),
                *sizes,
                *(f"submatrices: {name}" for name in dict.fromkeys([*matrices, *named])),
                *lists,
                *(f"c{number}: {line}" for number, line in enumerate(commands)),
            ]
        ),
        nnet,
    )


def loop(nnet: Nnet, frames: int, *, sequences: int = 1) -> NnetComputation:
    """A loop over chunks of `frames` frames of 'input', and as many of 'output'."""
    chunks = [range(start, start + frames) for start in range(0, 3 * frames, frames)]
    requests = [request(each, each, sequences=sequences, training=False) for each in chunks]
    return compile_looped(nnet, requests)


@attrs.frozen
class Case:
    """A component, and its input and output times.

    Attributes:
        component: `type=... key=value ...`.
        dim: Columns of the input node.
        inputs: Times of the input.
        outputs: Times of the output.
        descriptor: The input of the component.
    """

    component: str
    dim: int
    inputs: range = range(6)
    outputs: range = range(6)
    descriptor: str = "input"

    def nnet(self, seed: int = 0) -> Nnet:
        """The network."""
        return single(self.component, dim=self.dim, descriptor=self.descriptor, seed=seed)

    def compile(self, nnet: Nnet, **asked: Any) -> NnetComputation:
        """The computation, not optimized."""
        return compiled(nnet, self.inputs, self.outputs, **asked)

    def bound(self, *, seed: int = 0, **options: Any) -> NnetComputer:
        """A computer of the network; see `bound`."""
        return bound(self.nnet(seed), self.inputs, self.outputs, **options)


@attrs.frozen(kw_only=True)
class Stated:
    """Capabilities that a test states instead of asking a machine; others are the processor's.

    Attributes:
        split: Numbers of the components that can be split as affine maps.
        taps: Numbers of the components that gain by taps.
    """

    split: frozenset[int] = attrs.field(default=(), converter=frozenset)
    taps: frozenset[int] = attrs.field(default=(), converter=frozenset)
    most_step_rows: int = MOST_STEP_ROWS
    late_rows_at_once: int = ROWS_AT_ONCE

    def can_split(self, component: int) -> bool:
        """Whether the component is in `split`."""
        return component in self.split

    def rows_at_once(self, component: int) -> int:
        """The number for fixed parameters."""
        return ROWS_AT_ONCE

    def gains_by_taps(self, component: int, rows: int, offsets: tuple[int, ...]) -> bool:
        """Whether the component is in `taps`."""
        return component in self.taps

    def gains_by_panels(self, component: int, rows: int) -> bool:
        """False."""
        return False
