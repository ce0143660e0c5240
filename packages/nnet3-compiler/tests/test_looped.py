"""Looped computations: chunks give the outputs of the whole sequence."""

import numpy as np
import pytest
from direct_evaluation import Evaluation
from nnet3_compiler import compile_looped, looped_chunk_size, looped_requests, with_ivector_period
from nnet3_compiler.looped import extended_requests
from nnet3_compiler.looped.closing import matrix_use, with_tight_lifetimes
from nnet3_computation import (
    ComputationRequest,
    IoSpecification,
    commands,
    format_computation,
    parse_computation,
)
from nnet3_descriptors import Nnet, parse_config
from nnet3_graph import build_computation_graph
from nnet3_runtime_reference import ReferenceComputer
from random_networks import random_arrays
from small_networks import computation, request_for, stacked

NETWORKS = {
    "tdnn": stacked(
        2,
        "a Linear input-dim=6 output-dim=3",
        "b Tdnn input-dim=3 output-dim=2 time-offsets=-3,0 use-bias=false",
        splice="Append(Offset(input, -2), input, Offset(input, 1))",
    ),
    "recurrent": """
        input-node name=input dim=2
        component name=a type=LinearComponent input-dim=4 output-dim=5
        component-node name=a component=a \
            input=Append(Offset(input, 1), IfDefined(Offset(state, -2)))
        dim-range-node name=state input-node=a dim-offset=1 dim=2
        dim-range-node name=last input-node=a dim-offset=3 dim=2
        output-node name=output input=last
    """,
    "two rates": stacked(
        2,
        "a Linear input-dim=2 output-dim=2 input=Sum(input, IfDefined(Offset(a, -3)))",
        "b Linear input-dim=2 output-dim=2 input=Sum(Round(a, 3), Offset(input, -4))",
    ),
    "i-vector": "input-node name=ivector dim=2\n"
    + stacked(
        2,
        "last Linear input-dim=4 output-dim=2",
        splice="Append(Offset(input, -1), ReplaceIndex(ivector, t, 0))",
    ),
}


def merged(requests: tuple[ComputationRequest, ...]) -> ComputationRequest:
    """One request for all inputs and outputs of some requests."""

    def together(kind: str) -> tuple[IoSpecification, ...]:
        rows: dict[str, list] = {}
        for request in requests:
            for io in getattr(request, kind):
                rows.setdefault(io.name, []).append(io.indexes)
        return tuple(
            IoSpecification(name=name, indexes=np.concatenate(parts))
            for name, parts in rows.items()
        )

    return ComputationRequest(inputs=together("inputs"), outputs=together("outputs"))


@pytest.mark.parametrize("num_sequences", [1, 3])
@pytest.mark.parametrize("chunk", [1, 4, 7])
@pytest.mark.parametrize("name", NETWORKS)
def test_chunks_give_what_the_whole_gives(name: str, chunk: int, num_sequences: int) -> None:
    """Seven chunks, most of them rounds of the loop, give the outputs of all frames at once."""
    nnet = parse_config(NETWORKS[name], rng=np.random.default_rng(0))
    chunk = looped_chunk_size(nnet, chunk)
    nnet = with_ivector_period(nnet, chunk)
    requests = looped_requests(nnet, chunk, num_sequences=num_sequences)
    computation = compile_looped(nnet, requests)
    segments = extended_requests(requests, 7)
    whole = merged(segments)
    inputs = random_arrays(nnet, whole.inputs)
    evaluation = Evaluation(nnet, build_computation_graph(nnet, whole), whole, inputs)
    computer = ReferenceComputer(nnet, computation)
    values = {
        (io.name, tuple(index)): row
        for io in whole.inputs
        for index, row in zip(io.indexes.tolist(), inputs[io.name], strict=True)
    }
    for segment in segments:
        given = {
            io.name: np.array([values[io.name, tuple(index)] for index in io.indexes.tolist()])
            for io in segment.inputs
        }
        taken = computer.forward(given)

        for io in segment.outputs:
            expected = evaluation.output(io.name, io.indexes)
            np.testing.assert_allclose(taken[io.name], expected, rtol=1e-9, atol=1e-9)
    assert isinstance(computation.commands[-1], commands.GotoLabel)
    assert parse_computation(format_computation(computation, nnet), nnet) == computation


def test_value_that_all_chunks_share() -> None:
    """An i-vector that is given once is available in all rounds."""
    nnet = parse_config(NETWORKS["i-vector"])
    frames = IoSpecification.from_range
    requests = [
        ComputationRequest(
            inputs=[
                frames("input", begin - 1, begin + 3),
                *([frames("ivector", 0, 1)] if begin == 0 else []),
            ],
            outputs=[frames("output", begin, begin + 4)],
        )
        for begin in (0, 4, 8)
    ]
    computer = ReferenceComputer(nnet, compile_looped(nnet, requests))
    rng = np.random.default_rng(0)
    ivector, rows = rng.standard_normal((1, 2)), rng.standard_normal((16, 2))
    weight = nnet.components[0].params.astype(np.float64)
    for number in range(4):
        chunk = rows[number * 4 : number * 4 + 4]
        given = {"input": chunk, "ivector": ivector} if number == 0 else {"input": chunk}
        expected = np.hstack([chunk, np.repeat(ivector, 4, axis=0)]) @ weight.T

        np.testing.assert_allclose(computer.forward(given)["output"], expected)


class TestRequests:
    """The three requests, and their conditions."""

    def test_chunk_size_is_a_multiple(self) -> None:
        """The chunk size is a multiple of the modulus and of the subsampling factor."""
        nnet = parse_config(NETWORKS["two rates"])

        assert [looped_chunk_size(nnet, size) for size in (1, 3, 4)] == [3, 3, 6]
        assert looped_chunk_size(nnet, 7, frame_subsampling_factor=2) == 12

    def test_integers_of_numpy(self) -> None:
        """NumPy's integers count as integers, and their sums do not wrap around."""
        nnet = parse_config(NETWORKS["i-vector"])

        assert looped_chunk_size(nnet, np.int64(7)) == looped_chunk_size(nnet, 7)
        assert looped_requests(
            nnet, np.int8(100), extra_left_context=np.int8(127), num_sequences=np.int32(2)
        ) == looped_requests(nnet, 100, extra_left_context=127, num_sequences=2)

    def test_rows_of_the_chunks(self) -> None:
        """Each chunk gets the inputs that earlier chunks did not, and i-vectors by their period."""
        nnet = parse_config(NETWORKS["i-vector"])
        requests = looped_requests(
            nnet, 4, ivector_period=2, extra_left_context=2, extra_right_context=1, num_sequences=2
        )
        rows = [
            {io.name: io.indexes[io.indexes[:, 0] == 1, 1].tolist() for io in request.inputs}
            for request in requests
        ]

        assert rows == [
            {"input": [-3, -2, -1, 0, 1, 2, 3, 4], "ivector": [-4, -2, 0, 2, 4]},
            {"input": [5, 6, 7, 8], "ivector": [6, 8]},
            {"input": [9, 10, 11, 12], "ivector": [10, 12]},
        ]

    def test_ivector_period(self) -> None:
        """An i-vector for all frames becomes one for each period."""
        nnet = with_ivector_period(parse_config(NETWORKS["i-vector"]), 5)

        assert "Round(ivector, 5)" in str(nnet.node("last_input").descriptor)


def statistics(left_context: int) -> tuple[Nnet, list[ComputationRequest]]:
    """A network that looks back `left_context` frames, and requests of four frames each."""
    nnet = parse_config(
        stacked(
            2,
            "a StatisticsExtraction input-dim=2",
            f"b StatisticsPooling input-dim=5 left-context={left_context} right-context=0",
        )
    )
    frames = [range(begin, begin + 4) for begin in (0, 4, 8)]
    return nnet, [request_for(each, each) for each in frames]


def test_long_memory_needs_more_segments() -> None:
    """A network that looks back over 40 frames repeats after ten segments of four."""
    computation = compile_looped(*statistics(40))

    assert len(computation.segment_ends) == 11


class TestLifetimes:
    """Matrices exist from their first use to their last."""

    def test_allocation_moves_to_the_first_use(self) -> None:
        """Allocations are just before the first use, deallocations just after the last."""
        program = [
            commands.AllocMatrixZeroed(matrix=1),
            commands.AllocMatrixZeroed(matrix=2),
            commands.AllocMatrixZeroed(matrix=3),
            commands.SetConst(output=1),
            commands.CopyRowsMulti(output=2, indexes_multi=0),
            commands.NoOperationMarker(),
            commands.DeallocMatrix(matrix=1),
            commands.DeallocMatrix(matrix=2),
            commands.DeallocMatrix(matrix=3),
        ]
        made = computation([(1, 2)] * 3, program, indexes_multi=[[[1, 0]]])
        first, last = matrix_use(made)

        assert first[1:].tolist() == [3, 4, -1]
        assert last[1:].tolist() == [4, 4, -1]
        assert list(with_tight_lifetimes(made).commands) == [
            program[0],
            program[3],
            program[1],
            program[4],
            program[6],
            program[7],
            program[5],
        ]

    def test_more_components_than_submatrices(self) -> None:
        """Numbers of components are not taken for numbers of submatrices."""
        program = [
            commands.AllocMatrixZeroed(matrix=1),
            commands.Propagate(component=7, output=1),
            commands.DeallocMatrix(matrix=1),
        ]

        assert list(with_tight_lifetimes(computation([(1, 2)], program)).commands) == program
