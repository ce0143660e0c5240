"""Checks that a computation makes sense, command by command and as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from nnet3_computation import ComputationRequest
from nnet3_computation.checks import (
    Subject,
    check_allocation,
    check_components,
    check_compression_types,
    check_freed,
    check_memory_plan,
    check_memos,
    check_network,
    check_rows,
    check_world,
    run_checks,
)
from nnet3_computation.computation import NnetComputation

from nnet3_optimizer.checks.backward_lists import check_backward_lists
from nnet3_optimizer.checks.balance import check_balance
from nnet3_optimizer.checks.compression import check_compression
from nnet3_optimizer.checks.debug_info import check_debug_info
from nnet3_optimizer.checks.loop import check_loop
from nnet3_optimizer.checks.order import check_order
from nnet3_optimizer.checks.scales import check_scales
from nnet3_optimizer.checks.values import check_direction, check_undefined
from nnet3_optimizer.checks.values import check_rewrite as check_rewrite_after_read
from nnet3_optimizer.checks.values import check_unused as check_unused_results

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet

Check = tuple[str, Callable[[Subject], None]]
"""The name of a check, and a function that fails if a computation does not pass it."""

CHECKS: tuple[Check, ...] = (
    ("network", check_network),
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
    ("memory plan", check_memory_plan),
)
"""The checks of every computation, in order: a check may rely on the checks before it."""

UNUSED = ("unused", check_unused_results)
"""Refuses correct but unnecessary commands, which a later pass would remove."""

COMPILED = (("rewrite", check_rewrite_after_read), ("direction", check_direction))
"""The checks that hold only for the output of the compiler."""


def check_computation(
    nnet: Nnet,
    computation: NnetComputation,
    request: ComputationRequest | Sequence[ComputationRequest] | None = None,
    *,
    check_rewrite: bool = False,
    check_unused: bool = True,
) -> None:
    """Checks that a computation makes sense for a network.

    Args:
        nnet: The network that the computation was compiled for.
        computation: The computation, optimized or not.
        request: The request that it should be for, or the request of each segment, if there are
            several; the check compares it with the fingerprint. None: it is not compared.
        check_rewrite: Whether to check as well that no element changes after it was read, and that
            derivatives are sums of derivatives. This holds for computations that have not been
            optimized.
        check_unused: Whether to check as well that every result is used.

    Raises:
        CheckError: a ComputationError that names the check, the command by number and text, the
            operand, the value and what was expected, and shows the neighbouring commands.
        ComputationError: The computation was compiled for another request.
    """
    if request is not None:
        requests = [request] if isinstance(request, ComputationRequest) else request
        computation.check_request(*requests)
    checks = CHECKS + (UNUSED,) * check_unused + COMPILED * check_rewrite
    run_checks(checks, Subject.of(nnet, computation))


__all__ = ["CHECKS", "check_computation"]
