"""Components that pick rows, or blocks of rows, of the input by precomputed numbers."""

from __future__ import annotations

import numpy as np
from nnet3_descriptors.components import DistributeComponent, TdnnComponent
from numpy.typing import NDArray

from nnet3_runtime_reference.draws import Array
from nnet3_runtime_reference.formulas.formula import Call, Formula, formula


def rows_at(call: Call, k: int) -> NDArray[np.intp]:
    """Returns the input row that each output row sees at the k-th time offset, (rows_out,).

    Output row i sees the input row i * row_stride + row_offsets[k].
    """
    rows = np.arange(call.rows_out) * call.indexes.row_stride + call.indexes.row_offsets[k]
    return np.asarray(rows, dtype=np.intp)


@formula(TdnnComponent)
class Tdnn(Formula):
    """y(t) = sum over k of W_k x(t + time offset k) + b.

    linear_params has the W_k side by side, each (output_dim, input_dim); b is bias_params, which
    may be missing.

    V. Peddinti, D. Povey, S. Khudanpur, "A time delay neural network architecture for efficient
    modeling of long temporal contexts", Interspeech 2015.
    """

    def _blocks(self, call: Call) -> list[Array]:
        """Returns the W_k."""
        count = len(call.component.time_offsets)
        return np.split(call.parameter("linear_params"), count, axis=1)

    def forward(self, call: Call) -> Array:
        """Returns y; the bias only if there is one."""
        y = call.zeros_out()
        for k, w in enumerate(self._blocks(call)):
            y += call.x[rows_at(call, k)] @ w.T
        bias = call.parameter("bias_params")
        return y + bias if bias.size else y

    def backward(self, call: Call) -> Array:
        """dx(t + time offset k) = sum over k of W_k^T dy(t)."""
        dx = call.zeros_in()
        for k, w in enumerate(self._blocks(call)):
            dx[rows_at(call, k)] += call.dy @ w  # one offset names no row twice
        return dx

    def gradient(self, call: Call) -> dict[str, Array]:
        """dW_k = sum over t of dy(t) x(t + time offset k)^T; db = sum over t of dy(t)."""
        offsets = range(len(call.component.time_offsets))
        linear = [call.dy.T @ call.x[rows_at(call, k)] for k in offsets]
        gradient: dict[str, Array] = {"linear_params": np.concatenate(linear, axis=1)}
        if call.component.bias_params.size:
            gradient["bias_params"] = call.dy.sum(axis=0)
        return gradient


@formula(DistributeComponent)
class Distribute(Formula):
    """y(i) = block source_blocks[i] of x, where the blocks are counted along its rows.

    A row of x is input_dim / output_dim blocks of output_dim columns.
    """

    def forward(self, call: Call) -> Array:
        """Returns the blocks."""
        blocks = call.x.reshape(-1, call.component.output_dim)
        y: Array = blocks[call.indexes.source_blocks]
        return y

    def backward(self, call: Call) -> Array:
        """dx has each row of dy in the place of its block; other blocks are 0."""
        dx = call.zeros_in()
        blocks = dx.reshape(-1, call.component.output_dim)  # a view
        for row, block in enumerate(call.indexes.source_blocks):
            blocks[block] += call.dy[row]
        return dx
