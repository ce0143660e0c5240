"""Kaldi archives as dictionaries, for tests."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from nnet3_tables import read_objects, write_table


def read_archive(path: Path) -> dict[str, np.ndarray]:
    """The matrices of an archive by key, in its order."""
    import kaldi_native_io  # not where dependencies are the oldest

    with kaldi_native_io.SequentialFloatMatrixReader(f"ark:{path}") as reader:
        return {key: np.array(matrix) for key, matrix in reader}


def read_vectors(path: Path) -> dict[str, np.ndarray]:
    """The vectors of an archive by key, in its order."""
    import kaldi_native_io  # not where dependencies are the oldest

    with kaldi_native_io.SequentialFloatVectorReader(f"ark:{path}") as reader:
        return {key: np.array(vector) for key, vector in reader}


def read_by_key(path: Path | str, decode: Callable[..., Any]) -> dict[str, Any]:
    """The objects of an archive by key, in its order."""
    return {entry.key: entry.value for entry in read_objects(f"ark:{path}", decode)}


def write_arrays(table: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes vectors or matrices by key to a table."""
    with write_table(table) as writer:
        for key, array in arrays.items():
            writer.write(key, array)


def write_archive(path: Path, matrices: Mapping[str, np.ndarray]) -> str:
    """Write an archive; returns its rspecifier."""
    import kaldi_native_io  # not where dependencies are the oldest

    with kaldi_native_io.FloatMatrixWriter(f"ark:{path}") as writer:
        for key, matrix in matrices.items():
            writer.write(key, matrix.astype(np.float32))
    return f"ark:{path}"


def assert_same_archive(
    actual: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray],
    tolerance: float = 1e-4,
    *,
    is_relative: bool = False,
) -> None:
    """Check that two archives have the same keys in the same order, and the same values.

    Args:
        actual: What is checked.
        expected: What is expected.
        tolerance: The largest difference of a value.
        is_relative: Whether that is relative to the largest value of all.
    """
    assert list(expected) == list(actual)
    if is_relative:
        tolerance *= max(np.abs(matrix).max() for matrix in expected.values())
    for key, matrix in expected.items():
        np.testing.assert_allclose(actual[key], matrix, rtol=0, atol=tolerance, err_msg=key)
