"""Computations that are built by hand, or added to after compiling."""

from nnet3_compiler import compile_computation
from nnet3_computation import (
    AcceptInput,
    AllocMatrixUndefined,
    ComputationBuilder,
    ComputationRequest,
    CopyRows,
    DeallocMatrix,
    IoSpecification,
    MatrixCopy,
    NoOperationMarker,
    ProvideOutput,
    format_computation,
)
from nnet3_descriptors import parse_config

NNET = parse_config("input-node name=a dim=4\noutput-node name=b input=a")


def test_a_computation_is_made_from_nothing() -> None:
    """Matrices, parts and lists have the numbers that commands name."""
    builder = ComputationBuilder()
    given, wanted = builder.matrix(3, 4), builder.matrix(3, 4)
    left, right = (builder.part(wanted, columns=each) for each in ((0, 2), (2, 4)))
    reverse = builder.indexes([2, 1, 0])
    builder.add(AcceptInput(matrix=given, node=0))
    builder.add([AllocMatrixUndefined(matrix=wanted)])
    builder.add(MatrixCopy(output=left, input=builder.part(given, columns=(2, 4)), alpha=2.0))
    source = builder.part(given, columns=(0, 2))
    builder.add(CopyRows(output=right, input=source, indexes=reverse, alpha=1.0))
    builder.add([DeallocMatrix(matrix=given), ProvideOutput(matrix=wanted, node=1)])
    builder.add(NoOperationMarker())

    text = format_computation(builder.build(), NNET)

    assert text.splitlines()[-7:-1] == [
        "c0: m1 = accept a",
        "c1: m2 = undefined",
        "c2: m2(:, 0:1) = 2.0 * m1(:, 2:3)",
        "c3: m2(:, 2:3) = m1(:, 0:1)[i0]",
        "c4: free m1",
        "c5: provide b = m2",
    ]


def test_what_is_there_is_not_added_again() -> None:
    """Equal parts and lists get one number; rebuilding gives an equal computation."""
    request = ComputationRequest(
        inputs=[IoSpecification.from_range("a", 0, 3)],
        outputs=[IoSpecification.from_range("b", 0, 3)],
    )
    computation = compile_computation(NNET, request)
    builder = ComputationBuilder(computation)

    assert builder.part(1) == 1
    assert builder.indexes([0, 2]) == builder.indexes([0, 2])
    assert builder.indexes_multi([(1, 0)]) == builder.indexes_multi([(1, 0)])
    assert builder.indexes_ranges([(0, 1)]) == builder.indexes_ranges([(0, 1)])
    assert ComputationBuilder(computation).build() == computation
