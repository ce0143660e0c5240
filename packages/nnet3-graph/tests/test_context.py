"""Left and right context of networks other than the reference networks."""

import tracemalloc

import numpy as np
import pytest
from graph_one_by_one import build_one_by_one
from graph_strategies import MARGIN, STEP, networks
from hypothesis import assume, given, settings
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors import Nnet, parse_config
from nnet3_graph import ContextError, compute_context


def network(descriptor, inputs="input-node name=input dim=1"):
    """A network with this descriptor as output."""
    config = (
        f"{inputs}\n"
        f"component name=c type=NoOpComponent dim=1\n"
        f"component-node name=c component=c input={descriptor}\n"
        f"output-node name=output input=c\n"
    )
    return parse_config(config, rng=np.random.default_rng(0))


IVECTOR = "input-node name=input dim=1\ninput-node name=ivector dim=1"


@pytest.mark.parametrize(
    ("nnet", "context"),
    [
        (network("input"), (0, 0)),
        (network("Sum(Offset(input, -3), Offset(input, 5))"), (3, 5)),
        (network("Sum(Offset(input, 1), Offset(input, 4))"), (0, 4)),
        (network("Sum(input, Round(input, 4))"), (3, 0)),
        (network("Switch(input, Offset(input, 2))"), (0, 2)),
        (network("Sum(input, IfDefined(Offset(input, -3)))"), (0, 0)),
        (network("Sum(input, ReplaceIndex(ivector, t, 0))", IVECTOR), (0, 0)),
        (network("Sum(input, Round(ivector, 10))", IVECTOR), (0, 0)),
        (network("Sum(Offset(input, -60), Offset(input, 100))"), (60, 100)),
        (network("Sum(Round(input, 50), Offset(input, 1))"), (49, 1)),
        (network("Sum(input, Round(ivector, 50))", IVECTOR), (0, 0)),
    ],
)
def test_context(nnet, context):
    """The context is the largest over positions within the modulus of the network."""
    assert compute_context(nnet) == context


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
    request = ComputationRequest(
        inputs=[IoSpecification.from_range("input", start, start + window)],
        outputs=[IoSpecification.from_range("output", start, start + window)],
    )
    graph = build_one_by_one(nnet, request, MARGIN, STEP)
    missing = {t for _, _, t, _ in graph.missing_outputs}
    there = [t not in missing for t in range(start, start + window)]
    if not any(there):
        return None
    first = there.index(True)
    run = (*there[first:], False).index(False)
    return first, window - first - run


IDENTITY = "component name=identity type=NoOpComponent dim=2\n"


def context(*lines: str) -> tuple[int, int]:
    """Returns the context of a network of identity nodes."""
    return compute_context(
        parse_config("input-node name=input dim=2\n" + IDENTITY + "\n".join(lines))
    )


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["output-node name=output input=input"], (0, 0)),
        (["output-node name=output input=Append(Offset(input, -3), Offset(input, 5))"], (3, 5)),
        (["output-node name=output input=Offset(input, 7)"], (0, 7)),
        (["output-node name=output input=Round(input, 4)"], (3, 0)),
        (["output-node name=output input=Switch(input, Offset(input, 2))"], (0, 2)),
        # From frame 1 on, 1 and 3, 4, ... can be computed, and Kaldi takes the first run of frames.
        (["output-node name=output input=Switch(Offset(input, -2), Offset(input, 1))"], (1, 39)),
        (["output-node name=output input=Sum(input, IfDefined(Offset(input, -9)))"], (0, 0)),
        (["output-node name=output input=Failover(Offset(input, 4), Offset(input, -4))"], (0, 0)),
        (
            [
                "component-node name=a component=identity input=Offset(input, -60)",
                "component-node name=b component=identity input=Offset(a, -60)",
                "output-node name=output input=Sum(input, b)",
            ],
            (120, 0),
        ),
        (
            [
                "component-node name=a component=identity input=Sum(input, IfDefined(old))",
                "component-node name=old component=identity input=Offset(b, -1)",
                "component-node name=b component=identity input=a",
                "output-node name=output input=b",
            ],
            (0, 0),
        ),
        (
            [
                "component-node name=a component=identity input=Failover(Offset(a, -1), input)",
                "dim-range-node name=part input-node=a dim-offset=0 dim=1",
                "output-node name=output input=Offset(part, 2)",
            ],
            (0, 0),
        ),
        (
            [
                "component-node name=a component=identity input=Offset(input, -4)",
                "component-node name=b component=identity input=Sum(Offset(a, 9), IfDefined(c))",
                "dim-range-node name=c input-node=b dim-offset=0 dim=2",
                "output-node name=output input=Append(Offset(c, 2), a)",
            ],
            (4, 7),
        ),
        # The second of two required terms is not ignored.
        (
            [
                "component-node name=a component=identity input=Sum(Offset(input, 3), input)",
                "output-node name=output input=Sum(Offset(a, -1), Offset(a, 1))",
            ],
            (1, 4),
        ),
        # A Failover exists where either of its operands does.
        (
            [
                "component-node name=a component=identity input=Failover(Offset(input, 3), "
                "IfDefined(input))",
                "output-node name=output input=Offset(a, -1)",
            ],
            (0, 0),
        ),
        (
            [
                "input-node name=ivector dim=3",
                "output-node name=output input=Append(input, ReplaceIndex(ivector, t, 0))",
            ],
            (0, 0),
        ),
        (
            [
                "input-node name=ivector dim=3",
                "output-node name=output input=Append(Offset(input, 1), Round(ivector, 10))",
            ],
            (0, 1),
        ),
    ],
)
def test_context_of_several_nodes(lines: list[str], expected: tuple[int, int]) -> None:
    """Offsets add up, optional terms do not count, and rounding counts with its largest offset."""
    assert context(*lines) == expected


def test_an_input_that_has_no_window_cannot_be_computed() -> None:
    """A third input is an error only if the output needs it."""
    third = "input-node name=ivector dim=2\ninput-node name=third dim=2"

    assert context(third, "output-node name=output input=Sum(input, IfDefined(third))") == (0, 0)
    with pytest.raises(ContextError, match="no output can be computed"):
        context(third, "output-node name=output input=Sum(input, third)")


def pooling(period: int, window: int) -> Nnet:
    """Sums of periods, pooled over a window."""
    return parse_config(
        "input-node name=input dim=4\ncomponent name=e type=StatisticsExtractionComponent "
        f"input-dim=4 output-period={period} include-variance=false\n"
        "component name=p type=StatisticsPoolingComponent input-dim=5 "
        f"left-context={window // 2} right-context={window // 2}\n"
        "component-node name=e component=e input=input\n"
        "component-node name=p component=p input=e\noutput-node name=output input=p\n"
    )


def test_windows_over_windows() -> None:
    """Sums of long periods, pooled over long windows, have a context that takes little memory."""
    nnet = pooling(1000, 10_000)

    tracemalloc.start()
    found = compute_context(nnet)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert found == (0, 0)
    assert most < 100_000_000  # bytes; one list of all reads would take a hundred times as much
