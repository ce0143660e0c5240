"""The gates and cells of recurrent layers: LSTM and GRU."""

import itertools

from nnet3_descriptors.components import (
    GruNonlinearityComponent,
    LstmNonlinearityComponent,
    OutputGruNonlinearityComponent,
)

from nnet3_runtime_onnx.components.declaration import Call, translates
from nnet3_runtime_onnx.graph import Tensor
from nnet3_runtime_onnx.matrices import Region


@translates(LstmNonlinearityComponent)
def lstm_nonlinearity(call: Call) -> Region:
    """c = s_f f c' + s_i i g, m = s_o o tanh(c): the cell c and the output m of an LSTM.

    i = sigmoid(a_i + w_ic c'), f = sigmoid(a_f + w_fc c'), g = tanh(a_g),
    o = sigmoid(a_o + w_oc c). The columns of x are a_i, a_f, a_g, a_o, c' and, with dropout, the
    masks s_i, s_f, s_o, one column each; without dropout the masks are 1.
    """
    dim = call.component.cell_dim
    a_i, a_f, a_g, a_o, c_prev = (call.columns(dim * k, dim * (k + 1)) for k in range(5))
    w_ic, w_fc, w_oc = (_peephole(call, row, name) for row, name in enumerate(("ic", "fc", "oc")))
    i = (a_i + c_prev * w_ic).apply("Sigmoid")
    f = (a_f + c_prev * w_fc).apply("Sigmoid")
    if call.component.use_dropout:
        i, f = i * _mask(call, 0), f * _mask(call, 1)
    c = f * c_prev + i * a_g.apply("Tanh")
    o = (a_o + c * w_oc).apply("Sigmoid")
    if call.component.use_dropout:
        o = o * _mask(call, 2)
    return call.side_by_side(c, o * c.apply("Tanh"))


def _peephole(call: Call, row: int, name: str) -> Tensor:
    """Returns a row of the parameters, (cell_dim,)."""
    return call.derived(f"params.{name}", lambda: call.component.params[row])


def _mask(call: Call, number: int) -> Tensor:
    """Returns the mask of a gate, (rows, 1)."""
    first = 5 * call.component.cell_dim + number
    return call.columns(first, first + 1)


def _gru_cell(call: Call, z: Tensor, a: Tensor, c_prev: Tensor) -> Region:
    """h = tanh(a), c = (1 - z) h + z c'; h and c side by side."""
    h = a.apply("Tanh")
    return call.side_by_side(h, (1.0 - z) * h + z * c_prev)


@translates(GruNonlinearityComponent)
def gru_nonlinearity(call: Call) -> Region:
    """h = tanh(p + W (r s)), c = (1 - z) h + z c'.

    The columns of x are z, r, p, c' and s. If s has as many columns as c', it is c', and x has it
    only once.
    """
    cell, recurrent = call.component.cell_dim, call.component.recurrent_dim
    ends = list(itertools.accumulate((cell, recurrent, cell, cell), initial=0))
    z, r, p, c_prev = (call.columns(*both) for both in itertools.pairwise(ends))
    s = call.columns(call.region.columns - recurrent, call.region.columns)
    return _gru_cell(call, z, p + (r * s) @ call.transposed("w_h"), c_prev)


@translates(OutputGruNonlinearityComponent)
def output_gru_nonlinearity(call: Call) -> Region:
    """h = tanh(p + w c'), c = (1 - z) h + z c'; all element by element, of columns z, p and c'."""
    z, p, c_prev = call.blocks(3)
    return _gru_cell(call, z, p + c_prev * call.parameter("w_h"), c_prev)
