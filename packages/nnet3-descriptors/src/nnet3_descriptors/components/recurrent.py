"""The nonlinearities of recurrent layers: LSTM and GRU, with their parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnet3_descriptors.components.base import UpdatableComponent, component
from nnet3_descriptors.components.config_line import ConfigLine
from nnet3_descriptors.components.fields import Array, boolean, double, matrix, vector
from nnet3_descriptors.components.info import item, number, root_mean_square, summarize_vector
from nnet3_descriptors.components.initial import normal
from nnet3_descriptors.components.properties import ComponentProperties as Property

_LSTM_NONLINEARITIES = ("i_t_sigmoid", "f_t_sigmoid", "c_t_tanh", "o_t_sigmoid", "m_t_tanh")
"""What Kaldi calls the rows of the statistics of an LSTM."""


def _peephole_items(component: Any) -> str:
    names = ("w_ic", "w_fc", "w_oc")
    return "".join(
        root_mean_square(name, row) for name, row in zip(names, component.params, strict=True)
    )


def _lstm_statistics_items(component: Any) -> str:
    text = f", count={number(component.count, 3)}" if component.count > 0.0 else ""
    for row, name in enumerate(_LSTM_NONLINEARITIES):
        threshold, scale = component.self_repair_config[[row, row + len(_LSTM_NONLINEARITIES)]]
        text += f", {name}={{ self-repair-lower-threshold={number(float(threshold))}"
        text += item("self-repair-scale", scale)
        if component.count != 0.0:
            text += item("self-repaired-proportion", component.self_repair_prob[row])
            text += f", value-avg={summarize_vector(component.value_avg[row])}"
            text += f", deriv-avg={summarize_vector(component.deriv_avg[row])}"
        text += " }"
    return text


@component
class LstmNonlinearityComponent(UpdatableComponent):
    """The gates and cell of an LSTM with peepholes: (gates and old cell) to (cell, output).

    The columns of the input are five blocks of cell_dim (input gate, forget gate, cell input,
    output gate, old cell) and, with dropout, three masks, one for each gate; those of the output
    are the new cell and the output of the layer.

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
        *UpdatableComponent.COMMON_INFO,
        "cell_dim",
        "use_dropout",
        _peephole_items,
        _lstm_statistics_items,
    )

    params: Array = matrix(parameter=True, shape=(3, "cell_dim"))
    value_avg: Array = matrix(
        default=lambda self: np.zeros((5, self.cell_dim)), shape=(5, "cell_dim")
    )
    deriv_avg: Array = matrix(
        default=lambda self: np.zeros((5, self.cell_dim)), shape=(5, "cell_dim")
    )
    self_repair_config: Array = vector(shape=(10,))
    self_repair_prob: Array = vector(default=lambda self: np.zeros(5), shape=(5,))
    use_dropout: bool = boolean(default=False, written="unless default", shown="always")
    count: float = double(default=0.0, config=None)

    @property
    def cell_dim(self) -> int:
        """Number of cells."""
        return int(self.params.shape[1])

    @property
    def input_dim(self) -> int:
        """Number of columns of the input."""
        return 5 * self.cell_dim + (3 if self.use_dropout else 0)

    @property
    def output_dim(self) -> int:
        """Number of columns of the output."""
        return 2 * self.cell_dim

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
            "params": normal(rng, (3, cell_dim), stddev),
            "self_repair_config": thresholds + [scale] * len(thresholds),
        }
