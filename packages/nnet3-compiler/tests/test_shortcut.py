"""Requests that the shortcut reduces to one sequence, and those that it does not."""

import pytest
from nnet3_compiler.shortcut import reduce_requests
from nnet3_computation import ComputationRequest, IoSpecification


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
