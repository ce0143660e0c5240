"""Commands that run components: forward, backward, statistics."""

from __future__ import annotations

from nnet3_computation import commands as c
from nnet3_descriptors.components import ComponentProperties

from nnet3_runtime_cuda.kernels import Backpropagation, Propagation, StatsStorage
from nnet3_runtime_cuda.lowering.bind.binding import Binding, binds
from nnet3_runtime_cuda.operations import Array


def _in_place(binding: Binding, submatrix: int) -> Array:
    """A view of a submatrix that the component reads and overwrites."""
    view = binding.read(submatrix)
    binding.note_written(binding.areas.of(submatrix))
    return view


@binds(c.Propagate)
def _propagate(binding: Binding, command: c.Propagate) -> None:
    properties = binding.properties(command.component)
    splice = binding.input_splice(command)
    x = binding.read(command.input) if command.input and splice is None else binding.arena.view(0)
    in_place = command.input == command.output
    if properties & ComponentProperties.PROPAGATE_ADDS and not in_place:
        y, add = binding.add_to(command.output)
    else:
        set_or_change = _in_place if in_place else Binding.set
        y, add = set_or_change(binding, command.output), False
    binding.nnet.kernel(command.component).propagate(
        Propagation(
            tape=binding.tape,
            x=x,
            y=y,
            add=add,
            indexes=binding.precomputed(command.precomputed_indexes),
            memo=binding.memo(command.memo),
            known=binding.steps.known_part(binding),
            panels=binding.steps.panels(binding),
            splice=splice,
        )
    )


@binds(c.StoreStats)
def _store_stats(binding: Binding, command: c.StoreStats) -> None:
    binding.nnet.kernel(command.component).store_stats(
        StatsStorage(
            tape=binding.tape, y=binding.read(command.output), memo=binding.memo(command.memo)
        )
    )


def _bind_backprop(
    binding: Binding, command: c.Backprop | c.BackpropNoModelUpdate, *, update: bool
) -> None:
    properties = binding.properties(command.component)
    splice, dx_splice = binding.input_splice(command), binding.derivative_splice()
    x, y, dy = (
        binding.read(submatrix) if submatrix else binding.arena.view(0)
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
            dx, add = binding.add_to(command.input_deriv)
        else:
            set_or_change = _in_place if in_place else Binding.set
            dx = set_or_change(binding, command.input_deriv)
    signs, binding.signs = binding.signs, None
    kernel, first = binding.nnet.kernel(command.component), False
    if properties & ComponentProperties.UPDATABLE:
        update = update and binding.computation.need_model_derivative
        if update:
            first = kernel.sets_gradient and binding.num_updates(command.component) == 1
        if first:
            binding.replaced.add(command.component)
    kernel.backprop(
        Backpropagation(
            tape=binding.tape,
            x=x,
            y=y,
            dy=dy,
            dx=dx,
            add=add,
            indexes=binding.precomputed(command.precomputed_indexes),
            memo=binding.memo(command.memo),
            signs=signs,
            update=update,
            first=first,
            skipped=binding.steps.late_columns(binding),
            panels=binding.steps.panels(binding),
            splice=splice,
            dx_splice=dx_splice,
        )
    )
    binding.steps.record_late(binding)


@binds(c.Backprop)
def _backprop(binding: Binding, command: c.Backprop) -> None:
    _bind_backprop(binding, command, update=True)


@binds(c.BackpropNoModelUpdate)
def _backprop_no_model_update(binding: Binding, command: c.BackpropNoModelUpdate) -> None:
    _bind_backprop(binding, command, update=False)
