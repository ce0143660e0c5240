"""Splitting requests by sequences."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from nnet3.sequence_groups import num_sequences, sequence_groups
from nnet3_computation import ComputationRequest, IoSpecification

N, T = 0, 1


@st.composite
def requests(draw: st.DrawFn) -> ComputationRequest:
    """Requests for sequences of any lengths and numbers, with rows in any order."""
    numbers = draw(st.lists(st.integers(0, 12), min_size=1, max_size=6, unique=True))
    lengths = [draw(st.integers(1, 4)) for _ in numbers]
    rows = [(n, t, 0) for n, length in zip(numbers, lengths, strict=True) for t in range(length)]
    ios = [
        IoSpecification(name=name, indexes=np.array(draw(st.permutations(rows)), dtype=np.int32))
        for name in ("input", "output")
    ]
    return ComputationRequest(inputs=ios[:1], outputs=ios[1:])


@given(requests(), st.integers(1, 4))
def test_groups_have_each_row_once(request: ComputationRequest, count: int) -> None:
    """Each row is in one group, with its t; all rows of a sequence are in the same group."""
    groups = sequence_groups(request, count)

    assert len(groups) == min(count, num_sequences(request))
    (output,) = request.outputs
    rows = np.arange(len(output.indexes))
    found = [rows[group.output_rows["output"]] for group in groups]
    assert sorted(np.concatenate(found).tolist()) == rows.tolist()
    seen: set[int] = set()
    for group, own in zip(groups, found, strict=True):
        (part,) = group.request.outputs
        np.testing.assert_array_equal(part.indexes[:, T], output.indexes[own, T])
        own_numbers, place = np.unique(output.indexes[own, N], return_inverse=True)
        np.testing.assert_array_equal(part.indexes[:, N], place)
        assert not set(own_numbers) & seen
        seen |= set(own_numbers)


@given(requests(), st.integers(1, 4))
def test_groups_differ_by_a_sequence(request: ComputationRequest, count: int) -> None:
    """Numbers of rows of two groups differ by at most the longest sequence."""
    sizes = [len(group.request.outputs[0].indexes) for group in sequence_groups(request, count)]
    longest = max(np.unique(request.outputs[0].indexes[:, N], return_counts=True)[1])

    assert max(sizes) - min(sizes) <= longest


def test_groups_of_equal_sequences_are_equal() -> None:
    """Groups of equally many equal sequences share a request, and their rows are slices."""
    request = ComputationRequest(
        inputs=[IoSpecification.from_range("input", -2, 5, 6)],
        outputs=[IoSpecification.from_range("output", 0, 3, 6)],
    )
    first, second = sequence_groups(request, 2)

    assert first.request == second.request
    assert first.input_rows == {"input": slice(0, 21, 1)}
    assert second.output_rows == {"output": slice(9, 18, 1)}


def test_output_of_some_sequences() -> None:
    """A group omits outputs that none of its sequences has, and inputs that it does not need."""
    request = ComputationRequest(
        inputs=[IoSpecification.from_range("input", 0, 2, 3)],
        outputs=[
            IoSpecification.from_range("output", 0, 2, 2),
            IoSpecification.from_range("other", 0, 1),
        ],
    )
    first, second = sequence_groups(request, 5)

    assert [io.name for io in first.request.outputs] == ["output", "other"]
    assert [io.name for io in second.request.outputs] == ["output"]
    assert second.input_rows == {"input": slice(2, 4, 1)}
