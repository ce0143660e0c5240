"""Finds trained parameters that many steps of a recurrence multiply by.

Fixed parameters lie in panels from the beginning (`panels`). Trained parameters would have to be
copied for each product. But the steps of a recurrence each multiply a few rows by the same
parameters, which do not change during a run. So the first step copies them, forward and backward.

The rules:

- At least FEWEST_STEPS commands multiply by the same columns of the same parameters.
- Panels that share memory are not used at the same time: the last use of one comes before the first
  of the other.
- A computation with a loop gets no panels: the next round would need them again, so they could not
  share memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs
from nnet3_computation import commands as c
from nnet3_descriptors import Nnet

from nnet3_runtime_cuda.lowering.capabilities import Capabilities
from nnet3_runtime_cuda.lowering.plan.plan import (
    EarlyProduct,
    LateProduct,
    PanelledFactor,
)
from nnet3_runtime_cuda.lowering.plan.trace import Trace

FEWEST_STEPS = 16
"""The least number of steps: a copy takes as long as seven steps of eight rows save."""

FEWEST_PARAMETERS = 1 << 16
"""Fewer are read from a cache at each step, however they lie."""


@attrs.frozen
class Factor:
    """The part of the parameters A of an affine map that a step multiplies by.

    Attributes:
        component: Number of the component.
        is_backward: Whether dy A is computed, else x A^T.
        skipped: The first columns of A that are left out.
    """

    component: int
    is_backward: bool
    skipped: int


@attrs.define(eq=False)
class _Memory:
    """Memory for the panels of several factors, used one at a time.

    Attributes:
        size: The size of the largest.
        uses: For each, the positions of its first and last step.
    """

    size: int
    uses: list[tuple[int, int]] = attrs.field(factory=list)

    def is_free(self, first: int, last: int) -> bool:
        """Whether no panels are in it from one position to another."""
        return all(last < begin or end < first for begin, end in self.uses)


def step_panels(
    trace: Trace,
    nnet: Nnet,
    can: Capabilities,
    early: Sequence[EarlyProduct],
    late: Sequence[LateProduct],
) -> tuple[tuple[PanelledFactor, ...], tuple[int, ...]]:
    """Finds the factors that are copied into panels.

    Args:
        trace: The accesses of the commands.
        nnet: The network.
        can: The capabilities of the machine.
        early: The products that take the first columns off forward steps.
        late: The products that take the first columns off backward steps.

    Returns:
        The factors, and how many elements each memory for them has.
    """
    if trace.label is not None:
        return (), ()
    skipped = {step.position: product.columns for product in early for step in product.steps}
    skipped |= {step.position: product.columns for product in late for step in product.steps}
    positions: dict[Factor, list[int]] = defaultdict(list)
    for position, factor in _factors(trace, can, skipped):
        positions[factor].append(position)

    def size(factor: Factor) -> int:
        component = nnet.components[factor.component]
        return component.output_dim * (component.input_dim - factor.skipped)

    return placed(positions, size)


def placed(
    positions: Mapping[Factor, Sequence[int]], size: Callable[[Factor], int]
) -> tuple[tuple[PanelledFactor, ...], tuple[int, ...]]:
    """Gives memory to the panels of factors, the largest first; see `step_panels`.

    Args:
        positions: Of the commands that multiply by each, in order.
        size: The number of elements of a factor.
    """
    found = []
    memories: list[_Memory] = []
    for factor in sorted(positions, key=size, reverse=True):
        at = positions[factor]
        if len(at) < FEWEST_STEPS or size(factor) < FEWEST_PARAMETERS:
            continue
        use = at[0], at[-1]
        memory = next((one for one in memories if one.is_free(*use)), None)
        if memory is None:
            memory = _Memory(size(factor))
            memories.append(memory)
        memory.uses.append(use)
        found.append(
            PanelledFactor(
                component=factor.component,
                is_backward=factor.is_backward,
                skipped=factor.skipped,
                positions=tuple(at),
                memory=memories.index(memory),
            )
        )
    return tuple(found), tuple(memory.size for memory in memories)


def _factors(
    trace: Trace, can: Capabilities, skipped: dict[int, int]
) -> Iterator[tuple[int, Factor]]:
    """Positions of commands that may be steps, and their factors."""
    for position, command in enumerate(trace.commands):
        if isinstance(command, c.Propagate):
            submatrix, is_backward = command.output, False
        elif isinstance(command, c.BackpropNoModelUpdate):
            submatrix, is_backward = command.output_deriv, True
        else:
            continue
        rows = trace.areas.of(submatrix).area.rows
        if can.can_split(command.component) and can.gains_by_panels(command.component, rows):
            yield position, Factor(command.component, is_backward, skipped.get(position, 0))
