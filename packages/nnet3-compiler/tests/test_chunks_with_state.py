"""Chunks with state: their inputs, their outputs, and the state that they hand on."""

from nnet3_compiler import chunks_with_state, looped_requests
from nnet3_computation import IoSpecification
from nnet3_descriptors import parse_config
from small_networks import stacked

RECURRENT = stacked(
    2,
    "affine Affine input-dim=8 output-dim=2",
    "tanh Tanh dim=2",
    splice="Append(Offset(input, -1), input, Offset(input, 1), IfDefined(Offset(tanh, -3)))",
)

OPTIONAL_INPUT = stacked(
    2,
    "ahead NoOp dim=2 input=Offset(input, 1)",
    "tdnn Tdnn input-dim=2 output-dim=2 time-offsets=-2,0 "
    "input=Sum(input, IfDefined(Offset(ahead, 3)))",
)


def times(io: IoSpecification) -> list[int]:
    """The times of the rows."""
    return io.indexes[:, 1].tolist()


def test_the_state_of_a_recurrence() -> None:
    """The state has three frames of the recurrence, and the input frame that is read again."""
    nnet = parse_config(RECURRENT)

    chunks = chunks_with_state(nnet, looped_requests(nnet, 4))
    first, second = chunks.chunks

    assert [(io.name, times(io)) for io in first.request.inputs] == [
        ("input", [-1, 0, 1, 2, 3, 4]),
    ]
    assert [(io.name, times(io)) for io in first.request.outputs] == [
        ("output", [0, 1, 2, 3]),
        ("tanh.state", [1, 2, 3]),
    ]
    assert [(io.name, times(io)) for io in second.request.inputs] == [
        ("input", [-1, 0, 1, 2, 3, 4]),
        ("tanh", [-3, -2, -1]),
    ]
    assert first.state_outputs == second.state_outputs == (("tanh", "tanh.state"),)
    assert chunks.shift == 4
    assert chunks.chunk(1000) is second


def test_several_sequences() -> None:
    """The rows of each sequence are consecutive."""
    nnet = parse_config(RECURRENT)

    request = chunks_with_state(nnet, looped_requests(nnet, 4)).chunks[1].for_sequences(3)

    indexes = request.inputs[1].indexes
    assert indexes[:, 0].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert indexes[:, 1].tolist() == [-3, -2, -1] * 3


def test_inputs_with_optional_terms_are_kept() -> None:
    """A spliced input with optional terms is kept as state, not spliced again with more terms."""
    nnet = parse_config(OPTIONAL_INPUT)

    chunks = chunks_with_state(nnet, looped_requests(nnet, 4))

    assert "tdnn.kept" in chunks.nnet.node_names
    assert {io.name: times(io) for io in chunks.chunks[-1].request.inputs}["tdnn.kept"] == [-2, -1]


def test_names_of_states_are_new() -> None:
    """The output for a state gets a name that no node has."""
    nnet = parse_config(f"{RECURRENT}\noutput-node name=tanh.state input=tanh")

    chunks = chunks_with_state(nnet, looped_requests(nnet, 4))

    assert chunks.chunks[0].state_outputs == (("tanh", "tanh.state_"),)
