"""The nonlinearities of recurrent layers: LSTM and GRU, with their parameters."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nnet3_descriptors.components.declaration import base, fields, info, initial, natural_gradient
from nnet3_descriptors.components.declaration.config_line import ConfigLine
from nnet3_descriptors.components.declaration.properties import TRAINED
from nnet3_descriptors.components.declaration.properties import ComponentProperties as Property
from nnet3_descriptors.components.declaration.registry import component

_LSTM_NONLINEARITIES = ("i_t_sigmoid", "f_t_sigmoid", "c_t_tanh", "o_t_sigmoid", "m_t_tanh")
"""Kaldi's names for the rows of the statistics of an LSTM."""

GRU_PROPERTIES = Property.SIMPLE | TRAINED | Property.BACKPROP_NEEDS_OUTPUT


def _peephole_items(component: Any) -> str:
    names = ("w_ic", "w_fc", "w_oc")
    return "".join(
        info.root_mean_square(name, row) for name, row in zip(names, component.params, strict=True)
    )


def _lstm_statistics_items(component: Any) -> str:
    text = f", count={info.number(component.count, 3)}" if component.count > 0.0 else ""
    for row, name in enumerate(_LSTM_NONLINEARITIES):
        threshold, scale = component.self_repair_config[[row, row + len(_LSTM_NONLINEARITIES)]]
        text += f", {name}={{ self-repair-lower-threshold={info.number(float(threshold))}"
        text += info.item("self-repair-scale", scale)
        if component.count != 0.0:
            text += info.item("self-repaired-proportion", component.self_repair_prob[row])
            text += f", value-avg={info.summarize_vector(component.value_avg[row])}"
            text += f", deriv-avg={info.summarize_vector(component.deriv_avg[row])}"
        text += " }"
    return text


@component
class LstmNonlinearityComponent(base.UpdatableComponent):
    """The gates and cell of an LSTM with peepholes: (gates and old cell) to (cell, output).

    The columns of the input are five blocks of cell_dim: input gate, forget gate, cell input,
    output gate and old cell. With dropout three masks follow, one for each gate. The columns of the
    output are the new cell and the output of the layer.

    Attributes:
        params: Peephole weights of input gate, forget gate and output gate, (3, cell_dim).
        value_avg: Averages of the five nonlinearities, (5, cell_dim), in the order of the gates
            above and last the tanh of the cell.
        deriv_avg: Averages of their derivatives, (5, cell_dim).
        self_repair_config: Thresholds of the derivatives below which a cell is repaired, then the
            sizes of the repair, (10,).
        self_repair_prob: Proportion of cells that were repaired, (5,).
        use_dropout: Whether the input has the masks.
        count: Number of frames in the averages.
    """

    PROPERTIES = Property.SIMPLE | Property.UPDATABLE | Property.BACKPROP_NEEDS_INPUT
    INFO = (
        *base.UpdatableComponent.COMMON_INFO,
        "cell_dim",
        "use_dropout",
        _peephole_items,
        _lstm_statistics_items,
    )

    params: fields.Array = fields.matrix(parameter=True, shape=(3, "cell_dim"))
    value_avg: fields.Array = fields.matrix(
        default=lambda self: initial.filled((5, self.cell_dim), 0.0), shape=(5, "cell_dim")
    )
    deriv_avg: fields.Array = fields.matrix(
        default=lambda self: initial.filled((5, self.cell_dim), 0.0), shape=(5, "cell_dim")
    )
    self_repair_config: fields.Array = fields.vector(shape=(10,))
    self_repair_prob: fields.Array = fields.vector(default=lambda self: np.zeros(5), shape=(5,))
    use_dropout: bool = fields.boolean(default=False, written="unless default", shown="always")
    count: float = fields.double(default=0.0, config=None)

    cell_dim = base.derived("Number of cells.", lambda self: self.params.shape[1])

    @property
    def input_dim(self) -> int:
        """Number of columns of the input."""
        return 5 * self.cell_dim + (3 if self.use_dropout else 0)

    output_dim = base.output_columns(lambda self: 2 * self.cell_dim)

    @classmethod
    def initial_fields(cls, config: ConfigLine, rng: np.random.Generator) -> dict[str, Any]:
        """Returns the initial weights, and the self-repair of sigmoids and tanhs."""
        cell_dim = config.integer("cell-dim", minimum=1)
        stddev = config.real("param-stddev", 1.0, minimum=0.0)
        tanh_threshold = config.real("tanh-self-repair-threshold", 0.2, minimum=0.0, maximum=1.0)
        sigmoid_threshold = config.real(
            "sigmoid-self-repair-threshold", 0.05, minimum=0.0, maximum=0.25
        )
        scale = config.real("self-repair-scale", 1.0e-05, minimum=0.0, maximum=0.1)
        thresholds = [
            tanh_threshold if name.endswith("tanh") else sigmoid_threshold
            for name in _LSTM_NONLINEARITIES
        ]
        return {
            "params": initial.normal(rng, (3, cell_dim), stddev),
            "self_repair_config": thresholds + [scale] * len(thresholds),
        }


def _gru_statistics_items(component: Any) -> str:
    """Returns the text of `info` about the tanh, if it has been counted."""
    count = component.count
    if not count > 0.0:
        return ""
    return (
        f", count={info.number(count, 3)}"
        + info.item(
            "self-repaired-proportion", component.self_repair_total / (count * component.cell_dim)
        )
        + f", value-avg={info.summarize_vector(component.value_avg)}"
        + f", deriv-avg={info.summarize_vector(component.deriv_avg)}"
    )


def _zeros(component: Any) -> fields.Array:
    return initial.filled(component.cell_dim, 0.0)


@component
class GruNonlinearityComponent(base.UpdatableComponent):
    """The gates and cell of a GRU: (z, r, hpart, c_prev, s_prev) to (h, c).

        h = tanh(hpart + w_h (s_prev r))
        c = (1 - z) h + z c_prev

    Vectors are multiplied element by element. z, hpart and c_prev have cell_dim columns, r and
    s_prev recurrent_dim. If these are equal, s_prev is c_prev and is not in the input again.

    Attributes:
        cell_dim: Number of cells.
        recurrent_dim: Number of columns of the recurrent connection, which may be a projection.
        w_h: (cell_dim, recurrent_dim).
        value_avg: Average of the tanh, (cell_dim,).
        deriv_avg: Average of its derivative, (cell_dim,).
        self_repair_total: Number of cells that were repaired, summed over frames.
        count: Number of frames in the statistics.
        self_repair_threshold: Bound of deriv_avg below which a cell is repaired.
        self_repair_scale: Size of the repair.
    """

    PROPERTIES = GRU_PROPERTIES
    INFO = (
        *base.UpdatableComponent.COMMON_INFO,
        "cell_dim",
        "recurrent_dim",
        "w_h",
        "self_repair_threshold",
        "self_repair_scale",
        _gru_statistics_items,
        "alpha",
        "rank_in",
        "rank_out",
        "update_period",
    )

    cell_dim: int = fields.integer(minimum=1)
    recurrent_dim: int = fields.integer(
        default=lambda self: self.cell_dim, unset_below=0, minimum=1
    )
    w_h: fields.Array = fields.matrix(
        parameter=True,
        token="<w_h>",
        shape=("cell_dim", "recurrent_dim"),
        info="w_h",
        show=info.root_mean_square,
    )
    value_avg: fields.Array = fields.vector(default=_zeros, shape=("cell_dim",))
    deriv_avg: fields.Array = fields.vector(default=_zeros, shape=("cell_dim",))
    self_repair_total: float = fields.double(default=0.0, config=None)
    count: float = fields.double(default=0.0, config=None)
    self_repair_threshold: float = fields.real(default=0.2, minimum=0.0)
    self_repair_scale: float = fields.real(default=1.0e-05, minimum=0.0)
    alpha: float = natural_gradient.alpha()
    rank_in: int = natural_gradient.rank_in(token="<RankInOut>", default=20, unset_below=None)
    rank_out: int = natural_gradient.rank_out(token="", default=80, unset_below=None)
    update_period: int = natural_gradient.update_period()

    def check(self) -> None:
        """Raises NetworkError if the recurrent connection is wider than the cells."""
        self.require(
            self.recurrent_dim <= self.cell_dim,
            f"'recurrent_dim' must be <= {self.cell_dim}, got {self.recurrent_dim}",
        )

    @property
    def input_dim(self) -> int:
        """Number of columns of the input."""
        if self.recurrent_dim == self.cell_dim:
            return 4 * self.cell_dim
        return 3 * self.cell_dim + 2 * self.recurrent_dim

    output_dim = base.output_columns(lambda self: 2 * self.cell_dim)

    @classmethod
    def initial_fields(cls, config: ConfigLine, rng: np.random.Generator) -> dict[str, Any]:
        """Returns the initial weights."""
        cell_dim = config.integer("cell-dim", minimum=1)
        recurrent_dim = config.integer("recurrent-dim", -1)
        shape = (cell_dim, recurrent_dim if recurrent_dim >= 0 else cell_dim)
        stddev = config.real("param-stddev", 1.0 / math.sqrt(cell_dim), minimum=0.0)
        return {"w_h": initial.normal(rng, shape, stddev)}


@component
class OutputGruNonlinearityComponent(base.UpdatableComponent):
    """The cell of a GRU with an output gate and no reset gate: (z, hpart, c_prev) to (h, c).

        h = tanh(hpart + w_h c_prev)
        c = (1 - z) h + z c_prev

    Vectors are multiplied element by element; all have cell_dim columns.

    Attributes:
        cell_dim: Number of cells.
        w_h: (cell_dim,).
        value_avg: Average of the tanh, (cell_dim,).
        deriv_avg: Average of its derivative, (cell_dim,).
        self_repair_total: Number of cells that were repaired, summed over frames.
        count: Number of frames in the statistics.
        self_repair_threshold: Bound of deriv_avg below which a cell is repaired.
        self_repair_scale: Size of the repair.
        rank: Rank of the Fisher-matrix estimate.
    """

    PROPERTIES = GRU_PROPERTIES
    INFO = (
        *base.UpdatableComponent.COMMON_INFO,
        "cell_dim",
        "w_h",
        "self_repair_threshold",
        "self_repair_scale",
        _gru_statistics_items,
        "alpha",
        "rank",
        "update_period",
    )

    cell_dim: int = fields.integer(minimum=1)
    w_h: fields.Array = fields.vector(
        parameter=True, token="<w_h>", shape=("cell_dim",), info="w_h", show=info.root_mean_square
    )
    value_avg: fields.Array = fields.vector(default=_zeros, shape=("cell_dim",))
    deriv_avg: fields.Array = fields.vector(default=_zeros, shape=("cell_dim",))
    self_repair_total: float = fields.double(default=0.0, config=None)
    count: float = fields.double(default=0.0, config=None)
    self_repair_threshold: float = fields.real(default=0.2, minimum=0.0)
    self_repair_scale: float = fields.real(default=1.0e-05, minimum=0.0)
    alpha: float = natural_gradient.alpha()
    rank: int = fields.integer(default=8, minimum=1)
    update_period: int = natural_gradient.update_period(default=10)

    input_dim = base.input_columns(lambda self: 3 * self.cell_dim)
    output_dim = base.output_columns(lambda self: 2 * self.cell_dim)

    @classmethod
    def initial_fields(cls, config: ConfigLine, rng: np.random.Generator) -> dict[str, Any]:
        """Returns the initial weights."""
        return {"w_h": initial.normal_vector(config, rng, "cell-dim", "param", stddev=1.0)}
