"""The gates and cells of recurrent layers: LSTM and GRU.

Self-repair: if the derivative of a sigmoid or tanh is small on average, the unit is saturated, and
the derivative at its input gets a term that drives the input back towards 0. The backward pass
stores statistics and does self-repair.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
from nnet3_descriptors import components

from nnet3_runtime_reference.draws import Array
from nnet3_runtime_reference.formulas.formula import Call, Formula, formula
from nnet3_runtime_reference.formulas.nonlinear import sigmoid

_REPAIR_PROBABILITY = 0.5  # GRUs: part of the minibatches; the strength is divided by it


@attrs.frozen(eq=False)
class _Lstm:
    """The values of an LSTM, each (rows, cell_dim), except the scales, which are (rows, 1).

    Attributes:
        c_prev: The old cell, c'.
        i: The input gate.
        f: The forget gate.
        g: The cell input.
        o: The output gate.
        c: The new cell.
        h: Its tanh.
        scales: The masks of input gate, forget gate and output gate.
    """

    c_prev: Array
    i: Array
    f: Array
    g: Array
    o: Array
    c: Array
    h: Array
    scales: tuple[Array, Array, Array]

    @classmethod
    def of(cls, call: Call) -> _Lstm:
        """Computes them."""
        dim, rows = call.component.cell_dim, call.rows_in
        a_i, a_f, a_g, a_o, c_prev = np.split(call.x[:, : 5 * dim], 5, axis=1)
        scales = (
            call.x[:, 5 * dim :] if call.component.use_dropout else np.ones((rows, 3), call.dtype)
        )
        s_i, s_f, s_o = np.split(scales, 3, axis=1)
        w_ic, w_fc, w_oc = call.parameter("params")
        i, f, g = sigmoid(a_i + w_ic * c_prev), sigmoid(a_f + w_fc * c_prev), np.tanh(a_g)
        c = s_f * f * c_prev + s_i * i * g
        o = sigmoid(a_o + w_oc * c)
        return cls(c_prev, i, f, g, o, c, np.tanh(c), (s_i, s_f, s_o))

    @property
    def values(self) -> Array:
        """The five nonlinearities in the order of the statistics, (5, rows, cell_dim)."""
        return np.stack([self.i, self.f, self.g, self.o, self.h])

    @property
    def slopes(self) -> Array:
        """Their derivatives: v (1 - v) of a sigmoid, 1 - v^2 of a tanh."""
        i, f, g, o, h = self.values
        return np.stack([i * (1 - i), f * (1 - f), 1 - g**2, o * (1 - o), 1 - h**2])


@formula(components.LstmNonlinearityComponent)
class LstmNonlinearity(Formula):
    """c = s_f f c' + s_i i g, m = s_o o tanh(c): the cell c and the output m of an LSTM.

    i = sigmoid(a_i + w_ic c'), f = sigmoid(a_f + w_fc c'), g = tanh(a_g),
    o = sigmoid(a_o + w_oc c). The columns of x are a_i, a_f, a_g, a_o, c' and, with dropout, the
    masks s_i, s_f, s_o, one column each; without dropout the masks are 1. The columns of y are c
    and m; the rows of params are w_ic, w_fc, w_oc. All products are element by element.

    H. Sak, A. Senior, F. Beaufays, "Long short-term memory recurrent neural network architectures
    for large scale acoustic modeling", Interspeech 2014; masks: G. Cheng et al., "An exploration of
    dropout with LSTMs", Interspeech 2017.
    """

    def forward(self, call: Call) -> Array:
        """Returns c and m."""
        v = _Lstm.of(call)
        return np.concatenate([v.c, v.scales[2] * v.o * v.h], axis=1)

    def _saturated(self, call: Call) -> Array:
        """Returns 1 where a nonlinearity of a cell is repaired, else 0, (5, cell_dim).

        The statistics of earlier minibatches decide; the 1 that is added to the count keeps it
        above 0.
        """
        c = call.component
        average = call.parameter("deriv_avg") * c.count / (c.count + 1.0)
        is_saturated = average < call.parameter("self_repair_config")[:5, None]
        return is_saturated.astype(call.dtype)

    def _derivatives(self, call: Call, v: _Lstm) -> tuple[Array, Array, Array, Array, Array]:
        """Returns da_i, da_f, da_g, da_o and dc: the chain rule, and self-repair."""
        s_i, s_f, s_o = v.scales
        w_oc = call.parameter("params")[2]
        slopes = v.slopes
        repair = self._saturated(call) * call.parameter("self_repair_config")[5:, None]
        dc_out, dm = np.split(call.dy, 2, axis=1)
        da_o = slopes[3] * s_o * v.h * dm - repair[3] * (2 * v.o - 1)
        dc = dc_out + slopes[4] * s_o * v.o * dm + w_oc * da_o - repair[4] * v.h
        da_f = slopes[1] * s_f * v.c_prev * dc - repair[1] * (2 * v.f - 1)
        da_i = slopes[0] * s_i * v.g * dc - repair[0] * (2 * v.i - 1)
        da_g = slopes[2] * s_i * v.i * dc - repair[2] * v.g
        return da_i, da_f, da_g, da_o, dc

    def backward(self, call: Call) -> Array:
        """dc' = w_ic da_i + w_fc da_f + s_f f dc; masks get no derivative."""
        v = _Lstm.of(call)
        da_i, da_f, da_g, da_o, dc = self._derivatives(call, v)
        w_ic, w_fc, _ = call.parameter("params")
        dc_prev = w_ic * da_i + w_fc * da_f + v.scales[1] * v.f * dc
        dx = call.zeros_in()
        dx[:, : 5 * call.component.cell_dim] = np.concatenate(
            [da_i, da_f, da_g, da_o, dc_prev], axis=1
        )
        return dx

    def gradient(self, call: Call) -> dict[str, Array]:
        """dw_ic = sum of c' da_i, dw_fc = sum of c' da_f, dw_oc = sum of c da_o, over the rows."""
        v = _Lstm.of(call)
        da_i, da_f, _, da_o, _ = self._derivatives(call, v)
        terms = (v.c_prev * da_i, v.c_prev * da_f, v.c * da_o)
        return {"params": np.stack([term.sum(axis=0) for term in terms])}

    def backward_statistics(self, call: Call) -> dict[str, Any]:
        """Counts the rows, the nonlinearities, their derivatives, and the repaired cells."""
        v = _Lstm.of(call)
        repaired = call.rows_in * self._saturated(call).mean(axis=1)
        sums = {
            "value_avg": v.values.sum(axis=1),
            "deriv_avg": v.slopes.sum(axis=1),
            "self_repair_prob": repaired,
        }
        return _averages(call, sums)


def _averages(call: Call, sums: dict[str, Array]) -> dict[str, Any]:
    """Returns the count of rows, and averages over all of them, with the sums of this minibatch."""
    count = call.component.count + call.rows_in
    averages = {
        name: (call.parameter(name) * call.component.count + added) / count
        for name, added in sums.items()
    }
    return averages | {"count": count}


class _GruCell(Formula):
    """h = tanh(a), c = (1 - z) h + z c': the update gate z and the cell c of a GRU.

    A subclass defines a.
    """

    def _inputs(self, call: Call) -> tuple[Array, Array, Array]:
        """Returns z, a and c', (rows, cell_dim) each."""
        raise NotImplementedError

    def forward(self, call: Call) -> Array:
        """Returns h and c."""
        z, a, c_prev = self._inputs(call)
        h = np.tanh(a)
        return np.concatenate([h, (1 - z) * h + z * c_prev], axis=1)

    def _averages(self, call: Call) -> dict[str, Any]:
        """Returns the averages of h and 1 - h^2, and the count, with this minibatch."""
        h, _ = np.split(call.y, 2, axis=1)
        return _averages(call, {"value_avg": h.sum(axis=0), "deriv_avg": (1 - h**2).sum(axis=0)})

    def _saturated(self, call: Call) -> Array:
        """Returns 1 for cells that are repaired in this minibatch, else 0, (cell_dim,)."""
        average: Array = self._averages(call)["deriv_avg"]
        return (average < call.component.self_repair_threshold).astype(call.dtype)

    def decide(self, call: Call) -> bool:
        """Returns whether this minibatch is one of the half with self-repair and statistics."""
        return call.chance(_REPAIR_PROBABILITY)

    def _da(self, call: Call) -> Array:
        """da = (1 - h^2) (dh + (1 - z) dc), plus the repair."""
        (h, _), (dh, dc) = np.split(call.y, 2, axis=1), np.split(call.dy, 2, axis=1)
        z, _, _ = self._inputs(call)
        da = (1 - h**2) * (dh + (1 - z) * dc)
        if call.decision:
            scale = call.component.self_repair_scale / _REPAIR_PROBABILITY
            da -= scale * self._saturated(call) * h
        return da

    def _dz_and_dc_prev(self, call: Call) -> tuple[Array, Array]:
        """dz = (c' - h) dc; dc' = z dc, without the part that goes through a."""
        h, dc = call.y[:, : call.component.cell_dim], call.dy[:, call.component.cell_dim :]
        z, _, c_prev = self._inputs(call)
        return (c_prev - h) * dc, z * dc

    def backward_statistics(self, call: Call) -> dict[str, Any]:
        """Counts the rows, h, its derivative and the repaired cells, if the decision was so."""
        if not call.decision:
            return {}
        total = call.component.self_repair_total + self._saturated(call).sum()
        return self._averages(call) | {"self_repair_total": float(total)}


@formula(components.GruNonlinearityComponent)
class GruNonlinearity(_GruCell):
    """h = tanh(p + W (r s)), c = (1 - z) h + z c'.

    The columns of x are z, r, p, c' and s; the columns of y are h and c. If s has as many columns
    as c', it is c', and x has it only once. W is w_h.

    K. Cho et al., "Learning phrase representations using RNN encoder-decoder for statistical
    machine translation", EMNLP 2014.
    """

    def _columns(self, call: Call, rows: Array) -> list[Array]:
        """Returns the columns z, r, p, c' and s; views, of which the last two may be the same."""
        cell, recurrent = call.component.cell_dim, call.component.recurrent_dim
        ends = np.cumsum([cell, recurrent, cell, cell])
        z, r, p, c_prev, _ = np.split(rows, ends, axis=1)
        return [z, r, p, c_prev, rows[:, -recurrent:]]

    def _inputs(self, call: Call) -> tuple[Array, Array, Array]:
        z, r, p, c_prev, s = self._columns(call, call.x)
        return z, p + (r * s) @ call.parameter("w_h").T, c_prev

    def backward(self, call: Call) -> Array:
        """dp = da, dr = s (W^T da), ds = r (W^T da); if s is c', ds is added to dc'."""
        dx, da = call.zeros_in(), self._da(call)
        _, r, _, _, s = self._columns(call, call.x)
        dz, dc_prev = self._dz_and_dc_prev(call)
        d_rs = da @ call.parameter("w_h")
        derivatives = (dz, s * d_rs, da, dc_prev, r * d_rs)
        for columns, derivative in zip(self._columns(call, dx), derivatives, strict=True):
            columns += derivative
        return dx

    def gradient(self, call: Call) -> dict[str, Array]:
        """dW = sum of da (r s)^T over the rows."""
        _, r, _, _, s = self._columns(call, call.x)
        return {"w_h": self._da(call).T @ (r * s)}


@formula(components.OutputGruNonlinearityComponent)
class OutputGruNonlinearity(_GruCell):
    """h = tanh(p + w c'), c = (1 - z) h + z c'; all element by element.

    The columns of x are z, p and c'; the columns of y are h and c. w is w_h.

    G. Cheng et al., "Output-gate projected gated recurrent unit for speech recognition",
    Interspeech 2018.
    """

    def _inputs(self, call: Call) -> tuple[Array, Array, Array]:
        z, p, c_prev = np.split(call.x, 3, axis=1)
        return z, p + call.parameter("w_h") * c_prev, c_prev

    def backward(self, call: Call) -> Array:
        """dp = da, and w da is added to dc'."""
        da = self._da(call)
        dz, dc_prev = self._dz_and_dc_prev(call)
        return np.concatenate([dz, da, dc_prev + call.parameter("w_h") * da], axis=1)

    def gradient(self, call: Call) -> dict[str, Array]:
        """dw = sum of da c' over the rows."""
        _, _, c_prev = np.split(call.x, 3, axis=1)
        return {"w_h": (self._da(call) * c_prev).sum(axis=0)}
