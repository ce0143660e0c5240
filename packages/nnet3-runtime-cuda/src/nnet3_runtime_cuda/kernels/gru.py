"""The nonlinearities of gated recurrent units."""

from __future__ import annotations

from functools import partial

import numpy as np
from nnet3_descriptors import components

from nnet3_runtime_cuda.kernels.base import Backpropagation, Kernel, Propagation
from nnet3_runtime_cuda.kernels.nonlinear import tanh_derivative
from nnet3_runtime_cuda.kernels.parameters import (
    add_total,
    record_affine_gradient,
    record_product,
    record_vector_update,
)
from nnet3_runtime_cuda.kernels.registry import kernel_for
from nnet3_runtime_cuda.operations import Array, Tape
from nnet3_runtime_cuda.operations.gradients import AffineGradient, FisherEstimate, sides_of


class _GruKernel(Kernel):
    """The common base of both units: c = (1 - z) h + z c_prev, and the statistics of the tanh.

    Attributes:
        z_at, hpart_at, c_prev_at: The columns of these parts in the input.
    """

    z_at: slice
    hpart_at: slice
    c_prev_at: slice

    def prepare(self) -> None:
        """Finds the parameters and turns averages in the component into sums."""
        c = self.component
        self.w_h = self.store.parameters["w_h"]
        self.count = float(c.count)
        self.value_sum = self.store.state(c.value_avg.astype(np.float64) * self.count)
        self.deriv_sum = self.store.state(c.deriv_avg.astype(np.float64) * self.count)
        self.self_repair_total = self.store.state([[c.self_repair_total]])

    def with_statistics(self) -> components.Component:
        """The component with averages made of the sums."""
        if self.count == 0.0:
            return self.replaced()
        return self.replaced(
            count=self.count,
            value_avg=(self.value_sum / self.count).astype(np.float32),
            deriv_avg=(self.deriv_sum / self.count).astype(np.float32),
            self_repair_total=float(self.self_repair_total[0, 0]),
        )

    # ---- what the units differ in ----

    def _record_recurrent(self, tape: Tape, x: Array, out: Array) -> None:
        """Records out = the part of the argument of the tanh that depends on the unit before."""
        raise NotImplementedError

    def _backprop_recurrent(self, b: Backpropagation, da: Array) -> None:
        """Records the backward pass of `_record_recurrent`, and the gradient of w_h."""
        raise NotImplementedError

    # ---- what they share ----

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        tape, dim = p.tape, self.component.cell_dim
        h, c = p.y[:, :dim], p.y[:, dim:]
        self._record_recurrent(tape, p.x, h)
        tape.add(h, p.x[:, self.hpart_at], h)
        tape.tanh(h, h)
        # c = h + z (c_prev - h)
        tape.subtract(p.x[:, self.c_prev_at], h, c)
        tape.multiply(p.x[:, self.z_at], c, c)
        tape.add(c, h, c)

    def backprop(self, b: Backpropagation) -> None:
        """Records the backward pass."""
        if b.dx is not None and not b.add:
            b.tape.fill(0.0, b.dx)
        da = self._record_cell_backward(b)
        if b.dx is not None:
            b.tape.add(b.dx[:, self.hpart_at], da, b.dx[:, self.hpart_at])
        self._backprop_recurrent(b, da)

    def _record_cell_backward(self, b: Backpropagation) -> Array:
        """Records the backward pass of c = (1 - z) h + z c_prev.

        Adds to the columns of z and c_prev in dx; returns scratch memory with the derivative with
        respect to the argument of the tanh whose value is h, self-repair included.
        """
        tape, dim = b.tape, self.component.cell_dim
        h, z, c_prev = b.y[:, :dim], b.x[:, self.z_at], b.x[:, self.c_prev_at]
        dh_out, dc = b.dy[:, :dim], b.dy[:, dim:]
        term, dh = tape.scratch(*dc.shape), tape.scratch(*dc.shape)
        if b.dx is not None:
            tape.subtract(c_prev, h, term)
            tape.multiply(term, dc, term)
            tape.add(b.dx[:, self.z_at], term, b.dx[:, self.z_at])
        tape.multiply(dc, z, term)
        if b.dx is not None:
            tape.add(b.dx[:, self.c_prev_at], term, b.dx[:, self.c_prev_at])
        tape.subtract(dc, term, dh)
        tape.add(dh, dh_out, dh)
        tanh_derivative(tape, h, term)
        tape.multiply(dh, term, dh)
        if b.update:
            self._record_stats_and_repair(tape, h, term, dh)
        return dh

    def _record_stats_and_repair(self, tape: Tape, h: Array, slope: Array, dh: Array) -> None:
        """On about every other minibatch, records statistics of the tanh and repairs dh."""
        c, dim = self.component, h.shape[1]
        limit = tape.scratch(1, dtype=np.float64)
        with tape.when(tape.value(partial(self._counts, len(h)))):
            sums = tape.scratch(2, dim)
            tape.column_sum(h, sums[:1])
            tape.column_sum(slope, sums[1:])
            tape.add(self.value_sum, sums[0], self.value_sum)
            tape.add(self.deriv_sum, sums[1], self.deriv_sum)
            saturated = tape.scratch(1, dim, dtype=np.bool_)
            tape.multiply(tape.value(lambda: self.count), c.self_repair_threshold, limit)
            tape.greater(limit, self.deriv_sum, saturated[0])
            add_total(tape, saturated[0], self.self_repair_total)
            repair = tape.scratch(1, dim)
            tape.multiply(saturated, -c.self_repair_scale / 0.5, repair)
            tape.multiply(h, repair, slope)
            tape.add(dh, slope, dh)

    def _counts(self, rows: int) -> bool:
        if not self.chance(0.5):
            return False
        self.count += rows
        return True


@kernel_for(components.GruNonlinearityComponent)
class GruNonlinearityKernel(_GruKernel):
    """(z, r, hpart, c_prev [, s_prev]) -> (h, c), with s_prev = c_prev if there is no projection.

        h = tanh(hpart + (s_prev r) W^T)      c = (1 - z) h + z c_prev

    z, hpart, c_prev have cell_dim columns, r and s_prev recurrent_dim; W = w_h is
    (cell_dim, recurrent_dim). Products of matrices of equal shape are element by element.
    """

    def prepare(self) -> None:
        """Sets up the preconditioner and the positions of the parts."""
        super().prepare()
        c = self.component
        cell, recurrent = c.cell_dim, c.recurrent_dim
        self.z_at = slice(0, cell)
        self.r_at = slice(cell, cell + recurrent)
        self.hpart_at = slice(cell + recurrent, 2 * cell + recurrent)
        self.c_prev_at = slice(2 * cell + recurrent, 3 * cell + recurrent)
        self.s_prev_at = slice(c.input_dim - recurrent, c.input_dim)
        self.sides = self.store.both_estimates(sides_of(c))

    def _record_recurrent(self, tape: Tape, x: Array, out: Array) -> None:
        """Records out = (s_prev r) W^T."""
        record_product(self.store, tape, self._gated(tape, x), self.w_h, out)

    def _gated(self, tape: Tape, x: Array) -> Array:
        gated = tape.scratch(len(x), self.component.recurrent_dim)
        tape.multiply(x[:, self.r_at], x[:, self.s_prev_at], gated)
        return gated

    def _backprop_recurrent(self, b: Backpropagation, da: Array) -> None:
        """Records the backward pass of (s_prev r) W^T."""
        tape, r, s_prev = b.tape, b.x[:, self.r_at], b.x[:, self.s_prev_at]
        if b.update:
            gradient = AffineGradient([self._gated(tape, b.x)], da, self.store.directions["w_h"])
            record_affine_gradient(tape, gradient, self.natural(self.sides))
        if b.dx is None:
            return
        dgated, term = tape.scratch(*r.shape), tape.scratch(*r.shape)
        tape.matmul(da, self.w_h, dgated)
        tape.multiply(dgated, s_prev, term)
        tape.add(b.dx[:, self.r_at], term, b.dx[:, self.r_at])
        tape.multiply(dgated, r, term)
        tape.add(b.dx[:, self.s_prev_at], term, b.dx[:, self.s_prev_at])


@kernel_for(components.OutputGruNonlinearityComponent)
class OutputGruNonlinearityKernel(_GruKernel):
    """(z, hpart, c_prev) -> (h, c): h = tanh(hpart + w_h c_prev), c = (1 - z) h + z c_prev.

    All have cell_dim columns; w_h is a vector, and products are element by element.
    """

    def prepare(self) -> None:
        """Sets up the preconditioner and the positions of the parts."""
        super().prepare()
        c = self.component
        dim = c.cell_dim
        self.z_at, self.hpart_at, self.c_prev_at = (slice(k * dim, (k + 1) * dim) for k in range(3))
        self.preconditioner = self.store.estimate(
            FisherEstimate(rank=c.rank, update_period=c.update_period, alpha=c.alpha)
        )

    def _record_recurrent(self, tape: Tape, x: Array, out: Array) -> None:
        """Records out = w_h c_prev."""
        tape.multiply(x[:, self.c_prev_at], self.w_h, out)

    def _backprop_recurrent(self, b: Backpropagation, da: Array) -> None:
        """Records the backward pass of w_h c_prev."""
        tape, term = b.tape, b.tape.scratch(*da.shape)
        if b.update:
            tape.multiply(b.x[:, self.c_prev_at], da, term)
            natural, direction = self.natural(self.preconditioner), self.store.directions["w_h"]
            record_vector_update(tape, term, direction, natural, is_scratch=True)
        if b.dx is not None:
            tape.multiply(da, self.w_h, term)
            tape.add(b.dx[:, self.c_prev_at], term, b.dx[:, self.c_prev_at])
