"""The reference data itself is complete: every case has its files, and their shapes agree."""

import numpy as np
from reference_cases import ReferenceCase, case_names, parametrize_cases


def test_number_of_cases() -> None:
    """All 89 cases are found."""
    assert len(case_names("component")) == 59
    assert len(case_names("network")) == 30


@parametrize_cases()
def test_arrays_fit_the_request(case: ReferenceCase) -> None:
    """Each input and output of the request has an array with one row for each of its indexes."""
    given, expected = case.node_arrays("input"), case.node_arrays("output")

    assert {io.name for io in case.request.inputs} == set(given)
    assert {io.name for io in case.request.outputs} == set(expected)
    for io in (*case.request.inputs, *case.request.outputs):
        array = given.get(io.name, expected.get(io.name))
        assert array is not None
        assert array.dtype == np.float32
        assert len(array) == len(io.indexes)
