"""Numbers about each component: dimensions, parameters, and statistics from training."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors import Component, ComponentNode, Nnet
from nnet3_descriptors.components import (
    BatchNormComponent,
    RectifiedLinearComponent,
    SigmoidComponent,
    TanhComponent,
)
from nnet3_training import saturated_units

from nnet3_report.layers import frames_read

Array = npt.NDArray[np.float32]

SMALLEST_RANK, LARGEST_RANK = 8, 2048
"""The rank is shown of matrices whose smaller side is within these: larger ones take seconds."""

MOST_NODES = 3
"""The most nodes of a component that are named."""

ENERGY = 0.9
"""The part of the sum of squares that the singular values counted by the rank hold."""


@attrs.frozen
class ComponentFacts:
    """A row of the table of components.

    Attributes:
        name: The component.
        type: Its type, without "Component".
        input_dim: Number of columns of its input.
        output_dim: Number of columns of its output.
        num_parameters: Number of trainable parameters.
        learning_rate: The learning rate of a component with parameters; else None.
        rms: Root mean square of its largest matrix; None without one.
        rank: Number of that matrix's singular values that hold `ENERGY` of the sum of squares.
        full_rank: Number of its singular values; None if the rank is not computed.
        frames: The frames that a row reads, counted from its own, such as "-3, 0"; "" for its own
            frame alone.
        activity: The statistics in words, such as "positive in 31 % of frames".
        warning: A finding that deserves a look, such as "3 of 64 units are dead".
        nodes: The nodes that use it, such as "a, b"; "" if it is one of the same name.
    """

    name: str
    type: str
    input_dim: int
    output_dim: int
    num_parameters: int
    learning_rate: float | None = None
    rms: float | None = None
    rank: int | None = None
    full_rank: int | None = None
    frames: str = ""
    activity: str = ""
    warning: str = ""
    nodes: str = ""


def component_facts(nnet: Nnet) -> Iterator[ComponentFacts]:
    """Returns the facts of all components, in their order."""
    nodes: dict[str, list[str]] = defaultdict(list)
    for node in nnet.nodes:
        if isinstance(node, ComponentNode):
            nodes[node.component].append(node.name)
    for name, component in zip(nnet.component_names, nnet.components, strict=True):
        facts = ComponentFacts(
            name=name,
            type=component.type.removesuffix("Component"),
            input_dim=component.input_dim,
            output_dim=component.output_dim,
            num_parameters=component.num_parameters,
            learning_rate=getattr(component, "learning_rate", None),
            frames=frames_read(component),
            nodes="" if nodes[name] == [name] else _listed(nodes[name]),
        )
        yield _with_statistics(_with_matrix(facts, component), component)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MOST_NODES]) or "none"
    return f"{shown} and {len(names) - MOST_NODES:,} more" if len(names) > MOST_NODES else shown


def _with_matrix(facts: ComponentFacts, component: Component) -> ComponentFacts:
    arrays = component.parameter_arrays().values()
    matrices = [array for array in arrays if array.ndim == 2 and array.size]
    if not matrices:
        return facts
    matrix = max(matrices, key=np.size)
    rms = float(np.sqrt(np.mean(np.square(matrix, dtype=np.float64))))
    facts = attrs.evolve(facts, rms=rms)
    full_rank = min(matrix.shape)
    if not SMALLEST_RANK <= full_rank <= LARGEST_RANK or not np.isfinite(rms):
        return facts
    return attrs.evolve(facts, rank=rank_of(matrix), full_rank=full_rank)


def rank_of(matrix: Array) -> int:
    """Returns the number of singular values that hold `ENERGY` of the sum of squares; 0 for zeros.

    Args:
        matrix: (rows, cols).
    """
    narrow = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T
    squares = np.linalg.eigvalsh(narrow.T.astype(np.float64) @ narrow)[::-1].clip(min=0)
    total = squares.sum()
    if total == 0:
        return 0
    return int(np.searchsorted(np.cumsum(squares), ENERGY * total) + 1)


def _with_statistics(facts: ComponentFacts, component: Component) -> ComponentFacts:
    match component:
        case BatchNormComponent(count=count) if count > 0:
            return attrs.evolve(facts, activity=f"statistics of {count:,.0f} frames")
        case RectifiedLinearComponent() | SigmoidComponent() | TanhComponent():
            units = saturated_units(component)
            if units is None:
                return facts
            average = float(component.deriv_avg.mean())
            if isinstance(component, RectifiedLinearComponent):
                activity, what = f"positive in {100 * average:.0f} % of frames", "dead"
            else:
                activity, what = f"average derivative {average:.2f}", "saturated"
            return attrs.evolve(facts, activity=activity, warning=_of_units(*units, what))
    return facts


def _of_units(count: int, of: int, what: str) -> str:
    return f"{count:,} of {of:,} units {what}" if count else ""
