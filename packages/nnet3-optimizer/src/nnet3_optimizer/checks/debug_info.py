"""Debug info has an entry for every row of every matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import numpy as np
from nnet3_computation.arrays import Bools, where
from nnet3_computation.checks import Subject
from nnet3_computation.computation import MatrixDebugInfo, N
from nnet3_descriptors.structure import node_dims


def check_debug_info(subject: Subject) -> None:
    """Checks debug info, where there is any.

    1. A matrix has as many rows as its debug info, and as many columns as the node has dimensions.
    2. No row belongs to a negative n.
    """
    computation = subject.computation
    infos = computation.matrix_debug_info[1:]
    if not infos:
        return
    # There are thousands of entries, so the loop does as little as possible.
    patterns = [info.pattern for info in infos]
    node = np.array([each.item(0) if len(each) else -1 for each in patterns])
    count = np.array([len(each) for each in patterns])
    count *= np.maximum([len(info.sequences) for info in infos], 1)
    rows, cols = computation.matrices[1:].T
    dims = node_dims(subject.nnet)
    wrong = node >= len(dims)
    wrong |= count != rows
    wrong |= dims[np.where(wrong, 0, node)] != cols
    wrong |= _has_negative_n(infos)
    wrong &= node >= 0  # the others have no debug info
    if wrong.any():
        first = int(where(wrong)[0])
        _fail(subject, first + 1, infos[first], int(rows[first]), int(cols[first]))


def _has_negative_n(infos: Sequence[MatrixDebugInfo]) -> Bools:
    # Most share their sequences, and it costs less to check all numbers at once.
    numbers = [info.sequences if len(info.sequences) else info.pattern[:, N] for info in infos]
    distinct = {id(each): each for each in numbers}.values()
    if np.concatenate(list(distinct)).min(initial=0) >= 0:
        return np.zeros(len(infos), dtype=np.bool_)
    return np.array([bool((each < 0).any()) for each in numbers])


def _fail(subject: Subject, matrix: int, info: MatrixDebugInfo, rows: int, cols: int) -> NoReturn:
    """Says what is wrong with the debug info of a matrix of this size."""
    nodes = subject.nnet.nodes
    if info.num_rows != rows:
        subject.fail(f"debug info of m{matrix} is of {info.num_rows} rows, expected {rows}")
    if info.node >= len(nodes):
        subject.fail(f"debug info of m{matrix} names node {info.node} of {len(nodes)}")
    name = nodes[info.node].name
    dim = subject.nnet.node_dim(name)
    if dim != cols:
        subject.fail(
            f"m{matrix} has {cols} columns, expected {dim} (the dimension of node '{name}', "
            "says its debug info)"
        )
    subject.fail(f"debug info of m{matrix} has a negative n")
