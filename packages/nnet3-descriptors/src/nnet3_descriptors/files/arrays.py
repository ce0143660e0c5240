"""Files that hold one matrix or vector."""

import numpy as np
from numpy.typing import NDArray

from nnet3_descriptors.files.source import PathOrFile, leave_behind, open_reader


def read_matrix(source: PathOrFile) -> NDArray[np.float32]:
    """Reads a matrix, binary or text, of single or double precision, or compressed.

    Returns:
        (rows, cols) float32, read-only.

    Raises:
        ModelFileError: the file cannot be read or holds no matrix.
    """
    reader = open_reader(source)
    matrix = reader.matrix()
    leave_behind(source, reader)
    return matrix


def read_vector(source: PathOrFile) -> NDArray[np.float32]:
    """Reads a vector, binary or text, of single or double precision.

    Returns:
        (size,) float32, read-only.

    Raises:
        ModelFileError: the file cannot be read or holds no vector.
    """
    reader = open_reader(source)
    vector = reader.vector()
    leave_behind(source, reader)
    return vector
