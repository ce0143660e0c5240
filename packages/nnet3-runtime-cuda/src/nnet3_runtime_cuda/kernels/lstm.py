"""The nonlinearity of an LSTM with peepholes."""

from __future__ import annotations

import numpy as np
from nnet3_descriptors.components import Component, LstmNonlinearityComponent

from nnet3_runtime_cuda.kernels.base import Backpropagation, Kernel, Propagation
from nnet3_runtime_cuda.kernels.nonlinear import sigmoid, tanh_derivative
from nnet3_runtime_cuda.kernels.registry import kernel_for
from nnet3_runtime_cuda.operations import Array, Tape
from nnet3_runtime_cuda.operations.gradients import FisherEstimate

I_GATE, F_GATE, C_INPUT, O_GATE, CELL = range(5)
"""The five nonlinearities, in the order of statistics and self-repair settings."""

O_PEEPHOLE = 2
"""The row of the parameters for the output gate; the rows before are for i and f."""

NUM_SUMS = 13
"""Over the rows: of five values, five slopes and three gradients."""

WORKING_ARRAYS = 4
"""The number of arrays of the size of dy in the scratch memory of the backward pass."""


@kernel_for(LstmNonlinearityComponent)
class LstmNonlinearityKernel(Kernel):
    """(i_part, f_part, c_part, o_part, c_prev [, i_scale, f_scale, o_scale]) -> (c, m).

    Each part has cell_dim columns; the scales (dropout) one column each. With w_ic, w_fc, w_oc the
    rows of params (3, cell_dim), sigma the logistic function, and products element by element:

        i = sigma(i_part + w_ic c_prev)      f = sigma(f_part + w_fc c_prev)
        c = f_scale f c_prev + i_scale i tanh(c_part)
        o = sigma(o_part + w_oc c)           m = o_scale o tanh(c)

    (H. Sak, A. Senior and F. Beaufays, "Long short-term memory based recurrent neural network
    architectures", 2014.) The backward pass computes the gates anew from the input.
    """

    def prepare(self) -> None:
        """Finds the parameters and turns averages in the component into sums."""
        c = self.component
        self.params = self.store.parameters["params"]
        self.cell_dim = self.params.shape[1]
        # The divisor of sums: the number of rows plus 1.
        self.count_and_one = self.store.state([[c.count + 1.0]])
        self.value_sum = self.store.state(c.value_avg.astype(np.float64) * c.count)
        self.deriv_sum = self.store.state(c.deriv_avg.astype(np.float64) * c.count)
        total = c.self_repair_prob.astype(np.float64) * c.count * self.cell_dim
        self.self_repair_total = self.store.state(total[:, None])
        settings = c.self_repair_config.astype(np.float64)[:, None]
        self.thresholds, self.repair_scales = settings[:5].copy(), settings[5:].copy()
        self.preconditioner = self.store.estimate(
            FisherEstimate(rank=20, update_period=2, num_samples_history=1000.0)
        )

    def with_statistics(self) -> Component:
        """The component with averages made of the sums."""
        count = float(self.count_and_one[0, 0]) - 1.0
        if count == 0.0:
            return self.replaced()
        repaired = self.self_repair_total[:, 0] / (count * self.cell_dim)
        return self.replaced(
            count=count,
            value_avg=(self.value_sum / count).astype(np.float32),
            deriv_avg=(self.deriv_sum / count).astype(np.float32),
            self_repair_prob=repaired.astype(np.float32),
        )

    def _parts(self, a: Array) -> list[Array]:
        """The five parts of an input or its derivative, as views of (rows, cell_dim)."""
        return [a[:, k * self.cell_dim : (k + 1) * self.cell_dim] for k in range(5)]

    def _scales(self, x: Array) -> tuple[Array | None, Array | None, Array | None]:
        """The columns (rows, 1) of the dropout scales of i, f and o; None without dropout."""
        first = 5 * self.cell_dim
        if x.shape[1] == first:
            return None, None, None
        i, f, o = (x[:, k : k + 1] for k in range(first, first + 3))
        return i, f, o

    def _gate(self, tape: Tape, part: Array, weights: Array, cell: Array, out: Array) -> None:
        """Records out = sigma(part + weights cell)."""
        tape.multiply(cell, weights, out)
        tape.add(out, part, out)
        sigmoid(tape, out, out)

    def _inverse_gate(
        self, tape: Tape, part: Array, peepholes: int | slice, cell: Array, out: Array
    ) -> None:
        """Records out = 1 / sigma(part + weights cell) = 1 + exp(-weights cell - part)."""
        if self.store.is_fixed:
            negated = self.store.kept(self.params, ("negated",), lambda: -self.params)
            tape.multiply(cell, negated[peepholes], out)
            tape.subtract(out, part, out)
        else:
            tape.multiply(cell, self.params[peepholes], out)
            tape.add(out, part, out)
            tape.negative(out, out)
        tape.exp(out, out)
        tape.add(out, 1.0, out)

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        tape, (rows, dim) = p.tape, (len(p.x), self.cell_dim)
        _, _, c_part, o_part, c_prev = self._parts(p.x)
        i_scale, f_scale, o_scale = self._scales(p.x)
        c, m = p.y[:, :dim], p.y[:, dim:]
        inverses, term = tape.scratch(rows, 2, dim), tape.scratch(rows, dim)

        # Both gates at once, since calls dominate a step of few rows. For the same reason their
        # input is divided by 1 / sigma, which saves the call for the quotient.
        parts = p.x[:, : 2 * dim].reshape(rows, 2, dim)
        self._inverse_gate(tape, parts, slice(O_PEEPHOLE), c_prev[:, None], inverses)
        tape.divide(c_prev, inverses[:, 1], c)
        _scale(tape, c, f_scale)
        tape.tanh(c_part, term)
        tape.divide(term, inverses[:, 0], term)
        _scale(tape, term, i_scale)
        tape.add(c, term, c)
        self._inverse_gate(tape, o_part, O_PEEPHOLE, c, term)
        tape.tanh(c, m)
        tape.divide(m, term, m)
        _scale(tape, m, o_scale)

    def backprop(self, b: Backpropagation) -> None:
        """Records the backward pass, by blocks of rows that stay in the cache."""
        tape, arrays = b.tape, [b.x, b.dy, *([] if b.dx is None else [b.dx])]
        repair = tape.scratch(5, self.cell_dim)
        self._record_repair(tape, repair)
        size = tape.rows_per_sum(b.dy, arrays=WORKING_ARRAYS)
        sums = tape.scratch(-(-len(b.x) // size), NUM_SUMS, self.cell_dim) if b.update else None
        for number, (x, dy, *dx) in enumerate(tape.row_blocks(*arrays, rows=size)):
            block_sums = None if sums is None else sums[number]
            self._record_backward(tape, x, dy, dx[0] if dx else None, repair, block_sums)
        if sums is not None:
            total = tape.scratch(NUM_SUMS, self.cell_dim)
            tape.column_sum(sums.reshape(len(sums), -1), total.reshape(1, -1))
            self._record_stats(tape, total[:10], len(b.x))
            self._record_update(tape, total[10:])

    def _record_backward(
        self, tape: Tape, x: Array, dy: Array, dx: Array | None, repair: Array, sums: Array | None
    ) -> None:
        """Records the chain rule through the formulas of the class, for some rows.

        Args:
            tape: Records the arithmetic.
            x: (rows, input_dim).
            dy: (rows, output_dim).
            dx: (rows, input_dim) or None.
            repair: (5, cell_dim), the term of self-repair for each nonlinearity.
            sums: (NUM_SUMS, cell_dim) or None, set to sums over the rows: of the five values, of
                their five slopes, and of the gradients of the three peepholes.
        """
        rows, dim = len(x), self.cell_dim
        _, _, c_part, o_part, c_prev = self._parts(x)
        i_scale, f_scale, o_scale = self._scales(x)
        w_oc = self.params[O_PEEPHOLE]
        dc_out, dm = dy[:, :dim], dy[:, dim:]
        o, c, tanh_c_part, tanh_c, slope, term = (tape.scratch(rows, dim) for _ in range(6))
        # Both gates at once, as in the forward pass.
        gates, d_gates, slopes, terms = (tape.scratch(rows, 2, dim) for _ in range(4))
        (i, f), (di_input, df_input) = ((g[:, 0], g[:, 1]) for g in (gates, d_gates))

        def add_up(first: int, values: Array, derivatives: Array) -> None:
            """Records the sums of values and slopes of one or two nonlinearities."""
            if sums is None:
                return
            flat = values.reshape(rows, -1)
            count = flat.shape[1] // dim
            for start, part in ((first, flat), (5 + first, derivatives.reshape(rows, -1))):
                tape.column_sum(part, sums[start : start + count].reshape(1, -1))

        parts = x[:, : 2 * dim].reshape(rows, 2, dim)
        self._gate(tape, parts, self.params[:O_PEEPHOLE], c_prev[:, None], gates)
        tape.tanh(c_part, tanh_c_part)
        tape.multiply(f, c_prev, c)
        _scale(tape, c, f_scale)
        tape.multiply(i, tanh_c_part, term)
        _scale(tape, term, i_scale)
        tape.add(c, term, c)
        self._gate(tape, o_part, w_oc, c, o)
        tape.tanh(c, tanh_c)

        # do = o_scale tanh(c) dm, then through sigma.
        do_input = tape.scratch(rows, dim)
        tape.multiply(tanh_c, dm, do_input)
        _scale(tape, do_input, o_scale)
        _through_sigmoid(tape, o, do_input, repair[O_GATE], slope, term)
        add_up(O_GATE, o, slope)
        # dc = (1 - tanh(c)^2) o_scale o dm + dc_out + do_input w_oc
        dc = tape.scratch(rows, dim)
        tape.multiply(o, dm, dc)
        _scale(tape, dc, o_scale)
        tanh_derivative(tape, tanh_c, slope)
        add_up(CELL, tanh_c, slope)
        tape.multiply(dc, slope, dc)
        tape.add(dc, dc_out, dc)
        tape.multiply(do_input, w_oc, term)
        tape.add(dc, term, dc)
        tape.multiply(tanh_c, repair[CELL], term)
        tape.subtract(dc, term, dc)
        # di and df, through sigma.
        tape.multiply(dc, tanh_c_part, di_input)
        _scale(tape, di_input, i_scale)
        tape.multiply(dc, c_prev, df_input)
        _scale(tape, df_input, f_scale)
        _through_sigmoid(tape, gates, d_gates, repair[:C_INPUT], slopes, terms)
        add_up(I_GATE, gates, slopes)
        tanh_derivative(tape, tanh_c_part, slope)
        add_up(C_INPUT, tanh_c_part, slope)
        if sums is not None:
            products = (c_prev, di_input), (c_prev, df_input), (c, do_input)
            for k, (cell, derivative) in enumerate(products, 10):
                tape.column_sum_of_products(cell, derivative, sums[k : k + 1])
        if dx is None:
            return
        _, _, dc_part, do_part, dc_prev = self._parts(dx)
        tape.copy(d_gates, dx[:, : 2 * dim].reshape(rows, 2, dim))
        tape.copy(do_input, do_part)
        # dc_part = (1 - tanh(c_part)^2) i_scale i dc
        tape.multiply(i, dc, term)
        _scale(tape, term, i_scale)
        tape.multiply(term, slope, dc_part)
        tape.multiply(tanh_c_part, repair[C_INPUT], term)
        tape.subtract(dc_part, term, dc_part)
        # dc_prev = w_ic di_input + w_fc df_input + f_scale f dc
        tape.multiply(f, dc, dc_prev)
        _scale(tape, dc_prev, f_scale)
        tape.multiply(d_gates, self.params[:O_PEEPHOLE], terms)
        tape.add(dc_prev, terms[:, 0], dc_prev)
        tape.add(dc_prev, terms[:, 1], dc_prev)
        for k in range(5 * dim, dx.shape[1]):
            # The dropout scales depend on no parameter.
            tape.fill(0.0, dx[:, k])

    def _record_saturated(self, tape: Tape) -> Array:
        """Records which units are saturated: (5, cell_dim) booleans, in scratch memory."""
        average = tape.scratch(5, self.cell_dim, dtype=np.float64)
        saturated = tape.scratch(5, self.cell_dim, dtype=np.bool_)
        tape.divide(self.deriv_sum, self.count_and_one, average)
        tape.greater(self.thresholds, average, saturated)
        return saturated

    def _record_repair(self, tape: Tape, repair: Array) -> None:
        """Records repair (5, cell_dim): the self-repair scale where a unit is saturated, else 0."""
        tape.multiply(self._record_saturated(tape), self.repair_scales, repair)

    def _record_stats(self, tape: Tape, sums: Array, rows: int) -> None:
        """Records the addition of a minibatch to the statistics.

        Args:
            tape: Records the arithmetic.
            sums: (10, cell_dim), sums over rows: of the values and of their slopes.
            rows: Number of rows.
        """
        number = tape.scratch(5, 1, dtype=np.float64)
        tape.row_sum(self._record_saturated(tape), number)
        tape.multiply(number, float(rows), number)
        tape.add(self.self_repair_total, number, self.self_repair_total)
        tape.add(self.value_sum, sums[:5], self.value_sum)
        tape.add(self.deriv_sum, sums[5:], self.deriv_sum)
        tape.add(self.count_and_one, float(rows), self.count_and_one)

    def _record_update(self, tape: Tape, gradient: Array) -> None:
        """Records the addition of the gradient, (3, cell_dim), which is changed."""
        direction = self.store.directions["params"]
        if self.store.natural_gradient:
            scale = tape.precondition(self.preconditioner, gradient)
            tape.multiply(gradient, scale, gradient)
        tape.add(direction, gradient, direction)


def _scale(tape: Tape, a: Array, scale: Array | None) -> None:
    """Records a *= scale, if there is one."""
    if scale is not None:
        tape.multiply(a, scale, a)


def _through_sigmoid(
    tape: Tape, value: Array, derivative: Array, repair: Array, slope: Array, term: Array
) -> None:
    """Records derivative = derivative * value (1 - value) - (2 value - 1) repair, in place."""
    tape.subtract(1.0, value, slope)
    tape.multiply(slope, value, slope)
    tape.multiply(derivative, slope, derivative)
    tape.multiply(value, 2.0, term)
    tape.subtract(term, 1.0, term)
    tape.multiply(term, repair, term)
    tape.subtract(derivative, term, derivative)
