"""Options of the optimizer."""

from __future__ import annotations

import attrs
from nnet3_computation import OptionError
from nnet3_descriptors.values import is_integer


@attrs.frozen(kw_only=True)
class OptimizeOptions:
    """The passes that run; each option can be turned off alone.

    The names are Kaldi's (with "-" for "_"); Kaldi lacks
    `remove_dead_commands`, `order_rows_early`, `split_statistics`, `gather_early`,
    `recompute_activations` and `verify`. Its snip-row-ops and allocate-from-other are not here:
    the one changes no peak, the other raises it (see docs/optimizer.md). An option that is not
    listed below turns on the pass of its name; see the module of that name in `passes`.
    Computations in several segments, which the compiler closes to loops, need no option.

    Attributes:
        optimize: False turns off all passes except limits of derivative times and what brings
            inputs and outputs to the ends of a segment; nothing is compressed.
        convert_addition: The pass of that name, and `order_additions` before it.
        remove_assignments, propagate_in_place, backprop_in_place: The kinds of merges that
            `merge_variables` makes.
        allow_left_merge, allow_right_merge: The matrix of two that `merge_variables` may keep.
        min_deriv_time, max_deriv_time: Derivatives at times t before the one and after the other
            are taken to be zero; None for no limit. See `limit_derivative_times`; `trim_matrices`
            then removes the rows that nothing uses.
        max_deriv_time_relative: Like max_deriv_time, counted from the last t of an output.
        memory_compression_level: 0 for none, 1 for compression without loss, 2 for 16-bit values
            too. See `memory_compression`.
        verify: Check the computation after each pass, and prove that it still gives the same
            results, unless the pass is meant to change them.

    Raises:
        OptionError: There is no such memory compression level; or a switch is not True or False, or
            a time neither None nor an integer.
    """

    optimize: bool = True
    consolidate_model_update: bool = True
    convert_addition: bool = True
    split_row_ops: bool = True
    optimize_row_ops: bool = True
    extend_matrices: bool = True
    remove_assignments: bool = True
    propagate_in_place: bool = True
    backprop_in_place: bool = True
    allow_left_merge: bool = True
    allow_right_merge: bool = True
    initialize_undefined: bool = True
    move_sizing_commands: bool = True
    remove_dead_commands: bool = True
    min_deriv_time: int | None = None
    max_deriv_time: int | None = None
    max_deriv_time_relative: int | None = None
    memory_compression_level: int = attrs.field(default=1)
    order_rows_early: bool = True
    split_statistics: bool = True
    gather_early: bool = True
    recompute_activations: bool = True
    verify: bool = False

    @memory_compression_level.validator
    def _check_level(self, attribute: object, value: int) -> None:
        if type(value) is not int or value not in (0, 1, 2):
            raise OptionError(f"memory_compression_level must be 0, 1 or 2 (got {value!r})")

    def __attrs_post_init__(self) -> None:
        for field in attrs.fields(OptimizeOptions):
            value = getattr(self, field.name)
            if isinstance(field.default, bool):
                if not isinstance(value, bool):
                    raise OptionError(f"{field.name} must be True or False (got {value!r})")
            elif value is not None and not is_integer(value):
                raise OptionError(f"{field.name} must be None or an integer (got {value!r})")
