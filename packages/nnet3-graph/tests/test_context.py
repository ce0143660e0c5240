"""Left and right context of networks other than the reference networks."""

import tracemalloc

import pytest
from graph_one_by_one import build_one_by_one
from graph_strategies import MARGIN, STEP, networks
from hypothesis import assume, given, settings
from nnet3_descriptors import Nnet, parse_config
from nnet3_graph import ContextError, compute_context
from small_networks import request_for, stacked


@given(networks())
@settings(max_examples=2 * settings.default.max_examples // 5)
def test_is_that_of_windows_one_by_one(nnet: Nnet) -> None:
    """The context is that of the outputs that windows make computable, by their definition."""
    assume([node.name for node in nnet.input_nodes] == ["input"])
    assume(nnet.modulus <= 6)
    try:
        found = compute_context(nnet)
    except ContextError:
        found = None
    edges = [edges_one_by_one(nnet, start) for start in range(nnet.modulus)]

    if None not in edges:
        assert found == tuple(map(max, zip(*edges, strict=True)))
    else:  # a larger window may do
        assert found is None or max(found) > 0


def edges_one_by_one(nnet: Nnet, start: int, window: int = 40) -> tuple[int, int] | None:
    """The outputs missing before and after the first run of a window; None for all."""
    frames = range(start, start + window)
    graph = build_one_by_one(nnet, request_for(frames, frames), MARGIN, STEP)
    missing = {t for _, _, t, _ in graph.missing_outputs}
    there = [t not in missing for t in frames]
    if not any(there):
        return None
    first = there.index(True)
    run = (*there[first:], False).index(False)
    return first, window - first - run


def context(*nodes: str) -> tuple[int, int]:
    """Returns the context of a network of identity nodes and an output.

    Args:
        *nodes: The name and the descriptor of each, or a whole config line.
    """
    lines = ["input-node name=input dim=2", "component name=identity type=NoOpComponent dim=2"]
    for node in nodes:
        name, _, descriptor = node.partition(" ")
        kind = "output-node" if name == "output" else "component-node component=identity"
        lines.append(node if " name=" in node else f"{kind} name={name} input={descriptor}")
    return compute_context(parse_config("\n".join(lines)))


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (["output input"], (0, 0)),
        (["output Append(Offset(input, -3), Offset(input, 5))"], (3, 5)),
        (["output Offset(input, 7)"], (0, 7)),
        (["output Sum(Offset(input, 1), Offset(input, 4))"], (0, 4)),
        (["output Sum(Offset(input, -60), Offset(input, 100))"], (60, 100)),
        (["output Round(input, 4)"], (3, 0)),
        (["output Sum(Round(input, 50), Offset(input, 1))"], (49, 1)),
        (["output Switch(input, Offset(input, 2))"], (0, 2)),
        # From frame 1 on, 1 and 3, 4, ... can be computed, and Kaldi takes the first run of frames.
        (["output Switch(Offset(input, -2), Offset(input, 1))"], (1, 39)),
        (["output Sum(input, IfDefined(Offset(input, -9)))"], (0, 0)),
        (["output Failover(Offset(input, 4), Offset(input, -4))"], (0, 0)),
        (["a Offset(input, -60)", "b Offset(a, -60)", "output Sum(input, b)"], (120, 0)),
        (["a Sum(input, IfDefined(old))", "old Offset(b, -1)", "b a", "output b"], (0, 0)),
        (
            [
                "a Failover(Offset(a, -1), input)",
                "dim-range-node name=part input-node=a dim-offset=0 dim=1",
                "output Offset(part, 2)",
            ],
            (0, 0),
        ),
        (
            [
                "a Offset(input, -4)",
                "b Sum(Offset(a, 9), IfDefined(c))",
                "dim-range-node name=c input-node=b dim-offset=0 dim=2",
                "output Append(Offset(c, 2), a)",
            ],
            (4, 7),
        ),
        # The second of two required terms is not ignored.
        (["a Sum(Offset(input, 3), input)", "output Sum(Offset(a, -1), Offset(a, 1))"], (1, 4)),
        # A Failover exists where either of its operands does.
        (["a Failover(Offset(input, 3), IfDefined(input))", "output Offset(a, -1)"], (0, 0)),
        *(
            (["input-node name=ivector dim=3", f"output {descriptor}"], expected)
            for descriptor, expected in (
                ("Append(input, ReplaceIndex(ivector, t, 0))", (0, 0)),
                ("Append(Offset(input, 1), Round(ivector, 10))", (0, 1)),
                ("Append(input, Round(ivector, 50))", (0, 0)),
            )
        ),
    ],
)
def test_context(nodes: list[str], expected: tuple[int, int]) -> None:
    """Offsets add up, optional terms do not count, and rounding counts with its largest offset.

    The context is the largest over positions within the modulus of the network.
    """
    assert context(*nodes) == expected


def test_an_input_that_has_no_window_cannot_be_computed() -> None:
    """A third input is an error only if the output needs it."""
    third = "input-node name=ivector dim=2\ninput-node name=third dim=2"

    assert context(third, "output Sum(input, IfDefined(third))") == (0, 0)
    with pytest.raises(ContextError, match="no output can be computed"):
        context(third, "output Sum(input, third)")


def pooling(period: int, window: int) -> Nnet:
    """Sums of periods, pooled over a window."""
    sides = f"left-context={window // 2} right-context={window // 2}"
    extraction = f"input-dim=4 output-period={period} include-variance=false"
    layers = f"e StatisticsExtraction {extraction}", f"p StatisticsPooling input-dim=5 {sides}"
    return parse_config(stacked(4, *layers))


def test_windows_over_windows() -> None:
    """Sums of long periods, pooled over long windows, have a context that takes little memory."""
    nnet = pooling(1000, 10_000)

    tracemalloc.start()
    found = compute_context(nnet)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert found == (0, 0)
    assert most < 100_000_000  # bytes; one list of all reads would take a hundred times as much
