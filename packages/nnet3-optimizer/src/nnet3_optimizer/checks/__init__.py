"""Checks that a computation makes sense, command by command and as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from nnet3_compiler.computation import NnetComputation

from nnet3_optimizer.checks.allocation import check_allocation, check_freed
from nnet3_optimizer.checks.backward_lists import check_backward_lists
from nnet3_optimizer.checks.balance import check_balance
from nnet3_optimizer.checks.components import check_components
from nnet3_optimizer.checks.compression import check_compression, check_compression_types
from nnet3_optimizer.checks.debug_info import check_debug_info
from nnet3_optimizer.checks.inputs_and_outputs import check_order, check_world
from nnet3_optimizer.checks.loop import check_loop
from nnet3_optimizer.checks.memos import check_memos
from nnet3_optimizer.checks.rows import check_rows, check_scales
from nnet3_optimizer.checks.subject import FaultError, Subject
from nnet3_optimizer.checks.values import check_direction, check_undefined
from nnet3_optimizer.checks.values import check_rewrite as check_rewrite_after_read
from nnet3_optimizer.checks.values import check_unused as check_unused_results
from nnet3_optimizer.errors import CheckError
from nnet3_optimizer.listing import list_commands

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet

Check = tuple[str, Callable[[Subject], None]]
"""The name of a check, and what fails where a computation does not pass it."""

FITTING: tuple[Check, ...] = (
    ("components", check_components),
    ("world", check_world),
    ("rows", check_rows),
)
"""Hold where every command can be done: its operands have the right sizes."""

RUNNING: tuple[Check, ...] = (
    *FITTING,
    ("allocation", check_allocation),
    ("memos", check_memos),
    ("compression", check_compression_types),
)
"""Hold for whatever can be run, sensible or not."""

CHECKS: tuple[Check, ...] = (
    ("components", check_components),
    ("rows", check_scales),
    ("rows", check_rows),
    ("rows", check_backward_lists),
    ("order", check_order),
    ("world", check_world),
    ("loop", check_loop),
    ("allocation", check_allocation),
    ("allocation", check_freed),
    ("undefined", check_undefined),
    ("memos", check_memos),
    ("balance", check_balance),
    ("compression", check_compression_types),
    ("compression", check_compression),
    ("debug info", check_debug_info),
)
"""The checks of every computation, in order: later ones rely on what earlier ones found right."""

UNUSED = ("unused", check_unused_results)
"""Refuses what is sound but wasteful, such as what a pass leaves for a later one to remove."""

COMPILED = (("rewrite", check_rewrite_after_read), ("direction", check_direction))
"""Hold only for the output of the compiler."""


def check_computation(
    nnet: Nnet,
    computation: NnetComputation,
    *,
    check_rewrite: bool = False,
    check_unused: bool = True,
) -> None:
    """Checks that a computation makes sense for a network.

    Args:
        nnet: The network that the computation was compiled for.
        computation: The computation, optimized or not.
        check_rewrite: Whether to check as well that no element is changed after it was read, and
            that derivatives are sums of derivatives, which holds for computations that have not
            been optimized.
        check_unused: Whether to check as well that nothing is computed in vain.

    Raises:
        CheckError: a ComputationError that names the check, the command by number and text, the
            operand, the value and what was expected, and shows the neighbouring commands.
    """
    _run(CHECKS + (UNUSED,) * check_unused + COMPILED * check_rewrite, nnet, computation)


def check_fitting(nnet: Nnet, computation: NnetComputation) -> None:
    """Checks that components and nodes are those of the network, and that sizes and lists fit.

    Args:
        nnet: The network.
        computation: The computation, optimized or not.

    Raises:
        CheckError: As by `check_computation`.
    """
    _run(FITTING, nnet, computation)


def check_runnable(nnet: Nnet, computation: NnetComputation) -> None:
    """Checks that a computation can be run with a network, whether or not the result makes sense.

    Components and nodes are those of the network, sizes and lists fit, and matrices and memos are
    there when they are used. It takes a few milliseconds at most, so that it can be done whenever a
    computation is bound to memory. Names are not held in computations: networks that differ only in
    names are alike.

    Args:
        nnet: The network that the computation is to run with.
        computation: The computation, optimized or not.

    Raises:
        CheckError: As by `check_computation`; if it names a component or node, the computation is
            most likely of another network.
    """
    _run(RUNNING, nnet, computation)


def _run(checks: Iterable[Check], nnet: Nnet, computation: NnetComputation) -> None:
    subject = Subject.of(nnet, computation)
    for name, check in checks:
        try:
            check(subject)
        except FaultError as fault:
            at = fault.command
            listing = "" if at is None else list_commands(computation, nnet, at)
            raise CheckError(fault.message, check=name, command=at, listing=listing) from None


__all__ = ["CHECKS", "check_computation", "check_runnable"]
