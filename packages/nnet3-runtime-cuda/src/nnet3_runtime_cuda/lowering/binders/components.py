"""Commands that run components: forward, backward, statistics."""

from __future__ import annotations

from nnet3_compiler import commands as c
from nnet3_descriptors.components import ComponentProperties

from ...kernels import Backpropagation, Propagation, StatsStorage
from ...tape import Array
from ..lowering import Lowering, binds


@binds(c.Propagate)
def _propagate(low: Lowering, command: c.Propagate) -> None:
    properties = low.properties(command.component)
    splice = low.input_splice()
    x = low.read(command.input) if command.input and splice is None else low.arena.view(0)
    in_place = command.input == command.output
    if properties & ComponentProperties.PROPAGATE_ADDS and not in_place:
        y, add = low.add_to(command.output)
    else:
        y, add = (x if in_place else low.set(command.output)), False
    columns = low.steps.columns_now(low, x)
    low.nnet.kernel(command.component).propagate(
        Propagation(
            tape=low.tape,
            x=x,
            y=y if columns is None else y[:, columns],
            add=add,
            indexes=low.precomputed(command.precomputed_indexes),
            memo=low.memo(command.memo),
            known=low.steps.known_part(low),
            columns=slice(None) if columns is None else columns,
            panels=low.steps.panels(low),
            splice=splice,
        )
    )


@binds(c.StoreStats)
def _store_stats(low: Lowering, command: c.StoreStats) -> None:
    low.nnet.kernel(command.component).store_stats(
        StatsStorage(tape=low.tape, y=low.read(command.output), memo=low.memo(command.memo))
    )


def _bind_backprop(
    low: Lowering, command: c.Backprop | c.BackpropNoModelUpdate, *, update: bool
) -> None:
    properties = low.properties(command.component)
    splice, dx_splice = low.input_splice(), low.derivative_splice()
    x, y, dy = (
        low.read(submatrix) if submatrix else low.arena.view(0)
        for submatrix in (
            command.input_value if splice is None else 0,
            command.output_value,
            command.output_deriv,
        )
    )
    dx: Array | None = None
    add = False
    if command.input_deriv and dx_splice is None:
        in_place = command.input_deriv == command.output_deriv
        if properties & ComponentProperties.BACKPROP_ADDS and not in_place:
            dx, add = low.add_to(command.input_deriv)
        else:
            dx = dy if in_place else low.set(command.input_deriv)
    signs, low.signs = low.signs, None
    kernel, first = low.nnet.kernel(command.component), False
    if properties & ComponentProperties.UPDATABLE:
        update = update and low.computation.need_model_derivative
        if update:
            low.updated.add(command.component)
            first = kernel.sets_gradient and low.num_updates(command.component) == 1
        if first:
            low.replaced.add(command.component)
    kernel.backprop(
        Backpropagation(
            tape=low.tape,
            x=x,
            y=y,
            dy=dy,
            dx=dx,
            add=add,
            indexes=low.precomputed(command.precomputed_indexes),
            memo=low.memo(command.memo),
            signs=signs,
            update=update,
            first=first,
            skipped=low.steps.deferred_columns(low),
            panels=low.steps.panels(low),
            splice=splice,
            dx_splice=dx_splice,
        )
    )
    low.steps.record_derivatives(low)


@binds(c.Backprop)
def _backprop(low: Lowering, command: c.Backprop) -> None:
    _bind_backprop(low, command, update=True)


@binds(c.BackpropNoModelUpdate)
def _backprop_no_model_update(low: Lowering, command: c.BackpropNoModelUpdate) -> None:
    _bind_backprop(low, command, update=False)
