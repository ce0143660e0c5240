"""The passes in their order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs
from nnet3_compiler.computation import NnetComputation

from nnet3_optimizer.checks import check_computation
from nnet3_optimizer.draft import Draft
from nnet3_optimizer.equivalence import Prover
from nnet3_optimizer.errors import ComputationError, PassError
from nnet3_optimizer.options import OptimizeOptions
from nnet3_optimizer.passes.additions import convert_additions, order_additions
from nnet3_optimizer.passes.allocation_reuse import allocate_from_other
from nnet3_optimizer.passes.compression_of_activations import compress_activations
from nnet3_optimizer.passes.dead_code import remove_dead_commands
from nnet3_optimizer.passes.derivative_times import limit_derivative_times
from nnet3_optimizer.passes.equal_copies import share_equal_copies
from nnet3_optimizer.passes.extension import extend_matrices
from nnet3_optimizer.passes.gathering import gather_early
from nnet3_optimizer.passes.io_order import consolidate_io
from nnet3_optimizer.passes.merging import MergingOptions, merge_variables
from nnet3_optimizer.passes.model_update import consolidate_model_update
from nnet3_optimizer.passes.recomputation import recompute_activations
from nnet3_optimizer.passes.renumber import renumber
from nnet3_optimizer.passes.row_operations import (
    simplify_row_operations,
    snip_row_operations,
    split_row_operations,
)
from nnet3_optimizer.passes.row_order import order_rows_early
from nnet3_optimizer.passes.sizing import move_sizing_commands
from nnet3_optimizer.passes.statistics_parts import split_statistics
from nnet3_optimizer.passes.trimming import trim_matrices
from nnet3_optimizer.passes.zeroing import remove_needless_zeroing

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet


@attrs.frozen
class Pass:
    """A pass and when it runs.

    Attributes:
        name: Its name, in kebab-case.
        run: What it does.
        wanted: Whether it runs.
        preserves: Whether the result has to be equivalent.
        keeps_calls: Whether components have to be updated by the same calls in the same order.
    """

    name: str
    run: Callable[[Draft, OptimizeOptions], Draft]
    wanted: Callable[[OptimizeOptions], bool]
    preserves: Callable[[OptimizeOptions], bool] = lambda options: True
    keeps_calls: bool = True


def _merging(options: OptimizeOptions) -> MergingOptions:
    return MergingOptions(
        remove_assignments=options.remove_assignments,
        propagate_in_place=options.propagate_in_place,
        backprop_in_place=options.backprop_in_place,
        left=options.allow_left_merge,
        right=options.allow_right_merge,
    )


def _merges(o: OptimizeOptions) -> bool:
    return o.optimize and (o.remove_assignments or o.propagate_in_place or o.backprop_in_place)


def _limits_times(o: OptimizeOptions) -> bool:
    limits = (o.min_deriv_time, o.max_deriv_time, o.max_deriv_time_relative)
    return any(limit is not None for limit in limits)


PIPELINE: tuple[Pass, ...] = (
    Pass(
        "limit-derivative-times",
        lambda p, o: limit_derivative_times(
            p, o.min_deriv_time, o.max_deriv_time, o.max_deriv_time_relative
        ),
        _limits_times,
        lambda o: False,
    ),
    Pass("trim-matrices", lambda p, o: trim_matrices(p), _limits_times),
    Pass(
        "consolidate-model-update",
        lambda p, o: consolidate_model_update(p),
        lambda o: o.optimize and o.consolidate_model_update,
        keeps_calls=False,
    ),
    Pass(
        "snip-row-ops",
        lambda p, o: snip_row_operations(p),
        lambda o: o.optimize and o.snip_row_ops,
    ),
    Pass(
        "split-row-ops",
        lambda p, o: split_row_operations(p),
        lambda o: o.optimize and o.split_row_ops,
    ),
    Pass(
        "optimize-row-ops",
        lambda p, o: simplify_row_operations(p),
        lambda o: o.optimize and o.optimize_row_ops,
    ),
    Pass(
        "remove-dead-commands",
        lambda p, o: remove_dead_commands(p),
        lambda o: o.optimize and o.remove_dead_commands,
    ),
    Pass(
        "order-additions",
        lambda p, o: order_additions(p),
        lambda o: o.optimize and o.convert_addition,
    ),
    Pass(
        "convert-addition",
        lambda p, o: convert_additions(p),
        lambda o: o.optimize and o.convert_addition,
    ),
    Pass(
        "order-rows-early",
        lambda p, o: order_rows_early(p),
        lambda o: o.optimize and o.order_rows_early,
    ),
    Pass(
        "share-equal-copies",
        lambda p, o: share_equal_copies(p),
        lambda o: o.optimize and o.share_equal_copies,
    ),
    Pass(
        "split-statistics",
        lambda p, o: split_statistics(p),
        lambda o: o.optimize and o.split_statistics,
    ),
    Pass(
        "extend-matrices",
        lambda p, o: extend_matrices(p),
        lambda o: o.optimize and o.extend_matrices,
    ),
    Pass("merge-variables", lambda p, o: merge_variables(p, _merging(o)), _merges),
    Pass(
        "initialize-undefined",
        lambda p, o: remove_needless_zeroing(p),
        lambda o: o.optimize and o.initialize_undefined,
    ),
    Pass(
        "move-sizing-commands",
        lambda p, o: move_sizing_commands(p),
        lambda o: o.optimize and o.move_sizing_commands,
    ),
    Pass(
        "allocate-from-other",
        lambda p, o: allocate_from_other(p),
        lambda o: o.optimize and o.allocate_from_other,
    ),
    Pass("consolidate-io", lambda p, o: consolidate_io(p), lambda o: True),
    Pass(
        "gather-early",
        lambda p, o: gather_early(p),
        lambda o: o.optimize and o.gather_early,
    ),
    Pass(
        "recompute-activations",
        lambda p, o: recompute_activations(p),
        lambda o: o.optimize and o.recompute_activations,
    ),
    Pass(
        "memory-compression",
        lambda p, o: compress_activations(p, o.memory_compression_level),
        lambda o: o.memory_compression_level > 0,
        lambda o: o.memory_compression_level < 2,
    ),
    Pass("renumber", lambda p, o: renumber(p), lambda o: True),
)
"""All passes, in the order in which they run."""


def optimize(
    nnet: Nnet, computation: NnetComputation, options: OptimizeOptions | None = None
) -> NnetComputation:
    """Improves a computation: fewer commands, less memory, the same results.

    Args:
        nnet: The network that the computation was compiled for.
        computation: What the compiler made.
        options: Which passes run.

    Returns:
        The improved computation.

    Raises:
        ComputationError: The computation is of another network.
        PassError: With `options.verify`, a pass made a computation that fails a check or is not
            equivalent; the message names the pass.
    """
    options = options or OptimizeOptions()
    draft = Draft.of(nnet, computation)
    verification = _Verification(nnet, computation, options) if options.verify else None
    for each in PIPELINE:
        if each.wanted(options):
            after = each.run(draft, options)
            if verification is not None:
                verification.step(each, after, changed=after is not draft)
            draft = after
    return draft.computation()


class _Verification:
    """Checks the result of each pass, and proves that it does the same as what it was made from."""

    def __init__(self, nnet: Nnet, computation: NnetComputation, options: OptimizeOptions) -> None:
        self._nnet = nnet
        self._options = options
        self._before = computation
        self._prover = Prover(nnet)
        self._done: list[str] = []

    def step(self, each: Pass, draft: Draft, *, changed: bool) -> None:
        """Raises a PassError unless the result of a pass is valid, well formed and equivalent."""
        if changed:
            try:
                self._verify(each, draft)
            except ComputationError as error:
                raise PassError(
                    f"pass '{each.name}', after {', '.join(self._done) or 'no other'}: {error}",
                    name=each.name,
                    before=tuple(self._done),
                ) from error
        self._done.append(each.name)

    def _verify(self, each: Pass, draft: Draft) -> None:
        after = draft.computation()
        # A pass may leave what a later one removes.
        check_computation(self._nnet, after, check_unused=False)
        if each.preserves(self._options):
            self._prover.verify(self._before, after, same_calls=each.keeps_calls)
        self._before = after
