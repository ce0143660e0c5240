"""Options of the optimizer."""

from __future__ import annotations

import attrs

from nnet3_optimizer.errors import OptionError


@attrs.frozen(kw_only=True)
class OptimizeOptions:
    """Which passes run; each option can be turned off alone.

    The names are those of Kaldi's options (with "-" for "_"), except for those that Kaldi lacks:
    `remove_dead_commands`, `order_rows_early`, `share_equal_copies`, `split_statistics`,
    `gather_early`, `recompute_activations` and `verify`. A computation in several segments, which
    is to become a loop, is treated accordingly, without an option.

    Attributes:
        optimize: False turns off everything but what an option outside of this list asks for:
            derivative times, memory compression.
        consolidate_model_update: See `passes.model_update`.
        convert_addition: See `passes.additions`.
        snip_row_ops, split_row_ops, optimize_row_ops: See `passes.row_operations`.
        extend_matrices: See `passes.extension`.
        remove_assignments, propagate_in_place, backprop_in_place: See `passes.merging`.
        allow_left_merge, allow_right_merge: See `passes.merging`.
        initialize_undefined: See `passes.zeroing`.
        move_sizing_commands: See `passes.sizing`.
        allocate_from_other: See `passes.allocation_reuse`. Off: in a planned arena allocation costs
            nothing, and memory that goes from hand to hand is held for longer than needed.
        remove_dead_commands: See `passes.dead_code`.
        min_deriv_time, max_deriv_time: Derivatives at times t before the one and after the other
            are taken to be zero; None for no limit. See `passes.derivative_times`.
        max_deriv_time_relative: Like max_deriv_time, counted from the last t of an output.
        memory_compression_level: 0 for none, 1 for what loses nothing, 2 for 16-bit values too. See
            `passes.compression_of_activations`.
        order_rows_early: See `passes.row_order`.
        split_statistics: See `passes.statistics_parts`.
        share_equal_copies: See `passes.equal_copies`.
        gather_early: See `passes.gathering`.
        recompute_activations: See `passes.recomputation`.
        verify: Check the computation after each pass, and prove that it still does the same, where
            the pass is meant to change nothing.

    Raises:
        OptionError: There is no such memory compression level.
    """

    optimize: bool = True
    consolidate_model_update: bool = True
    convert_addition: bool = True
    snip_row_ops: bool = True
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
    allocate_from_other: bool = False
    remove_dead_commands: bool = True
    min_deriv_time: int | None = None
    max_deriv_time: int | None = None
    max_deriv_time_relative: int | None = None
    memory_compression_level: int = attrs.field(default=1)
    order_rows_early: bool = True
    split_statistics: bool = True
    share_equal_copies: bool = True
    gather_early: bool = True
    recompute_activations: bool = True
    verify: bool = False

    @memory_compression_level.validator
    def _check_level(self, attribute: object, value: int) -> None:
        if value not in (0, 1, 2):
            raise OptionError(f"memory_compression_level must be 0, 1 or 2 (got {value!r})")
