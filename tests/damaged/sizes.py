"""Absurd sizes wherever a number can stand in a network or an argument, and uses of the result.

A number that is replaced in a container, a file or an archive is one of the damages of these.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from component_forms import CONFIGS, from_config
from nnet3 import Model
from nnet3_compiler import compile_computation, compile_looped, looped_requests, with_ivector_period
from nnet3_computation import ComputationRequest, IoSpecification, NnetComputation
from nnet3_descriptors import Nnet, parse_config
from nnet3_optimizer import optimize
from nnet3_runtime_cuda import NnetComputer
from small_networks import stacked

from damaged.registered import damaged_format
from damaged.using import User, bounded_memory

MEMORY = 300 << 20
"""Bytes of addresses that a use may take; twice as many where the number is in reason."""
NUMBERS = (0, -1, 2**15, 2**31 - 1, -(2**31), 2**31, 2**63, 1e300, float("nan"))
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.])")
_DESCRIPTORS = (
    "input",
    "Offset(input, 2)",
    "Offset(input, 2, 1)",
    "Offset(Offset(input, 3, 1), -2, -1)",
    "Round(input, 3)",
    "Offset(Round(Offset(input, -1), 3), 1)",
    "Sum(Round(input, 2), Round(input, 3))",
    "ReplaceIndex(input, t, 0)",
    "ReplaceIndex(input, x, 0)",
    "Round(Offset(ReplaceIndex(input, x, 0), 1), 2)",
    "Scale(0.5, input)",
    "Sum(Const(1.5, 4), input)",
    "Switch(input, Offset(input, 1), Round(input, 2))",
    "Failover(Offset(input, 5), Offset(input, -5))",
    "Sum(input, IfDefined(Offset(input, -1)))",
    "Sum(input, IfDefined(Offset(c, -1)))",
    "Sum(input, IfDefined(Offset(c, -1, 1)))",
    "Sum(input, IfDefined(Round(Offset(c, -3), 3)))",
    "Sum(input, IfDefined(Switch(Offset(c, -1), Offset(c, -2))))",
    "Failover(Offset(c, -3), Offset(input, 1))",
)
_NODES = """\
input-node name=input dim=4
component name=c type=NoOpComponent dim=4
component-node name=c component=c input={}
dim-range-node name=d input-node=c dim-offset=1 dim=2
output-node name=output input=Append(c, d)
"""
_IVECTOR = """\
input-node name=input dim=4
input-node name=ivector dim=2
component name=c type=AffineComponent input-dim=10 output-dim=3
component name=r type=RectifiedLinearComponent dim=3
component-node name=c component=c input=Append(Offset(input, -1), Offset(input, 1), ReplaceIndex(ivector, t, 0))
component-node name=r component=r input={}
output-node name=output input=r
"""  # noqa: E501
_POOLED = stacked(
    4,
    "e StatisticsExtraction input-dim=4 input-period=1 output-period=1",
    "p StatisticsPooling input-dim=9 input-period=1 left-context=0 right-context=500 "
    "num-log-count-features=0",
)
_IN_REASON = range(1000, 100_000)
"""So many frames or sequences are large, but work; those of a recurrence may take more time."""
_PLACES = {
    "looped": "period chunk_size frame_subsampling_factor ivector_period extra_left_context "
    "extra_right_context num_sequences",
    "compute": "online_ivector_period frames_per_chunk frame_subsampling_factor extra_left_context "
    "extra_right_context extra_left_context_initial extra_right_context_final acoustic_scale",
    "xvector": "chunk_size min_chunk_size",
    "rows": "t_start t_end n t_step",
}
"""Arguments of what uses networks."""


@damaged_format("sizes", 8)
def _sizes(user: User, seed: int, number: int, folder: Path) -> bool:
    def use() -> bool:
        _use_a_size(user)
        return True

    return user.attempt("use", use) is not None


def _use_a_size(user: User) -> None:
    rng, what = user.rng, user.rng.choice(("nodes", "component", "argument"))
    if what == "argument":
        function = rng.choice(sorted(_PLACES))
        arguments = {rng.choice(_PLACES[function].split()): rng.choice((*NUMBERS, 10**4))}
        if function == "looped" and rng.random() < 0.1:
            arguments = dict.fromkeys(
                ("period", "chunk_size", "ivector_period"), rng.choice(NUMBERS)
            )
        user.name = f"{function} with {arguments}"
        in_reason = any(number in _IN_REASON for number in arguments.values())
        with bounded_memory(2 * MEMORY if in_reason else MEMORY):
            _FUNCTIONS[function](**arguments)
        return
    if what == "nodes":
        text = _NODES.format(rng.choice(_DESCRIPTORS))
        places = list(_NUMBER.finditer(text))
    else:
        kind = rng.choice(sorted(CONFIGS))
        dim = from_config(kind, CONFIGS[kind]).input_dim
        text = (
            f"component name=c type={kind} {CONFIGS[kind]}\ninput-node name=input dim={dim}\n"
            "component-node name=c component=c input=input\noutput-node name=output input=c\n"
        )
        places = list(_NUMBER.finditer(text, 0, text.index("\n")))
    place = rng.choice(places)
    user.name = text = f"{text[: place.start()]}{rng.choice(NUMBERS)}{text[place.end() :]}"
    with bounded_memory(MEMORY):
        nnet = parse_config(text)
        nnet.info()
        nnet.to_bytes()
        user.compute(nnet)


def _use_computation(nnet: Nnet, computation: NnetComputation) -> None:
    """Binds a computation, and runs its first segment on zeros."""
    computer = NnetComputer(nnet, computation)
    given = computer._program.forward[0].inputs
    computer.forward({node: np.zeros(view.shape, np.float32) for node, view in given.items()})


def _with_ivectors(descriptor: str) -> Nnet:
    """A network with i-vectors whose last component reads a descriptor."""
    return parse_config(_IVECTOR.format(descriptor), rng=np.random.default_rng(0))


def _looped(*, period: Any = 2, **arguments: Any) -> None:
    in_reason = any(number in _IN_REASON for number in arguments.values())
    # Thousands of sequences of a thousand frames are a legal request, but take gigabytes.
    is_long = in_reason and "num_sequences" not in arguments
    given = {"chunk_size": 1000 if is_long else 4, "ivector_period": 2} | arguments
    nnet = _with_ivectors("c" if in_reason else "Sum(c, IfDefined(Offset(r, -1)))")
    other = with_ivector_period(nnet, period)
    _use_computation(other, compile_looped(other, looped_requests(other, **given)))


def _compute(**arguments: Any) -> None:
    ivectors = {"online_ivectors": np.zeros((2, 2), np.float32), "online_ivector_period": 4}
    model = Model(_with_ivectors("c"))
    model.compute(np.zeros((7, 4), np.float32), **(ivectors | arguments))


def _xvector(**arguments: Any) -> None:
    features = np.zeros((7, 4), np.float32)
    Model(parse_config(_POOLED)).xvector(features, **({"min_chunk_size": 5} | arguments))


def _rows(**arguments: Any) -> None:
    given = {"name": "input", "t_start": -3, "t_end": 9} | arguments
    request = ComputationRequest(
        inputs=[IoSpecification.from_range(**given)],
        outputs=[IoSpecification.from_range("output", 0, 2)],
    )
    nnet = parse_config(_POOLED)
    _use_computation(nnet, optimize(nnet, compile_computation(nnet, request)))


_FUNCTIONS = {"looped": _looped, "compute": _compute, "xvector": _xvector, "rows": _rows}
