"""Kaldi archives of matrices as dictionaries, for tests."""

from collections.abc import Mapping
from pathlib import Path

import kaldi_native_io
import numpy as np


def read_archive(path: Path) -> dict[str, np.ndarray]:
    """The matrices of an archive by key, in its order."""
    with kaldi_native_io.SequentialFloatMatrixReader(f"ark:{path}") as reader:
        return {key: np.array(matrix) for key, matrix in reader}


def write_archive(path: Path, matrices: Mapping[str, np.ndarray]) -> str:
    """Write an archive; returns its rspecifier."""
    with kaldi_native_io.FloatMatrixWriter(f"ark:{path}") as writer:
        for key, matrix in matrices.items():
            writer.write(key, matrix.astype(np.float32))
    return f"ark:{path}"


def assert_same_archive(
    actual: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray], tolerance: float = 1e-4
) -> None:
    """Check that two archives have the same keys in the same order, and the same values."""
    assert list(expected) == list(actual)
    for key, matrix in expected.items():
        np.testing.assert_allclose(actual[key], matrix, rtol=0, atol=tolerance, err_msg=key)
