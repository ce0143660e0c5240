"""Functions of several times, recurrences, and components of components."""

from __future__ import annotations

import attrs
import numpy as np
from nnet3_descriptors import components as types

from nnet3_runtime_c.calls import CONVERSIONS, Call, Statements, converts
from nnet3_runtime_c.products import product


@converts(types.StatisticsExtractionComponent)
def _statistics_extraction(call: Call) -> Statements:
    name = call.constants.table(np.asarray(call.indexes.forward_indexes))
    squares = call.component.include_variance
    yield call.constants.call(
        "statistics", call.y.rows, call.x.columns, squares, name, call.x, call.y
    )


@converts(types.StatisticsPoolingComponent)
def _statistics_pooling(call: Call) -> Statements:
    c, sums = call.component, call.x.columns - 1
    name = call.constants.table(np.asarray(call.indexes.forward_indexes))
    columns = sums // 2 if c.output_stddevs else sums
    yield call.constants.call(
        "pooling", call.y.rows, columns, c.num_log_count_features, c.output_stddevs,
        float(c.variance_floor), name, call.x, call.y,
    )  # fmt: skip


@converts(types.RestrictedAttentionComponent)
def _attention(call: Call) -> Statements:
    c = call.component
    rows = call.constants.table(np.asarray(call.indexes.row_offsets))
    here = int(call.indexes.row_offsets[c.num_left_inputs])
    yield call.constants.call(
        "attention", call.y.rows, c.num_heads, c.key_dim, c.value_dim, c.context_dim,
        c.output_context, float(c.key_scale), int(call.indexes.row_stride), rows, here, call.x,
        call.y,
    )  # fmt: skip


@converts(types.LstmNonlinearityComponent)
def _lstm(call: Call) -> Statements:
    c = call.component
    weights = call.pointer("params", lambda: c.params)
    yield call.constants.call(
        "lstm", call.y.rows, c.cell_dim, c.use_dropout, weights, call.x, call.y
    )


@converts(types.GruNonlinearityComponent)
def _gru(call: Call) -> Statements:
    c, x, y = call.component, call.x, call.y
    cell, recurrent = c.cell_dim, c.recurrent_dim
    gated, more = call.scratch.new(y.rows, recurrent), call.scratch.new(y.rows, cell)
    r, s = x.first + cell, x.first + x.columns - recurrent
    yield call.constants.call("gated", y.rows, recurrent, f"m + {r}", f"m + {s}, {x.stride}", gated)
    inside = attrs.evolve(call, x=gated, y=more, adds=False)
    yield from product(inside, c.w_h, None)
    p = x.first + cell + recurrent
    yield call.constants.call(
        "gru", y.rows, cell, f"m + {x.first}", f"m + {p}", f"m + {p + cell}, {x.stride}", more,
        y,
    )  # fmt: skip


@converts(types.OutputGruNonlinearityComponent)
def _output_gru(call: Call) -> Statements:
    c, x, y = call.component, call.x, call.y
    p = x.first + c.cell_dim
    before = f"m + {p + c.cell_dim}, {x.stride}"
    yield call.constants.call(
        "gru", y.rows, c.cell_dim, f"m + {x.first}", f"m + {p}", before,
        call.pointer("w_h", lambda: c.w_h), 0, y,
    )  # fmt: skip


@converts(types.CompositeComponent)
def _composite(call: Call) -> Statements:
    """The parts one after the other, for all rows at a time."""
    x, parts = call.x, call.component.components
    for number, part in enumerate(parts):
        is_last = number == len(parts) - 1
        y = call.y if is_last else call.scratch.new(x.rows, part.output_dim)
        this = attrs.evolve(
            call, component=part, name=f"{call.name}.{number}", x=x, y=y, indexes=None, adds=False
        )
        yield from CONVERSIONS[type(part)](this)
        x = y
