"""The TDNN component: an affine map of several frames of the input, spliced without copying."""

from __future__ import annotations

from nnet3_descriptors.components import TdnnComponent

from ..tape import Array
from .affine import TRANSPOSED_ROWS
from .affine_gradient import AffinePreconditioner, in_out_options, record_affine_gradient
from .base import Backpropagation, Kernel, Propagation, kernel_for
from .time_offsets import rows_at_offsets


@kernel_for(TdnnComponent)
class TdnnKernel(Kernel):
    """y(t) = sum over offsets o_i of x(t + o_i) A_i^T, + b.

    A = [A_0 A_1 ...] is (output_dim, number of offsets * input_dim). The rows of the input are so
    ordered that x(t + o_i), for all rows of the output, is a slice: from a row offset on, with a
    row stride.
    """

    sets_gradient = True

    def prepare(self) -> None:
        """Finds the parameters and sets up the preconditioner."""
        self.linear = self.store.parameters["linear_params"]
        self.has_bias = self.component.bias_params.size > 0
        self.bias = self.store.parameters.get("bias_params")
        self.preconditioner = AffinePreconditioner(*in_out_options(self.component))

    def _columns(self, matrix: Array) -> list[Array]:
        """The columns of a parameter matrix that belong to each time offset, as views."""
        width = self.component.input_dim
        return [matrix[:, k : k + width] for k in range(0, matrix.shape[1], width)]

    def propagate(self, p: Propagation) -> None:
        """Records y = sum of x_i A_i^T, + b; or y += that, without bias."""
        add = p.add and not self.has_bias
        parts = rows_at_offsets(p.x, p.indexes, len(p.y))
        for x, linear in zip(parts, self._columns(self.linear), strict=True):
            weights = self.store.transposed(linear, pays=len(p.y) in TRANSPOSED_ROWS)
            p.tape.matmul(x, weights, p.y, add=add)
            add = True
        if self.has_bias:
            p.tape.add(p.y, self.bias, p.y)  # type: ignore[arg-type]

    def backprop(self, b: Backpropagation) -> None:
        """Records dx_i += dy A_i for each offset, and the gradient."""
        num_rows = len(b.dy)
        if b.dx is not None:
            if not b.add:
                b.tape.fill(0.0, b.dx)
            parts = rows_at_offsets(b.dx, b.indexes, num_rows)
            for dx, linear in zip(parts, self._columns(self.linear), strict=True):
                b.tape.matmul(b.dy, linear, dx, add=True)
        if b.update:
            self._update(b, rows_at_offsets(b.x, b.indexes, num_rows))

    def _update(self, b: Backpropagation, parts: list[Array]) -> None:
        directions = self.store.directions
        linear = directions["linear_params"]
        bias = directions["bias_params"] if self.has_bias else None
        if self.store.natural_gradient and self.component.use_natural_gradient:
            self.preconditioner.record(b.tape, parts, b.dy, linear, bias, first=b.first)
        else:
            record_affine_gradient(b.tape, parts, b.dy, linear, bias, first=b.first)
