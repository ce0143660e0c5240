"""Networks and programs for the tests of several packages, each with a copy in its archive."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from nnet3_computation import (
    AcceptInput,
    Command,
    ComputationRequest,
    IoSpecification,
    NnetComputation,
    NoOperationMarker,
    ProvideOutput,
    command_table,
)
from nnet3_descriptors import Nnet, parse_config

if TYPE_CHECKING:
    from nnet3_graph import ComputationGraph

SPLICED = """
input-node name=input dim=4
component name=affine type=NaturalGradientAffineComponent input-dim=8 output-dim=3
component-node name=affine component=affine input=Append(Offset(input, -1), input)
component name=softmax type=LogSoftmaxComponent dim=3
component-node name=softmax component=softmax input=affine
output-node name=output input=softmax
"""

WITH_IVECTOR = """
input-node name=input dim=4
input-node name=ivector dim=2
component name=affine type=AffineComponent input-dim=6 output-dim=3
component-node name=affine component=affine input=Append(input, ReplaceIndex(ivector, t, 0))
output-node name=output input=affine
"""

RECURRENT = """
input-node name=input dim=4
component name=affine type=AffineComponent input-dim=7 output-dim=3
component-node name=affine component=affine input=Append(input, IfDefined(Offset(tanh, -1)))
component name=tanh type=TanhComponent dim=3
component-node name=tanh component=tanh input=affine
output-node name=output input=tanh
"""

NAMED_LIKE_A_PART = """
input-node name=input dim=2
component name=c type=CompositeComponent num-components=1 component1='type=AffineComponent input-dim=2 output-dim=2'
component name=c.0 type=AffineComponent input-dim=2 output-dim=3
component-node name=c component=c input=input
component-node name=d component=c.0 input=c
output-node name=output input=d
"""  # noqa: E501
"""A component with the name that the first part of a composite component would have."""


def network(config: str, seed: int = 0) -> Nnet:
    """A network with random parameters, for a seed always the same."""
    return parse_config(config, rng=np.random.default_rng(seed))


def stacked(dim: int, *components: str, splice: str = "input", objective: str = "linear") -> str:
    """The config of a network whose components read each other in turn, or what they name.

    Args:
        dim: Columns of the input.
        *components: Name, type without "Component", and options of each component and its node,
            which can end with `input=` and a descriptor.
        splice: What the first component reads.
        objective: That of the output node.
    """
    lines, source = [f"input-node name=input dim={dim}"], splice
    for component in components:
        name, kind, options = f"{component} ".split(" ", 2)
        options, _, named = f" {options}".partition(" input=")
        lines.append(f"component name={name} type={kind}Component{options}")
        lines.append(f"component-node name={name} component={name} input={named or source}")
        source = name
    return "\n".join([*lines, f"output-node name=output input={source} objective={objective}\n"])


def identity(dim: int) -> Nnet:
    """A network whose output is its input, with `dim` columns."""
    return network(f"input-node name=input dim={dim}\noutput-node name=output input=input")


def request_for(
    given: range,
    wanted: range,
    sequences: int = 1,
    *,
    derivs: Collection[str] = (),
    **fields: bool,
) -> ComputationRequest:
    """A request for frames of "output" that are computed from frames of "input".

    Args:
        given: The times of the input.
        wanted: The times of the output.
        sequences: The number of sequences, one after the other.
        derivs: The nodes whose derivatives are given or wanted.
        **fields: Further fields.
    """
    ios = (
        IoSpecification.from_range(
            name, times.start, times.stop, sequences, t_step=times.step, has_deriv=name in derivs
        )
        for name, times in (("input", given), ("output", wanted))
    )
    return ComputationRequest(inputs=[next(ios)], outputs=[*ios], **fields)


def computation(
    matrices: Sequence[tuple[int, int]],
    commands: Sequence[Command],
    *,
    parts: Sequence[tuple[int, int, int, int, int]] = (),
    **lists: Any,
) -> NnetComputation:
    """A computation.

    Args:
        matrices: Rows and columns of matrix 1, 2, ...; submatrix 1, 2, ... is the whole matrix.
        commands: The commands.
        parts: Further submatrices: matrix, row_offset, num_rows, col_offset, num_cols.
        **lists: Further fields.
    """
    wholes = [(number, 0, rows, 0, cols) for number, (rows, cols) in enumerate(matrices, 1)]
    return NnetComputation(
        matrices=[(0, 0), *matrices],
        submatrices=[(0, 0, 0, 0, 0), *wholes, *parts],
        command_table=command_table(commands),
        **lists,
    )


def program_of(
    given: np.ndarray, matrices: Sequence[tuple[int, int]], commands: Sequence[Command], **more: Any
) -> NnetComputation:
    """A computation of `identity`: matrix 1 is the input, and the last matrix is the output."""
    ends = ProvideOutput(matrix=1 + len(matrices), node=1), NoOperationMarker()
    program = [AcceptInput(matrix=1, node=0), *commands, *ends]
    return computation([given.shape, *matrices], program, **more)


def has_circle(graph: ComputationGraph) -> bool:
    """Whether some cindex depends on itself: removes cindexes that depend on none left.

    Those of earlier segments depend on none of this one.
    """
    splits = graph.dependency_splits
    is_own = graph.dependencies >= graph.first_cindex_id
    dependencies = graph.dependencies[is_own] - graph.first_cindex_id
    user = np.repeat(np.arange(len(splits) - 1), np.diff(splits))[is_own]
    left = np.ones(len(splits) - 1, np.bool_)
    while left.any():
        blocked = np.zeros_like(left)
        blocked[user[left[user] & left[dependencies]]] = True
        if (blocked == left).all():
            return True
        left &= blocked
    return False
