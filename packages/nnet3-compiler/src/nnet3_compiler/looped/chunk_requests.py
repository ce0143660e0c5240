"""The requests of all chunks, from those of the first three."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors import NetworkError
from nnet3_descriptors.indexes import T, as_rows, moved_indexes

from nnet3_compiler.errors import CompilationError


def shift_of(requests: Sequence[ComputationRequest]) -> int:
    """Returns the number of frames from one chunk to the next.

    Raises:
        CompilationError: There are not three requests, or the third is not the second one, shifted.
    """
    return _shift(*extended_requests(requests, 3)[1:])


def extended_requests(
    requests: Sequence[ComputationRequest], count: int
) -> tuple[ComputationRequest, ...]:
    """Returns `count` requests: the three given ones, and further ones like the third.

    Raises:
        CompilationError: The third request is not the second one, shifted in time, or a further
            one has a t beyond 32 bits.
    """
    _check_three(requests)
    second, third = requests[1:]
    shift = _shift(second, third)
    if shift <= 0 or moved_request(second, shift) != third:
        raise CompilationError(
            "the third request of a looped computation must be the second one, shifted in time"
        )
    return tuple(chunk_request(requests, shift, number) for number in range(count))


def chunk_request(
    requests: Sequence[ComputationRequest], shift: int, number: int
) -> ComputationRequest:
    """Returns the request of a chunk, from 0, without checking the first three.

    Raises:
        CompilationError: It has a t beyond 32 bits.
    """
    return requests[number] if number < 3 else moved_request(requests[2], (number - 2) * shift)


def _check_three(requests: object) -> None:
    found = len(requests) if isinstance(requests, Sequence) else type(requests).__name__
    if found != 3:
        raise CompilationError(f"a looped computation needs three requests (got {found})")


def _shift(second: ComputationRequest, third: ComputationRequest) -> int:
    """Returns how many frames the third chunk comes after the second."""
    return int(third.inputs[0].indexes[0, T]) - int(second.inputs[0].indexes[0, T])


def moved_request(request: ComputationRequest, shift: int) -> ComputationRequest:
    """Returns a request, that many frames later.

    Raises:
        CompilationError: It has a t beyond 32 bits.
    """

    def moved(io: IoSpecification) -> IoSpecification:
        reader = f"'{io.name}' of a further chunk of the looped computation"
        try:
            return attrs.evolve(io, indexes=as_rows(moved_indexes(io.indexes, shift, 0), reader))
        except NetworkError as error:
            raise CompilationError(str(error)) from error

    return ComputationRequest(
        inputs=tuple(map(moved, request.inputs)),
        outputs=tuple(map(moved, request.outputs)),
        need_model_derivative=request.need_model_derivative,
        store_component_stats=request.store_component_stats,
    )
