"""The passes in their order."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs
from nnet3_computation import ComputationError, checks
from nnet3_computation.computation import NnetComputation

from nnet3_optimizer.checks import check_computation
from nnet3_optimizer.draft import Draft
from nnet3_optimizer.errors import PassError
from nnet3_optimizer.options import OptimizeOptions
from nnet3_optimizer.passes.consolidate_io import consolidate_io
from nnet3_optimizer.passes.consolidate_model_update import consolidate_model_update
from nnet3_optimizer.passes.convert_addition import convert_addition
from nnet3_optimizer.passes.extend_matrices import extend_matrices
from nnet3_optimizer.passes.gather_early import gather_early
from nnet3_optimizer.passes.initialize_undefined import initialize_undefined
from nnet3_optimizer.passes.limit_derivative_times import limit_derivative_times
from nnet3_optimizer.passes.memory_compression import memory_compression
from nnet3_optimizer.passes.merge_variables import merge_variables
from nnet3_optimizer.passes.move_sizing_commands import move_sizing_commands
from nnet3_optimizer.passes.optimize_row_ops import optimize_row_ops
from nnet3_optimizer.passes.order_additions import order_additions
from nnet3_optimizer.passes.order_rows_early import order_rows_early
from nnet3_optimizer.passes.recompute_activations import recompute_activations
from nnet3_optimizer.passes.remove_dead_commands import remove_dead_commands
from nnet3_optimizer.passes.renumber import renumber
from nnet3_optimizer.passes.split_row_ops import split_row_ops
from nnet3_optimizer.passes.split_statistics import split_statistics
from nnet3_optimizer.passes.trim_matrices import trim_matrices

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet


def _no_arguments(options: OptimizeOptions) -> dict[str, Any]:
    return {}


def _always(options: OptimizeOptions) -> bool:
    return True


class Pass(NamedTuple):
    """A pass and when it runs. Its function, its module and its option have one name.

    Attributes:
        function: The function of the pass.
        condition: Whether the options ask for it.
        arguments: The arguments of its function besides the draft, by name.
        is_optimization: Whether `optimize=False` turns it off.
        preserves: Whether the result has to be equivalent.
        keeps_calls: Whether components have to be updated by the same calls in the same order.
    """

    function: Callable[..., Draft]
    condition: Callable[[OptimizeOptions], bool]
    arguments: Callable[[OptimizeOptions], dict[str, Any]] = _no_arguments
    is_optimization: bool = True
    preserves: Callable[[OptimizeOptions], bool] = _always
    keeps_calls: bool = True

    @property
    def name(self) -> str:
        """Its name, as in messages and errors."""
        return self.function.__name__

    @property
    def summary(self) -> str:
        """A sentence about the pass: the first line of its module; "" without docstrings."""
        first = (sys.modules[self.function.__module__].__doc__ or "").partition("\n")[0]
        return first.removeprefix("Pass: ")

    def wanted(self, options: OptimizeOptions) -> bool:
        """Returns whether it runs with these options."""
        return (options.optimize or not self.is_optimization) and self.condition(options)

    def run(self, draft: Draft, options: OptimizeOptions) -> Draft:
        """Returns the result for a draft."""
        return self.function(draft, **self.arguments(options))


def _limits_times(options: OptimizeOptions) -> bool:
    return any(limit is not None for limit in _time_limits(options).values())


def _time_limits(options: OptimizeOptions) -> dict[str, Any]:
    return {
        "min_deriv_time": options.min_deriv_time,
        "max_deriv_time": options.max_deriv_time,
        "max_deriv_time_relative": options.max_deriv_time_relative,
    }


def _merges(options: OptimizeOptions) -> bool:
    return options.remove_assignments or options.propagate_in_place or options.backprop_in_place


PIPELINE: tuple[Pass, ...] = (
    Pass(
        limit_derivative_times,
        _limits_times,
        arguments=_time_limits,
        is_optimization=False,
        preserves=lambda o: False,
    ),
    Pass(trim_matrices, _limits_times, is_optimization=False),
    Pass(consolidate_model_update, lambda o: o.consolidate_model_update, keeps_calls=False),
    Pass(split_row_ops, lambda o: o.split_row_ops),
    Pass(optimize_row_ops, lambda o: o.optimize_row_ops),
    Pass(remove_dead_commands, lambda o: o.remove_dead_commands),
    Pass(order_additions, lambda o: o.convert_addition),
    Pass(convert_addition, lambda o: o.convert_addition),
    Pass(order_rows_early, lambda o: o.order_rows_early),
    Pass(split_statistics, lambda o: o.split_statistics),
    Pass(extend_matrices, lambda o: o.extend_matrices),
    Pass(merge_variables, _merges, arguments=lambda o: {"options": o}),
    Pass(initialize_undefined, lambda o: o.initialize_undefined),
    Pass(move_sizing_commands, lambda o: o.move_sizing_commands),
    Pass(consolidate_io, _always, is_optimization=False),
    Pass(gather_early, lambda o: o.gather_early),
    Pass(
        recompute_activations,
        lambda o: o.recompute_activations,
        arguments=lambda o: {"level": o.memory_compression_level},
    ),
    Pass(
        memory_compression,
        lambda o: o.memory_compression_level > 0,
        arguments=lambda o: {"level": o.memory_compression_level},
        preserves=lambda o: o.memory_compression_level < 2,
    ),
    Pass(renumber, _always, is_optimization=False),
)
"""All passes, in the order in which they run."""


OutsidePass = Callable[["Nnet", NnetComputation], NnetComputation]
"""A pass of somebody else: returns a computation that is equivalent to its argument."""


def optimize(
    nnet: Nnet,
    computation: NnetComputation,
    options: OptimizeOptions | None = None,
    *,
    passes: Sequence[OutsidePass] = (),
) -> NnetComputation:
    """Improves a computation: fewer commands, less memory, the same results.

    Args:
        nnet: The network that the computation was compiled for.
        computation: What the compiler made.
        options: Which passes run.
        passes: Passes of your own, which run after those of this package, in this order. The result
            of each is checked and proven to be equivalent, whether or not `options.verify` is set;
            unused matrices, submatrices and lists are removed.

    Returns:
        The improved computation.

    Raises:
        ComputationError: The computation is of another network, or cannot run (see `check_fitting`
            of nnet3-computation).
        PassError: With `options.verify`, or among `passes`, the result of a pass fails a check, is
            not equivalent, or is not a computation; the message names the pass.
    """
    options = options or OptimizeOptions()
    draft = Draft.of(nnet, computation)
    checks.check_fitting(nnet, computation)  # no pass looks for rows that are not there
    verification = _Verification(nnet, computation, options) if options.verify else None
    for each, before, after in _passed(draft, options):
        if verification is not None:
            verification.step(each, after, changed=after is not before)
        draft = after
    if passes:
        verification = verification or _Verification(nnet, draft.computation(), options)
        for each in (*map(_outside, passes), PIPELINE[-1]):
            after = each.run(draft, options)
            verification.step(each, after, changed=after is not draft)
            draft = after
    return draft.computation()


def pass_summaries() -> dict[str, str]:
    """Returns a sentence on what each pass does, by name, in the order in which they run."""
    return {each.name: each.summary for each in PIPELINE}


def _outside(function: OutsidePass) -> Pass:
    """Returns a pass of somebody else as one of these."""
    name = getattr(function, "__name__", type(function).__name__)

    def run(draft: Draft) -> Draft:
        before = draft.computation()
        after: object = function(draft.nnet, before)
        if not isinstance(after, NnetComputation):
            raise PassError(
                f"pass '{name}': expected an NnetComputation, found {type(after).__name__}",
                name=name,
                before=(),
            )
        if after == before:
            return draft
        # The proof shows that it still serves the same network and requests.
        known = attrs.evolve(after, network=before.network, requests=before.requests)
        return Draft.of(draft.nnet, known)

    run.__name__ = name
    return Pass(run, _always, is_optimization=False)


def optimize_in_steps(
    nnet: Nnet, computation: NnetComputation, options: OptimizeOptions | None = None
) -> Iterator[tuple[str, NnetComputation]]:
    """Optimizes as `optimize` does, and yields the result of each pass, to explain or to debug it.

    Args:
        nnet: The network that the computation was compiled for.
        computation: What the compiler made.
        options: Which passes run.

    Yields:
        The name of each pass that changed something, and the computation after it; the last is what
        `optimize` returns, if any pass changed anything.

    Raises:
        ComputationError: The computation is of another network.
    """
    options = options or OptimizeOptions()
    for each, before, after in _passed(Draft.of(nnet, computation), options):
        if after is not before:
            yield each.name, after.computation()


def _passed(draft: Draft, options: OptimizeOptions) -> Iterator[tuple[Pass, Draft, Draft]]:
    """Runs the passes that are wanted, and yields each with the draft before it and after it."""
    for each in PIPELINE:
        if each.wanted(options):
            before, draft = draft, each.run(draft, options)
            yield each, before, draft


class _Verification:
    """Checks the result of each pass, and proves that it is equivalent to its argument."""

    def __init__(self, nnet: Nnet, computation: NnetComputation, options: OptimizeOptions) -> None:
        from nnet3_optimizer.equivalence import Prover  # most programs prove nothing

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
        # A pass may leave commands that a later pass removes.
        check_computation(self._nnet, after, check_unused=False)
        if each.preserves(self._options):
            self._prover.verify(self._before, after, same_calls=each.keeps_calls)
        self._before = after
