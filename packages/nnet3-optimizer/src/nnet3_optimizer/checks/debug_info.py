"""Debug info says of every row of every matrix what it stands for."""

from __future__ import annotations

from nnet3_compiler.debug_info import MatrixDebugInfo, N

from nnet3_optimizer.checks.subject import Subject


def check_debug_info(subject: Subject) -> None:
    """Checks debug info, where there is any.

    1. A matrix has as many rows as its debug info, and as many columns as the node has dimensions.
    2. No row belongs to a negative n.
    """
    computation = subject.computation
    nodes = subject.nnet.nodes
    for matrix, info in enumerate(computation.matrix_debug_info):
        if matrix == 0 or info.node < 0:
            continue
        rows, cols = computation.matrices[matrix].tolist()
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
        if _least_n(info) < 0:
            subject.fail(f"debug info of m{matrix} has a negative n")


def _least_n(info: MatrixDebugInfo) -> int:
    numbers = info.sequences if len(info.sequences) else info.pattern[:, N]
    return int(numbers.min(initial=0))
