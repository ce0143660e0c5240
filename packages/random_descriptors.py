"""Random descriptors and lines of nodes, for the tests of graphs and those of the compiler."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st
from nnet3_descriptors.descriptors import (
    Const,
    Descriptor,
    Failover,
    ForwardingDescriptor,
    IfDefined,
    Node,
    Offset,
    ReplaceIndex,
    Round,
    Scale,
    Sum,
    SumDescriptor,
    Switch,
)

MAX_OFFSET = 2
"""The most frames of an Offset."""


@st.composite
def leaves(draw: st.DrawFn, names: list[str], depth: int = 0) -> ForwardingDescriptor:
    """A forwarding descriptor over some nodes."""
    kind = draw(st.sampled_from(["node", "node", "scale", "offset", "offset", "other"]))
    if kind in ("node", "scale") or depth > 1:
        node = Node(draw(st.sampled_from(names)))
        return Scale(draw(st.sampled_from([-1.0, 0.5, 2.0])), node) if kind == "scale" else node
    source = draw(leaves(names, depth + 1))
    if kind == "offset":
        x_offset = draw(st.sampled_from([0] * 8 + [-1, 1]))
        return Offset(source, draw(st.integers(-MAX_OFFSET, MAX_OFFSET)), x_offset)
    match draw(st.sampled_from(["round", "switch", "replace t", "replace x"])):
        case "round":
            return Round(source, draw(st.integers(1, 3)))
        case "switch":
            others = draw(st.lists(leaves(names, depth + 1), min_size=1, max_size=2))
            return Switch((source, *others))
        case "replace t":
            return ReplaceIndex(source, "t", draw(st.integers(-1, 2)))
        case _:
            return ReplaceIndex(source, "x", draw(st.sampled_from([0, 0, 1])))


@st.composite
def sums(
    draw: st.DrawFn,
    earlier: list[str],
    dim: int,
    cycle: st.SearchStrategy[SumDescriptor] | None = None,
    depth: int = 0,
) -> SumDescriptor:
    """A sum descriptor of `dim` columns over earlier nodes.

    Args:
        draw: Draws from a strategy.
        earlier: The nodes.
        dim: Columns of each of them.
        cycle: Terms that read later nodes, and so close a cycle; None for no such terms.
        depth: The number of descriptors around it.
    """
    kinds = ["leaf"] * 4 + ["cycle"] * 4 * (cycle is not None)
    if depth < 2:
        kinds += ["sum", "sum", "failover", "optional", "constant"]
    kind = draw(st.sampled_from(kinds))
    if kind == "leaf":
        return draw(leaves(earlier))
    if kind == "cycle":
        assert cycle is not None
        return draw(cycle)
    if kind == "constant":
        return Const(draw(st.sampled_from([1.5, -0.25])), dim)
    first = draw(sums(earlier, dim, cycle, depth + 1))
    if kind == "optional":
        return IfDefined(first)
    second = draw(sums(earlier, dim, cycle, depth + 1))
    return Sum(first, second) if kind == "sum" else Failover(first, second)


def node_lines(name: str, config: str, parts: Sequence[SumDescriptor]) -> list[str]:
    """The config lines of a component and its node."""
    return [
        f"component name={name} type={config}",
        f"component-node name={name} component={name} input={Descriptor(tuple(parts))}",
    ]


def mean_lines(
    name: str, source: SumDescriptor, dim: int, *, period: int = 1, left: int, right: int
) -> list[str]:
    """The config lines of a mean over some frames, and of the sums that it is made of."""
    sums_of_frames = Node(f"{name}.sums")
    return [
        *node_lines(
            f"{name}.sums",
            f"StatisticsExtractionComponent input-dim={dim} input-period=1 "
            f"output-period={period} include-variance=false",
            [source],
        ),
        *node_lines(
            name,
            f"StatisticsPoolingComponent input-dim={dim + 1} input-period={period} "
            f"left-context={left} right-context={right} num-log-count-features=0",
            [Round(sums_of_frames, period) if period > 1 else sums_of_frames],
        ),
    ]
