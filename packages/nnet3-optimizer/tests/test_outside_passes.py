"""Passes of other packages run after the optimizer's; their results are checked and proven."""

import attrs
import numpy as np
from nnet3_compiler import compile_computation
from nnet3_computation import (
    ComputationBuilder,
    ComputationRequest,
    IoSpecification,
    MatrixAdd,
    MatrixCopy,
    NnetComputation,
)
from nnet3_descriptors import Nnet, parse_config
from nnet3_optimizer import OptimizeOptions, optimize

NNET = parse_config(
    "input-node name=input dim=2\n"
    "component name=affine type=AffineComponent input-dim=2 output-dim=2\n"
    "component-node name=affine component=affine input=Sum(input, Offset(input, -1))\n"
    "output-node name=output input=affine\n",
    rng=np.random.default_rng(0),
)
COMPILED = compile_computation(
    NNET,
    ComputationRequest(
        inputs=[IoSpecification.from_range("input", -1, 3)],
        outputs=[IoSpecification.from_range("output", 0, 3)],
    ),
)
PLAIN = OptimizeOptions(optimize=False)


def swap_halves(nnet: Nnet, computation: NnetComputation) -> NnetComputation:
    """Splits each sum into two commands, for the left columns and the right ones."""
    builder = ComputationBuilder(computation)
    commands = []
    for command in builder.commands:
        if isinstance(command, MatrixCopy | MatrixAdd):
            for columns in ((1, 2), (0, 1)):
                output, given = (
                    builder.part(each, columns=columns) for each in (command.output, command.input)
                )
                commands.append(attrs.evolve(command, output=output, input=given))
        else:
            commands.append(command)
    builder.commands = commands
    builder.matrix(5, 5)  # unused
    return builder.build()


def test_a_pass_of_ones_own_changes_the_computation() -> None:
    """The result is proven, keeps its network and request, and has nothing unused."""
    before = optimize(NNET, COMPILED, PLAIN)
    after = optimize(NNET, COMPILED, PLAIN, passes=[swap_halves])

    assert len(after.commands) > len(before.commands)
    assert len(after.matrices) == len(before.matrices)
    assert after.network == COMPILED.network
    assert after.requests == COMPILED.requests


def doubled(nnet: Nnet, computation: NnetComputation) -> NnetComputation:
    """Doubles copies, which is wrong."""
    builder = ComputationBuilder(computation)
    builder.commands = [
        attrs.evolve(each, alpha=2.0) if hasattr(each, "alpha") else each
        for each in builder.commands
    ]
    return builder.build()


def nothing(nnet: Nnet, computation: NnetComputation) -> None:
    """Returns nothing, by mistake."""
