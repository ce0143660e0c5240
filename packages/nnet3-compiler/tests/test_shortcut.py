"""Patterns of one sequence, and the rows of all sequences that they stand for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnet3_compiler.shortcut import Minibatch, reduce_requests
from nnet3_computation import ComputationRequest, IoSpecification


@st.composite
def patterns(draw: st.DrawFn) -> tuple[Minibatch, np.ndarray, int]:
    """A number of sequences, the rows of one, and a block size that divides them."""
    sequences = sorted(draw(st.sets(st.integers(0, 9), min_size=1, max_size=4)))
    block = draw(st.integers(1, 3))
    rows = block * draw(st.integers(1, 3))
    pattern = np.zeros((rows, 3), np.int32)
    pattern[:, 0] = sequences[0]
    pattern[:, 1] = draw(st.permutations(range(rows)))
    return Minibatch(np.array(sequences, np.int32)), pattern, block


class TestMinibatch:
    """The order of rows of several sequences."""

    @given(patterns())
    def test_all_rows_are_there_once(self, example: tuple[Minibatch, np.ndarray, int]) -> None:
        """Every sequence has every row of the pattern, in blocks."""
        minibatch, pattern, block = example
        rows = minibatch.indexes(pattern, block)

        assert len(np.unique(rows, axis=0)) == len(pattern) * minibatch.size
        for number, n in enumerate(minibatch.sequences.tolist()):
            own = np.flatnonzero(rows[:, 0] == n)
            assert rows[own, 1].tolist() == pattern[:, 1].tolist()
            assert own[0] == number * block

    @given(patterns())
    def test_first_of_is_the_inverse(self, example: tuple[Minibatch, np.ndarray, int]) -> None:
        """Pattern and block are found again (a block of all rows can replace smaller ones)."""
        minibatch, pattern, block = example
        found = minibatch.first_of(minibatch.indexes(pattern, block))

        assert found is not None
        assert np.array_equal(found[0], pattern)
        assert found[1] == (block if minibatch.size > 1 else len(pattern))

    @given(patterns(), st.integers(1, 3), st.data())
    def test_rows_map_to_the_same_sequence(
        self,
        example: tuple[Minibatch, np.ndarray, int],
        source_block: int,
        data: st.DataObject,
    ) -> None:
        """A mapping of pattern rows becomes a mapping of all rows within their sequences."""
        minibatch, pattern, block = example
        source = np.zeros((source_block * 2, 3), np.int32)
        source[:, 0], source[:, 1] = minibatch.sequences[0], 100 + np.arange(len(source))
        choice = st.integers(-1, len(source) - 1)
        mapping = np.array([data.draw(choice) for _ in range(len(pattern))], np.int32)

        full = minibatch.rows(mapping, source_block, block)

        rows = minibatch.indexes(pattern, block)
        source_rows = minibatch.indexes(source, source_block)
        t_of_row = dict(zip(pattern[:, 1].tolist(), mapping.tolist(), strict=True))
        for (n, t, _), place in zip(rows.tolist(), full.tolist(), strict=True):
            if t_of_row[t] < 0:
                assert place == -1
            else:
                assert source_rows[place].tolist() == [n, int(source[t_of_row[t], 1]), 0]


def request_of(inputs: list, outputs: list) -> ComputationRequest:
    """A request with these rows."""
    return ComputationRequest(
        inputs=[IoSpecification(name="input", indexes=inputs)],
        outputs=[IoSpecification(name="output", indexes=outputs)],
    )


class TestReduceRequest:
    """Requests with and without a pattern."""

    def test_regular_request(self) -> None:
        """Sequences with equal rows are reduced to the first; each list has its own order."""
        request = request_of(
            [(n, t, 0) for n in (3, 5, 6) for t in (0, 1, 2)],
            [(n, t, 0) for t in (0, 2) for n in (3, 5, 6)],
        )
        reduced = reduce_requests([request])

        assert reduced is not None
        assert reduced.minibatch.sequences.tolist() == [3, 5, 6]
        assert reduced.blocks == [{"input": 3, "output": 1}]
        assert reduced.requests[0].inputs[0].indexes.tolist() == [[3, 0, 0], [3, 1, 0], [3, 2, 0]]

    @pytest.mark.parametrize(
        ("inputs", "outputs"),
        [
            ([(0, 0, 0), (0, 1, 0)], [(0, 0, 0)]),
            ([(0, 0, 0), (1, 0, 0)], [(0, 0, 0)]),
            ([(0, 0, 0), (1, 0, 0), (1, 1, 0)], [(0, 0, 0), (1, 0, 0)]),
            ([(0, 0, 0), (1, 0, 0)], [(1, 0, 0), (0, 0, 0)]),
            ([(0, 0, 0), (0, 1, 0), (1, 1, 0), (1, 0, 0)], [(0, 0, 0), (1, 0, 0)]),
        ],
        ids=["one sequence", "a sequence lacks", "ragged", "not ascending", "orders differ"],
    )
    def test_irregular_requests(self, inputs: list, outputs: list) -> None:
        """All other requests are compiled row by row."""
        assert reduce_requests([request_of(inputs, outputs)]) is None
