"""The context of networks: how many frames of input they need."""

import tracemalloc

import pytest
from nnet3_descriptors import NetworkError, compute_context, parse_config

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
                "component-node name=a component=identity input=Offset(input, 1500000000)",
                "component-node name=b component=identity input=Offset(a, -1500000000)",
                "output-node name=output input=Offset(b, -2)",
            ],
            (2, 0),
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
def test_context(lines: list[str], expected: tuple[int, int]) -> None:
    """Offsets add up, optional terms do not count, and rounding counts with its largest offset."""
    assert context(*lines) == expected


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["output-node name=other input=input"], 'with "input" and "output" only'),
        (["output-node name=output input=Offset(input, 0, 1)"], "no output can be computed"),
        (["output-node name=output input=Round(input, 2001)"], "the same only every 2001 frames"),
        (
            [
                "component-node name=a component=identity input=Sum(input, Offset(a, -1))",
                "output-node name=output input=a",
            ],
            "no output can be computed",
        ),
        (
            [
                "component-node name=a component=identity input=Offset(b, -1)",
                "component-node name=b component=identity input=Offset(a, 2)",
                "output-node name=output input=a",
            ],
            "no output can be computed",
        ),
        (
            [
                "component-node name=a component=identity input=Offset(input, 1000000000)",
                "component-node name=b component=identity input=Offset(a, 1000000000)",
                "component-node name=c component=identity input=Offset(b, 1000000000)",
                "output-node name=output input=c",
            ],
            "reads t = 3000000",
        ),
    ],
)
def test_networks_without_context(lines: list[str], message: str) -> None:
    """If the context is undefined, or no number of frames suffices, there is an error."""
    with pytest.raises(NetworkError, match=message):
        context(*lines)


def test_a_long_recurrence_without_a_beginning() -> None:
    """Of a recurrence through many nodes the message names the first and the last."""
    nodes = [
        f"component-node name=n{number} component=identity input=Offset(n{(number + 1) % 50}, -1)"
        for number in range(50)
    ]

    with pytest.raises(NetworkError) as caught:
        context(*nodes, "output-node name=output input=Sum(input, n0)")

    assert "(n1 <- n2 <- n3 <- 44 more <- n48 <- n49 <- n0 <- n1)" in str(caught.value)


def test_info_of_a_network_without_context() -> None:
    """The description of such a network has no context."""
    nnet = parse_config("input-node name=i dim=2\noutput-node name=output input=i")

    assert nnet.info().startswith("num-parameters: 0\nmodulus: 1\n")


def test_an_input_that_has_no_window_cannot_be_computed() -> None:
    """A third input is an error only if the output needs it."""
    third = "input-node name=ivector dim=2\ninput-node name=third dim=2"

    assert context(third, "output-node name=output input=Sum(input, IfDefined(third))") == (0, 0)
    with pytest.raises(NetworkError, match="no output can be computed"):
        context(third, "output-node name=output input=Sum(input, third)")


def test_a_component_that_reads_too_many_rows() -> None:
    """Too many rows at many positions are refused, not followed row by row."""
    nnet = parse_config(
        "input-node name=input dim=65540\ncomponent name=c type=RestrictedAttentionComponent "
        "key-dim=1 value-dim=1 num-left-inputs=65535 num-right-inputs=1\n"
        "component-node name=c component=c input=input\n"
        "output-node name=output input=Sum(Round(c, 30), ReplaceIndex(c, t, 0))\n"
    )

    with pytest.raises(NetworkError) as caught:
        compute_context(nnet)

    assert str(caught.value) == (
        "the context is not looked for in a window of 40 frames: 3 rows of node 'c' read 196611 "
        "rows, at 1 of 30 positions, above 4194304 rows at all positions"
    )
    assert "left-context" not in nnet.info()


@pytest.mark.parametrize(
    ("period", "window", "expected"),
    [(100_000, 99_998, "left-context: 0\nright-context: 0\n"), (1000, 10_000, "left-context: 0\n")],
)
def test_windows_over_windows(period: int, window: int, expected: str) -> None:
    """Sums of long periods, pooled over long windows, have a context that takes little memory."""
    nnet = parse_config(
        "input-node name=input dim=4\ncomponent name=e type=StatisticsExtractionComponent "
        f"input-dim=4 output-period={period} include-variance=false\n"
        "component name=p type=StatisticsPoolingComponent input-dim=5 "
        f"left-context={window // 2} right-context={window // 2}\n"
        "component-node name=e component=e input=input\n"
        "component-node name=p component=p input=e\noutput-node name=output input=p\n"
    )

    tracemalloc.start()
    info = nnet.info()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert info.startswith(expected)
    assert most < 100_000_000  # bytes; one list of all reads would take a hundred times as much
